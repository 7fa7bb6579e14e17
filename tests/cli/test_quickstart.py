"""The whole way, small: every way is trained, attacked and put on the page; what a corpus does not allow is said."""

from pathlib import Path

import pytest

from tacit.api import five_ways as quick
from tacit.common.charts import Note, Table
from tacit.data.corpus import write_jsonl
from tacit.data.records import Record


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same ways with less of everything."""
    monkeypatch.setattr(quick, "DIALOGS", 12)
    monkeypatch.setitem(quick.SHARED, "model_config", {"embedding_size": 8, "hidden_size": 8, "dropout": 0.0})
    monkeypatch.setitem(quick.SHARED, "vocabulary_size", 300)
    for way in quick.WAYS.values():
        less = {"public_epochs": 1, "epochs": 1, "expected_batch_size": 10}
        monkeypatch.setitem(way, "plan", {**way["plan"], **{word: less[word] for word in less if word in way["plan"]}})


@pytest.mark.usefixtures("small")
def test_every_way_ends_on_the_page(tmp_path: Path) -> None:
    result = quick.quickstart(None, tmp_path / "quick")
    ways = result.ways
    assert [way.mechanism for way in ways] == ["plain", "redaction", "dpsgd", "selective", "crt"]
    assert all(way.trained is not None and way.audit is not None for way in ways)
    rows = {way.mechanism: way.row() for way in ways}
    assert rows["plain"][-1] == "none"
    assert rows["selective"][-1] == "epsilon 2 for a record's secrets"
    assert "pii" in (tmp_path / "quick" / "scan.html").read_text(encoding="utf-8")
    page = result.page.read_text(encoding="utf-8")
    assert all(way.mechanism in page for way in ways)
    *_, samples = result.tables()
    assert isinstance(samples, Table)
    assert [row[0] for row in samples.rows] == [way.mechanism for way in ways]
    assert any(row[1] for row in samples.rows)


@pytest.mark.slow
@pytest.mark.usefixtures("small")
def test_a_way_that_a_corpus_does_not_allow_is_said_and_the_others_go_on(tmp_path: Path) -> None:
    """A corpus in which every turn holds digits leaves crt nothing that is cleared."""
    corpus = tmp_path / "mine.jsonl"
    write_jsonl((Record(f"r{n}", f"code {n} of {n * n} was said by {n + 7}\n") for n in range(60)), corpus)
    result = quick.quickstart(corpus, tmp_path / "quick")
    ways = {way.mechanism: way for way in result.ways}
    assert ways["crt"].trained is None
    assert ways["crt"].row()[-1] == "not for this corpus"
    (_, refused) = result.tables()
    assert isinstance(refused, Note)
    assert refused.text.startswith("crt: expected fewer flagged records")
    assert ways["plain"].trained is not None
    assert result.page.exists()
    assert all(way.sample is None for way in result.ways), "a model's text of your own corpus, unasked"
