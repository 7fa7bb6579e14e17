"""One contract for every mechanism of the registry, and the words that make them."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tacit.mechanisms.registry
from runs import mechanism_of
from tacit.common.formatting import floor
from tacit.common.serialize import from_json, to_json
from tacit.errors import ClaimRefused, ConfigError
from tacit.mechanisms.build import plan, read_plan_file
from tacit.mechanisms.mechanism import UNCOMPARED_DEVICE, interleaved, planned
from tacit.mechanisms.registry import REGISTRY
from tacit.privacy.account import account
from tacit.privacy.events import Free, Unbounded
from tacit.privacy.guarantee import (
    Condition,
    Coverage,
    Evidence,
    Guarantee,
    Order,
    Status,
    compare,
    to_markdown,
    to_registry_yaml,
)
from tacit.privacy.plan import Neighbors, Plain, Plan, Pool, ShuffledBatch, Step, Unit, View

EXAMPLES: dict[str, dict[str, Any]] = {
    "plain": {"records": 1000},
    "redaction": {"records": 1000},
    "invented": {"records": 1000},
    "dpsgd": {"records": 1000, "noise_multiplier": 1.1, "expected_batch_size": 50, "epochs": 3},
    "selective": {
        "records": 1000,
        "secret_records": 800,
        "noise_multiplier": 1.1,
        "expected_batch_size": 50,
        "epochs": 3,
    },
    "twice": {"records": 1000, "secret_records": 800, "noise_multiplier": 1.1, "expected_batch_size": 50, "epochs": 3},
    "cadp": {"records": 1000, "flagged": 300, "noise_multiplier": 1.1, "expected_batch_size": 50, "epochs": 3},
    "crt": {"records": 1000, "flagged": 300, "noise_multiplier": 1.1, "expected_batch_size": 50, "epochs": 3},
    "user": {"users": 500, "noise_multiplier": 1.1, "expected_batch_size": 50, "epochs": 3, "weight_cap": 10},
    "uedp": {
        "records": 1000,
        "noise_multiplier": 4.0,
        "expected_batch_size": 50,
        "epochs": 3,
        "user_cap": 5,
        "entity_cap": 3,
    },
    "selective-published": {
        "records": 1000,
        "noise_multiplier": 1.1,
        "expected_batch_size": 50,
        "epochs": 3,
        "events_per_batch": 2.5,
    },
    "cadp-published": {"flagged": 300, "noise_multiplier": 1.1, "expected_batch_size": 50, "steps": 3, "recall": 0.98},
    "uedp-published": {
        "users": 500,
        "noise_multiplier": 2.0,
        "expected_batch_size": 25,
        "steps": 20,
        "entity_rate": 0.5,
        "sensitive_share": 0.4,
    },
}
NOISY = [name for name in EXAMPLES if name not in ("plain", "redaction", "invented")]
SENTENCES = Path(__file__).parent / "sentences.json"
EVIDENCE = Evidence(
    policy_id="pii",
    policy_hash="5eed",
    coverage=Coverage(200, 0),
    conservative_id="digits",
    conservative_coverage=Coverage(2995, 0, policy="the conservative policy"),
    among_secrets=(Coverage(200, 0), Coverage(2995, 0)),
    dropped_share=0.031,
    entity_list_hash="e11e",
    detector_data="canary paraphrases",
    user_origin="documents as users",
)


def guarantee_of(name: str, evidence: Evidence = EVIDENCE, **more: Any) -> Guarantee:  # noqa: ANN401
    return plan({"mechanism": name, **EXAMPLES[name], **more}, evidence).guarantee


def test_every_mechanism_has_an_example() -> None:
    assert set(EXAMPLES) == set(REGISTRY)


@pytest.mark.parametrize("name", REGISTRY)
def test_what_is_executed_is_what_is_priced(name: str) -> None:
    mechanism = mechanism_of({"mechanism": name, **EXAMPLES[name]})
    assert mechanism.name == name
    executed = mechanism.plan()
    counted: dict[Step, int] = {}
    for step in executed.steps():
        counted[step] = counted.get(step, 0) + 1
    assert counted == {step: times for step, times in executed.executions().items() if times}
    for neighbors, spent in planned(mechanism).items():
        assert sum(times for _, times in spent) == sum(counted.values()), neighbors
        assert not any(isinstance(event, Unbounded) for event, _ in spent), neighbors
    assert from_json(Plan, to_json(executed)) == executed


def test_passes_of_cadp_as_printed_are_epochs() -> None:
    """A shuffled pass is one step: twenty epochs are twenty of them, whatever the batch."""
    words = {
        "mechanism": "cadp-published",
        "flagged": 900,
        "expected_batch_size": 64,
        "recall": 0.98,
        "noise_multiplier": 1.0,
    }
    for more, passes in (({"epochs": 20}, 20), ({}, 20), ({"steps": 7}, 7)):
        assert sum(plan({**words, **more}).plan.executions().values()) == passes


def test_more_records_with_secrets_than_records_are_refused() -> None:
    with pytest.raises(ConfigError, match="1000 of 100"):
        plan({"mechanism": "selective", "records": 100, "secret_records": 1000, "epsilon": 1})


def test_hidden_states_that_are_not_noised_are_a_condition() -> None:
    """Public segments read the state a private one left: noising fewer states than there are proves nothing."""
    conditions = guarantee_of("selective-published", noised_states=0).holds_if
    assert any("hidden state" in condition.text and condition.status == Status.ASSUMED for condition in conditions)


def test_what_rests_on_a_sample_says_with_which_confidence() -> None:
    for name in ("selective", "redaction", "invented", "crt", "cadp"):
        drawn = guarantee_of(name).sentence().split("With the same confidence, for a record that is drawn uniformly")
        assert len(drawn) == 2
    bad = replace(EVIDENCE, coverage=Coverage(10, 10))
    assert "(0, 1)" in guarantee_of("redaction", bad).sentence()
    assert "records with secrets, with 95% confidence, the model is" in guarantee_of("crt").sentence()


@pytest.mark.parametrize("name", REGISTRY)
def test_guarantee_says_everything_and_is_json_both_ways(name: str) -> None:
    guarantee = guarantee_of(name)
    assert from_json(Guarantee, to_json(guarantee)) == guarantee
    assert guarantee.not_protected
    for figure in guarantee.figures:
        assert figure.epsilon >= 0
        assert 0 <= figure.delta < 1e-3
        assert figure.accountant
        assert len(figure.profile) >= 5
    markdown, record = to_markdown(guarantee), to_registry_yaml(guarantee, "a model", "what it is for")
    for condition in guarantee.holds_if:
        assert condition.text in markdown
        assert condition.text[:30] in record
    for field in ("data_product_type", "dp_flavor", "privacy_unit", "privacy_parameters", "deployment_model"):
        assert field in record


@pytest.mark.parametrize("name", REGISTRY)
def test_sentences_are_the_ones_that_were_read_and_approved(name: str) -> None:
    """Rewrite sentences.json with `python tests/mechanisms/test_mechanisms.py` after reading the difference."""
    assert guarantee_of(name).sentence() == json.loads(SENTENCES.read_text())[name]


@pytest.mark.parametrize("name", NOISY)
def test_calibration_never_exceeds_the_target(name: str) -> None:
    words = {"mechanism": name, **EXAMPLES[name], "epsilon": 6.0}
    del words["noise_multiplier"]
    spent = plan(words).guarantee.figures[0].epsilon
    assert 5.8 <= spent <= 6.0


@pytest.mark.parametrize("name", NOISY)
def test_curve_ends_at_the_headline(name: str) -> None:
    result = plan({"mechanism": name, **EXAMPLES[name]})
    epsilons = [epsilon for _, epsilon in result.curve()]
    assert epsilons == sorted(epsilons)
    assert epsilons[-1] == pytest.approx(result.guarantee.figures[0].epsilon, rel=0.005)


def test_membership_is_unbounded_where_public_steps_read_text() -> None:
    mechanism = mechanism_of({"mechanism": "selective", **EXAMPLES["selective"]})
    spent = mechanism.plan().spend(Neighbors(Unit.RECORD))
    assert any(isinstance(event, Unbounded) for event, _ in spent)
    assert account(spent).epsilon(1e-5) == float("inf")


def test_selective_public_steps_are_free() -> None:
    mechanism = mechanism_of({"mechanism": "selective", **EXAMPLES["selective"]})
    kinds = {type(event) for event, _ in mechanism.plan().spend(mechanism.notions()[0])}
    assert Free in kinds
    assert Unbounded not in kinds


@pytest.mark.parametrize(("public", "private"), [(10, 3), (3, 10), (4, 4), (0, 5), (5, 0), (0, 0), (1, 1)])
def test_interleaving_keeps_every_step(public: int, private: int) -> None:
    steps = [Step(name, View.REDACTED, Pool.EVERY, ShuffledBatch(1), Plain(), "public") for name in ("a", "b")]
    names = [step.name for step in interleaved(steps[0], public, steps[1], private).steps()]
    assert (names.count("a"), names.count("b")) == (public, private)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({"mechanism": "selectve", "records": 10}, "selective"),
        ({"mechanism": "dpsgd", "recrds": 10}, "records"),
        ({"mechanism": "dpsgd", "epsilon": 2}, "--records"),
        ({"mechanism": "dpsgd", "records": 100}, "--epsilon"),
        ({"mechanism": "dpsgd", "records": 100, "epsilon": 0}, "greater than 0"),
        ({"mechanism": "dpsgd", "records": 100, "epsilon": float("nan")}, "finite"),
        ({"mechanism": "dpsgd", "records": "many", "epsilon": 1}, "integer"),
        ({"mechanism": "dpsgd", "records": 100, "epsilon": 1, "noise_multiplier": 1}, "both"),
        ({"mechanism": "dpsgd", "records": 100, "epsilon": 1, "epochs": 1, "steps": 5}, "both"),
        ({"mechanism": "dpsgd", "records": 100, "epsilon": 1, "expected_batch_size": 500}, "at most 100"),
        ({"mechanism": "dpsgd", "records": 100, "epsilon": 1, "user_cap": 3}, "user_cap"),
        ({"mechanism": "plain", "records": 100, "epsilon": 1}, "no noise"),
        ({"mechanism": "crt", "records": 100, "flagged": 100, "epsilon": 1}, "fewer flagged"),
        ({"records": 100}, "mechanism"),
    ],
)
def test_wrong_words_are_named_with_the_way_out(words: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        plan(words)
    assert says in str(caught.value)


def test_a_delta_of_one_over_the_units_is_refused() -> None:
    with pytest.raises(ClaimRefused):
        plan({"mechanism": "dpsgd", **EXAMPLES["dpsgd"], "delta": 1 / 1000})


def test_words_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "experiment.yaml"
    file.write_text("plan: {mechanism: dpsgd, noise_multiplier: 1.1}\ncounts: {records: 1000}\n")
    assert read_plan_file(file) == {"mechanism": "dpsgd", "records": 1000, "noise_multiplier": 1.1}
    for broken in ("plan: [", "other: 1", "", "- 1"):
        file.write_text(broken)
        with pytest.raises(ConfigError):
            read_plan_file(file)
    with pytest.raises(ConfigError):
        read_plan_file(tmp_path / "missing.yaml")


def test_comparison_answers_only_what_can_be_compared() -> None:
    loud, quiet = guarantee_of("dpsgd"), guarantee_of("dpsgd", noise_multiplier=2.0)
    assert compare(quiet, loud).order == Order.BETTER
    assert compare(loud, quiet).order == Order.WORSE
    assert compare(loud, loud).order == Order.EQUAL
    assert compare(loud, guarantee_of("selective")).order == Order.NOT_COMPARABLE
    assert compare(guarantee_of("redaction"), guarantee_of("selective")).order == Order.BETTER
    assert compare(guarantee_of("plain"), loud).order == Order.WORSE
    assert compare(guarantee_of("plain"), guarantee_of("plain")).order == Order.EQUAL
    unstated = guarantee_of("selective", Evidence())
    assert "policies" in compare(unstated, guarantee_of("selective")).reason


def test_coverage_lines_are_the_three_true_statements() -> None:
    sentence = guarantee_of("selective").sentence()
    assert "worst case" in sentence
    assert "at most a share 0.0149 of records is not covered" in sentence
    assert "drawn uniformly and known, the model is (2.099, 0.015)-indistinguishable" in sentence
    assert "no single record has" in sentence
    assert "not measured" in guarantee_of("selective", Evidence()).sentence()
    assert "Coverage" not in guarantee_of("dpsgd").sentence()


def test_uedp_with_a_plain_rest_promises_users_nothing() -> None:
    from tacit.mechanisms.mechanism import PrivateSteps, PublicSteps
    from tacit.mechanisms.uedp import UeDP

    mechanism = UeDP(PrivateSteps(1000, 50, 60, 4.0), 5, 3, rest=PublicSteps(32, 30))
    assert [neighbors.unit for neighbors in mechanism.notions()] == [Unit.ENTITY]
    guarantee = mechanism.conclude(planned(mechanism), Evidence())
    assert "users" in guarantee.not_protected
    user = Neighbors(Unit.USER, copies=5)
    assert any(isinstance(event, Unbounded) for event, _ in mechanism.plan().spend(user))


@pytest.mark.parametrize("name", NOISY)
def test_a_sentence_claims_the_relation_that_is_priced(name: str) -> None:
    """Catches "add or remove" beside public counts, public caps on a fixed graph, and a price for zero-out."""
    guarantee = guarantee_of(name)
    assert "add or remove" not in guarantee.sentence()
    if guarantee.published is None and name not in ("selective", "twice"):  # which explain blanking in their own words
        assert "zero-out" in guarantee.sentence()
        assert "public" in guarantee.sentence()


def test_who_wrote_what_is_public_where_caps_are_chosen_by_it() -> None:
    """Catches an entity's claim whose caps were chosen by user, without the condition that users are public."""
    assert "who wrote which sentence" in guarantee_of("uedp").sentence()
    entity_alone = guarantee_of("uedp", public_epochs=3, other_records=100)
    for guarantee in (guarantee_of("uedp"), entity_alone):
        conditions = {condition.text for condition in guarantee.holds_if}
        assert any("which record belongs to which user" in text for text in conditions)


def test_crt_rests_on_no_share_of_stable_spans() -> None:
    """Catches a share of stable spans, rounded to "100.00%", in a claim that does not need it."""
    claim = guarantee_of("crt").claim
    assert "spans whose redaction is not stable are covered as records" in claim
    assert "of spans" not in claim
    assert "stable_share" not in to_json(guarantee_of("crt"))
    assert (floor(0.99996), floor(0.9819), floor(1.0), floor(None)) == ("99.9 %", "98.1 %", "100.0 %", "–")


def test_crt_names_both_policies_that_cleared() -> None:
    """Catches "cleared by pii" where a conservative policy had to clear, too."""
    assert "were cleared by pii and digits." in guarantee_of("crt").claim
    alone = replace(EVIDENCE, conservative_id=None, conservative_coverage=None)
    assert "were cleared by pii." in guarantee_of("crt", alone).claim
    assert "were cleared by policies that are not stated." in guarantee_of("crt", Evidence()).claim


@pytest.mark.parametrize("name", REGISTRY)
def test_a_base_model_from_elsewhere_is_a_condition_of_every_claim(name: str) -> None:
    """Catches a claim about a corpus that the base model may have read before."""
    condition = Condition("the base model was not trained on this corpus", Status.ASSUMED)
    with_it = guarantee_of(name, replace(EVIDENCE, pretrained=True))
    assert condition not in guarantee_of(name, EVIDENCE).holds_if
    assert (condition in with_it.holds_if) == (name != "plain")


@pytest.mark.parametrize("name", REGISTRY)
def test_a_device_on_which_nothing_was_compared_is_a_condition_of_every_claim(name: str) -> None:
    """Neighbors are compared on processors; an accelerator may add in another order, or mix rows."""
    with_it = guarantee_of(name, replace(EVIDENCE, accelerated=True))
    assert UNCOMPARED_DEVICE not in guarantee_of(name, EVIDENCE).holds_if
    assert (UNCOMPARED_DEVICE in with_it.holds_if) == (name != "plain")


@pytest.mark.parametrize("name", REGISTRY)
def test_machines_and_network_between_several_processes_are_a_condition_of_every_claim(name: str) -> None:
    """Gradients before noise, and the key of the noise, pass between them."""
    condition = Condition("the machines and the network between them are trusted", Status.ASSUMED)
    with_it = guarantee_of(name, replace(EVIDENCE, distributed=True))
    assert condition not in guarantee_of(name, EVIDENCE).holds_if
    assert (condition in with_it.holds_if) == (name != "plain")
    assert with_it.figures == guarantee_of(name, EVIDENCE).figures


def test_no_condition_claims_to_be_measured_without_evidence() -> None:
    for name in REGISTRY:
        assert all(condition.status != Status.MEASURED for condition in guarantee_of(name, Evidence()).holds_if)


def test_theory_needs_no_torch() -> None:
    """Every theory module imports with torch made unimportable, and loads no data module."""
    code = (
        "import sys\n"
        "class NoTorch:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] == 'torch': raise ImportError('torch is not installed')\n"
        "sys.meta_path.insert(0, NoTorch())\n"
        "import tacit.privacy.plan, tacit.privacy.events, tacit.privacy.ledger, tacit.mechanisms.build\n"
        "import tacit.privacy.account, tacit.privacy.guarantee\n"
        "import tacit.mechanisms.registry\n"
        "data = ('tacit.data', 'tacit.policies', 'torch')\n"
        "bad = [name for name in sys.modules if name.startswith(data)]\n"
        "sys.exit(repr(bad) if bad else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_an_auditor_reads_less_than_550_lines() -> None:
    package = Path(tacit.mechanisms.registry.__file__).parent.parent
    common = sum(len((package / name).read_text().splitlines()) for name in ("privacy/plan.py", "privacy/events.py"))
    shared = {"__init__", "advice", "build", "earlier", "mechanism", "registry", "settings"}
    files = [file for file in (package / "mechanisms").glob("*.py") if file.stem not in shared]
    assert len(files) == 9
    for file in files:
        claimed = re.split(r"^(?:def _build|ENTRY = )", file.read_text(), flags=re.MULTILINE)[0]
        assert common + len(claimed.rstrip().splitlines()) < 550, file.name


if __name__ == "__main__":
    SENTENCES.write_text(json.dumps({name: guarantee_of(name).sentence() for name in EXAMPLES}, indent=1) + "\n")
