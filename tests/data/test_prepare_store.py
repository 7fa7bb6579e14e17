"""The prepared store: apart, all or nothing, opened without a scan."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest
from test_prepare_views import Annotated

from marking import prepare
from tacit.data.prepare import PrepareConfig
from tacit.data.records import Record, Span
from tacit.data.store import PRIVATE, PUBLIC, PreparedCorpus, StoreWriter, user_key
from tacit.data.tokenizer import byte_tokenizer
from tacit.data.views import PublicTokens
from tacit.errors import PrepareError, RunError

RECORDS = (
    Record("a/1", "I am Ann. Call 12.", user="ann", label="greeting", spans=(Span(5, 8, "NAME"), Span(15, 17, "TEL"))),
    Record("é", "Nothing to hide.", label="", spans=()),
    Record("b", "x" * 40, user="bo"),
)


def build(folder: Path, records: tuple[Record, ...] = RECORDS) -> PreparedCorpus:
    return prepare(records, Annotated(), byte_tokenizer(), folder, PrepareConfig(max_tokens=32))


@pytest.fixture
def store(tmp_path: Path) -> PreparedCorpus:
    return build(tmp_path / "store")


def test_rows_give_back_what_went_in(store: PreparedCorpus) -> None:
    tokenizer = byte_tokenizer()
    assert len(store) == 4
    assert [store.record_id(row) for row in range(4)] == ["a/1", "é", "b", "b"]
    assert [store.label(row) for row in range(4)] == ["greeting", "", None, None]
    assert store.records.tolist() == [0, 1, 2, 2]
    assert store.pieces.tolist() == [0, 0, 0, 1]
    assert store.users.tolist() == [user_key(name) for name in ("ann", None, "bo", "bo")]
    assert store.kinds(0) == ("NAME", "TEL")
    assert store.span_counts().tolist() == [2, 0, 0, 0]
    assert tokenizer.decode(store.redacted(0)) == "I am <MASK>. Call <MASK>."
    assert tokenizer.decode(store.full(0).tokens) == RECORDS[0].text
    assert store.redacted(0).dtype == "<u2"
    store.verify()


def public_content(store: PreparedCorpus) -> list[bytes]:
    paths = [store.folder / "header.json", *sorted((store.folder / PUBLIC).iterdir())]
    return [path.read_bytes() for path in paths]


def test_g1_public_files_say_nothing_of_the_secrets(store: PreparedCorpus, tmp_path: Path) -> None:
    spans = (Span(5, 19, "NAME"), Span(26, 27, "TEL"))
    longer = replace(RECORDS[0], text="I am Nebuchadnezzar. Call 7.", spans=spans)
    assert public_content(build(tmp_path / "longer", (longer, *RECORDS[1:]))) == public_content(store)
    other_public = replace(RECORDS[0], text="I am Nebuchadnezzar. Call 7!", spans=spans)
    assert public_content(build(tmp_path / "other", (other_public, *RECORDS[1:]))) != public_content(store)


def test_g2_only_full_reads_private_columns(store: PreparedCorpus) -> None:
    class Forbidden(dict[str, Any]):
        def __getitem__(self, name: str) -> NoReturn:
            raise AssertionError(f"read {name}")

    store._private = Forbidden()
    for row in range(len(store)):
        store.redacted(row), store.kinds(row), store.positions(row), store.record_id(row), store.label(row)
    store.span_counts(), store.users, store.records, store.pieces
    with pytest.raises(AssertionError):
        store.full(0)


def test_g3_an_interrupted_writer_leaves_nothing(tmp_path: Path) -> None:
    class Stop(Exception):
        pass

    def broken() -> NoReturn:
        raise Stop

    with pytest.raises(Stop):
        prepare(
            (RECORDS[0] if n < 600 else broken() for n in range(601)), Annotated(), byte_tokenizer(), tmp_path / "s"
        )
    assert list(tmp_path.iterdir()) == []


def test_g3_a_folder_that_exists_is_left_alone(store: PreparedCorpus) -> None:
    with pytest.raises(PrepareError):
        build(store.folder)
    store.verify()
    with pytest.raises(RunError, match="no such file or directory"):
        build(store.folder / "no" / "such" / "parent")


FILES = ["header.json", "private/header.json", "public/tokens.bin", "public/ids.bin", "private/secrets.bin"]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", ["missing", "cut", "extended", "foreign"])
def test_g4_damage_is_found_when_opening(name: str, damage: str, store: PreparedCorpus) -> None:
    path = store.folder / name
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
    elif damage == "foreign":
        path.write_bytes(b'{"format": "other"}')
    else:
        path.write_bytes(content[:-1] if damage == "cut" else content + b"\x00")
    with pytest.raises(PrepareError):
        PreparedCorpus(store.folder)


@pytest.mark.parametrize(
    ("field", "value"), [("version", 2), ("format", "other"), ("kinds", 3), ("columns", {}), ("surprise", 1)]
)
def test_g4_a_header_of_another_kind_is_refused(field: str, value: object, store: PreparedCorpus) -> None:
    path = store.folder / "header.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {field: value}))
    with pytest.raises(PrepareError):
        PreparedCorpus(store.folder)


def test_g4_the_private_part_of_another_store_is_refused(store: PreparedCorpus, tmp_path: Path) -> None:
    other = build(tmp_path / "other", RECORDS[:1])
    shutil.rmtree(store.folder / PRIVATE)
    shutil.copytree(other.folder / PRIVATE, store.folder / PRIVATE)
    with pytest.raises(PrepareError):
        PreparedCorpus(store.folder)


@pytest.mark.parametrize("name", ["public/offsets.bin", "public/positions.bin", "private/secret_offsets.bin"])
def test_changed_content_is_found_by_reading_and_by_verify(name: str, store: PreparedCorpus) -> None:
    path = store.folder / name
    path.write_bytes(path.read_bytes()[:-1] + b"\xff" if "offsets" in name else b"\xff" * path.stat().st_size)
    opened = PreparedCorpus(store.folder)
    with pytest.raises(PrepareError):
        opened.verify()
    with pytest.raises(PrepareError):
        [opened.full(row) for row in range(len(opened))]


@pytest.mark.parametrize("row", [-1, 4])
def test_a_row_that_is_not_there_is_refused(row: int, store: PreparedCorpus) -> None:
    with pytest.raises(PrepareError):
        store.redacted(row)


def test_a_store_cannot_be_written_to(store: PreparedCorpus) -> None:
    with pytest.raises(ValueError, match="read-only"):
        store.redacted(0)[0] = 1


def test_nothing_in_the_corpus_is_a_store_too(tmp_path: Path) -> None:
    assert len(build(tmp_path / "none", ())) == 0
    PreparedCorpus(tmp_path / "none").verify()


@pytest.mark.parametrize(("vocabulary_size", "bytes_per_token"), [(1 << 16, 2), ((1 << 16) + 1, 4)])
def test_tokens_are_as_narrow_as_the_vocabulary(vocabulary_size: int, bytes_per_token: int, tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path, vocabulary_size)
    writer.add(0, 0, Record("r", ""), PublicTokens([vocabulary_size - 1], [], ()), ())
    writer._public["tokens"].close()
    assert (tmp_path / PUBLIC / "tokens.bin").stat().st_size == bytes_per_token
    writer.abandon()
