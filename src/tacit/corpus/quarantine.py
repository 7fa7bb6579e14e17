"""Bad records: why each was set aside, where it stands, and how many there were. Never what it said."""

import json
import os
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self, TextIO

from tacit.errors import CorpusError
from tacit.private_files import owner_alone


class Reason(StrEnum):
    """Why a record was set aside."""

    INVALID_UTF8 = "invalid-utf8"
    NUL = "nul-character"
    LONE_SURROGATE = "lone-surrogate"
    BROKEN_JSON = "broken-json"
    NOT_FINITE = "not-a-finite-number"
    NESTED_TOO_DEEPLY = "nested-too-deeply"
    NOT_AN_OBJECT = "not-an-object"
    BROKEN_CSV = "broken-csv"
    WRONG_COLUMNS = "wrong-number-of-columns"
    MISSING_TEXT = "missing-text"
    EMPTY_TEXT = "empty-text"
    WRONG_TYPE = "wrong-type"
    BAD_SPANS = "bad-spans"
    DUPLICATE_ID = "duplicate-id"
    TOO_LONG = "too-long"
    TRUNCATED_FILE = "truncated-file"
    DAMAGED_FILE = "damaged-file"


class Fault(Exception):
    """One record cannot be used. `detail` is for people and holds numbers, types and names of fields, never values."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail


class Place(NamedTuple):
    """Where a record stands: `number` counts from 1 in `unit`s; `byte` is its offset after decompression."""

    unit: str
    number: int
    byte: int | None = None


@dataclass(slots=True)
class Tally:
    """How many records were read, how many of them are usable, and how many were set aside for each reason."""

    read: int = 0
    usable: int = 0
    reasons: Counter[Reason] = field(default_factory=Counter)

    @property
    def quarantined(self) -> int:
        return self.reasons.total()

    def __str__(self) -> str:
        counts = ", ".join(f"{count} {reason}" for reason, count in self.reasons.most_common())
        return f"{self.read} read, {self.usable} usable, {self.quarantined} set aside" + (
            f": {counts}" if counts else ""
        )


class Quarantine:
    """A JSON-lines file with one entry a bad record, made when the first one comes; without a path, nothing is kept."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._file: TextIO | None = None

    def __enter__(self) -> Self:
        if self._path is not None:
            try:
                self._path.unlink(missing_ok=True)  # entries of an earlier reading would accuse today's records
            except OSError as error:
                raise not_writable(self._path, error.strerror or "an error while deleting it") from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, place: Place, fault: Fault) -> None:
        """Write one entry."""
        if self._path is None:
            return
        entry = {"unit": place.unit, "number": place.number, "byte": place.byte}
        try:
            if self._file is None:
                opened = owner_alone(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
                self._file = os.fdopen(opened, "w", encoding="utf-8", newline="\n")
            self._file.write(json.dumps(entry | {"reason": fault.reason, "detail": fault.detail}) + "\n")
            self._file.flush()
        except OSError as error:
            raise not_writable(self._path, error.strerror or "an error while writing") from error


def check_quarantine(quarantine: Path, corpus: Path) -> None:
    """Refuse a quarantine file that cannot be written, or that is (in) the corpus itself, before any work is done."""
    if quarantine.is_dir():
        raise not_writable(quarantine, "a folder")
    if quarantine.exists() and not quarantine.is_file():
        raise not_writable(quarantine, "a device or the like, which a new file would replace")
    if not quarantine.absolute().parent.is_dir():
        raise not_writable(quarantine, "a folder that does not exist")
    resolved, source = quarantine.resolve(), corpus.resolve()
    if resolved == source or source in resolved.parents:
        raise not_writable(quarantine, "the corpus itself, which would be overwritten")
    was_there = quarantine.exists()
    try:
        quarantine.open("ab").close()
    except OSError as error:
        raise not_writable(quarantine, error.strerror or "an error") from error
    if not was_there:
        quarantine.unlink()


def not_writable(path: Path, found: str) -> CorpusError:
    """The error for a quarantine file that cannot be written."""
    return CorpusError(
        expected=f"a quarantine file that can be written at {path}",
        found=found,
        way_out="name a file in a folder you may write to, or leave it out to count bad records only",
    )
