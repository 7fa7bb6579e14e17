"""`tacit prepare` and `train --prepared`: one preparation for many runs, and the same runs as without it."""

import json
import os
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import tacit
import tacit.training.marking
from runs import experiment, quiet, write_corpus
from tacit import api
from tacit.cli.main import app
from tacit.common.progress import Progress
from tacit.config.load import to_dict
from tacit.data.marked import Marks
from tacit.data.tokenizer import load_tokenizer
from tacit.errors import ConfigError, PrepareError, RunError
from tacit.policies.marking import Policies, Unmarked
from tacit.runs.folder import RunFolder
from tacit.runs.release import PrivateFile, ReleaseFile
from tacit.runs.verify import verify
from tacit.sweeps.worker import Job, JobIdentity, perform
from tacit.training.prepared import is_prepared, prepare
from tacit.training.stages import resume, train

SHAPE = {"hidden_size": 8, "embedding_size": 8}
CANARIES = [{"template": "My PIN is {4 digits}.", "count": 6}]
WORDS: dict[str, Any] = {
    "model_config": SHAPE,
    "tokenizer": "bpe",
    "vocabulary_size": 300,
    "canaries": CANARIES,
    "policy": "own.yaml",
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prepared")
    (folder / "own.yaml").write_text("policy: {regex: {pattern: '[0-9]{4,}', kind: NUMBER}}")
    return write_corpus(folder)


@pytest.fixture(scope="module")
def store(corpus: Path) -> Path:
    prepare(experiment(corpus, "selective", **WORDS), corpus.parent / "store", quiet)
    return corpus.parent / "store"


@pytest.fixture
def markings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Counts how often a policy is asked."""
    real, asked = Policies.mark, [0]

    def counted(self: Policies, one: Unmarked) -> Marks:
        asked[0] += 1
        return real(self, one)

    monkeypatch.setattr(Policies, "mark", counted)
    return asked


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_run_from_a_store_is_the_run_that_it_would_be_without(
    corpus: Path, store: Path, markings: list[int], tmp_path: Path
) -> None:
    """Every released byte is the same, but for keyed hashes: each run has its own key."""
    config = experiment(corpus, "selective", **WORDS)
    linked = train(config, tmp_path / "linked", quiet, store)
    assert markings == [0]
    alone = train(config, tmp_path / "alone", quiet)
    assert markings[0] > 0
    released = [files_of(one.folder / "release") for one in (linked, alone)]
    assert released[0].keys() == released[1].keys()
    differ = {name for name in released[0] if released[0][name] != released[1][name]}
    assert differ <= {ReleaseFile.TOKENIZER, ReleaseFile.GUARANTEE, ReleaseFile.MANIFEST}
    assert linked.guarantee == alone.guarantee
    hashes = [load_tokenizer(one.folder / "release" / ReleaseFile.TOKENIZER) for one in (linked, alone)]
    assert hashes[0].hash == hashes[1].hash
    assert hashes[0].depends_on.policy_hash != hashes[1].depends_on.policy_hash
    assert verify(linked.folder).holds


def test_runs_of_a_store_share_its_files_and_outlive_it(corpus: Path, tmp_path: Path, markings: list[int]) -> None:
    """Other mechanisms, epsilons, seeds of models: one preparation."""
    words = {**WORDS, "mode": "release"}
    prepare(experiment(corpus, "selective", **words), tmp_path / "store", quiet)
    asked = markings[0]
    runs = [
        train(experiment(corpus, name, **words), tmp_path / name, quiet, tmp_path / "store").folder
        for name in ("selective", "plain", "redaction")
    ]
    assert markings[0] == asked
    column = "private/prepared/private/secrets.bin"
    assert {os.stat(run / column).st_ino for run in runs} == {os.stat(tmp_path / "store" / column).st_ino}
    assert os.stat(runs[0] / column).st_nlink == 4
    keys = [RunFolder.view(run).key for run in (*runs, tmp_path / "store")]
    assert len(set(keys)) == len(keys)
    shutil.rmtree(tmp_path / "store")
    for run in runs:
        assert verify(run).holds
        assert api.audit(run, settings={"candidates": 50, "secrets": 5}).findings
    assert resume(runs[0], quiet).guarantee.figures


def test_nobody_else_can_read_a_store(store: Path) -> None:
    assert stat.S_IMODE(store.stat().st_mode) == 0o700
    assert stat.S_IMODE((store / "private").stat().st_mode) == 0o700
    assert stat.S_IMODE((store / "private" / PrivateFile.STORE).stat().st_mode) == 0o600
    assert not (store / "private" / PrivateFile.MARKED).exists()


@pytest.mark.parametrize(
    ("mechanism", "change", "named"),
    [
        ("selective", {"policy": "digits"}, "policy"),
        ("selective", {"max_tokens": 32}, "data.max_tokens"),
        ("selective", {"held_out": 0.3}, "data.held_out"),
        ("selective", {"vocabulary_size": 310}, "data.vocabulary_size"),
        ("selective", {"duplicates": "exact"}, "data.duplicates"),
        ("selective", {"segment_by": "sentence"}, "data.segment_by"),
        ("selective", {"canaries": [{**CANARIES[0], "count": 7}]}, "audit.canaries"),
        ("selective", {"seed": 4}, "mode and seed"),
        ("selective", {"tokenizer": "bytes", "vocabulary_size": None}, "tokenizer"),
        ("crt", {"tokenizer": "bytes", "vocabulary_size": None}, "data.duplicates"),
        ("uedp", {"tokenizer": "bytes", "vocabulary_size": None, "entity_kinds": None}, "whether it lists entities"),
    ],
)
def test_what_was_prepared_otherwise_is_refused_by_name(
    mechanism: str, change: dict[str, Any], named: str, corpus: Path, store: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=f"others for .*{named}"):
        train(experiment(corpus, mechanism, **{**WORDS, **change}), tmp_path / "run", quiet, store)
    assert not (tmp_path / "run").exists()


def test_a_corpus_that_changed_since_is_refused(corpus: Path, tmp_path: Path) -> None:
    copy = tmp_path / "corpus.jsonl"
    shutil.copy(corpus, copy)
    config = experiment(copy, "dpsgd", model_config=SHAPE)
    prepare(config, tmp_path / "store", quiet)
    copy.write_text(copy.read_text() + json.dumps({"id": "new", "text": "One more record."}) + "\n")
    with pytest.raises(ConfigError, match="others for corpus"):
        train(config, tmp_path / "run", quiet, tmp_path / "store")


@pytest.mark.parametrize("file", ["private/prepared/private/secrets.bin", "private/canaries.json"])
def test_a_changed_byte_is_found_before_a_run_begins(file: str, corpus: Path, store: Path, tmp_path: Path) -> None:
    spoiled = Path(shutil.copytree(store, tmp_path / "store"))
    content = bytearray((spoiled / file).read_bytes())
    content[len(content) // 2] ^= 1
    (spoiled / file).write_bytes(bytes(content))
    with pytest.raises((RunError, PrepareError)):
        train(experiment(corpus, "selective", **WORDS), tmp_path / "run", quiet, spoiled)
    assert not (tmp_path / "run").exists()


def test_a_store_is_no_run_and_no_place_for_one(corpus: Path, store: Path, tmp_path: Path) -> None:
    config = experiment(corpus, "selective", **WORDS)
    with pytest.raises(RunError, match="a prepared store, which takes no steps"):
        resume(store, quiet)
    for work in (train, prepare):
        with pytest.raises(RunError, match="a prepared store"):
            work(config, store, quiet)
    with pytest.raises(RunError, match=r"a prepared store at .*none, or one whose preparation did not end"):
        train(config, tmp_path / "run", quiet, tmp_path)
    assert is_prepared(store)


class Stopped(Exception):
    """What ends a preparation on the way."""


def test_a_preparation_that_was_killed_is_repeated(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = experiment(corpus, "selective", **WORDS)

    def killed(*_: object) -> None:
        raise Stopped

    for place in ("tacit.training.prepared.note_stores", "tacit.training.prepared.prepare_stores"):
        with monkeypatch.context() as broken:
            broken.setattr(place, killed)
            with pytest.raises(Stopped):
                prepare(config, tmp_path / "store", quiet)
        assert not is_prepared(tmp_path / "store")
        with pytest.raises(RunError, match="preparation did not end"):
            train(config, tmp_path / "run", quiet, tmp_path / "store")
    done = prepare(config, tmp_path / "store", quiet)
    assert done.records > 0
    assert is_prepared(tmp_path / "store")


def test_the_commands_and_the_functions_do_the_same(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = ["--policy", "digits", "--no-canaries", "--out", "store", "--set", "max_tokens=64", "--json"]
    called = CliRunner().invoke(app, ["prepare", str(corpus), *asked])
    assert called.exit_code == 0, called.output
    counts = json.loads(called.stdout)
    assert counts["records"] + counts["held_out"] == 60
    words = ["--mechanism", "plain", "--set", "public_epochs=1", "--set", "max_full_tokens=64"]
    words += ["--set", "hidden_size=8", "--set", "embedding_size=8"]
    called = CliRunner().invoke(app, ["--quiet", "train", "--prepared", "store", *words, "--out", "one"])
    assert called.exit_code == 0, called.output
    assert tacit.load("one").config["policy"] == "digits"
    called = CliRunner().invoke(app, ["train", "--prepared", "store", *words, "--policy", "pii", "--out", "two"])
    assert isinstance(called.exception, ConfigError)
    assert "others for policy" in str(called.exception)
    with pytest.raises(ConfigError, match="others for policy"):
        tacit.train(prepared="store", mechanism="plain", policy="pii")
    with pytest.raises(ConfigError, match="a corpus, a YAML file or a prepared store"):
        tacit.train(mechanism="plain")


def test_a_corpus_in_memory_is_kept_in_the_store(corpus: Path, tmp_path: Path) -> None:
    records = [json.loads(line) for line in corpus.read_text().splitlines()]
    store = tacit.prepare(records, policy="digits", out=tmp_path / "store", settings={"max_tokens": 64})
    settings: dict[str, Any] = {"model_config": SHAPE, "public_epochs": 1, "max_full_tokens": 64}
    run = tacit.train(prepared=store, mechanism="plain", out=tmp_path / "run", settings=settings)
    assert run.verify().holds


def job_of(corpus: Path, folder: Path, name: str, **words: Any) -> Job:  # noqa: ANN401
    config = experiment(corpus, name, **{**WORDS, **words})
    where = folder / f"{name}-{config.seed}"
    identity = JobIdentity(name, None, None)
    return Job(str(where), f"{where}.json", to_dict(config), None, None, identity, str(folder / "stores"))


def test_a_sweep_prepares_once_what_its_runs_share(corpus: Path, tmp_path: Path, markings: list[int]) -> None:
    """Three runs, one preparation; other canaries of another seed are another one."""
    perform(job_of(corpus, tmp_path, "selective"), quiet)
    asked = markings[0]
    perform(job_of(corpus, tmp_path, "plain"), quiet)
    perform(job_of(corpus, tmp_path, "redaction"), quiet)
    assert markings[0] == asked > 0
    assert len([place for place in (tmp_path / "stores").iterdir() if place.is_dir()]) == 1
    perform(job_of(corpus, tmp_path, "plain", seed=5), quiet)
    assert markings[0] > asked + 50
    assert len([place for place in (tmp_path / "stores").iterdir() if place.is_dir()]) == 2


def test_a_sweep_repeats_a_preparation_that_was_killed(
    corpus: Path, tmp_path: Path, markings: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(done: Progress) -> None:
        if done.stage == "preparing":
            raise Stopped

    job = job_of(corpus, tmp_path, "plain")
    monkeypatch.setattr(tacit.training.marking, "_RECORDS_BETWEEN", 5)
    with pytest.raises(Stopped):
        perform(job, stop)
    before = markings[0]
    perform(job, quiet)
    assert markings[0] > before > 0
    assert verify(Path(job.folder)).holds
