"""The baselines of the papers under their names: each trains, and says what is true of it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runs import PLANS
from tacit.config.load import load_config
from tacit.data.corpus import write_jsonl
from tacit.data.store import PreparedCorpus
from tacit.data.tokenizer import byte_tokenizer
from tacit.errors import ClaimRefused, ConfigError
from tacit.mechanisms.build import plan
from tacit.mechanisms.mechanism import PrivateSteps
from tacit.mechanisms.registry import REGISTRY, entries, entry_of
from tacit.privacy.plan import Neighbors, Noisy, Pool, SplitBatch, Unit, View, cost
from tacit.simulation.simulate import simulate
from tacit.training.stages import Trained, train

PUBLIC = {"public_epochs": 1}
WORDS: dict[str, dict[str, Any]] = {
    "noiseless": PUBLIC,
    "de-identification": PUBLIC,
    "anonymisation": PUBLIC,
    "user-level": {"noise_multiplier": 1.0, "steps": 2, "expected_batch_size": 2},
}
POLICIES = {"de-identification": "gold", "anonymisation": "digits"}


def _trained(name: str, folder: Path) -> Trained:
    write_jsonl(simulate("customersim", 30), folder / "corpus.jsonl")
    settings = {
        "corpus": str(folder / "corpus.jsonl"),
        "mode": "research",
        "policy": POLICIES.get(name, "gold"),
        "tokenizer": "bytes",
        "plan": {"mechanism": name, **WORDS[name]},
        "model_config": {"embedding_size": 8, "hidden_size": 8},
        "held_out": 0.2,
        "max_tokens": 64,
        "max_full_tokens": 64,
    }
    return train(load_config(settings), folder / "run", lambda _: None)


def _views(trained: Trained) -> set[View]:
    return {step.view for step in trained.planned.plan.executions()}


def test_noiseless_is_ordinary_training_and_claims_nothing(tmp_path: Path) -> None:
    """UeDP, section 5: "a language model trained without any privacy-preserving mechanisms"."""
    trained = _trained("noiseless", tmp_path)
    assert trained.guarantee.claim == "No guarantee."
    assert trained.guarantee.figures == ()
    assert trained.guarantee.not_protected == ("everything in the corpus",)
    assert _views(trained) == {View.FULL}


def test_de_identification_masks_what_the_policy_marks_and_promises_users_nothing(tmp_path: Path) -> None:
    """UeDP, section 5: sensitive entities are masked; neither users nor entities have formal protection."""
    trained = _trained("de-identification", tmp_path)
    assert _views(trained) == {View.REDACTED}
    (figure,) = trained.guarantee.figures
    assert (figure.neighbors.unit, figure.epsilon) == (Unit.SECRETS, 0.0), "marked spans alone"
    assert "No statement about unmarked text." in trained.guarantee.sentence()
    assert "that a record was used" in trained.guarantee.not_protected


def test_anonymisation_masks_digits_by_one_placeholder(tmp_path: Path) -> None:
    """S-DP, section 5.4.1: all detected digits become <num>; what the policy misses is learned as it stands."""
    trained = _trained("anonymisation", tmp_path)
    assert _views(trained) == {View.REDACTED}
    assert trained.guarantee.evidence.policy_id == "digits"
    assert "what it misses has no guarantee" in trained.guarantee.sentence()
    store, tokenizer = PreparedCorpus(tmp_path / "run" / "private" / "prepared"), byte_tokenizer()
    tokens = [token for row in range(len(store)) for token in store.redacted(row).tolist()]
    assert {token for token in tokens if token >= tokenizer.codec.size} == {tokenizer.placeholder}
    assert not any(character.isdigit() for character in tokenizer.decode([t for t in tokens if t < 256]))


def test_user_level_promises_users_and_nothing_else(tmp_path: Path) -> None:
    """UeDP, section 5: McMahan et al."""
    trained = _trained("user-level", tmp_path)
    assert [figure.neighbors.unit for figure in trained.guarantee.figures] == [Unit.USER]
    assert "(user-level)" in trained.guarantee.sentence()


@pytest.mark.parametrize("name", [name for entry in entries() for name in entry.also_called])
def test_a_baseline_is_its_mechanism(name: str) -> None:
    mechanism = entry_of(name).name
    assert name not in REGISTRY
    assert name in entry_of(mechanism).summary, "`tacit plan --list` shows it"
    counts = {"users": 100} if mechanism == "user" else {"records": 100}
    ours, theirs = (plan({"mechanism": word, **counts, **WORDS[name]}) for word in (name, mechanism))
    assert ours == theirs


def test_a_name_that_is_almost_one_is_answered() -> None:
    with pytest.raises(ConfigError, match="did you mean noiseless"):
        plan({"mechanism": "noisless", "records": 100})


@pytest.mark.parametrize("mechanism", [name for name, words in PLANS.items() if "noise_multiplier" in words])
def test_no_mechanism_takes_a_noise_of_zero(mechanism: str) -> None:
    with pytest.raises(ConfigError, match="greater than 0"):
        plan({"mechanism": mechanism, **PLANS[mechanism], "records": 100, "noise_multiplier": 0})


def test_a_step_without_noise_has_no_price() -> None:
    """The mechanism's own numbers and the price are refused too, wherever the words came from."""
    private = PrivateSteps(100, 10.0, 5, 1.0)
    with pytest.raises(ConfigError, match="noise multiplier above 0"):
        replace(private, noise_multiplier=0.0)
    step = private.step(View.FULL, Pool.FLAGGED)
    for update in (Noisy(0.0, 1.0, 10.0), SplitBatch(0.0, 1.0, 10.0, by="records")):
        with pytest.raises(ClaimRefused, match="noise multiplier"):
            cost(replace(step, update=update), Neighbors(Unit.FLAGGED_RECORD))
