"""Columns of numbers in files: written as they come, read through memory maps.

A column is a file of raw little-endian numbers. Its type, length and SHA-256 stand in a header beside it.
"""

import hashlib
import mmap
import os
import shutil
import tempfile
from array import array
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

from tacit.common.files import digest
from tacit.errors import PrepareError, failed

_BUFFERED_NUMBERS = 1 << 12
_CODES = {1: "B", 2: "H", 4: "I", 8: "Q"}
_TYPES = "^<u[248]$|^\\|u1$"


class ColumnHeader(BaseModel):
    """What a column's file must hold."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    type: str = Field(pattern=_TYPES)
    length: int = Field(ge=0)
    sha256: str


class ColumnWriter:
    """Appends numbers to a new file, in memory that does not grow."""

    def __init__(self, path: Path, number_type: str) -> None:
        self._file = path.open("xb")
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
        """Sync the file, and say what it holds."""
        self._flush()
        sync(self._file)
        self._file.close()
        return ColumnHeader(type=self._type.str, length=self.length, sha256=self._hash.hexdigest())

    def abandon(self) -> None:
        """Close the file without a word."""
        self._file.close()

    def _flush(self) -> None:
        content = np.array(self._buffer).astype(self._type).tobytes()
        self._file.write(content)
        self._hash.update(content)
        del self._buffer[:]


def sync(file: IO[Any]) -> None:
    """Have what was written on the disk, not only on its way."""
    file.flush()
    os.fsync(file.fileno())


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


def release_pages(column: npt.NDArray[Any]) -> None:
    """Give back the memory of an opened column; what is read again comes from the file."""
    pages = None if column.base is None else column.base.base
    if isinstance(pages, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        pages.madvise(mmap.MADV_DONTNEED)


def verify_column(path: Path, header: ColumnHeader) -> None:
    """Read the whole file and compare its hash."""
    if digest(path) != header.sha256:
        raise damaged(path, "content that is not what was written")


def damaged(path: Path, found: str) -> PrepareError:
    return PrepareError(f"the file {path.name} of a prepared store, whole", found, "prepare the corpus again")


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """A folder beside `out` that becomes `out` when all went well, and vanishes otherwise."""
    if out.exists():
        raise PrepareError("a folder that is not there yet", f"{out.name} exists", "choose another, or remove it")
    try:
        folder = Path(tempfile.mkdtemp(prefix=f".draft-{out.name}.", dir=out.parent))
    except OSError as error:
        raise failed(f"make a folder for {out.name}", error) from error
    try:
        yield folder
        os.rename(folder, out)
    except OSError as error:
        raise failed(f"write {out.name}", error) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)
