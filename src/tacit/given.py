"""Files that a person names: only what can be read to an end, and no more of it than is sensible.

A device may never end and a pipe may have no writer, so both would hang. A pipe with a writer works where a file is
read once; a corpus is read several times, so it has to be a regular file.
"""

import errno
import os
import select
import stat
from pathlib import Path
from typing import BinaryIO

LARGEST_DOCUMENT = 1 << 28
"""Bytes of a file that is read whole, such as a tokenizer or a list of words."""
_SECONDS_FOR_A_WRITER = 2.0


class NotReadable(OSError):
    """What is at a path cannot be read to an end; `strerror` says why."""


def read_bytes(path: Path, most: int = LARGEST_DOCUMENT) -> bytes:
    """All bytes of a file, or of a pipe that somebody writes to; OSError when there are more than `most`."""
    with _opened(path, pipes=True) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise NotReadable(errno.EFBIG, f"more than {most:,} bytes")
    return data


def read_text(path: Path, most: int = LARGEST_DOCUMENT) -> str:
    """The text of a file in UTF-8, as `Path.read_text` gives it: line ends become line feeds."""
    return read_bytes(path, most).decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")


def open_file(path: Path) -> BinaryIO:
    """A regular file, to be read in pieces. A device or a pipe is an OSError, at once."""
    return _opened(path, pipes=False)


def why(error: Exception) -> str:
    """What was wrong with a file, for people: the reason of the operating system, or what its bytes are not."""
    if isinstance(error, UnicodeDecodeError):
        return "text that is not UTF-8"
    return getattr(error, "strerror", None) or type(error).__name__


def _opened(path: Path, pipes: bool) -> BinaryIO:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except ValueError as error:
        raise NotReadable(errno.EINVAL, "a name with a NUL character") from error
    try:
        _check_kind(os.fstat(descriptor).st_mode, descriptor, pipes)
        os.set_blocking(descriptor, True)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def _check_kind(mode: int, descriptor: int, pipes: bool) -> None:
    if stat.S_ISREG(mode):
        return
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "a folder, not a file")
    if not stat.S_ISFIFO(mode):
        raise NotReadable(errno.EINVAL, "a device or a socket, not a file")
    if not pipes:
        raise NotReadable(errno.ESPIPE, "a pipe, which can be read only once: save it to a file first")
    poll = select.poll()
    poll.register(descriptor, select.POLLIN | select.POLLHUP)
    if not poll.poll(_SECONDS_FOR_A_WRITER * 1000):
        raise NotReadable(errno.EPIPE, "a pipe that nobody writes to")
