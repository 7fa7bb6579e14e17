"""Reading files that a person names, writing files whole or not at all, and hashes of files.

Reading: a device may never end and a pipe may have no writer, so both would hang. A pipe with a writer works where a
file is read once; a corpus is read several times, so it has to be a regular file.

Hashes: SHA-256 of a file or of all files of a folder; keyed hashes for whatever comes from a corpus. Whoever guesses a
name knows its SHA-256, so a plain hash of strings of a corpus tells which ones they are. A keyed hash (HMAC-SHA256,
RFC 2104) tells nothing to anybody without the key, which never leaves `private/`.
"""

import errno
import fcntl
import hashlib
import hmac
import os
import secrets
import select
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from tacit.errors import ConfigError, PrepareError, RunError, failed

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


DRAFT = ".draft-"
"""How the name of a file or folder begins that is not whole yet."""


@contextmanager
def draft_of(path: Path, mode: int) -> Iterator[Path]:
    """An empty file beside `path`, of this mode, which replaces `path` in one move when the block ends without error.

    It is on the disk then; after an error it is gone, and `path` is as it was.
    """
    draft = path.with_name(f"{DRAFT}{secrets.token_hex(8)}-{path.name}")
    try:
        os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode))
        yield draft
        draft.chmod(mode)
        sync_file(draft)
        os.replace(draft, path)
        sync_folder(path.parent)
    finally:
        draft.unlink(missing_ok=True)


def write_atomically(path: Path, writer: Callable[[Path], None], mode: int = 0o644) -> None:
    """Have `writer` write a draft beside `path`, then put it in place of `path` in one move, on the disk on return."""
    try:
        with draft_of(path, mode) as draft:
            writer(draft)
    except OSError as error:
        raise failed(f"write {path.name}", error) from error


def write_bytes(path: Path, content: bytes, mode: int = 0o644) -> None:
    """`content` as the file `path`, whole or not at all."""
    write_atomically(path, lambda draft: write_new(draft, content), mode)


def write_new(path: Path, content: bytes) -> None:
    """`content` as the file `path`; a failure may leave a part of it."""
    with path.open("wb") as file:
        file.write(content)


def read_run_bytes(path: Path) -> bytes:
    """The content of a file of the run."""
    try:
        return read_bytes(path)
    except OSError as error:
        raise RunError(
            expected=f"the file {path.name} of a run",
            found=error.strerror or "none",
            way_out="finish the stage that writes it first, or give another run folder",
        ) from error


def remove(place: Path) -> None:
    """Remove a file or a folder with all in it; one that is not there is no error."""
    if place.is_dir():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)


def clear_drafts(folder: Path) -> None:
    """Remove what writers that were killed left unfinished in `folder`."""
    try:
        for draft in folder.glob(f"{DRAFT}*"):
            shutil.rmtree(draft) if draft.is_dir() else draft.unlink()
    except OSError as error:
        raise failed(f"remove unfinished files from {folder.name}", error) from error


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """A folder beside `out` that becomes `out` when all went well, and vanishes otherwise."""
    if out.exists():
        raise PrepareError("a folder that does not exist yet", f"{out.name} exists", "choose another, or remove it")
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


def sync_file(path: Path) -> None:
    """Have the file on the disk, not only on its way."""
    _sync(path, os.O_RDONLY)


def sync_folder(path: Path) -> None:
    """Have the names in a folder on the disk, not only on their way."""
    _sync(path, os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def try_lock(descriptor: int) -> bool:
    """Whether this process now is the only one that holds the open file locked; it waits for nobody."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


OWNER_ALONE = 0o600


def owner_alone(path: str | Path, flags: int) -> int:
    """The `opener` of `open` for a file that only its owner may read."""
    return os.open(path, flags, OWNER_ALONE)


def write_private(path: Path, content: bytes) -> None:
    """`content` at `path`; an older file, whoever might read it, is replaced."""
    try:
        with draft_of(path, OWNER_ALONE) as draft:
            write_new(draft, content)
    except OSError as error:
        raise ConfigError(
            expected=f"a file that can be written at {path}",
            found=error.strerror or type(error).__name__,
            way_out="check that the folder exists, that you may write to it, and that the disk has room",
        ) from error


KEY_BYTES = 32
_BLOCK = 1 << 20


def digest(path: Path) -> str:
    """Of a file its bytes; of a folder the names and bytes of its files, but those that begin with a dot."""
    if not path.is_dir():
        return _file(path).hex()
    total = hashlib.sha256()
    for file in sorted(_files(path, frozenset())):
        total.update(file.relative_to(path).as_posix().encode("utf-8", "surrogateescape") + b"\0")
        total.update(_file(file))
    return total.hexdigest()


def new_key() -> bytes:
    """A random key, to be kept in a private file."""
    return secrets.token_bytes(KEY_BYTES)


class Keyed:
    """A keyed hash of parts that stream by; `add` of several parts at once or one after another is the same."""

    def __init__(self, key: bytes) -> None:
        self._state = hmac.new(key, digestmod=hashlib.sha256)

    def add(self, *parts: str | bytes) -> None:
        """Each part with its length before it: other borders between parts give another hash."""
        for part in parts:
            content = part if isinstance(part, bytes) else part.encode("utf-8", "surrogatepass")
            self._state.update(len(content).to_bytes(8) + content)

    def hexdigest(self) -> str:
        """Of all that was added so far."""
        return self._state.hexdigest()


def keyed(key: bytes, *parts: str | bytes) -> str:
    """The keyed hash of `parts`, as 64 hexadecimal digits."""
    state = Keyed(key)
    state.add(*parts)
    return state.hexdigest()


def _files(folder: Path, inside: frozenset[str]) -> Iterator[Path]:
    """All files below, also those behind links to folders, which a model is read through; a circle is walked once."""
    real = os.path.realpath(folder)
    for entry in folder.iterdir():
        if entry.name.startswith(".") or entry.name == "__pycache__":
            continue
        if entry.is_file():
            yield entry
        elif entry.is_dir() and real not in inside:
            yield from _files(entry, inside | {real})


def _file(path: Path) -> bytes:
    state = hashlib.sha256()
    with open_file(path) as file:
        while block := file.read(_BLOCK):
            state.update(block)
    return state.digest()
