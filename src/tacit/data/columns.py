"""Columns of a prepared store: files of raw little-endian numbers, whose type, length and SHA-256 are in its header."""

import hashlib
from array import array
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

from tacit.common.files import sync_file
from tacit.errors import PrepareError

_BUFFERED_NUMBERS = 1 << 12
_CODES = {1: "B", 2: "H", 4: "I", 8: "Q"}
_TYPES = "^<u[248]$|^\\|u1$"


class Header(BaseModel):
    """A header of a store: frozen, checked, without other fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class ColumnHeader(Header):
    """What a column's file must contain."""

    type: str = Field(pattern=_TYPES)
    length: int = Field(ge=0)
    sha256: str


class ColumnWriter:
    """Appends numbers to a new file, in memory that does not grow."""

    def __init__(self, path: Path, number_type: str) -> None:
        self.file = path.open("xb")
        self._type = np.dtype(number_type)
        self._buffer = array(_CODES[self._type.itemsize])
        self._hash = hashlib.sha256()
        self.length = 0

    def extend(self, numbers: Iterable[int]) -> None:
        before = len(self._buffer)
        self._buffer.extend(numbers)
        self.length += len(self._buffer) - before
        if len(self._buffer) >= _BUFFERED_NUMBERS:
            self._flush()

    def append(self, number: int) -> None:
        self.extend((number,))

    def close(self) -> ColumnHeader:
        self._flush()
        self.file.close()
        sync_file(Path(self.file.name))
        return ColumnHeader(type=self._type.str, length=self.length, sha256=self._hash.hexdigest())

    def _flush(self) -> None:
        content = np.array(self._buffer).astype(self._type).tobytes()
        self.file.write(content)
        self._hash.update(content)
        del self._buffer[:]


def open_column(path: Path, header: ColumnHeader) -> npt.NDArray[Any]:
    """The column, read-only and mapped: nothing but its size is read now."""
    number_type = np.dtype(header.type)
    try:
        size = path.stat().st_size
        if size != header.length * number_type.itemsize:
            raise damaged(path, f"{size} bytes where {header.length * number_type.itemsize} were written")
        return np.asarray(np.memmap(path, dtype=number_type, mode="r")) if size else np.empty(0, dtype=number_type)
    except OSError as error:
        raise damaged(path, type(error).__name__) from error


def damaged(path: Path, found: str) -> PrepareError:
    return PrepareError(f"the file {path.name} of a prepared store, whole", found, "prepare the corpus again")
