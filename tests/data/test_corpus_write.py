"""Writing records and reading them back."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tacit.data.corpus import read, write_jsonl
from tacit.data.records import Record, Span
from tacit.errors import CorpusError

ENDINGS = ["", ".gz", ".xz", ".zst"]
names = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=6)


@st.composite
def records(draw: st.DrawFn) -> Record:
    text = draw(names.filter(lambda text: not text.isspace()))
    ends = sorted(draw(st.sets(st.integers(0, len(text)), max_size=6)))
    spans = tuple(Span(start, end, "long kind") for start, end in zip(ends[::2], ends[1::2], strict=False))
    maybe = st.none() | names
    return Record(draw(names), text, user=draw(maybe), label=draw(maybe), spans=draw(st.sampled_from([None, spans])))


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(records(), min_size=1, max_size=6, unique_by=lambda record: record.id), st.sampled_from(ENDINGS))
def test_what_is_written_is_read_back(tmp_path: Path, written: list[Record], ending: str) -> None:
    path = tmp_path / f"out.jsonl{ending}"
    assert write_jsonl(iter(written), path) == len(written)
    assert list(read(path)) == written
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".")]


@pytest.mark.parametrize("ending", ENDINGS)
def test_equal_records_give_equal_bytes(tmp_path: Path, ending: str) -> None:
    first, second = tmp_path / f"a.jsonl{ending}", tmp_path / f"b.jsonl{ending}"
    for path in (first, second):
        write_jsonl([Record("1", "x")], path)
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize("ending", ENDINGS)
def test_an_error_leaves_the_older_file_and_nothing_else(tmp_path: Path, ending: str) -> None:
    def broken() -> Iterator[Record]:
        yield Record("1", "new")
        raise KeyboardInterrupt

    path = tmp_path / f"out.jsonl{ending}"
    write_jsonl([Record("1", "old")], path)
    with pytest.raises(KeyboardInterrupt):
        write_jsonl(broken(), path)
    assert [record.text for record in read(path)] == ["old"]
    assert os.listdir(tmp_path) == [path.name]


def test_what_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"\.jsonl"):
        write_jsonl([], tmp_path / "out.csv")
    with pytest.raises(CorpusError, match="No such file"):
        write_jsonl([], tmp_path / "absent" / "out.jsonl")
    with pytest.raises(CorpusError, match="surrogate") as caught:
        write_jsonl([Record("1", "Zebedee \ud800")], tmp_path / "out.jsonl")
    assert "Zebedee" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert os.listdir(tmp_path) == []
