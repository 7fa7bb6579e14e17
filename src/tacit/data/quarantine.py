"""Bad records: counted, and noted in a file with the reason and the place of each, never with what it contains."""

import json
import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from tacit.common.files import owner_alone
from tacit.data.fields import Fault, FaultReason, FilePosition
from tacit.errors import CorpusError


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
        why = f": {counts}" if counts else ""
        return f"{self.read} read, {self.usable} usable, {self.quarantined} set aside{why}"


class Quarantine:
    """A JSON-lines file with one entry per bad record, made when the first one comes; without a path, none is kept."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._file: TextIO | None = None
        if path is not None:
            try:
                path.unlink(missing_ok=True)  # entries of an earlier reading would accuse today's records
            except OSError as error:
                raise not_writable(path, error.strerror or "an error while deleting it") from error

    def close(self) -> None:
        """Close the file, if there is one."""
        if self._file is not None:
            self._file.close()

    def add(self, place: FilePosition, fault: Fault) -> None:
        if self._path is None:
            return
        entry = place._asdict() | {"reason": fault.reason, "detail": fault.detail}
        try:
            if self._file is None:
                opened = owner_alone(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
                self._file = os.fdopen(opened, "w", encoding="utf-8", newline="\n")
            self._file.write(json.dumps(entry) + "\n")
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
