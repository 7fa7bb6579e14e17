"""Corpora in memory: the same records, the same faults, the same ids each time."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tacit.data.corpus import LONGEST_RECORD, open_corpus, read, write_jsonl
from tacit.data.fields import Fields
from tacit.data.records import Record, Span
from tacit.errors import CorpusError

RECORDS = [
    Record("a", "My PIN is 4417.", "u1", "x", (Span(10, 14, "PIN"),)),
    Record("b", "Nothing here.", "u2", "y", ()),
    Record("c", "Not annotated."),
]


class Table:
    """A frame of another library: all that is known of it is its stream of Arrow batches."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self._table = pa.Table.from_pylist(rows)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


class Dataset:
    """A Hugging Face dataset, which is iterated over as dictionaries."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self._rows)


def rows() -> list[dict[str, Any]]:
    spans = [None if one.spans is None else [span._asdict() for span in one.spans] for one in RECORDS]
    return [
        {"id": one.id, "text": one.text, "user": one.user, "label": one.label, "spans": marked}
        for one, marked in zip(RECORDS, spans, strict=True)
    ]


@pytest.mark.parametrize(
    "source",
    [RECORDS, tuple(RECORDS), rows(), Dataset(rows()), Table(rows()), pa.Table.from_pylist(rows())],
    ids=["records", "tuple", "rows", "dataset", "frame", "pyarrow"],
)
def test_every_kind_of_source_gives_the_same_records_again_and_again(source: Any) -> None:  # noqa: ANN401
    reader = open_corpus(source)
    assert list(reader) == RECORDS
    assert list(reader) == RECORDS
    assert reader.tally.quarantined == 0


def test_a_file_is_read_as_ever_and_a_generator_once(tmp_path: Path) -> None:
    write_jsonl(RECORDS, tmp_path / "c.jsonl")
    assert list(open_corpus(tmp_path / "c.jsonl")) == list(read(tmp_path / "c.jsonl")) == RECORDS
    reader = open_corpus(one for one in RECORDS)
    assert list(open_corpus(reader)) == RECORDS
    with pytest.raises(CorpusError, match="at least one record"):
        list(reader)


def test_fields_may_have_other_names_and_spans_may_be_tuples() -> None:
    given: list[dict[str, Any]] = [{"body": "My PIN is 4417.", "customer": 7, "marks": [(10, 14, "PIN")]}]
    fields = Fields(text="body", user="customer", spans="marks")
    assert list(open_corpus(given, fields)) == [Record("row-1", given[0]["body"], "7", spans=RECORDS[0].spans)]
    with pytest.raises(CorpusError, match="customer"):
        list(open_corpus([{"body": "one"}], Fields(text="body", user="customer")))
    with pytest.raises(CorpusError, match="did you mean body"):
        open_corpus(pa.table({"body": ["one"]}), Fields(text="bodi"))


def test_bad_rows_are_counted_set_aside_and_never_quoted(tmp_path: Path) -> None:
    bad = [
        {"text": "fine"},
        "SECRET-TEXT",
        {"text": ""},
        {"text": "x" * (LONGEST_RECORD + 1)},
        Record("r", "SECRET-TEXT", spans=(Span(5, 99, "X"),)),
        Record("twice", "one"),
        Record("twice", "two"),
    ]
    reader = open_corpus(bad, quarantine=tmp_path / "bad.jsonl")  # type: ignore[arg-type]
    assert [record.id for record in reader] == ["row-1", "twice"]
    assert (reader.tally.read, reader.tally.usable) == (7, 2)
    lines = (tmp_path / "bad.jsonl").read_text().splitlines()
    assert [json.loads(line)["number"] for line in lines] == [2, 3, 4, 5, 7]
    assert "SECRET" not in "".join(lines)


@pytest.mark.parametrize("source", [{"train": RECORDS}, 7, b"bytes", None])
def test_what_is_no_corpus_is_refused(source: Any) -> None:  # noqa: ANN401
    with pytest.raises(CorpusError, match="one split of a dataset"):
        open_corpus(source)
