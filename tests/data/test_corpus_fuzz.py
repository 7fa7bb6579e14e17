"""Reading whatever may be in a file: against a slow twin, and without any crash."""

import json
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tacit.data.corpus import read
from tacit.data.records import Record
from tacit.errors import CorpusError


def corpus(folder: Path, data: bytes, name: str = "corpus.jsonl") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["start", "end", "kind"]), inner),
    max_leaves=6,
)
span_values = st.tuples(st.integers(-1, 6), st.integers(-1, 7), st.sampled_from(["A", "B"])).map(list)
objects = st.fixed_dictionaries(
    {},
    optional={
        "text": st.text(max_size=8) | json_values,
        "id": st.sampled_from(["a", "b", 1, "1"]) | json_values,
        "user": st.text(max_size=3) | json_values,
        "spans": st.lists(span_values, max_size=3) | json_values,
        "turns": st.lists(st.text(max_size=4), max_size=3) | json_values,
    },
)
raw_lines = st.one_of(
    objects.map(lambda value: json.dumps(value).encode()),
    objects.map(lambda value: json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")),
    st.binary(max_size=20).map(lambda data: data.replace(b"\n", b"")),
    st.sampled_from([b"", b" ", b"{}", b"\r", b'{"text": "plain"}']),
)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(raw_lines, max_size=12), st.sampled_from([b"\n", b"\r\n"]), st.booleans())
def test_reading_agrees_with_a_slow_twin_on_any_lines(
    tmp_path: Path, raw: list[bytes], line_end: bytes, last_end: bool
) -> None:
    """G2 and G3 too."""
    data = line_end.join(raw) + (line_end if last_end else b"")
    reader = read(corpus(tmp_path, data))
    records: list[Record] = []
    try:
        for record in reader:
            records.append(record)
    except CorpusError:
        assert not records
    assert [(record.id, record.text) for record in records] == _twin(data)
    non_blank = [piece for piece in data.removeprefix(b"\xef\xbb\xbf").split(b"\n") if piece.strip()]
    assert reader.tally.read == len(non_blank) == len(records) + reader.tally.quarantined
    assert reader.tally.usable == len(records)
    assert len({record.id for record in records}) == len(records)
    for record in records:
        assert record.text.strip()
        assert "\0" not in record.text
        covered = [place for start, end, _ in record.spans or () for place in range(start, end)]
        assert covered == sorted(set(covered))
        assert all(0 <= start < end <= len(record.text) for start, end, _ in record.spans or ())


def _unbroken(character: str) -> str:
    return " " if f".{character}.".splitlines() != [f".{character}."] else character


def _triple(item: Any) -> tuple[Any, Any, Any]:  # noqa: ANN401
    if isinstance(item, dict):
        return item.get("start"), item.get("end"), item.get("kind")
    assert isinstance(item, list)
    assert len(item) >= 3
    return item[0], item[1], item[2] if len(item) == 3 else item[3]


def _twin(data: bytes) -> list[tuple[str, str]]:
    """Ids and texts, the plain way: everything in memory, one check after the other."""
    found: dict[str, str] = {}
    for number, piece in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        try:
            row = json.loads(piece.decode())
            text = row.get("text")
            if text in (None, "") and row.get("turns") not in (None, ""):
                if row.get("spans") not in (None, ""):
                    continue
                turns = row["turns"]
                turns = json.loads(turns) if isinstance(turns, str) else turns
                assert isinstance(turns, list)
                assert all(isinstance(turn, str) for turn in turns)
                text = "".join("".join(map(_unbroken, turn)) + "\n" for turn in turns)
            assert isinstance(text, str)
            assert text.strip()
            spans = row.get("spans")
            if spans not in (None, ""):
                spans = json.loads(spans) if isinstance(spans, str) else spans
                if isinstance(spans, dict):
                    assert all(isinstance(column, list) for column in spans.values())
                    assert len(set(map(len, spans.values()))) < 2
                    spans = [dict(zip(spans, cells, strict=True)) for cells in zip(*spans.values(), strict=True)]
                assert isinstance(spans, list)
                taken: list[int] = []
                for start, end, kind in map(_triple, spans):
                    assert type(start) is type(end) is int
                    assert isinstance(kind, str)
                    assert 0 <= start < end <= len(text)
                    assert kind
                    assert kind.casefold() != text[start:end].casefold()
                    kind.encode()
                    taken += range(start, end)
                assert len(taken) == len(set(taken))
            names = [row.get(name) for name in ("id", "user", "label")]
            assert all(name is None or type(name) in (str, int) for name in names)
            strings = [str(name) for name in names if name is not None] + [text]
            "".join(strings).encode()
            assert not any("\0" in string for string in strings)
            record_id = f"line-{number}" if names[0] in (None, "") else str(names[0])
            assert record_id not in found
        except (ValueError, AssertionError, AttributeError, TypeError):
            continue
        found[record_id] = text
    return list(found.items())


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.binary(max_size=300), st.sampled_from(["csv", "txt", "jsonl.gz", "jsonl.xz", "jsonl.zst", "csv.gz", "parquet"])
)
def test_no_bytes_whatsoever_cause_anything_but_a_corpus_error(tmp_path: Path, data: bytes, ending: str) -> None:
    """G5."""
    data = b"text,id\n" + data if ending == "csv" else data
    try:
        reader = read(
            corpus(tmp_path, data, f"corpus.{ending}"), quarantine=tmp_path / "aside.jsonl", max_record_bytes=50
        )
    except CorpusError:
        return
    try:
        list(reader)
    except CorpusError:
        assert reader.tally.usable == 0
    assert reader.tally.usable + reader.tally.quarantined == reader.tally.read
