"""Reading a corpus: records as they stream from a file, bad ones counted and set aside.

    reader = open_corpus("chats.jsonl.zst", Fields(user="customer"), quarantine=Path("bad.jsonl"))
    for record in reader: ...
    reader.tally

G1 (flat). Memory does not grow with the corpus. It grows with the longest record up to `max_record_bytes`, and with
   the writer's pages (Parquet) or batches (Arrow).
G2 (whole). After an iteration, usable + quarantined == read: nothing vanishes. Blank lines are not records.
G3 (tidy). Ids are unique; texts hold more than white space; spans are sorted, disjoint, non-empty and inside the text;
   no string holds a NUL character or half a surrogate pair.
G4 (stable). The same file gives the same records with the same ids each time; a record without an id gets one from
   its place, such as `line-12`.
G5 (unstoppable). A bad record never ends an iteration; a damaged end of the file counts as one bad record.
G6 (discreet). Neither errors nor the quarantine file hold a value from a record.

Writing records in the shape `read` reads: all of a file or none of it, for its owner alone.
"""

import gzip
import hashlib
import json
import lzma
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal, Protocol

from tacit.common.files import OWNER_ALONE, draft_of, open_file
from tacit.common.libraries import require_library
from tacit.data.fields import (
    DEFAULT_FIELDS,
    Fault,
    FaultReason,
    Fields,
    FilePosition,
    RawRow,
    bounded,
    record_of,
    row_of,
)
from tacit.data.quarantine import Quarantine, Tally, check_quarantine
from tacit.data.records import Record, Seen
from tacit.data.text_files import (
    COMPRESSIONS,
    CommaSeparated,
    Placed,
    RowPerLine,
    RowSource,
    TextBlocks,
    unreadable,
    zstd,
)
from tacit.errors import ConfigError, CorpusError

__all__ = ["CorpusReader", "CorpusSource", "Fields", "Tally", "TextRecords", "open_corpus", "read"]
TextRecords = Literal["line", "block"]
_COMPRESSIBLE = ("jsonl", "csv", "txt")
LONGEST_RECORD = 2_000_000
"""Bytes. A policy reads a record as one text, some seven microseconds per character at worst, without progress."""

IN_MEMORY = Path("records")  # the name of a corpus that has no file


class ArrowStream(Protocol):
    """A table in memory that gives its rows as a stream of Arrow batches."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The stream, as a capsule."""


CorpusSource = str | Path | Iterable[Record | Mapping[str, Any]] | ArrowStream


class CorpusReader:
    """A corpus that can be iterated over, again and again, one iteration at a time.

    `tally` belongs to the latest iteration and is complete when that ends; each iteration writes the quarantine anew.
    `share_read` is how much of the file has been read, None where places in it are not places on the disk.
    """

    def __init__(self, path: Path, source: RowSource, fields: Fields, quarantine: Path | None) -> None:
        self.path = path
        self.tally = Tally()
        self.share_read: float | None = None
        self._source = source
        self._fields = fields
        self._quarantine = quarantine

    def __iter__(self) -> Iterator[Record]:
        self.tally = tally = Tally()
        missing = self._fields.renamed()
        size = self.path.stat().st_size if self.path.suffix[1:] in _COMPRESSIBLE else 0
        with closing(Quarantine(self._quarantine)) as quarantine, closing(Seen()) as seen:
            for place, row in self._source.rows():
                tally.read += 1
                self.share_read = min(1.0, place.byte / size) if size and place.byte is not None else None
                try:
                    record = self._record(place, row, seen)
                except Fault as fault:
                    tally.reasons[fault.reason] += 1
                    quarantine.add(place, fault)
                    continue
                if missing and isinstance(row, Mapping):
                    missing -= row.keys()
                tally.usable += 1
                yield record
        self._check_outcome(tally, missing)

    def _record(self, place: FilePosition, row: RawRow | Fault, seen: Seen) -> Record:
        if isinstance(row, Fault):
            raise row
        record = record_of(row, self._fields, f"{place.unit}-{place.number}")
        if self._source.brings_ids and not seen.add(hashlib.sha256(record.id.encode()).digest()):
            raise Fault(FaultReason.DUPLICATE_ID, "an earlier record has this id")
        return record

    def _check_outcome(self, tally: Tally, missing: set[str]) -> None:
        if not tally.read:
            raise CorpusError(f"at least one record in {self.path}", "none", "check that this is the file you mean")
        if not tally.usable:
            raise CorpusError(
                expected=f"at least one usable record in {self.path}",
                found=str(tally),
                way_out="see the quarantine file for places and reasons; check the format and the names of the fields",
            )
        if missing:
            raise CorpusError(
                expected=f"the field {' and '.join(map(repr, sorted(missing)))} in some record of {self.path}",
                found=f"it in none of {tally.usable} records",
                way_out="check its spelling (--text-field and the like, or Fields)",
            )


def open_corpus(
    source: CorpusSource, fields: Fields = DEFAULT_FIELDS, quarantine: Path | str | None = None
) -> CorpusReader:
    """Any corpus as one stream of records.

    source: a file or folder (see `read`), records, rows (dictionaries), a table in memory (pandas, polars, pyarrow), or
    a Hugging Face dataset. What is in memory obeys G2 to G6, too; its records are called by their places, `row-12`.
    """
    if isinstance(source, str | Path):
        return read(source, fields, quarantine)
    if isinstance(source, CorpusReader):
        return source
    _check_fields(fields)
    aside = None if quarantine is None else Path(quarantine)
    return CorpusReader(IN_MEMORY, _rows_in_memory(source, fields), fields, aside)


def _rows_in_memory(source: object, fields: Fields) -> RowSource:
    if hasattr(source, "__arrow_c_stream__"):
        require_library("pyarrow", CorpusError)
        from tacit.data.arrow_files import Frame

        return Frame(source, IN_MEMORY, fields, LONGEST_RECORD)
    if isinstance(source, Iterable) and not isinstance(source, Mapping | bytes):
        return RowsInMemory(source, fields)
    raise CorpusError(
        expected="a corpus: a file, records, dictionaries, a table, or one split of a dataset",
        found=f"a {type(source).__name__}",
        way_out="give one of these; of a dictionary of datasets, one of its values",
    )


@dataclass(frozen=True, slots=True)
class RowsInMemory:
    """Records and dictionaries of a list, a generator or a dataset, in order."""

    given: Iterable[object]
    fields: Fields
    brings_ids: bool = True

    def rows(self) -> Iterator[Placed]:
        for number, item in enumerate(self.given, 1):
            yield FilePosition("row", number), bounded(self._row(item), LONGEST_RECORD)

    def _row(self, item: object) -> RawRow | Fault:
        if isinstance(item, Record):
            return row_of(item, self.fields)
        if isinstance(item, Mapping):
            return item
        return Fault(FaultReason.WRONG_TYPE, f"a {type(item).__name__}, neither a Record nor a dictionary")


def read(
    path: Path | str,
    fields: Fields = DEFAULT_FIELDS,
    quarantine: Path | str | None = None,
    *,
    txt_records: TextRecords | None = None,
    split: str | None = None,
    max_record_bytes: int = LONGEST_RECORD,
) -> CorpusReader:
    """The corpus at `path`: jsonl, csv or txt (also .gz, .xz, .zst), parquet, or a saved Hugging Face dataset's folder.

    `quarantine` gets one entry per bad record; without it they are only counted. `txt_records`: whether a txt file has
    one record per line (default) or per block of lines. `split` chooses from a dictionary of datasets. A longer line
    than `max_record_bytes` is skipped without being held in memory; a Parquet or Arrow cell is held, then refused.
    """
    path = Path(path)
    if max_record_bytes < 1:
        raise ConfigError("max_record_bytes of 1 or more", str(max_record_bytes), "give the longest record to accept")
    if not os.path.exists(path):  # unlike Path.exists, no error for a folder that may not be searched
        raise CorpusError(f"a corpus at {path}", "nothing there", "check the path")
    source = _source(path, fields, txt_records, split, max_record_bytes)
    aside = None if quarantine is None else Path(quarantine)
    if aside is not None:
        check_quarantine(aside, path)
    return CorpusReader(path, source, fields, aside)


def _source(
    path: Path, fields: Fields, txt_records: TextRecords | None, split: str | None, max_record_bytes: int
) -> RowSource:
    _check_fields(fields)
    format_name = "dataset" if path.is_dir() else _format_of(path)
    if txt_records is not None and format_name != "txt":
        raise ConfigError("txt_records with a txt file only", f"a {format_name} corpus", "leave txt_records out")
    if split is not None and format_name != "dataset":
        raise ConfigError("split with a saved dataset only", f"a {format_name} corpus", "leave split out")
    if format_name in ("dataset", "parquet"):
        require_library("pyarrow", CorpusError)
        from tacit.data.arrow_files import Parquet, SavedDataset, dataset_folder

    if format_name == "dataset":
        return SavedDataset(dataset_folder(path, split), fields, max_record_bytes)
    try:
        open_file(path).close()
    except OSError as error:
        raise unreadable(path, error) from error
    if format_name == "parquet":
        return Parquet(path, fields, max_record_bytes)
    if format_name == "csv":
        return CommaSeparated(path, fields, max_record_bytes)
    if format_name == "jsonl":
        return RowPerLine(path, max_record_bytes)
    if fields.renamed():
        raise ConfigError(
            "no Fields with a txt file", "renamed fields", "a txt file holds texts only: leave Fields out"
        )
    if txt_records == "block":
        return TextBlocks(path, fields.text, max_record_bytes)
    return RowPerLine(path, max_record_bytes, fields.text)


def _check_fields(fields: Fields) -> None:
    if len(set(fields.names())) < len(fields.names()):
        raise ConfigError("a different name for each of the Fields", ", ".join(fields.names()), "name each field once")


def _format_of(path: Path) -> str:
    """The format from the file's name, which may end in a compression."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    compressed = bool(suffixes) and suffixes[-1] in COMPRESSIONS
    stem = suffixes[:-1] if compressed else suffixes
    name = stem[-1].removeprefix(".") if stem else ""
    if name in _COMPRESSIBLE or (name == "parquet" and not compressed):
        return name
    raise CorpusError(
        expected=f"a file named .{', .'.join(_COMPRESSIBLE)} (each may be followed by {', '.join(COMPRESSIONS)}) "
        "or .parquet, or the folder of a saved Hugging Face dataset",
        found=f"{''.join(path.suffixes[-2:]) or 'no ending'} in {path.name}",
        way_out="rename or convert the file",
    )


def write_jsonl(records: Iterable[Record], path: Path | str, fields: Fields = DEFAULT_FIELDS) -> int:
    """Write `records` to `path` (.jsonl, or .jsonl with .gz, .xz or .zst) under these field names; how many they were.

    The file appears, or replaces an older one, when all records are written: after an error the older one is untouched.
    """
    path, count = Path(path), 0
    if not path.name.lower().endswith((".jsonl", *(f".jsonl{ending}" for ending in COMPRESSIONS))):
        raise CorpusError(
            f"a file named .jsonl, or .jsonl followed by {', '.join(COMPRESSIONS)}", path.name, "rename it"
        )
    try:
        with (
            draft_of(path, OWNER_ALONE) as draft,
            draft.open("wb") as file,
            _compressed(file, path.suffix.lower()) as stream,
        ):
            for count, record in enumerate(records, 1):  # noqa: B007
                _write(stream, record, fields)
    except OSError as error:
        raise CorpusError(
            expected=f"a file that can be written at {path}",
            found=error.strerror or "an error while writing",
            way_out="check that the folder exists, that you may write to it, and that the disk has room",
        ) from error
    return count


class _Sink(Protocol):
    def write(self, data: bytes, /) -> int: ...


def _write(stream: _Sink, record: Record, fields: Fields) -> None:
    try:
        line = json.dumps(row_of(record, fields), ensure_ascii=False).encode()
    except UnicodeEncodeError:  # which holds the text: it is not chained
        raise CorpusError(
            expected="records whose strings are Unicode text",
            found="half a surrogate pair in one of them",
            way_out="mend the text where it comes from",
        ) from None
    stream.write(line + b"\n")


def _compressed(file: IO[bytes], ending: str) -> AbstractContextManager[_Sink]:
    """A stream into `file` that compresses as `ending` says. Equal records give equal bytes: no time, no name."""
    if ending == ".gz":
        return gzip.GzipFile("", "wb", fileobj=file, mtime=0)
    if ending == ".xz":
        return lzma.LZMAFile(file, "wb")
    if ending == ".zst":
        return zstd.ZstdFile(file, "wb")
    return nullcontext(file)
