"""A corpus is read once and a policy asked once for each record; what is marked survives a kill and does not leave."""

import stat
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from marking import records_of
from runs import experiment, quiet, write_corpus
from tacit.common import workers
from tacit.common.progress import Progress
from tacit.config.load import load_config
from tacit.data.corpus import CorpusReader
from tacit.data.marked import CANARY, MarkedCorpus, MarkedRecord, Marks, Part, Refusal, Split
from tacit.data.records import Record, Span
from tacit.errors import PolicyError
from tacit.policies import marking
from tacit.policies.marking import Policies, Unmarked, mark_all
from tacit.policies.patterns import Capitals, Digits, Gold
from tacit.policies.policy import Policy
from tacit.runs.folder import RunFolder
from tacit.runs.release import PrivateFile
from tacit.training.stages import resume, train

SHAPE = {"embedding_size": 8, "hidden_size": 8}
CASES: dict[str, dict[str, Any]] = {
    "dpsgd": {},
    "selective": {"tokenizer": "bpe", "vocabulary_size": 300},
    "crt": {"conservative_policy": "gold", "segment_by": "turn"},
    "uedp": {"user_source": "dealt", "entity_kinds": None},
}


@pytest.mark.parametrize("mechanism", CASES)
def test_one_run_reads_once_and_asks_once(mechanism: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a second pass over the corpus, and a policy that marks a record again."""
    corpus = write_corpus(tmp_path, 40)
    asked: Counter[tuple[str, str]] = Counter()
    opened: Counter[str] = Counter()
    for policy in (Digits, Gold):
        monkeypatch.setattr(policy, "find", _counting(policy, asked))
    iterate = CorpusReader.__iter__

    def counted(self: CorpusReader) -> Iterator[Record]:
        opened[str(self.path)] += 1
        return iterate(self)

    monkeypatch.setattr(CorpusReader, "__iter__", counted)
    more = {"policy": "digits", "model_config": SHAPE, **CASES[mechanism]}
    if mechanism != "uedp":  # whose users are dealt
        more["canaries"] = [{"template": "my code is {4 digits}", "count": 3, "inside_probability": 1.0}]
    settings = experiment(corpus, mechanism, {"expected_batch_size": 2}, **more)
    train(settings, tmp_path / "run", quiet)
    assert opened == {str(corpus): 1}
    assert set(asked.values()) == {1}
    sides = {side: {record.id for record in records_of(settings, side)} for side in (Split.TRAIN, Split.VALIDATION)}
    digits = {name for policy, name in asked if policy == "Digits" and not name.startswith("canary")}
    assert digits == sides[Split.TRAIN] | sides[Split.VALIDATION]
    doubted = {name for policy, name in asked if policy == "Gold"}
    assert doubted <= sides[Split.TRAIN]
    assert bool(doubted) == (mechanism == "crt")
    assert not (tmp_path / "run" / "private" / PrivateFile.MARKED).exists()


def _counting(policy: type[Policy], asked: Counter[tuple[str, str]]) -> Any:  # noqa: ANN401
    find = policy.find

    def counted(self: Policy, record: Record) -> tuple[Span, ...]:
        asked[type(self).__name__, record.id] += 1
        return find(self, record)

    return counted


class Stopped(Exception):
    """The process died."""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nobody disturbed."""
    folder = tmp_path_factory.mktemp("undisturbed")
    bpe: dict[str, Any] = {"tokenizer": "bpe", "vocabulary_size": 300}
    train(
        experiment(write_corpus(folder, 40), "selective", policy="digits", model_config=SHAPE, **bpe),
        folder / "run",
        quiet,
    )
    return folder / "run"


@pytest.mark.parametrize("harm", ["none", "cut", "changed", "no summary"])
def test_what_was_marked_before_a_kill_is_used_if_it_is_whole_and_redone_if_not(
    harm: str, undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = load_config(RunFolder.view(undisturbed).read_json(dict, PrivateFile.SETTINGS))
    asked: Counter[tuple[str, str]] = Counter()

    def dies(*_: object) -> None:
        raise Stopped

    with monkeypatch.context() as patched:
        patched.setattr("tacit.training.prepared.prepare_stores", dies)
        with pytest.raises(Stopped):
            train(settings, tmp_path / "run", quiet)
    private = tmp_path / "run" / "private"
    files = sorted((private / PrivateFile.MARKED).iterdir())
    assert [path.name for path in files] == [f"{part}.jsonl.zst" for part in sorted(Part)]
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert stat.S_IMODE((private / PrivateFile.MARKED).stat().st_mode) == 0o700
    largest = max(files, key=lambda path: path.stat().st_size)
    content = largest.read_bytes()
    if harm == "cut":
        largest.write_bytes(content[:-7])
    elif harm == "changed":
        largest.write_bytes(content[:99] + bytes([content[99] ^ 1]) + content[100:])
    elif harm == "no summary":
        (private / PrivateFile.SUMMARY).unlink()
    monkeypatch.setattr(Digits, "find", _counting(Digits, asked))
    resume(tmp_path / "run", quiet)
    assert bool(asked) == (harm != "none")
    models = [(run / "release" / "model.safetensors").read_bytes() for run in (undisturbed, tmp_path / "run")]
    assert models[0] == models[1]
    assert not (private / PrivateFile.MARKED).exists()


def test_a_run_that_died_while_it_marked_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = write_corpus(tmp_path, 20)
    monkeypatch.setattr("tacit.training.marking._RECORDS_BETWEEN", 7)

    def dies(progress: Progress) -> None:
        raise Stopped

    settings = experiment(corpus, "redaction", policy="digits", model_config=SHAPE)
    with pytest.raises(Stopped):
        train(settings, tmp_path / "run", dies)
    private = tmp_path / "run" / "private"
    assert not (private / PrivateFile.MARKED).exists()
    assert not (private / PrivateFile.SUMMARY).exists()
    assert resume(tmp_path / "run", quiet).set_aside == 0


MARKED = [
    MarkedRecord(Record("a", "Zoë 😀\nline two", "ann", "x"), Marks((Span(0, 3, "NAME"),), True)),
    MarkedRecord(Record("b", "nothing"), Marks((), False)),
    MarkedRecord(Record("c", "half \ud800"), Marks((), False, Refusal("spans", "none", "label it"))),
]


def test_marked_records_are_read_as_they_were_written(tmp_path: Path) -> None:
    corpus = MarkedCorpus(tmp_path / "marked")
    with corpus.written() as write:
        for one in MARKED:
            write(Part.TRAIN, one)
    assert list(corpus.records(Part.TRAIN)) == MARKED
    assert list(corpus.records(Part.HELD_OUT)) == []
    assert corpus.is_intact(corpus.hashes())
    with pytest.raises(PolicyError, match="none"):
        MARKED[2].divided()
    with suppress(Stopped), corpus.written() as write:
        write(Part.TRAIN, MARKED[0])
        raise Stopped
    assert list(tmp_path.iterdir()) == [], "an unfinished corpus leaves nothing"
    corpus.remove()


def test_processes_mark_as_one_does_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marking, "_BATCH_RECORDS", 7)
    records = [Unmarked(Part.TRAIN, Record(f"r{n}", f"Call {n} or Ann." if n % 3 else "it rained")) for n in range(60)]
    marker = Policies(Digits(), Capitals())
    alone = list(mark_all(marker, records))
    monkeypatch.setattr(marking, "SECONDS_ALONE", -1.0)
    monkeypatch.setattr(marking, "cores", lambda: 2)
    assert list(mark_all(marker, records)) == alone
    assert [one for one, _ in alone] == records


class HereAlone(Digits):
    """A policy that other processes cannot be given."""

    def __reduce__(self) -> str:
        raise TypeError("not today")


def test_a_policy_that_cannot_be_sent_marks_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marking, "SECONDS_ALONE", -1.0)
    records = [Unmarked(Part.TRAIN, Record("r", "Call 5"))]
    assert [marks.flagged for _, marks in mark_all(Policies(HereAlone()), records)] == [True]
    assert not workers.can_be_sent(HereAlone())
    assert workers.can_be_sent(Policies(Digits(), Capitals()))


def test_a_canary_that_is_known_is_marked_and_one_that_is_not_is_left_to_the_policy() -> None:
    for known in (True, False):
        record = Record("canary", "my word is oak", spans=(Span(11, 14, CANARY),) if known else ())
        assert bool(Policies(Digits()).mark(Unmarked(Part.PLANTED, record)).spans) == known
        assert not Policies(Digits()).mark(Unmarked(Part.TRAIN, record)).spans
