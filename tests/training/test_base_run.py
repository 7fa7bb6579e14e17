"""`model: RUN`: training begins with the model of an earlier run, and its guarantee includes what that run spent."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from finished_runs import reseal
from runs import experiment, quiet, write_corpus
from saved import release_files
from tacit import api
from tacit.errors import ClaimRefused, ConfigError, RunError
from tacit.mechanisms.build import Terms
from tacit.models.loading import load
from tacit.privacy.guarantee import Status
from tacit.reports.write import report
from tacit.runs.folder import RunFolder
from tacit.runs.release import PrivateFile, ReleaseFile
from tacit.runs.verify import verify
from tacit.training.stages import Trained, resume, train

SHAPE = {"hidden_size": 8, "embedding_size": 8}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("base")


@pytest.fixture(scope="module")
def corpus(place: Path) -> Path:
    return write_corpus(place)


@pytest.fixture(scope="module")
def base(place: Path, corpus: Path) -> Path:
    """A selective run whose vocabulary was learned from the redacted view."""
    words: dict[str, Any] = {"model_config": SHAPE, "mode": "release", "tokenizer": "bpe", "vocabulary_size": 300}
    return train(experiment(corpus, "selective", **words), place / "one", quiet).folder


def later(corpus: Path, base: Path, out: Path, mechanism: str = "selective", **more: Any) -> Trained:  # noqa: ANN401
    words = more.pop("words", None)
    return train(experiment(corpus, mechanism, words, model=str(base), **{"mode": "release", **more}), out, quiet)


@pytest.fixture(scope="module")
def second(place: Path, corpus: Path, base: Path) -> Trained:
    return later(corpus, base, place / "two")


def read_terms(folder: Path) -> Terms:
    return RunFolder.view(folder).read_json(Terms, ReleaseFile.PLAN)


def failing(folder: Path) -> str:
    return "\n".join(one.why for one in verify(folder).checks if not one.holds)


def test_training_goes_on_where_the_earlier_run_ended(
    base: Path, second: Trained, corpus: Path, tmp_path: Path
) -> None:
    """With the same tokenizer, and weights that a private step hardly moved."""
    (one, of_one), (two, of_two) = load(base), load(second.folder)
    assert of_one.hash == of_two.hash
    assert one.description() == two.description()
    tiny = later(
        corpus, base, tmp_path / "still", words={"noise_multiplier": 5.0}, private={"learning_rate": 1e-12},
        public={"learning_rate": 1e-12},
    )  # fmt: skip
    still, _ = load(tiny.folder)
    for name, value in one.module.named_parameters():
        assert torch.allclose(value, still.module.get_parameter(name), atol=1e-6)


def test_the_guarantee_composes_both_and_verifies_from_the_release_alone(
    base: Path, second: Trained, corpus: Path, tmp_path: Path
) -> None:
    alone = api.load(base).guarantee.figures[0]
    both = second.guarantee.figures[0]
    assert both.epsilon > alone.epsilon
    assert "Training began with the model of an earlier run" in second.guarantee.sentence()
    sent = tmp_path / "sent"
    shutil.copytree(second.folder / "release", sent)
    found = verify(sent)
    assert found.holds
    assert found.sentence is not None
    assert "these figures" not in found.sentence
    assert "the figures include what was spent there" in found.sentence
    page = report([second.folder]).page.read_text()
    assert "the figures include what was spent there" in page
    assert (
        "the figures include what was spent there" in (second.folder / "release" / ReleaseFile.CERTIFICATE).read_text()
    )
    assert any("what was spent there" in str(part) for part in api.load(second.folder).tables())
    assert verify(second.folder).holds


def test_a_third_run_brings_both_earlier_ones_along(second: Trained, corpus: Path, tmp_path: Path) -> None:
    """From a release folder alone, with a policy that comes with tacit."""
    sent = shutil.copytree(second.folder / "release", tmp_path / "sent")
    third = later(corpus, sent, tmp_path / "three")
    terms = read_terms(third.folder)
    assert terms.earlier is not None
    assert len(terms.earlier.chain()) == 2
    assert third.guarantee.figures[0].epsilon > second.guarantee.figures[0].epsilon
    assert verify(third.folder).holds


@pytest.mark.parametrize("change", ["left out", "fewer charges", "less noise", "declared disjoint"])
def test_an_inherited_part_that_was_altered_is_found(change: str, second: Trained, tmp_path: Path) -> None:
    """Even if the manifest is made anew: the claim no longer follows."""
    folder = Path(shutil.copytree(second.folder, tmp_path / "run"))
    path = folder / "release" / ReleaseFile.PLAN
    plan = json.loads(path.read_text())
    if change == "left out":
        plan["earlier"] = None
    elif change == "fewer charges":
        plan["earlier"]["charges"]["private"] -= 1
    elif change == "less noise":
        plan["earlier"]["terms"]["mechanism"]["settings"]["private"]["noise_multiplier"] = 9.0
    else:
        plan["disjoint"] = True
    path.write_text(json.dumps(plan))
    assert "plan.json was changed: its SHA-256" in failing(folder)
    reseal(folder)
    assert any(word in failing(folder) for word in ("guarantee.json has", "plan that follows from it"))


def test_a_base_that_does_not_verify_is_not_built_on(base: Path, corpus: Path, tmp_path: Path) -> None:
    spoiled = Path(shutil.copytree(base, tmp_path / "spoiled"))
    ledger = spoiled / "release" / ReleaseFile.LEDGER
    ledger.write_text(ledger.read_text().replace('"times":3', '"times":1'))
    with pytest.raises(RunError, match="every released file is as it was sealed"):
        later(corpus, spoiled, tmp_path / "out")
    (spoiled / "release" / ReleaseFile.MANIFEST).unlink()
    with pytest.raises(RunError, match="a finished run to begin with"):
        later(corpus, spoiled, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_another_policy_is_refused_as_its_secrets_were_public_text(base: Path, corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(ClaimRefused, match="the policies of the earlier run, for a claim about a record's secrets"):
        later(corpus, base, tmp_path / "out", policy="digits")
    assert not (tmp_path / "out").exists()
    done = later(corpus, base, tmp_path / "out", policy="digits", words={"disjoint_from_model": True})
    assert "shares no unit with this one (assumed)" in done.guarantee.sentence()
    assert done.guarantee.figures[0].epsilon == pytest.approx(api.load(base).guarantee.figures[0].epsilon, rel=0.2)
    assert verify(done.folder).holds


def test_a_policy_of_ones_own_is_compared_by_the_key_of_the_earlier_run(corpus: Path, tmp_path: Path) -> None:
    (corpus.parent / "own.yaml").write_text("policy: {regex: {pattern: '[0-9]{4,}', kind: NUMBER}}")
    words: dict[str, Any] = {"policy": "own.yaml"}
    first = train(experiment(corpus, "selective", model_config=SHAPE, **words), tmp_path / "one", quiet).folder
    second = later(corpus, first, tmp_path / "two", **words, mode="research")
    assert second.guarantee.figures[0].epsilon > api.load(first).guarantee.figures[0].epsilon
    assert later(
        corpus, first / "release", tmp_path / "three", **words
    ).guarantee.figures  # whose private/ is beside it
    shutil.copytree(first / "release", tmp_path / "sent")
    with pytest.raises(ClaimRefused, match="hashes that cannot be compared without the private/ folder"):
        later(corpus, tmp_path / "sent", tmp_path / "four", **words)


def test_a_seed_that_somebody_may_know_stays_a_condition_that_is_not_met(corpus: Path, tmp_path: Path) -> None:
    seeded = train(experiment(corpus, "dpsgd", model_config=SHAPE), tmp_path / "one", quiet).folder
    built = later(corpus, seeded, tmp_path / "two", "dpsgd")
    unmet = [one.text for one in built.guarantee.holds_if if one.status == Status.UNMET]
    assert [text.split("(")[0] for text in unmet] == ["for the earlier run: nobody can repeat the randomness "]
    assert "Not met: for the earlier run" in built.guarantee.sentence()


def test_audits_and_pages_of_the_base_change_nothing_but_more_training_does(
    base: Path, second: Trained, corpus: Path, tmp_path: Path
) -> None:
    """A run is resumed with the base that it began with."""
    report([base])
    assert resume(second.folder, quiet).guarantee.figures == second.guarantee.figures
    moved = Path(shutil.copytree(base, tmp_path / "moved"))
    run = later(corpus, moved, tmp_path / "run").folder
    other = train(experiment(corpus, "selective", model_config=SHAPE, mode="release"), tmp_path / "other", quiet).folder
    shutil.rmtree(moved)
    shutil.copytree(other, moved)
    with pytest.raises(RunError, match="changed since: model"):
        resume(run, quiet)


def test_no_path_of_the_machine_leaves(second: Trained) -> None:
    for file in release_files(second.folder / "release"):
        assert str(second.folder.parent).encode() not in file.read_bytes(), file.name
    assert (second.folder / "private" / PrivateFile.SETTINGS).exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({"model_config": SHAPE}, "model_config for a new model only"),
        ({"task": "classification", "classes": ["a", "b"]}, "an earlier run with task: classification"),
        ({"tokenizer": "bytes"}, "the tokenizer of the earlier run"),
    ],
)
def test_what_the_earlier_run_decides_is_not_set_again(
    words: dict[str, Any], says: str, base: Path, corpus: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=says):
        later(corpus, base, tmp_path / "out", **words)
    assert not (tmp_path / "out").exists()


def test_disjoint_is_for_models_of_runs(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="disjoint_from_model with the model of an earlier run"):
        train(experiment(corpus, "dpsgd", {"disjoint_from_model": True}), tmp_path / "out", quiet)
    assert not (tmp_path / "out").exists()


def test_a_plan_counts_what_the_model_has_cost(base: Path, tmp_path: Path) -> None:
    spent = api.load(base).guarantee.figures[0]
    words: dict[str, Any] = {"counts": {"records": 60}, "settings": {"steps": 3, "expected_batch_size": 8}}
    with pytest.raises(ClaimRefused, match="which the earlier runs have spent already"):
        api.plan("selective", epsilon=spent.epsilon / 2, model=base, **words)
    both = api.plan("selective", epsilon=2 * spent.epsilon, model=base, **words)
    alone = api.plan("selective", epsilon=2 * spent.epsilon, **words)
    assert both.mechanism.private is not None
    assert alone.mechanism.private is not None
    assert both.mechanism.private.noise_multiplier > alone.mechanism.private.noise_multiplier
    file = tmp_path / "settings.yaml"
    file.write_text(f"model: {base}\nplan: {{mechanism: selective, epsilon: {spent.epsilon / 2}, steps: 3}}\n")
    with pytest.raises(ClaimRefused, match="which the earlier runs have spent already"):
        api.plan(file=file, counts={"records": 60})
    with pytest.raises(ConfigError, match="the folder of a run"):
        api.plan("dpsgd", epsilon=2, model=tmp_path / "nowhere", counts={"records": 60})
