"""A run is resumed with what it began with, or not at all."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from runs import experiment, quiet, write_corpus
from tacit.api import label_draw, label_read
from tacit.common.progress import Progress
from tacit.config.load import load_config
from tacit.config.schema import Config
from tacit.data.corpus import write_jsonl
from tacit.errors import ConfigError, RunError
from tacit.policies import patterns
from tacit.policies import tagging as folders
from tacit.policies.entities import SpacyEntities
from tacit.policies.marking import Policies
from tacit.policies.patterns import Digits, Regex
from tacit.privacy.ledger import Ledger
from tacit.runs.folder import RunFolder
from tacit.runs.release import PrivateFile, ReleaseFile, environment
from tacit.simulation.simulate import simulate
from tacit.training import checkpoints as identity
from tacit.training.checkpoints import check_identity, identity_of
from tacit.training.stages import resume, train

SHAPE = {"embedding_size": 8, "hidden_size": 8}
SETTINGS = "run/private/settings.json"
TOKENIZER = "run/release/tacit/tokenizer.json"
Edit = Callable[[Path], object]


class Stopped(Exception):
    """What ends a run on the way."""


def stop(progress: Progress) -> None:
    if progress.stage == "training":
        raise Stopped


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of crt that was stopped while training, beside all files that it was made of."""
    folder = tmp_path_factory.mktemp("stopped")
    corpus = write_corpus(folder, 40)
    write_jsonl(simulate("customersim", 8, split="test"), folder / "apart.jsonl")
    write_jsonl(simulate("customersim", 8, seed=5, split="test"), folder / "public.jsonl")
    write_jsonl(simulate("customersim", 8, seed=6, split="test"), folder / "choice.jsonl")
    policies = [str(folder / name) for name in ("forgetful.yaml", "cautious.yaml")]
    label_draw(corpus, policies[0], folder / "s.jsonl", conservative=policies[1], records=20, gold=True)
    label_read(folder / "s.jsonl", policies[0], conservative=policies[1], out=folder / "coverage.json")
    files = {"held_out": None, "held_out_corpus": "apart.jsonl", "vocabulary_corpus": "public.jsonl"}
    files |= {"coverage": "coverage.json", "eval_on": "choice.jsonl"}
    more: dict[str, Any] = {name: None if file is None else str(folder / file) for name, file in files.items()}
    more |= {"tokenizer": "bpe", "vocabulary_size": 300, "eval_steps": 100, "model_config": SHAPE}
    with pytest.raises(Stopped):
        train(experiment(corpus, "crt", **more), folder / "run", stop)
    return folder


def replaced(file: str, old: str, new: str) -> Edit:
    return lambda folder: (folder / file).write_text((folder / file).read_text().replace(old, new, 1))


EDITS: dict[str, tuple[str, Edit]] = {
    "policy": ("forgetful.yaml", replaced("forgetful.yaml", "0.9", "0.1")),
    "conservative policy": ("cautious.yaml", replaced("cautious.yaml", "seed: 1", "seed: 2")),
    "corpus": ("corpus.jsonl", replaced("corpus.jsonl", "SYS", "BOT")),
    "data.held_out_corpus": ("apart.jsonl", replaced("apart.jsonl", "SYS", "BOT")),
    "data.vocabulary_corpus": ("public.jsonl", replaced("public.jsonl", "SYS", "BOT")),
    "training.eval_on": ("choice.jsonl", replaced("choice.jsonl", "SYS", "BOT")),
    "marking.coverage": ("coverage.json", replaced("coverage.json", '"missed": true', '"missed": false')),
    "tokenizer": (TOKENIZER, replaced(TOKENIZER, "public.jsonl", "other.jsonl")),
    "settings": (SETTINGS, replaced(SETTINGS, '"segment_by": "record"', '"segment_by": "turn"')),
}


@contextmanager
def edited(folder: Path, file: str, edit: Edit) -> Iterator[None]:
    before = (folder / file).read_bytes()
    edit(folder)
    assert (folder / file).read_bytes() != before
    try:
        yield
    finally:
        (folder / file).write_bytes(before)


def content(run: Path) -> dict[str, bytes | int]:
    """Every file of a run; of the ledger, which is compacted whenever it is opened, what was charged."""
    files: dict[str, bytes | int] = {str(path): path.read_bytes() for path in run.rglob("*") if path.is_file()}
    ledger = run / "release" / ReleaseFile.LEDGER
    with Ledger.open(ledger) as book:
        return files | {str(ledger): sum(book.charges().values())}


@pytest.mark.parametrize("what", EDITS)
def test_what_was_changed_is_named_before_anything_is_done(stopped: Path, what: str) -> None:
    """Catches an edited policy that is certified in place of the one that marked the data, and its like."""
    with edited(stopped, *EDITS[what]):
        before = content(stopped / "run")
        with pytest.raises(RunError, match=rf"changed since: {what}\.") as refused:
            resume(stopped / "run", lambda _: pytest.fail("nothing may be done"))
        assert content(stopped / "run") == before
    assert "SYS" not in str(refused.value)
    check_now(stopped)


def check_now(folder: Path) -> None:
    """The negative control: with everything put back, nothing is refused."""
    with pytest.raises(Stopped):
        resume(folder / "run", stop)


def test_a_file_that_is_gone_is_named(stopped: Path) -> None:
    place = (stopped / "coverage.json").rename(stopped / "moved.json")
    with pytest.raises(ConfigError, match=r"the file of `marking.coverage`.*No such file"):
        resume(stopped / "run", quiet)
    place.rename(stopped / "coverage.json")


def made_run(folder: Path, asked: Config, policies: Policies) -> RunFolder:
    run = RunFolder.create(folder)
    run.write_json(PrivateFile.IDENTITY, identity_of(asked, policies))
    return run


@pytest.mark.parametrize(("setting", "file"), [("aliases", "aliases.tsv"), ("model", "model/weights.safetensors")])
def test_files_and_folders_of_other_settings_count_too(tmp_path: Path, setting: str, file: str) -> None:
    """Catches another list of aliases, and another base model, in the middle of a run."""
    place = tmp_path / file
    place.parent.mkdir(exist_ok=True)
    place.write_bytes(b"1")
    named: dict[str, Any] = {setting: str(tmp_path / file.partition("/")[0])}
    asked = experiment(write_corpus(tmp_path, 3), "uedp", tokenizer="bytes", **named)
    with made_run(tmp_path / "run", asked, Policies(Digits())) as run:
        check_identity(run, asked, Policies(Digits()))
        place.write_bytes(b"2")
        with pytest.raises(RunError, match=rf"changed since: (marking\.)?{setting}\."):
            check_identity(run, asked, Policies(Digits()))


@pytest.mark.parametrize("mechanism", ["invented", "redaction"])
def test_another_faker_invents_other_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mechanism: str) -> None:
    """Catches inventions that change in the middle of a run."""
    asked = experiment(write_corpus(tmp_path, 3), mechanism)
    with made_run(tmp_path / "run", asked, Policies(Digits())) as run:
        monkeypatch.setattr(identity, "version", lambda _: "0.1")
        if mechanism == "redaction":
            check_identity(run, asked, Policies(Digits()))
            return
        with pytest.raises(RunError, match=r"changed since: version of Faker\."):
            check_identity(run, asked, Policies(Digits()))


def test_the_version_of_faker_is_released_with_the_others() -> None:
    assert "faker" in dict(environment().libraries)


def test_another_model_behind_a_policy_is_another_policy(tmp_path: Path) -> None:
    """Catches other weights in the folder of a spaCy pipeline, behind a link too."""
    pipeline, weights = tmp_path / "pipeline", tmp_path / "weights"
    pipeline.mkdir()
    weights.mkdir()
    described = {"lang": "en", "name": "x", "version": "1", "pipeline": ["ner"], "labels": {"ner": ["PERSON"]}}
    (pipeline / "meta.json").write_text(json.dumps(described))
    (pipeline / "config.cfg").write_text('[nlp]\nlang = "en"\npipeline = ["ner"]\n[components.ner]\nfactory = "ner"\n')
    (pipeline / "ner").symlink_to(weights)
    (weights / "model").write_bytes(b"1")
    asked = experiment(write_corpus(tmp_path, 3), "redaction")
    for which in ("policy", "conservative policy"):
        with made_run(tmp_path / which, asked, entities(which, pipeline)) as run:
            check_identity(run, asked, entities(which, pipeline))
            (weights / "model").write_bytes(which.encode())
            folders.digest_of.cache_clear()  # as in a new process
            with pytest.raises(RunError, match=rf"changed since: {which}\."):
                check_identity(run, asked, entities(which, pipeline))


def entities(which: str, pipeline: Path) -> Policies:
    found = SpacyEntities(str(pipeline))
    return Policies(found) if which == "policy" else Policies(Digits(), found)


def test_another_version_of_the_search_is_another_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a regular expression that is searched by another library than when the data was marked."""
    before = Regex("[0-9]+", "NUMBER").hash
    monkeypatch.setattr(patterns, "version", lambda _: "0.1")
    assert Regex("[0-9]+", "NUMBER").hash != before


def test_what_moves_no_number_may_change(tmp_path: Path) -> None:
    asked = experiment(write_corpus(tmp_path, 3), "redaction")
    with made_run(tmp_path / "run", asked, Policies(Digits())) as run:
        faster = load_config(asked, {"microbatch_tokens": 7, "checkpoint_minutes": 1.0, "report_to": "tensorboard"})
        check_identity(run, faster, Policies(Digits()))
        with pytest.raises(RunError, match=r"changed since: settings\."):
            check_identity(run, load_config(asked, {"segment_by": "turn"}), Policies(Digits()))
    file = RunFolder.view(tmp_path / "run").path(PrivateFile.IDENTITY)
    assert file.stat().st_mode & 0o777 == 0o600
    assert Digits().hash not in file.read_text()
