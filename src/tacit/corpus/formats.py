"""Rows of jsonl, csv and txt files, one at a time. A row that cannot be read is given as the `Fault` it is."""

import csv
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tacit.corpus.columns import check_columns
from tacit.corpus.quarantine import Fault, Place, Reason
from tacit.corpus.shape import Fields, Row, parse_json
from tacit.corpus.streams import Line, lines
from tacit.errors import CorpusError

Placed = tuple[Place, Row | Fault]


class Source(Protocol):
    """A corpus as rows. `brings_ids` is False when no row can have an id of its own."""

    @property
    def brings_ids(self) -> bool: ...

    def rows(self) -> Iterator[Placed]:
        """All rows from the start, each time it is called."""
        ...


@dataclass(frozen=True, slots=True)
class JsonLines:
    """One JSON object a line. Blank lines are no rows; the last line needs no line end."""

    path: Path
    max_record_bytes: int
    brings_ids: bool = True

    def rows(self) -> Iterator[Placed]:
        return _rows_of_lines(self.path, self.max_record_bytes, self._row)

    def _row(self, line: Line) -> Row | Fault:
        try:
            value = parse_json(_decoded(line, self.max_record_bytes))
        except Fault as fault:
            return fault
        return value if isinstance(value, dict) else Fault(Reason.NOT_AN_OBJECT, "a JSON value that is not an object")


@dataclass(frozen=True, slots=True)
class TextLines:
    """Each line that is not blank is a text."""

    path: Path
    text_field: str
    max_record_bytes: int
    brings_ids: bool = False

    def rows(self) -> Iterator[Placed]:
        return _rows_of_lines(self.path, self.max_record_bytes, self._row)

    def _row(self, line: Line) -> Row | Fault:
        try:
            return {self.text_field: _decoded(line, self.max_record_bytes)}
        except Fault as fault:
            return fault


def _rows_of_lines(path: Path, limit: int, row_of: Callable[[Line], Row | Fault]) -> Iterator[Placed]:
    number = 0
    try:
        for line in lines(path, limit):
            number = line.number
            if not _is_blank(line):
                yield Place("line", number, line.byte), row_of(line)
    except Fault as fault:
        yield Place("line", number + 1), fault


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
            for line in lines(self.path, self.max_record_bytes):
                if _is_blank(line):
                    if block or fault:
                        yield Place("block", number, byte), fault or {self.text_field: "\n".join(block)}
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
            if block or fault:
                yield Place("block", number, byte), fault or {self.text_field: "\n".join(block)}
        except Fault as file_fault:
            yield Place("block", number + 1), file_fault


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
                problem = Fault(Reason.BROKEN_CSV, "quotes or line ends that do not match")
            else:
                if not cells:
                    continue
                problem = feed.fault or self._columns_fault(cells)
            number += 1
            place = Place("row", number, feed.byte)
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

    def _columns_fault(self, cells: list[str]) -> Fault | None:
        if len(cells) == len(self._columns):
            return None
        return Fault(Reason.WRONG_COLUMNS, f"{len(cells)} cells under {len(self._columns)} columns")


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


def _is_blank(line: Line) -> bool:
    return line.data is not None and (not line.data or line.data.isspace())


def _decoded(line: Line, limit: int) -> str:
    """The line without its line end (a line feed, or carriage return and line feed)."""
    if line.data is None:
        raise _too_long(limit)
    return _text(line.data).removesuffix("\n").removesuffix("\r")


def _text(data: bytes) -> str:
    if b"\0" in data:
        raise Fault(Reason.NUL, f"a NUL byte, {data.index(0)} bytes after the start of the line")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise Fault(Reason.INVALID_UTF8, f"not UTF-8, {error.start} bytes after the start of the line") from None


def _too_long(limit: int) -> Fault:
    return Fault(Reason.TOO_LONG, f"longer than {limit} bytes")
