"""What leaves with a run: the default is randomness that nobody can repeat, and a research run states what it lacks."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runs import PLANS, quiet, write_corpus
from tacit.codec import from_words
from tacit.errors import ConfigError
from tacit.experiment import Trained, train
from tacit.guarantee import Order, Status, compare
from tacit.mechanisms.base import KNOWN_SEED
from tacit.randomness import Mode
from tacit.report.writing import report
from tacit.settings import Experiment, check_used

UNMET = "no guarantee against anyone who knows or guesses the seed"
SMALL: dict[str, Any] = {
    "policy": "gold",
    "held_out": 0.2,
    "max_tokens": 64,
    "longest_full": 64,
    "shape": {"embedding_size": 8, "hidden_size": 8},
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpus"), 30)


@pytest.fixture(scope="module")
def research(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return _trained(corpus, tmp_path_factory.mktemp("research"), mode="research")


@pytest.fixture(scope="module")
def release(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return _trained(corpus, tmp_path_factory.mktemp("release"))


def _trained(corpus: Path, folder: Path, **more: Any) -> Trained:  # noqa: ANN401
    words = {"corpus": str(corpus), "plan": {"mechanism": "selective", **PLANS["selective"]}, **SMALL, **more}
    trained = train(from_words(Experiment, words), folder / "run", quiet)
    report([trained.folder])
    return trained


def test_without_a_mode_nobody_can_repeat_the_randomness() -> None:
    """Catches the default of seed 0, with which anybody could replay a run with and without a record."""
    settings = from_words(Experiment, {"corpus": "c.jsonl", "plan": {}})
    assert settings.mode == Mode.RELEASE
    with pytest.raises(ConfigError, match="no seed in release mode"):
        check_used(settings.model_copy(update={"seed": 0, "plan": {"mechanism": "plain"}}))


@pytest.mark.parametrize("name", ["certificate.md", "certificate.yaml", "README.md", "report.html"])
def test_a_research_run_states_everywhere_what_it_lacks(name: str, research: Trained, release: Trained) -> None:
    """Catches a claim printed without "no guarantee against anyone who knows the seed"; control: a release run."""
    assert f"Not met: {KNOWN_SEED.text}." in research.guarantee.sentence()
    stated, free = (
        " ".join((run.folder / "release" / name).read_text(encoding="utf-8").split()) for run in (research, release)
    )
    assert stated.count(UNMET) >= 2, "in the sentence and among the conditions"
    assert "not met" in stated
    assert UNMET not in free
    assert "not met" not in free.lower()


def test_a_condition_that_is_not_met_makes_a_claim_worse(research: Trained) -> None:
    """Catches a comparison that takes a repeatable run for as good as one that is not."""
    met = tuple(one for one in research.guarantee.holds_if if one.status != Status.UNMET)
    unrepeatable = replace(research.guarantee, holds_if=met)
    assert len(met) == len(research.guarantee.holds_if) - 1
    assert compare(research.guarantee, unrepeatable).order == Order.WORSE
    assert compare(unrepeatable, research.guarantee).order == Order.BETTER
