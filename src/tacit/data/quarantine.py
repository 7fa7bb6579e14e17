"""Bad records: why each was set aside, where it stands, and how many there were. Never what it said.

Which ids came before, in little memory.
"""

import hashlib
import json
import os
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self, TextIO

from tacit.common.files import owner_alone
from tacit.errors import CorpusError


class FaultReason(StrEnum):
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

    def __init__(self, reason: FaultReason, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail


class FilePosition(NamedTuple):
    """Where a record stands: `number` counts from 1 in `unit`s; `byte` is its offset after decompression."""

    unit: str
    number: int
    byte: int | None = None


@dataclass(slots=True)
class Tally:
    """How many records were read, how many of them are usable, and how many were set aside for each reason."""

    read: int = 0
    usable: int = 0
    reasons: Counter[FaultReason] = field(default_factory=Counter)

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

    def add(self, place: FilePosition, fault: Fault) -> None:
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


_DIGEST_BYTES = 16
_EMPTY = bytes(_DIGEST_BYTES)
_FIRST_SLOTS = 1 << 10


class SeenIds:
    """A set of ids that keeps 16 bytes of BLAKE2b of each, in an open-addressing table: 24 to 48 bytes an id.

    Ids are taken for equal when their digests are. Among n different ids that happens with probability below
    n^2 / 2^129: under 2e-21 for a billion. A table that grows holds its old half beside it for a moment.
    """

    def __init__(self) -> None:
        self._table = bytearray(_FIRST_SLOTS * _DIGEST_BYTES)
        self._count = 0

    def add(self, name: str) -> bool:
        """Remember `name`; False when it was there already."""
        if 3 * (self._count + 1) > 2 * (len(self._table) // _DIGEST_BYTES):
            self._grow()
        added = _insert(self._table, hashlib.blake2b(name.encode(), digest_size=_DIGEST_BYTES).digest())
        self._count += added
        return added

    def __len__(self) -> int:
        return self._count

    def _grow(self) -> None:
        table = bytearray(2 * len(self._table))
        for start in range(0, len(self._table), _DIGEST_BYTES):
            digest = bytes(self._table[start : start + _DIGEST_BYTES])
            if digest != _EMPTY:
                _insert(table, digest)
        self._table = table


def _insert(table: bytearray, digest: bytes) -> bool:
    start = int.from_bytes(digest[:8]) * _DIGEST_BYTES % len(table)
    while (found := table[start : start + _DIGEST_BYTES]) != _EMPTY:
        if found == digest:
            return False
        start = (start + _DIGEST_BYTES) % len(table)
    table[start : start + _DIGEST_BYTES] = digest
    return True
