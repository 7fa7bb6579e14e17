"""Reading csv, txt, parquet and saved Hugging Face datasets."""

import csv
import io
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tacit.common import libraries
from tacit.data.corpus import CorpusReader, read
from tacit.data.fields import Fields
from tacit.data.records import Record, Seen, Span
from tacit.errors import ConfigError, CorpusError

SECRET = "Zebedee-4711"
Rows = Sequence[dict[str, Any]]


def corpus(folder: Path, data: bytes, name: str) -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def texts(reader: CorpusReader) -> list[str]:
    return [record.text for record in reader]


def reasons(reader: CorpusReader) -> dict[str, int]:
    return {str(reason): count for reason, count in reader.tally.reasons.items()}


# csv


def test_csv_with_quoted_line_ends_and_huge_cells(tmp_path: Path) -> None:
    huge = "y" * 300_000
    data = f'\ufefftext,id,spans\r\n"one\ntwo, ""three""",7,"[[0, 3, ""A""]]"\r\n\r\n{huge},,\r\n'.encode()
    assert list(read(corpus(tmp_path, data, "corpus.csv"))) == [
        Record("7", 'one\ntwo, "three"', spans=(Span(0, 3, "A"),)),
        Record("row-2", huge),
    ]


def test_bad_csv_rows_are_set_aside_one_by_one(tmp_path: Path) -> None:
    rows = [
        b"text,user",
        b"one,u",
        b"too,many,cells",
        b"few",
        b"\xff,u",
        b'"\xff over\ntwo lines",u',
        b"nul\0,u",
        b",u",
        b'"broken "quotes",u',
        b"long" * 100 + b",u",
        b"last,u",
    ]
    aside = tmp_path / "aside.jsonl"
    reader = read(corpus(tmp_path, b"\n".join(rows), "corpus.csv"), quarantine=aside, max_record_bytes=200)
    assert texts(reader) == ["one", "last"]
    entries = [json.loads(entry) for entry in aside.read_text().splitlines()]
    assert [(entry["number"], entry["reason"]) for entry in entries] == [
        (2, "wrong-number-of-columns"),
        (3, "wrong-number-of-columns"),
        (4, "invalid-utf8"),
        (5, "invalid-utf8"),
        (6, "nul-character"),
        (7, "empty-text"),
        (8, "broken-csv"),
        (9, "too-long"),
    ]
    data = b"\n".join(rows)
    assert [data[entry["byte"] :][:2] for entry in entries] == [row[:2] for row in rows[2:10]]
    assert (reader.tally.read, reader.tally.usable) == (10, 2)


def test_a_quote_that_is_never_closed_takes_no_more_than_the_limit(tmp_path: Path) -> None:
    data = b'text,user\n"open,u\n' + b"x,u\n" * 100
    aside = tmp_path / "aside.jsonl"
    reader = read(corpus(tmp_path, data, "corpus.csv"), quarantine=aside, max_record_bytes=200)
    assert texts(reader) == ["x"] * 51
    assert reasons(reader) == {"too-long": 1}
    assert json.loads(aside.read_text())["detail"] == "longer than 200 bytes (lines taken: 50)"
    with pytest.raises(CorpusError, match="1 read, 0 usable, 1 set aside: 1 broken-csv"):
        list(read(corpus(tmp_path, data, "corpus.csv")))


def test_missing_csv_columns_are_named(tmp_path: Path) -> None:
    path = corpus(tmp_path, b"txt,user_id\nx,y\n", "corpus.csv")
    with pytest.raises(CorpusError, match=r"the columns txt, user_id.*did you mean txt\?"):
        read(path)
    with pytest.raises(CorpusError, match=r"a column 'userid'.*did you mean user_id\?"):
        read(path, Fields(text="txt", user="userid"))
    with pytest.raises(CorpusError, match="2 of them"):
        read(corpus(tmp_path, b"text,text\nx,y\n", "corpus.csv"))
    for empty in (b"", b"\n", b"\xff\n"):
        with pytest.raises(CorpusError, match="a header"):
            read(corpus(tmp_path, empty, "corpus.csv"))


def test_a_csv_without_a_header_is_not_quoted_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="header in the first line") as caught:
        read(corpus(tmp_path, f"{SECRET},my name is {SECRET}\n".encode(), "corpus.csv"))
    assert SECRET not in str(caught.value)


cells = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(cells, cells), max_size=8))
def test_csv_agrees_with_the_standard_library_on_well_formed_files(tmp_path: Path, rows: list[tuple[str, str]]) -> None:
    file = io.StringIO(newline="")
    csv.writer(file).writerows([("text", "user"), *rows, ("last", "u")])
    reader = read(corpus(tmp_path, file.getvalue().encode(), "corpus.csv"))
    expected = [
        (f"row-{number}", text, user or None)
        for number, (text, user) in enumerate([*rows, ("last", "u")], 1)
        if text.strip()
    ]
    assert [(record.id, record.text, record.user) for record in reader] == expected


# txt


def test_txt_has_a_record_a_line_or_a_block(tmp_path: Path) -> None:
    path = corpus(tmp_path, b"\xef\xbb\xbf\r\n one\r\ntwo \r\n \t\r\n\nthree", "corpus.txt")
    assert [(record.id, record.text) for record in read(path)] == [
        ("line-2", " one"),
        ("line-3", "two "),
        ("line-6", "three"),
    ]
    assert [(record.id, record.text) for record in read(path, txt_records="block")] == [
        ("block-1", " one\ntwo "),
        ("block-2", "three"),
    ]
    with pytest.raises(ConfigError, match="txt file holds texts only"):
        read(path, Fields(text="body"))


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b"\xff", "invalid-utf8"),
        (b"\0", "nul-character"),
        (b"x" * 99, "too-long"),
        (b"x" * 30 + b"\n" + b"y" * 30, "too-long"),
    ],
)
def test_a_bad_line_spoils_its_block_only(tmp_path: Path, bad: bytes, reason: str) -> None:
    data = b"one\n\n" + b"before\n" + bad + b"\nafter\n\nlast\n"
    aside = tmp_path / "aside.jsonl"
    reader = read(corpus(tmp_path, data, "corpus.txt"), quarantine=aside, txt_records="block", max_record_bytes=50)
    assert [(record.id, record.text) for record in reader] == [("block-1", "one"), ("block-3", "last")]
    assert reasons(reader) == {reason: 1}
    entry = json.loads(aside.read_text())
    assert (entry["unit"], entry["number"], entry["byte"]) == ("block", 2, 5)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(["", " ", "a", " b", "é"]), max_size=12))
def test_blocks_agree_with_a_slow_twin(tmp_path: Path, pieces: list[str]) -> None:
    data = "\n".join([*pieces, "", "end"])
    blocks: list[list[str]] = [[]]
    for piece in data.split("\n"):
        if piece.strip():
            blocks[-1].append(piece)
        else:
            blocks.append([])
    reader = read(corpus(tmp_path, data.encode(), "corpus.txt"), txt_records="block")
    assert texts(reader) == ["\n".join(block) for block in blocks if block]


# parquet and Hugging Face, which are the same to a person


def write_parquet(folder: Path, table: Any) -> Path:  # noqa: ANN401  (pyarrow has no types)
    path = folder / "corpus.parquet"
    pq.write_table(table, path, row_group_size=3)
    return path


def write_dataset(folder: Path, table: Any, shards: int = 2) -> Path:  # noqa: ANN401
    """The layout of `save_to_disk`, checked against datasets 5.2."""
    path = folder / "dataset"
    path.mkdir(exist_ok=True)
    names = [f"data-{shard:05d}-of-{shards:05d}.arrow" for shard in range(shards)]
    size = -(-table.num_rows // shards)
    for shard, name in enumerate(names):
        with pa.OSFile(str(path / name), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table.slice(shard * size, size), max_chunksize=2)
    state = {"_data_files": [{"filename": name} for name in names], "_fingerprint": "f", "_split": None}
    (path / "state.json").write_text(json.dumps(state))
    (path / "dataset_info.json").write_text("{}")
    return path


TABLES: list[Callable[[Path, Any], Path]] = [write_parquet, write_dataset]
tables = pytest.mark.parametrize("write", TABLES)


@tables
def test_tables_with_nested_spans(tmp_path: Path, write: Callable[[Path, Any], Path]) -> None:
    rows: Rows = [
        {"id": 10 + n, "text": f"Bob {n}", "spans": [{"start": 0, "end": 3, "kind": "NAME"}][: n % 2], "x": n}
        for n in range(7)
    ]
    assert list(read(write(tmp_path, pa.Table.from_pylist(rows)))) == [
        Record(str(10 + n), f"Bob {n}", spans=(Span(0, 3, "NAME"),)[: n % 2]) for n in range(7)
    ]


@tables
def test_tables_with_columns_of_lists_and_with_turns(tmp_path: Path, write: Callable[[Path, Any], Path]) -> None:
    spans = {"start": [4], "end": [7], "kind": ["NAME"]}
    rows: Rows = [{"turns": [{"speaker": "A", "text": "I'm Bob", "spans": spans}, {"speaker": "B", "text": "Hi"}]}]
    (record,) = read(write(tmp_path, pa.Table.from_pylist(rows)))
    assert record == Record("row-1", "A: I'm Bob\nB: Hi\n", spans=(Span(7, 10, "NAME"),))


@tables
def test_bad_rows_of_tables(tmp_path: Path, write: Callable[[Path, Any], Path]) -> None:
    raw = [b"one", b"\xff" + SECRET.encode(), None, b" ", b"nul\0", b"x" * 200, b"two"]
    text = pa.array(raw, pa.binary()).view(pa.string())
    table = pa.table({"text": text, "user": pa.array(["u"] * 7)})
    aside = tmp_path / "aside.jsonl"
    reader = read(write(tmp_path, table), quarantine=aside, max_record_bytes=100)
    assert [(record.id, record.text) for record in reader] == [("row-1", "one"), ("row-7", "two")]
    entries = [json.loads(entry) for entry in aside.read_text().splitlines()]
    assert [(entry["number"], entry["reason"]) for entry in entries] == [
        (2, "invalid-utf8"),
        (3, "missing-text"),
        (4, "empty-text"),
        (5, "nul-character"),
        (6, "too-long"),
    ]
    assert SECRET not in aside.read_text()
    assert (reader.tally.read, reader.tally.usable) == (7, 2)


@tables
def test_duplicate_ids_and_wrong_types_in_tables(tmp_path: Path, write: Callable[[Path, Any], Path]) -> None:
    reader = read(write(tmp_path, pa.table({"text": ["a", "b", "c"], "id": ["1", "2", "1"]})))
    assert texts(reader) == ["a", "b"]
    with pytest.raises(CorpusError, match="2 wrong-type"):
        list(read(write(tmp_path, pa.table({"text": [1.5, 2.5]}))))


@tables
def test_missing_columns_of_tables_are_named(tmp_path: Path, write: Callable[[Path, Any], Path]) -> None:
    path = write(tmp_path, pa.table({"texts": ["a"], "cik": ["u"]}))
    with pytest.raises(CorpusError, match=r"did you mean texts\?"):
        read(path)
    assert [record.user for record in read(path, Fields(text="texts", user="cik"))] == ["u"]


def test_parquet_that_is_cut_off_or_damaged(tmp_path: Path) -> None:
    path = write_parquet(tmp_path, pa.table({"text": [f"text number {n}" for n in range(300)]}))
    whole = path.read_bytes()
    with pytest.raises(CorpusError, match="Parquet's beginning or end"):
        read(corpus(tmp_path, whole[:-100], "cut.parquet"))
    middle = len(whole) // 4
    reader = read(corpus(tmp_path, whole[:middle] + b"\xff" * 200 + whole[middle + 200 :], "damaged.parquet"))
    usable = texts(reader)
    assert 0 < len(usable) < 300
    assert reader.tally.quarantined == reader.tally.read - len(usable) > 0


def test_a_dataset_shard_that_is_cut_off(tmp_path: Path) -> None:
    """The other shards are read; what is missing counts as one bad record."""
    path = write_dataset(tmp_path, pa.table({"text": [f"text number {n}" for n in range(60)]}), shards=3)
    shard = path / "data-00001-of-00003.arrow"
    shard.write_bytes(shard.read_bytes()[:-700])
    reader = read(path)
    usable = texts(reader)
    before = len(usable) - 20
    assert 20 < before < 40
    assert usable == [f"text number {n}" for n in [*range(before), *range(40, 60)]]
    assert reasons(reader) == {"damaged-file": 1}
    with pa.OSFile(str(shard), "wb") as sink, pa.ipc.new_stream(sink, pa.schema([("other", pa.string())])) as writer:
        writer.write_table(pa.table({"other": ["x"]}))
    assert len(texts(reader)) == 40
    assert reasons(reader) == {"damaged-file": 1}


def test_a_dataset_shard_that_is_cut_off_between_two_batches(tmp_path: Path) -> None:
    path = write_dataset(tmp_path, pa.table({"text": ["a", "b"]}), shards=1)
    shard = path / "data-00000-of-00001.arrow"
    shard.write_bytes(shard.read_bytes()[:-8])
    reader = read(path)
    assert texts(reader) == ["a", "b"]
    assert reasons(reader) == {"damaged-file": 1}


def test_a_dictionary_of_datasets_needs_a_split(tmp_path: Path) -> None:
    for split in ("train", "test"):
        (tmp_path / split).mkdir()
        write_dataset(tmp_path / split, pa.table({"text": [split]})).rename(tmp_path / "moved")
        (tmp_path / split).rmdir()
        (tmp_path / "moved").rename(tmp_path / split)
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    assert texts(read(tmp_path, split="test")) == ["test"]
    with pytest.raises(CorpusError, match=r"splits train, test .*none named"):
        read(tmp_path)
    with pytest.raises(CorpusError, match=r"did you mean train\?"):
        read(tmp_path, split="trian")
    with pytest.raises(CorpusError, match="leave the split out"):
        read(tmp_path / "train", split="train")
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train"]}')
    assert texts(read(tmp_path)) == ["train"]


def test_folders_that_are_no_dataset(tmp_path: Path) -> None:
    path = write_dataset(tmp_path, pa.table({"text": ["a", "b"]}))
    with pytest.raises(CorpusError, match="the corpus itself"):
        read(path, quarantine=path / "aside.jsonl")
    for state in ("[", "[]", "{}", '{"_data_files": [1]}', '{"_data_files": [{"filename": "../data.arrow"}]}'):
        (path / "state.json").write_text(state)
        with pytest.raises(CorpusError, match=r"state\.json"):
            read(path)
    (path / "state.json").write_text('{"_data_files": [{"filename": "absent.arrow"}]}')
    with pytest.raises(CorpusError, match=r"no file absent\.arrow"):
        read(path)
    (path / "state.json").write_text('{"_data_files": [{"filename": "dataset_info.json"}]}')
    with pytest.raises(CorpusError, match="not Arrow"):
        read(path)
    (path / "state.json").write_text('{"_indices_data_files": [{"filename": "x"}]}')
    with pytest.raises(CorpusError, match="flatten_indices"):
        read(path)


# ids


@given(st.lists(st.binary(max_size=2), max_size=60))
def test_seen_digests_agree_with_a_set(digests: list[bytes]) -> None:
    twin = set[bytes]()
    with closing(Seen()) as seen:
        for digest in digests:
            assert seen.add(digest) == (digest not in twin)
            twin.add(digest)


def test_seen_digests_are_remembered_while_there_are_more_of_them() -> None:
    with closing(Seen()) as seen:
        assert all(seen.add(number.to_bytes(16)) for number in range(5_000))
        assert not any(seen.add(number.to_bytes(16)) for number in range(5_000))


def test_text_formats_need_no_arrow_and_tables_name_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = "import sys, tacit.data.corpus; sys.exit('pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
    written = [write(tmp_path, pa.table({"text": ["one"]})) for write in TABLES]

    def missing(package: str) -> str:
        raise PackageNotFoundError(package)

    monkeypatch.setattr(libraries, "version", missing)
    for path in written:
        with pytest.raises(CorpusError, match=r'pip install "tacit\[arrow\]"'):
            read(path)
