"""The whole way, small: every way is trained, attacked and put on the page; what a corpus does not allow is said."""

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest

from tacit import quickstart as quick
from tacit.common.progress import Observer, Progress
from tacit.data.corpus import write_jsonl
from tacit.data.records import Record


def _unwatched(_: str) -> AbstractContextManager[Observer]:
    def nobody(_: Progress) -> None:
        """Sees nothing."""

    return nullcontext(nobody)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same ways with less of everything."""
    monkeypatch.setattr(quick, "DIALOGS", 12)
    monkeypatch.setattr(quick, "PUBLIC_DIALOGS", 12)
    monkeypatch.setitem(quick.SHARED, "model_config", {"embedding_size": 8, "hidden_size": 8, "dropout": 0.0})
    monkeypatch.setitem(quick.SHARED, "vocabulary_size", 280)
    for way in quick.WAYS.values():
        less = {"public_epochs": 1, "epochs": 1, "expected_batch_size": 10}
        monkeypatch.setitem(way, "plan", {**way["plan"], **{word: less[word] for word in less if word in way["plan"]}})


@pytest.mark.usefixtures("small")
def test_every_way_ends_on_the_page(tmp_path: Path) -> None:
    ways = list(quick.quickstart(tmp_path / "quick", None, _unwatched))
    assert [way.mechanism for way in ways] == ["plain", "redaction", "dpsgd", "selective", "crt"]
    assert all(way.trained is not None and way.audit is not None for way in ways)
    lines = {way.mechanism: way.line() for way in ways}
    assert "no guarantee" in lines["plain"]
    assert "epsilon 2 for a record's secrets" in lines["selective"]
    assert "pii" in (tmp_path / "quick" / "scan.html").read_text(encoding="utf-8")
    page = quick.compare(tmp_path / "quick", ways).read_text(encoding="utf-8")
    assert all(way.mechanism in page for way in ways)


@pytest.mark.usefixtures("small")
def test_a_way_that_a_corpus_does_not_allow_is_said_and_the_others_go_on(tmp_path: Path) -> None:
    """A corpus in which every turn holds digits leaves crt nothing that is cleared."""
    corpus = tmp_path / "mine.jsonl"
    write_jsonl((Record(f"r{n}", f"code {n} of {n * n} was said by {n + 7}\n") for n in range(60)), corpus)
    ways = {way.mechanism: way for way in quick.quickstart(tmp_path / "quick", corpus, _unwatched)}
    assert ways["crt"].trained is None
    assert ways["crt"].line().startswith("crt        not for this corpus: expected fewer flagged records")
    assert ways["plain"].trained is not None
    assert quick.compare(tmp_path / "quick", list(ways.values())).exists()
