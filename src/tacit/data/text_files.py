"""Rows of jsonl, csv and txt files, one at a time, decompressed as they come, in lines of bounded length.

A row that cannot be read is given as the `Fault` it is.
"""

import csv
import gzip
import io
import lzma
import sys
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from tacit.common.files import open_file
from tacit.data.fields import Fault, FaultReason, Fields, FilePosition, RawRow, check_columns, parse_json
from tacit.errors import CorpusError

if sys.version_info >= (3, 14):
    from compression import zstd as zstd
else:
    from backports import zstd as zstd


_DECOMPRESS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open, ".zst": zstd.open}
COMPRESSIONS = tuple(_DECOMPRESS)
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_SKIP_BYTES = 1 << 16


class FileLine(NamedTuple):
    """One line with its line end: its number from 1, its byte offset; no data when it is longer than the limit."""

    number: int
    byte: int
    data: bytes | None


def lines(path: Path, limit: int) -> Iterator[FileLine]:
    """The lines of `path`, a byte order mark left out. Holds at most `limit` bytes of a line, however long it is.

    Ends with a `Fault` where the file is cut off or damaged: every complete line before that was given.
    """
    number, byte = 0, 0
    try:
        open_file(path).close()  # never a device or a pipe, which may have no end
        decompress = _DECOMPRESS.get(path.suffix.lower())
        with io.BufferedReader(io.FileIO(path), 1 << 18) if decompress is None else decompress(path, "rb") as stream:
            while data := stream.readline(limit + 1):
                number += 1
                start, byte = byte, byte + len(data)
                if len(data) > limit and not data.endswith(b"\n"):
                    while data and not data.endswith(b"\n"):
                        data = stream.readline(_SKIP_BYTES)
                        byte += len(data)
                    yield FileLine(number, start, None)
                else:
                    yield FileLine(number, start, data.removeprefix(_BYTE_ORDER_MARK) if start == 0 else data)
    except EOFError as error:
        raise Fault(FaultReason.TRUNCATED_FILE, f"the compressed file is cut off after line {number}") from error
    except (zlib.error, lzma.LZMAError, zstd.ZstdError, gzip.BadGzipFile) as error:
        raise Fault(FaultReason.DAMAGED_FILE, f"the compressed file is damaged after line {number}") from error
    except OSError as error:
        raise unreadable(path, error) from error


def unreadable(path: Path, error: OSError) -> CorpusError:
    """The error for a file the operating system does not give us."""
    return CorpusError(
        expected=f"a corpus that can be read at {path}",
        found=error.strerror or "an error while reading",
        way_out="check the path, that you may read it, and the disk",
    )


Placed = tuple[FilePosition, RawRow | Fault]


class RowSource(Protocol):
    """A corpus as rows. `brings_ids` is False when no row can have an id of its own."""

    @property
    def brings_ids(self) -> bool: ...

    def rows(self) -> Iterator[Placed]:
        """All rows from the start, each time it is called."""
        ...


@dataclass(frozen=True, slots=True)
class RowPerLine:
    """Each line that is not blank is a JSON object, or with `text_field` a text; the last line needs no line end."""

    path: Path
    max_record_bytes: int
    text_field: str | None = None

    @property
    def brings_ids(self) -> bool:
        return self.text_field is None

    def rows(self) -> Iterator[Placed]:
        number = 0
        try:
            for line in lines(self.path, self.max_record_bytes):
                number = line.number
                if not _is_blank(line):
                    yield FilePosition("line", number, line.byte), self._row(line)
        except Fault as fault:
            yield FilePosition("line", number + 1), fault

    def _row(self, line: FileLine) -> RawRow | Fault:
        try:
            text = _decoded(line, self.max_record_bytes)
            value = parse_json(text) if self.text_field is None else {self.text_field: text}
        except Fault as fault:
            return fault
        return value if isinstance(value, dict) else Fault(FaultReason.NOT_AN_OBJECT, "JSON that is not an object")


@dataclass(frozen=True, slots=True)
class TextBlocks:
    """Lines up to a blank line are one text, joined by line feeds."""

    path: Path
    text_field: str
    max_record_bytes: int
    brings_ids: bool = False

    def rows(self) -> Iterator[Placed]:
        number, byte, size = 0, 0, 0
        block: list[str] = []
        fault: Fault | None = None
        try:
            for line in chain(lines(self.path, self.max_record_bytes), [FileLine(0, 0, b"")]):
                if _is_blank(line):
                    if block or fault:
                        yield FilePosition("block", number, byte), fault or {self.text_field: "\n".join(block)}
                    block, fault, size = [], None, 0
                    continue
                if not block and fault is None:
                    number, byte = number + 1, line.byte
                try:
                    size += len(line.data or b"")
                    if size > self.max_record_bytes:
                        raise _too_long(self.max_record_bytes)
                    text = _decoded(line, self.max_record_bytes)
                    if fault is None:
                        block.append(text)
                except Fault as new_fault:
                    block, fault = [], fault or new_fault
        except Fault as file_fault:
            yield FilePosition("block", number + 1), file_fault


class CommaSeparated:
    """Comma-separated values with a header, quoted as in RFC 4180; blank lines between rows are no rows.

    A quote that is never closed swallows lines until the quoting breaks or the row is longer than allowed; those
    lines are one bad row, and reading goes on with the next line.
    """

    def __init__(self, path: Path, fields: Fields, max_record_bytes: int) -> None:
        self._path = path
        self._limit = max_record_bytes
        # The module's limit of 128 KiB a field is global to the process; ours takes its place and is kept below.
        csv.field_size_limit(max(csv.field_size_limit(), max_record_bytes))
        self._columns = self._header()
        check_columns(self._columns, fields, path)
        self.brings_ids = fields.id in self._columns

    def rows(self) -> Iterator[Placed]:
        feed = _CsvFeed(self._path, self._limit)
        reader = csv.reader(feed, strict=True)
        next(reader)
        number = 0
        while True:
            feed.start_row()
            cells: list[str] = []
            problem: Fault | None
            try:
                cells = next(reader)
            except StopIteration:
                return
            except Fault as fault:
                problem = fault
            except csv.Error:
                problem = Fault(FaultReason.BROKEN_CSV, "quotes or line ends that do not match")
            else:
                if not cells:
                    continue
                problem = feed.fault
                if problem is None and len(cells) != len(self._columns):
                    found = f"{len(cells)} cells under {len(self._columns)} columns"
                    problem = Fault(FaultReason.WRONG_COLUMNS, found)
            number += 1
            place = FilePosition("row", number, feed.byte)
            if problem is None:
                yield place, dict(zip(self._columns, cells, strict=True))
            else:
                yield place, Fault(problem.reason, f"{problem.detail} (lines taken: {feed.lines})")

    def _header(self) -> list[str]:
        feed = _CsvFeed(self._path, self._limit)
        feed.start_row()
        try:
            columns = next(csv.reader(feed, strict=True), [])
            fault = feed.fault
        except (csv.Error, Fault):
            columns, fault = [], None
        if not columns or fault is not None:
            raise CorpusError(
                expected=f"a header with the names of the columns in the first line of {self._path}",
                found="a first line that is empty or cannot be read as comma-separated UTF-8",
                way_out="put a header there, and save the file as UTF-8",
            )
        return columns


class _CsvFeed:
    """Hands lines to `csv.reader`, and remembers what is wrong with those of the current row."""

    def __init__(self, path: Path, limit: int) -> None:
        self._lines = lines(path, limit)
        self._limit = limit
        self.start_row()

    def start_row(self) -> None:
        self.fault: Fault | None = None
        self.byte: int | None = None
        self.lines = 0
        self._size = 0

    def __iter__(self) -> "_CsvFeed":
        return self

    def __next__(self) -> str:
        line = next(self._lines)
        self.lines += 1
        self.byte = line.byte if self.byte is None else self.byte
        self._size += len(line.data or b"")
        if line.data is None or self._size > self._limit:
            raise _too_long(self._limit)
        try:
            return _text(line.data)
        except Fault as fault:  # the quoting must still be followed to find where the row ends
            self.fault = fault
            return line.data.decode("utf-8", "replace")


def _is_blank(line: FileLine) -> bool:
    return line.data is not None and (not line.data or line.data.isspace())


def _decoded(line: FileLine, limit: int) -> str:
    """The line without its line end (a line feed, or carriage return and line feed)."""
    if line.data is None:
        raise _too_long(limit)
    return _text(line.data).removesuffix("\n").removesuffix("\r")


def _text(data: bytes) -> str:
    if b"\0" in data:
        raise Fault(FaultReason.NUL, f"a NUL byte, {data.index(0)} bytes after the start of the line")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise Fault(FaultReason.INVALID_UTF8, f"not UTF-8, {error.start} bytes after the start of the line") from None


def _too_long(limit: int) -> Fault:
    return Fault(FaultReason.TOO_LONG, f"longer than {limit} bytes")
