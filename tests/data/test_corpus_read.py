"""Reading jsonl: what is a record, what is set aside and why, and what an iteration promises."""

import gzip
import json
import lzma
import os
import random
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tacit.data.corpus import CorpusReader, read
from tacit.data.fields import FaultReason, Fields
from tacit.data.records import Record, Span
from tacit.data.text_files import zstd
from tacit.errors import ConfigError, CorpusError

GOOD = b'{"id": "good", "text": "fine"}\n'
SECRET = "Zebedee-4711"
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".zst": zstd.compress,
}


def corpus(folder: Path, data: bytes, name: str = "corpus.jsonl") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def line(**fields: Any) -> bytes:  # noqa: ANN401  (any JSON value)
    return json.dumps(fields).encode() + b"\n"


def only(folder: Path, data: bytes) -> Record:
    (record,) = read(corpus(folder, data))
    return record


def reasons(reader: CorpusReader) -> dict[str, int]:
    return {str(reason): count for reason, count in reader.tally.reasons.items()}


def test_all_fields_are_read_under_their_own_names(tmp_path: Path) -> None:
    data = line(key=7, body="Hi Bob", who=3, topic="greeting", marks=[[3, 6, "NAME"]], other=[1])
    fields = Fields(text="body", id="key", user="who", label="topic", spans="marks")
    assert list(read(corpus(tmp_path, data), fields)) == [
        Record("7", "Hi Bob", user="3", label="greeting", spans=(Span(3, 6, "NAME"),))
    ]


@pytest.mark.parametrize("ending", COMPRESS)
def test_blank_lines_are_no_records_and_the_last_line_needs_no_end(tmp_path: Path, ending: str) -> None:
    data = b'\xef\xbb\xbf{"text": "one"}\r\n\n  \r\n{"text": "two"}'
    reader = read(corpus(tmp_path, COMPRESS[ending](data), f"corpus.jsonl{ending}"))
    assert [(record.id, record.text) for record in reader] == [("line-1", "one"), ("line-4", "two")]
    assert (reader.tally.read, reader.tally.usable) == (2, 2)


@pytest.mark.parametrize("ending", [".gz", ".zst", ".xz"])
def test_compressed_files_glued_together_are_one(tmp_path: Path, ending: str) -> None:
    compress = COMPRESS[ending]
    path = corpus(tmp_path, compress(line(text="a")) + compress(line(text="b")), f"corpus.jsonl{ending}")
    assert [record.text for record in read(path)] == ["a", "b"]


@pytest.mark.parametrize(
    "spans",
    [
        [[8, 12, "B"], [0, 2, "A"]],
        [{"start": 8, "end": 12, "kind": "B"}, {"start": 0, "end": 2, "kind": "A", "note": 1}],
        [[8, 12, "group", "B"], [0, 2, "group", "A", SECRET]],
        {"start": [8, 0], "end": [12, 2], "kind": ["B", "A"]},
        '[[8, 12, "B"], [0, 2, "A"]]',
    ],
)
def test_every_shape_of_spans(tmp_path: Path, spans: object) -> None:
    assert only(tmp_path, line(text="x" * 12, spans=spans)).spans == (Span(0, 2, "A"), Span(8, 12, "B"))


@pytest.mark.parametrize(("spans", "expected"), [(None, None), ("", None), ([], ()), ("[]", ())])
def test_no_annotation_and_no_secrets_are_different(tmp_path: Path, spans: object, expected: object) -> None:
    assert only(tmp_path, line(text="x", spans=spans)).spans == expected


def test_turns_become_lines_and_their_spans_move(tmp_path: Path) -> None:
    turns = [
        {"speaker": "USER", "text": "I am Bob\nand Eve", "spans": [[13, 16, "svc", "name"], [5, 8, "svc", "name"]]},
        {"speaker": "SYSTEM", "text": "Hello!", "spans": []},
        {"text": "At 5 pm", "spans": [{"start": 3, "end": 7, "kind": "time"}]},
    ]
    record = only(tmp_path, line(turns=turns))
    assert record.text == "USER: I am Bob and Eve\nSYSTEM: Hello!\nAt 5 pm\n"
    assert record.spans is not None
    assert [(record.text[start:end], kind) for start, end, kind in record.spans] == [
        ("Bob", "name"),
        ("Eve", "name"),
        ("5 pm", "time"),
    ]


def test_turns_may_be_bare_strings(tmp_path: Path) -> None:
    record = only(tmp_path, line(turns=["Hi", "Ho\u2028ho"]))
    assert (record.text, record.spans) == ("Hi\nHo ho\n", None)


def test_text_counts_when_there_are_turns_too(tmp_path: Path) -> None:
    assert only(tmp_path, line(text="whole", turns=["part"])).text == "whole"


deep = b'{"text": "x", "more": ' + b"[" * 200_000 + b"]" * 200_000 + b"}\n"
BAD: list[tuple[FaultReason, bytes]] = [
    (FaultReason.INVALID_UTF8, b'{"text": "\xff Zebedee-4711"}\n'),
    (FaultReason.INVALID_UTF8, b'{"text": "\xed\xa0\x80 Zebedee-4711"}\n'),
    (FaultReason.NUL, b'{"text": "\x00 Zebedee-4711"}\n'),
    (FaultReason.NUL, rb'{"text": "\u0000 Zebedee-4711"}' + b"\n"),
    (FaultReason.LONE_SURROGATE, rb'{"text": "\ud800 Zebedee-4711"}' + b"\n"),
    (FaultReason.LONE_SURROGATE, rb'{"text": "x", "id": "Zebedee-4711 \udc00"}' + b"\n"),
    (FaultReason.BROKEN_JSON, b'{"text": "Zebedee-4711\n'),
    (FaultReason.BROKEN_JSON, b'{"text": "Zebedee-4711"} Zebedee-4711\n'),
    (FaultReason.BROKEN_JSON, b'{"text": "Zebedee-4711", "id": ' + b"7" * 5000 + b"}\n"),
    (FaultReason.BROKEN_JSON, line(text="x", spans=f"[[0, {SECRET}")),
    (FaultReason.NOT_FINITE, b'{"text": "Zebedee-4711", "score": NaN}\n'),
    (FaultReason.NOT_FINITE, b'{"text": "Zebedee-4711", "score": -Infinity}\n'),
    (FaultReason.NESTED_TOO_DEEPLY, deep),
    (FaultReason.NOT_AN_OBJECT, b'["Zebedee-4711"]\n'),
    (FaultReason.NOT_AN_OBJECT, b'"Zebedee-4711"\n'),
    (FaultReason.MISSING_TEXT, line(id=SECRET)),
    (FaultReason.MISSING_TEXT, line(text=None, id=SECRET)),
    (FaultReason.EMPTY_TEXT, line(text="", id=SECRET)),
    (FaultReason.EMPTY_TEXT, line(text=" \n\t\u00a0", id=SECRET)),
    (FaultReason.EMPTY_TEXT, line(turns=[{"speaker": SECRET, "text": " "}])),
    (FaultReason.EMPTY_TEXT, line(turns=[], id=SECRET)),
    (FaultReason.WRONG_TYPE, line(text=[SECRET])),
    (FaultReason.WRONG_TYPE, line(text=SECRET, id=1.5)),
    (FaultReason.WRONG_TYPE, line(text=SECRET, user=True)),
    (FaultReason.WRONG_TYPE, line(text=SECRET, label=[SECRET])),
    (FaultReason.WRONG_TYPE, line(text=SECRET, spans=3)),
    (FaultReason.WRONG_TYPE, line(text=SECRET, spans={"start": [0], "end": [1, 2], "kind": ["A"]})),
    (FaultReason.WRONG_TYPE, line(text=SECRET, spans={"start": 0})),
    (FaultReason.WRONG_TYPE, line(text=SECRET, spans=[[0, 1]])),
    (FaultReason.WRONG_TYPE, line(text=SECRET, spans=[[0, 1.0, "A"]])),
    (FaultReason.WRONG_TYPE, line(text=SECRET, spans=[[False, True, "A"]])),
    (FaultReason.WRONG_TYPE, line(text=SECRET, spans=[["0", SECRET, "A"]])),
    (FaultReason.WRONG_TYPE, line(text=SECRET, spans=[[0, 1, None]])),
    (FaultReason.WRONG_TYPE, line(text=SECRET, spans=[[0, 1, ""]])),
    (FaultReason.WRONG_TYPE, line(text=SECRET, spans=[{"start": 0, "end": 1}])),
    (FaultReason.WRONG_TYPE, line(turns=SECRET.join("[]").join('""'))),
    (FaultReason.WRONG_TYPE, line(turns=[{"speaker": SECRET}])),
    (FaultReason.WRONG_TYPE, line(turns=[[SECRET]])),
    (FaultReason.BAD_SPANS, line(text=SECRET, spans=[[0, 99, "A"]])),
    (FaultReason.BAD_SPANS, line(text=SECRET, spans=[[-1, 2, "A"]])),
    (FaultReason.BAD_SPANS, line(text=SECRET, spans=[[2, 2, "A"]])),
    (FaultReason.BAD_SPANS, line(text=SECRET, spans=[[3, 2, "A"]])),
    (FaultReason.BAD_SPANS, line(text=SECRET, spans=[[0, 3, "A"], [2, 4, "B"]])),
    (FaultReason.BAD_SPANS, line(text=SECRET, spans=[[0, 12, "NAME", SECRET.lower()]])),
    (FaultReason.BAD_SPANS, line(turns=[{"text": SECRET, "spans": [[0, 13, "A"]]}, SECRET])),
    (FaultReason.BAD_SPANS, line(turns=[SECRET], spans=[[0, 1, "A"]])),
    (FaultReason.DUPLICATE_ID, line(text=SECRET, id="good")),
    (FaultReason.TOO_LONG, line(text=SECRET * 100_000)),
]


@pytest.mark.parametrize(("reason", "data"), BAD, ids=[f"{reason}-{number}" for number, (reason, _) in enumerate(BAD)])
def test_bad_records_are_set_aside_with_their_reason(tmp_path: Path, reason: FaultReason, data: bytes) -> None:
    """Also G5 (what follows is read) and G6 (neither the entry nor the error quotes the record)."""
    path = corpus(tmp_path, GOOD + data + line(text="after"))
    aside = tmp_path / "aside.jsonl"
    reader = read(path, quarantine=aside, max_record_bytes=1_000_000)
    assert [record.text for record in reader] == ["fine", "after"]
    assert reasons(reader) == {reason: 1}
    (entry,) = map(json.loads, aside.read_text().splitlines())
    assert (entry["unit"], entry["number"], entry["byte"], entry["reason"]) == ("line", 2, len(GOOD), reason)
    assert SECRET.lower() not in aside.read_text().lower()


def test_wholly_bad_files_say_why_without_quoting(tmp_path: Path) -> None:
    data = b"".join(data for reason, data in BAD if reason is not FaultReason.DUPLICATE_ID)
    reader = read(corpus(tmp_path, data), max_record_bytes=1_000_000)
    with pytest.raises(CorpusError, match=r"set aside: \d+ wrong-type") as caught:
        list(reader)
    assert SECRET not in str(caught.value)
    assert reader.tally.quarantined == reader.tally.read == len(BAD) - 1


@pytest.mark.parametrize("data", [b"", b"\n\n", b"\xef\xbb\xbf"])
def test_empty_files_are_an_error(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(CorpusError, match=r"at least one record in .*found none"):
        list(read(corpus(tmp_path, data)))


def test_the_longest_line_allowed_is_read(tmp_path: Path) -> None:
    data = line(text="x" * 100)
    limit = len(data) - 1
    reader = read(corpus(tmp_path, data + data.replace(b'"}', b'y"}') + GOOD), max_record_bytes=limit)
    assert [record.text for record in reader] == ["x" * 100, "fine"]
    assert reasons(reader) == {"too-long": 1}


@pytest.mark.parametrize("ending", [".gz", ".xz", ".zst"])
@pytest.mark.parametrize("share", [0.3, 0.7, 0.999])
def test_a_file_cut_off_gives_every_complete_line_it_holds(tmp_path: Path, ending: str, share: float) -> None:
    rows = [line(text=f"{number} " + "".join(chr(97 + number * k % 26) for k in range(200))) for number in range(3000)]
    whole = COMPRESS[ending](b"".join(rows))
    part = whole[: int(share * len(whole))]
    readable = {".gz": _gunzip, ".xz": _unxz, ".zst": _unzstd}[ending](part)
    reader = read(corpus(tmp_path, part, f"corpus.jsonl{ending}"), quarantine=tmp_path / "aside.jsonl")
    assert len(list(reader)) == readable.count(b"\n") > 0
    assert reasons(reader) == {"truncated-file": 1}
    assert reader.tally.read == reader.tally.usable + 1


def _gunzip(part: bytes) -> bytes:
    return zlib.decompressobj(wbits=31).decompress(part)


def _unxz(part: bytes) -> bytes:
    return lzma.LZMADecompressor().decompress(part)


def _unzstd(part: bytes) -> bytes:
    return zstd.ZstdDecompressor().decompress(part)


@pytest.mark.parametrize("ending", [".gz", ".xz", ".zst"])
def test_damage_is_one_bad_record(tmp_path: Path, ending: str) -> None:
    numbers = [str(random.Random(seed).getrandbits(256)) for seed in range(5_000)]
    whole = bytearray(COMPRESS[ending](b"".join(line(text=number) for number in numbers)))
    whole[len(whole) // 2 : len(whole) // 2 + 64] = bytes(range(64))
    reader = read(corpus(tmp_path, bytes(whole), f"corpus.jsonl{ending}"))
    texts = [record.text for record in reader]
    assert reader.tally.reasons[FaultReason.DAMAGED_FILE] == 1
    assert reader.tally.read == len(texts) + reader.tally.quarantined
    assert texts[:100] == numbers[:100]


def test_a_file_that_is_not_compressed_at_all(tmp_path: Path) -> None:
    for ending in (".gz", ".xz", ".zst"):
        with pytest.raises(CorpusError, match="1 damaged-file"):
            list(read(corpus(tmp_path, GOOD, f"corpus.jsonl{ending}")))


def test_iterating_again_gives_the_same_records_tally_and_quarantine(tmp_path: Path) -> None:
    """G4."""
    aside = tmp_path / "aside.jsonl"
    reader = read(corpus(tmp_path, GOOD + b"junk\n" + line(text="x") + line(id=5, text="y")), quarantine=aside)
    first, first_tally, first_aside = list(reader), reader.tally, aside.read_text()
    assert list(reader) == first
    assert [record.id for record in first] == ["good", "line-3", "5"]
    assert (reader.tally, aside.read_text()) == (first_tally, first_aside)
    assert reader.tally is not first_tally


def test_no_bad_record_no_quarantine_file(tmp_path: Path) -> None:
    aside = tmp_path / "aside.jsonl"
    aside.write_text("from an earlier reading")
    list(read(corpus(tmp_path, GOOD), quarantine=aside))
    assert not aside.exists()


def test_a_made_id_may_not_repeat_a_given_one(tmp_path: Path) -> None:
    data = line(text="a", id="line-2") + line(text="b") + line(text="c") + line(text="d", id="line-3")
    reader = read(corpus(tmp_path, data))
    assert [record.text for record in reader] == ["a", "c"]
    assert reasons(reader) == {"duplicate-id": 2}


def test_a_bad_record_does_not_take_its_id_away(tmp_path: Path) -> None:
    reader = read(corpus(tmp_path, line(id=1, text="") + line(id="1", text="x")))
    assert [record.id for record in reader] == ["1"]


def test_a_field_that_was_renamed_but_never_found_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="'custmer'"):
        list(read(corpus(tmp_path, line(text="x", customer="y")), Fields(user="custmer")))


def test_impossible_requests_are_refused_at_once(tmp_path: Path) -> None:
    path = corpus(tmp_path, GOOD)
    folder = tmp_path / "empty"
    folder.mkdir()
    with pytest.raises(CorpusError, match="nothing there"):
        read(tmp_path / "absent.jsonl")
    with pytest.raises(CorpusError, match=r"without state\.json"):
        read(folder)
    with pytest.raises(CorpusError, match=r"\.jsonl, \.csv, \.txt .*\.gz, \.xz, \.zst.*\.parquet.*found \.json in"):
        read(corpus(tmp_path, GOOD, "corpus.json"))
    with pytest.raises(CorpusError, match=r"found \.parquet\.gz"):
        read(corpus(tmp_path, GOOD, "corpus.parquet.gz"))
    with pytest.raises(CorpusError, match="no ending"):
        read(corpus(tmp_path, GOOD, "corpus"))
    with pytest.raises(ConfigError, match="txt_records"):
        read(path, txt_records="line")
    with pytest.raises(ConfigError, match="split"):
        read(path, split="train")
    with pytest.raises(ConfigError, match="max_record_bytes"):
        read(path, max_record_bytes=0)
    with pytest.raises(ConfigError, match="different name"):
        read(path, Fields(text="body", label="body"))


def test_a_quarantine_that_cannot_be_written_is_refused_at_once(tmp_path: Path) -> None:
    path = corpus(tmp_path, GOOD)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for aside, found in (
        (tmp_path, "a folder"),
        (pipe, "a device"),
        (tmp_path / "no" / "x", "does not exist"),
        (path, "the corpus itself"),
    ):
        with pytest.raises(CorpusError, match=found):
            read(path, quarantine=aside)
    with pytest.raises(CorpusError, match="quarantine file that can be written"):
        read(path, quarantine=Path("/proc/aside.jsonl"))
    assert path.read_bytes() == GOOD


@pytest.mark.shared_data
def test_schema_guided_dialogs_keep_their_spans() -> None:
    """Every span of a real corpus of dialogs covers the same characters after the turns were joined."""
    default = Path(__file__).parents[3] / "shared" / "data"
    path = Path(os.environ.get("TACIT_DATA", default)) / "sgd" / "dev.jsonl.xz"
    if not path.exists():
        pytest.skip("sgd/dev.jsonl.xz is not in TACIT_DATA")
    records = {record.id: record for record in read(path)}
    with lzma.open(path, "rt") as file:
        dialogs = list(map(json.loads, file))
    assert len(records) == len(dialogs)
    for dialog in dialogs:
        record = records[dialog["id"]]
        expected = [
            (turn["text"][start:end], kind) for turn in dialog["turns"] for start, end, _, kind in sorted(turn["spans"])
        ]
        assert [(record.text[start:end], kind) for start, end, kind in record.spans or ()] == expected
        assert len(record.text.splitlines()) == len(dialog["turns"])


def test_share_read_grows_to_the_end_of_a_plain_file(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    path.write_text("".join(f'{{"id": "{n}", "text": "some text"}}\n' for n in range(100)))
    reader = read(path)
    shares = [reader.share_read for _ in reader]
    assert all(share is not None for share in shares)
    assert shares == sorted(share for share in shares if share is not None)
    assert shares[0] == 0.0
    assert (shares[-1] or 0) > 0.98
