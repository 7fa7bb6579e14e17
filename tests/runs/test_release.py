"""What leaves with a run: the default is randomness that nobody can repeat, a research run states what it lacks, and
exact counts of labelled records stay inside.
"""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runs import PLANS, quiet, write_corpus
from saved import release_files
from tacit import api as verbs
from tacit.config.load import check_used, load_config
from tacit.config.setting import Mode
from tacit.errors import ConfigError, RunError
from tacit.mechanisms.mechanism import KNOWN_SEED
from tacit.policies.patterns import Digits
from tacit.privacy.guarantee import COVERAGE_INSIDE, Evidence, Guarantee, Order, Status, compare
from tacit.reports.write import report
from tacit.runs.folder import RunFolder
from tacit.runs.release import ReleaseFile, ReleaseReason, check_fields
from tacit.runs.utility import evidence_outside
from tacit.runs.verify import verify
from tacit.training.stages import Trained, train

UNMET = "no guarantee against anyone who knows or guesses the seed"
SMALL: dict[str, Any] = {
    "policy": "gold",
    "held_out": 0.2,
    "max_tokens": 64,
    "max_full_tokens": 64,
    "model_config": {"embedding_size": 8, "hidden_size": 8},
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
    trained = train(load_config(words), folder / "run", quiet)
    report([trained.folder])
    return trained


def test_without_a_mode_nobody_can_repeat_the_randomness() -> None:
    """Catches the default of seed 0, with which anybody could replay a run with and without a record."""
    settings = load_config({"corpus": "c.jsonl", "mechanism": "plain"})
    assert settings.mode == Mode.RELEASE
    with pytest.raises(ConfigError, match="no seed in release mode"):
        check_used(load_config(settings, {"seed": 0}))


@pytest.mark.parametrize("name", ["tacit/certificate.md", "tacit/certificate.yaml", "README.md", "tacit/report.html"])
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


def test_counts_of_labelled_training_records_stay_inside(corpus: Path, tmp_path: Path) -> None:
    """Catches n, misses and the exact bound in a claim that leaves: they are functions of training records."""
    policy, labelled, counted = str(tmp_path / "some.yaml"), tmp_path / "labelled.jsonl", tmp_path / "counted.json"
    Path(policy).write_text("policy: {forgetful: {policy: gold, miss_rate: 0.3, seed: 1}}")
    verbs.label_draw(corpus, policy, labelled, records=25, seed=1, gold=True)
    verbs.label_read(labelled, policy, corpus=corpus, out=counted)
    trained = _trained(corpus, tmp_path, mode="research", policy=policy, coverage=str(counted))
    exact = trained.guarantee.evidence.coverage
    assert exact is not None
    assert exact.missed > 0
    assert str(exact) in trained.guarantee.sentence()
    run = RunFolder.view(trained.folder)
    outside = run.read_json(Guarantee, ReleaseFile.GUARANTEE)
    assert outside.evidence.coverage is None
    assert COVERAGE_INSIDE in outside.sentence()
    assert outside.figures == trained.guarantee.figures
    for path in release_files(run.release):
        assert b"audited miss rate" not in path.read_bytes()
    assert verify(trained.folder).holds


@pytest.mark.parametrize(
    ("file", "content", "named"),
    [
        (ReleaseFile.GUARANTEE, {"evidence": {"coverage": {"missed": 3}}}, "evidence.coverage.missed"),
        (ReleaseFile.UTILITY, {"public": {"nats": 12.5}}, "public.nats"),
        (ReleaseFile.AUDIT, {"membership": [{"attack": "loss"}]}, r"membership\[\].attack"),
        (ReleaseFile.AUDIT, {"canaries": [{"left_out": 3}]}, r"canaries\[\].left_out"),
        (ReleaseFile.MADE, {"environments": [{"hostname": "here"}]}, "hostname"),
    ],
)
def test_a_field_without_a_reason_is_refused_by_name(
    file: ReleaseFile, content: dict[str, Any], named: str, tmp_path: Path
) -> None:
    """Catches anything that is added to a released file without saying why it may leave."""
    with RunFolder.create(tmp_path / "run") as run:
        with pytest.raises(RunError, match=named):
            run.write_json(file, content)
        assert not run.path(file).exists()


def test_every_field_of_the_table_has_one_of_six_reasons(release: Trained) -> None:
    """And every field that a run has is in the table; a file that is not in it has no field at all."""
    assert len(ReleaseReason) == 6
    place = release.folder / "release"
    for path in place.glob("**/*.json"):
        name = path.relative_to(place).as_posix()
        if name not in (ReleaseFile.TOKENIZER, ReleaseFile.PUBLIC_TOKENIZER):
            check_fields(name, json.loads(path.read_text()))
    with pytest.raises(RunError, match="anything"):
        check_fields("other.json", {"anything": 1})


def test_digests_of_the_files_behind_a_detector_stay_inside(tmp_path: Path) -> None:
    """Catches the SHA-256 of a file of prompts, whose few lines can be guessed."""
    (tmp_path / "prompts.txt").write_text("My bank security code is {3 digits}\n")
    verbs.simulate("customersim", dialogs=20, seed=5, out=tmp_path / "public.jsonl")
    words: dict[str, Any] = {"templates": tmp_path / "prompts.txt", "most": 40, "sentences": 200, "harmless": False}
    detector = verbs.detector_train(tmp_path / "made", tmp_path / "public.jsonl", **words).detector
    exact = Evidence(policy_hash="0", detector_data=detector.trained_on)
    outside = evidence_outside(exact, Digits(), b"key").detector_data
    assert outside is not None
    assert re.search("SHA-256 [0-9a-f]{8}", detector.trained_on)
    assert "prompts.txt" in outside
    assert re.search("[0-9a-f]{8}", outside) is None
