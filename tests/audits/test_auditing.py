"""The audit of a run, end to end: what leaks is found, what does not is not, and a false claim is contradicted."""

import json
import random
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from audited import (
    ALWAYS,
    FAST,
    HIDDEN,
    KNOWN,
    MANY,
    NOISY,
    OVERFIT,
    SECRET,
    Results,
    measure,
    secret_records,
    train_run,
)
from finished_runs import reseal
from runs import quiet
from tacit.audits.attacks.exposure import exposure_figures, plan_exposure
from tacit.audits.audit import audit
from tacit.audits.candidates import Spelling
from tacit.audits.findings import About, Audit, Outcome
from tacit.audits.passages import loss_scores
from tacit.audits.statistics import judged, rates
from tacit.audits.target import Candidates, Target
from tacit.cli.main import app
from tacit.common.progress import Progress
from tacit.config.audit_schema import AuditConfig, ExposureConfig, ExtractionConfig
from tacit.config.load import load_config
from tacit.data.corpus import write_jsonl
from tacit.data.records import Record
from tacit.errors import AttackError, RunError
from tacit.models.loading import load
from tacit.privacy.events import Relation
from tacit.runs.folder import RunFolder
from tacit.runs.release import PrivateFile, ReleaseFile
from tacit.runs.verify import Planted, planted_canaries
from tacit.runs.weights import keep_model
from tacit.training.randomness import NoiseStream
from tacit.training.stages import train

SETTINGS = AuditConfig(
    candidates=30, secrets=30, group_size=5, exposure=ExposureConfig(draws=2000), extraction=ExtractionConfig(tries=5)
)
LITTLE = {"mechanism": "plain", "public_epochs": 1}


@pytest.fixture(scope="module")
def leaky(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that overfits: canaries known to the policy, hidden from it, and always inside."""
    return train_run(tmp_path_factory.mktemp("leaky"), OVERFIT, [KNOWN, HIDDEN, ALWAYS])


@pytest.fixture(scope="module")
def found(leaky: Path) -> Audit:
    return audit(leaky, SETTINGS, quiet)


@pytest.fixture(scope="module")
def measured(leaky: Path) -> Results:
    return measure(leaky, SETTINGS)


@pytest.fixture
def little(tmp_path: Path) -> Path:
    """A run that is quick to make."""
    return train_run(tmp_path, LITTLE, [KNOWN])


def test_planted_canaries_stand_above_their_twins(measured: Results) -> None:
    """Under no leak each p-value is below 1e-4 with probability at most 1e-4."""
    for canaries in measured.canaries:
        excess = canaries.exposure.excess
        assert excess is not None
        assert excess.p_all < 1e-4
        assert excess.median_inside > excess.best_held_out
    assert [one.known for one in measured.canaries] == [True, False, True]


def test_members_are_told_from_others_and_not_by_their_texts(measured: Results) -> None:
    assert measured.membership is not None
    assert not measured.membership.blind.flagged
    blind = measured.membership.blind.rates.cut.accuracy
    assert [one.attack for one in measured.membership.attacks] == ["loss", "zlib", "min-k", "neighborhood"]
    loss = measured.membership.attacks[0]
    assert loss.rates.cut.accuracy.interval.low > blind.interval.high
    assert loss.rates.members == loss.rates.others
    assert loss.groups is not None
    assert loss.groups.auc.value > 0.9


def test_two_stages_are_shown_beside_what_they_say_of_noise(measured: Results) -> None:
    assert measured.two_stage is not None
    assert measured.membership is not None
    assert measured.two_stage.of_noise == measured.two_stage.accuracy == 1
    assert (
        measured.two_stage.candidates
        < measured.membership.attacks[0].rates.members + measured.membership.attacks[0].rates.others
    )


def test_secrets_of_training_come_out_and_others_do_not(measured: Results) -> None:
    assert measured.extraction is not None
    trained, held_out = (
        one.discoverable[-1].share for one in (measured.extraction.trained, measured.extraction.held_out)
    )
    assert trained.interval.low > held_out.interval.high


def test_epsilon_is_bounded_by_either_kind_of_coin(measured: Results) -> None:
    """Inside or not, and which of two values: an overfitted model tells nearly every coin."""
    assert all(one.bound.epsilon > 0 for one in measured.bounds)
    assert measured.bounds[2].bound.epsilon > 1
    assert measured.bounds[2].bound.guesses[0].correct == 16
    assert [one.measured.relation for one in measured.bounds] == [Relation.ZERO_OUT] * 2 + [Relation.REPLACE]


def test_a_run_without_a_claim_is_not_comparable(found: Audit) -> None:
    assert found.verdict.outcome is Outcome.NOT_COMPARABLE
    assert "plain guarantees nothing" in found.verdict.sentence


def test_the_result_is_written_and_reads_back(leaky: Path, found: Audit) -> None:
    """Catches membership, extraction and the like in a file that leaves: they are about training records."""
    assert RunFolder.view(leaky).read_json(Audit, PrivateFile.AUDIT) == found
    outside = RunFolder.view(leaky).read_json(Audit, ReleaseFile.AUDIT)
    assert outside == Audit(found.canaries, (), found.verdict)
    assert [one.attack for one in found.canaries] == ["exposure", "paraphrases", "epsilon", "power"]
    assert [one.attack for one in found.training_records] == [
        "membership",
        "secrets",
        "inference",
        "extraction",
        "sampling",
        "reconstruction",
        "two-stage",
    ]
    assert {one.about for one in found.training_records} == {About.TRAINING_RECORDS}


def test_nothing_in_release_says_a_secret(leaky: Path, found: Audit) -> None:
    """The words of the corpus and the keys are looked for in every byte, four digits in every text and whole number."""
    planted = planted_canaries(RunFolder.view(leaky)).planted
    values = {value for one in planted for canary in one.canaries for value in (canary.value, canary.twin_value)}
    texts = {text for one in planted for canary in one.canaries for text in (canary.text, canary.twin_text)}
    words = {record.text[SECRET] for record in secret_records(60)}
    files = [path for path in (leaky / "release").rglob("*") if path.is_file()]
    assert {"audit.json", "model.safetensors", "guarantee.json", "config.json"} <= {path.name for path in files}
    for path in files:
        content = path.read_bytes()
        spelled = words | texts | {value for value in values if value.isalpha()}
        assert not [one for one in spelled if one.encode() in content], path.name
    leaves = list(_leaves(json.loads((leaky / "release" / "tacit" / "audit.json").read_text())))
    assert len(leaves) > 100
    assert not values & set(map(str, leaves))


def _leaves(content: Any) -> Iterator[str | int]:  # noqa: ANN401
    if isinstance(content, dict):
        yield from content
        content = list(content.values())
    if isinstance(content, list):
        for one in content:
            yield from _leaves(one)
    elif isinstance(content, str | int):
        yield content


def test_scores_are_joined_by_id(leaky: Path) -> None:
    """Candidates and canaries in another order have the same scores, rates and exposures."""
    with RunFolder.open(leaky) as run:
        target = Target.of(run)
    candidates = Candidates.of(target, SETTINGS)
    assert candidates is not None
    shuffled = list(candidates.passages)
    random.Random(3).shuffle(shuffled)
    one, two = (loss_scores(target.learner, passages) for passages in (candidates.passages, shuffled))
    assert one.by_id == pytest.approx(two.by_id, rel=1e-5)
    assert rates(judged(one, candidates.inside)) == rates(judged(two, candidates.inside))
    planted = target.planted[0]
    backwards = Planted(planted.plan, planted.canaries[::-1])
    there, back = (plan_exposure(target, each, SETTINGS).exposure for each in (planted, backwards))
    assert {each.id: each for each in there.canaries} == {each.id: each for each in back.canaries}
    assert there.excess == back.excess


def test_the_same_seed_gives_the_same_audit(little: Path) -> None:
    assert audit(little, SETTINGS, quiet) == audit(little, SETTINGS, quiet)


def test_progress_of_every_attack_ends_at_its_total(little: Path) -> None:
    heard: list[Progress] = []
    audit(little, SETTINGS, heard.append)
    for stage in ("exposure", "membership", "extraction"):
        done = [(one.done, one.total) for one in heard if one.stage == stage]
        assert done[-1][0] == done[-1][1]
        assert [one for one, _ in done] == sorted(one for one, _ in done)
        assert len({total for _, total in done}) == 1


def test_a_reference_is_one_more_attack(little: Path) -> None:
    learner, _ = load(little)
    learner.module.eval()
    found = measure(little, SETTINGS, learner).membership
    assert found is not None
    attacks = found.attacks
    assert attacks[-1].attack == "reference"
    audited = audit(little, SETTINGS, quiet, reference=little)
    (table,) = [one for finding in audited.findings for one in finding.tables if one.title.startswith("membership in")]
    assert table.rows[-1][:3] == ("reference", "26, 26", "– (24 too few)")
    assert "AUC by reference" not in audited.figures  # a rate of so few is no figure
    assert attacks[-1].rates.auc.value == 0.5  # a model tells nothing beside itself


# Claims


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """DP-SGD that claims noise and adds none."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NoiseStream, "add_", lambda *_: None)
        return train_run(tmp_path_factory.mktemp("broken"), NOISY, [MANY], private=FAST)


def test_noise_that_was_never_added_is_contradicted(broken: Path) -> None:
    found = audit(broken, SETTINGS, quiet)
    assert found.verdict.outcome is Outcome.CONTRADICTED
    assert measure(broken, SETTINGS).bounds[0].bound.epsilon > 1
    assert found.figures["measured epsilon"] > 1
    result = CliRunner().invoke(app, ["audit", str(broken), "--candidates", "20"])
    assert result.exit_code == 3
    assert "Contradicted: with 95 % confidence" in result.stdout


def test_a_contradiction_needs_the_confidence_that_was_asked_for(broken: Path) -> None:
    """G1: the doubt of one bound is no larger than what was asked for."""
    bounds = [measure(broken, AuditConfig(candidates=20, secrets=1, confidence=c)).bounds[0] for c in (0.9, 0.999)]
    assert [round(one.bound.confidence, 6) for one in bounds] == [0.9, 0.999]
    assert bounds[0].bound.epsilon > bounds[1].bound.epsilon


@pytest.mark.statistical
def test_an_honest_claim_is_consistent(tmp_path: Path) -> None:
    """The same settings with their noise. False alarm: 5 % for the verdict, .1 % for exposure; the seed is fixed."""
    found = audit(train_run(tmp_path, NOISY, [MANY], private=FAST), SETTINGS, quiet)
    assert found.verdict.outcome is Outcome.CONSISTENT
    assert found.figures["exposure p"] > 1e-3
    assert found.verdict.exit_code == 0


@pytest.mark.statistical
def test_selective_training_with_much_noise_says_nothing_of_secrets(tmp_path: Path) -> None:
    """False alarm: .1 % for known canaries. Control: those hidden from the policy are learned as public text."""
    plan = {
        "mechanism": "selective",
        "noise_multiplier": 10.0,
        "steps": 30,
        "expected_batch_size": 20,
        "public_epochs": 60,
    }
    replaced = {**KNOWN, "count": 20, "repetitions": 1, "inside_probability": 1.0}
    slow = {"optimizer": "sgd", "learning_rate": 0.02}  # so much noise would undo the public steps
    run = train_run(tmp_path, plan, [replaced, {**HIDDEN, "repetitions": 8}], private=slow)
    found, measured = audit(run, SETTINGS, quiet), measure(run, SETTINGS)
    known, hidden = (one.exposure.excess for one in measured.canaries)
    assert known is not None
    assert hidden is not None
    assert known.p_all > 1e-3
    assert hidden.p_all < 1e-4
    assert [one.verdict.outcome for one in measured.bounds] == [Outcome.CONSISTENT, Outcome.NOT_COMPARABLE]
    assert "a record's secrets" in str(measured.bounds[0].measured)
    assert found.verdict.outcome is Outcome.CONSISTENT


def test_plans_that_can_contradict_share_the_doubt(tmp_path: Path) -> None:
    """G1; a plan whose coins are unfair or fell one way gives no bound, one that is not comparable takes no doubt."""
    plans = [{**MANY, "count": 10}, {**MANY, "template": "Or {4 digits}", "count": 10}]
    others = [
        {**MANY, "template": "So {4 digits}", "count": 10, "inside_probability": 1.0},
        {**MANY, "template": "By {4 digits}", "count": 5, "inside_probability": 0.9},
        {**MANY, "template": "To {4 digits}", "count": 1},
    ]
    found = measure(train_run(tmp_path, {**NOISY, "steps": 2, "expected_batch_size": 20}, [*plans, *others]), SETTINGS)
    comparable = [(one.template[:2], one.verdict.outcome is not Outcome.NOT_COMPARABLE) for one in found.bounds]
    assert comparable == [("ID", True), ("Or", True), ("So", False)]
    assert all(one.bound.confidence == pytest.approx(0.975) for one in found.bounds)


# What cannot be audited


def test_without_canaries_the_rest_is_audited(tmp_path: Path) -> None:
    run = train_run(tmp_path, LITTLE, [])
    found, measured = audit(run, SETTINGS, quiet), measure(run, SETTINGS)
    assert (measured.canaries, measured.bounds) == ((), ())
    assert found.verdict.outcome is Outcome.NOT_COMPARABLE
    assert measured.membership
    assert measured.extraction is not None
    assert "extracted" in found.figures


def test_a_canary_that_training_cut_is_refused(tmp_path: Path) -> None:
    """G1 of targets."""
    long = {**KNOWN, "template": "x" * 30 + " {4 digits}"}
    with pytest.raises(AttackError, match="read whole, of at most 32 tokens"):
        audit(train_run(tmp_path, LITTLE, [long]), SETTINGS, quiet)


def test_canaries_that_were_left_out_as_duplicates_bound_nothing(tmp_path: Path) -> None:
    """G1 of targets: known canaries have one redacted text, of which `exact` keeps one."""
    run = train_run(tmp_path, LITTLE, [KNOWN], duplicates="exact")
    found, measured = audit(run, SETTINGS, quiet), measure(run, SETTINGS)
    (canaries,) = measured.canaries
    inside = sum(one.inside for one in canaries.exposure.canaries)
    assert canaries.left_out == canaries.repetitions * inside - 1
    assert measured.bounds == ()
    assert found.verdict.outcome == Outcome.NOT_COMPARABLE


def test_a_model_with_nan_is_refused(little: Path) -> None:
    path = little / "release" / ReleaseFile.MODEL
    tensors = load_file(path)
    next(iter(tensors.values())).view(-1)[0] = float("nan")
    save_file(tensors, path)
    reseal(little)
    with pytest.raises(AttackError, match="training diverged"):
        audit(little, SETTINGS, quiet)


@pytest.mark.parametrize("missing", [ReleaseFile.MODEL, ReleaseFile.GUARANTEE])
def test_an_unfinished_run_is_refused(little: Path, missing: ReleaseFile) -> None:
    (little / "release" / missing).unlink()
    with pytest.raises(RunError, match=r"training is finished.*tacit train --resume"):
        audit(little, SETTINGS, quiet)


@pytest.mark.parametrize("missing", [PrivateFile.PREPARED, PrivateFile.HELD_OUT])
def test_a_run_without_its_private_part_is_refused(little: Path, missing: PrivateFile) -> None:
    shutil.rmtree(little / "private" / missing)
    with pytest.raises(RunError, match=f"private/{missing}"):
        audit(little, SETTINGS, quiet)


def test_a_classifier_is_refused(little: Path) -> None:
    path = little / "release" / ReleaseFile.ARCHITECTURE
    path.write_text(json.dumps({**json.loads(path.read_text()), "kind": "lstm classifier"}))
    reseal(little)
    with pytest.raises(RunError, match="a text classifier, which generates no text"):
        audit(little, SETTINGS, quiet)


def test_a_run_that_is_being_written_is_refused_at_once(little: Path) -> None:
    with RunFolder.open(little), pytest.raises(RunError, match="another process"):
        audit(little, SETTINGS, quiet)


@pytest.mark.parametrize("words", [{"candidates": 9}, {"confidence": 1.0}, {"seed": -1}])
def test_settings_that_mean_nothing_are_refused(words: dict[str, Any]) -> None:
    with pytest.raises(AttackError):
        AuditConfig(**words)


# Models on the way


def test_a_curve_has_a_point_for_each_model_that_was_kept(leaky: Path, found: Audit, measured: Results) -> None:
    learner, _ = load(leaky)
    last = {name: value.detach().clone() for name, value in learner.module.named_parameters()}
    torch.manual_seed(5)
    first = {name: torch.randn_like(value) / 10 for name, value in last.items()}
    with RunFolder.open(leaky) as run:
        keep_model(run, 1200, last)
        keep_model(run, 7, first)
    again = audit(leaky, replace(SETTINGS, checkpoints=True), quiet)
    assert [point.step for point in again.checkpoints] == [7, 1200]
    before, after = again.checkpoints
    assert after.perplexity < before.perplexity
    assert after.figures.keys() == exposure_figures(measured.canaries).keys()
    assert after.figures == {name: found.figures[name] for name in after.figures}
    assert again.findings == found.findings


def test_without_kept_models_there_is_no_curve(little: Path) -> None:
    with pytest.raises(RunError, match="save_steps"):
        audit(little, replace(SETTINGS, checkpoints=True), quiet)


def test_members_are_like_others_where_equal_texts_were_left_out(tmp_path: Path) -> None:
    """Half of all records are one sentence: training reads it once, and both sides of the attack have it as often."""
    corpus = tmp_path / "corpus.jsonl"
    texts = ("All is well." if number % 2 else f"Case {number}." for number in range(400))
    write_jsonl((Record(f"r{number}", text, f"u{number}") for number, text in enumerate(texts)), corpus)
    words = {"corpus": str(corpus), "mode": "research", "policy": "digits", "held_out": 0.5, "plan": LITTLE}
    train(load_config(words | {"duplicates": "exact"}), tmp_path / "run", quiet)
    target = Target.of(RunFolder.view(tmp_path / "run"))
    assert len(target.trained.store) < len(target.members.store) / 3
    candidates = Candidates.of(target, replace(SETTINGS, candidates=300))
    assert candidates is not None
    shares = [
        [candidates.texts[one] == "All is well." for one, inside in candidates.inside.items() if inside == side]
        for side in (True, False)
    ]
    # About 200 of each side: two standard deviations of a coin's share are .07; .25 is passed once in 1e6.
    assert all(abs(sum(side) / len(side) - 0.5) < 0.25 for side in shares)


@pytest.mark.parametrize(("policy", "found"), [("digits", True), ("gold", False)])
def test_canaries_are_spelled_as_training_spelled_them_whoever_told_the_policy(
    policy: str, found: bool, tmp_path: Path
) -> None:
    """Nobody tells `digits` of these, and it marks them: joined to the text before, they would have other tokens."""
    canary = {"template": "It is {3 digits} again", "count": 12, "known": False}
    corpus = tmp_path / "words.jsonl"
    write_jsonl((Record(f"r{n}", f"It is {n:03} again and again") for n in range(1000)), corpus)
    run = train_run(
        tmp_path, LITTLE, [canary], policy=policy, tokenizer="bpe", vocabulary_size=900, vocabulary_corpus=str(corpus)
    )
    target = Target.of(RunFolder.view(run))
    (planted,) = target.planted
    assert planted.plan.known == found
    values = {f"{one.id}/0": one.value for one in planted.canaries if one.inside}
    store = target.trained.store
    rows = {store.record_id(row): store.full(row).tokens.tolist() for row in range(len(store))}
    other = Spelling.as_trained(target.tokenizer, not found)
    for name, value in values.items():
        spelled, wrong = (_tokens(way, planted, value) for way in (target.spelling(planted), other))
        assert spelled == rows[name]
        assert wrong != rows[name]


def _tokens(spelling: Spelling, planted: Planted, value: str) -> list[int]:
    row = spelling.of_values(planted.plan.slot, [value])[0].astype(int)
    return [int(token) - 1 for token in row if token]


def test_a_policy_that_marks_some_canaries_and_not_others_is_refused(tmp_path: Path) -> None:
    odd = tmp_path / "odd.yaml"
    odd.write_text("policy: {regex: '[13579]{1}[0-9]{3}', kind: CODE}\n")
    canary = {"template": "or {4 digits}", "count": 16, "known": False, "inside_probability": 1.0}
    run = train_run(tmp_path, LITTLE, [canary], policy=str(odd))
    with pytest.raises(AttackError, match="marks all canaries"):
        audit(run, SETTINGS, quiet)


class Interrupted(Exception):
    """Somebody pressed Ctrl-C."""


def test_an_interrupted_audit_makes_the_other_attacks_alone(little: Path) -> None:
    """And all of them again where a setting is another one, or when it was finished."""
    begun = little / "private" / PrivateFile.FINDINGS
    stages: list[str] = []

    def interrupting(progress: Progress) -> None:
        stages.append(progress.stage)
        if progress.stage == "extraction":
            raise Interrupted

    for settings, first in ((SETTINGS, "exposure"), (SETTINGS, "extraction"), (replace(SETTINGS, seed=5), "exposure")):
        stages.clear()
        with pytest.raises(Interrupted):
            audit(little, settings, interrupting)
        assert stages[0] == first
        assert not (little / "private" / PrivateFile.AUDIT).exists()
    stages.clear()
    resumed = audit(little, replace(SETTINGS, seed=5), lambda progress: stages.append(progress.stage))
    assert stages[0] == "extraction"
    assert not begun.exists()
    assert resumed == audit(little, replace(SETTINGS, seed=5), quiet)
