"""SHA-256 of a file or of all files of a folder; and keyed hashes, for whatever comes from a corpus.

Whoever guesses a name knows its SHA-256, so a plain hash of strings of a corpus tells which ones they are. A keyed hash
(HMAC-SHA256, RFC 2104) tells nothing to anybody without the key, which never leaves `private/`.
"""

import hashlib
import hmac
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from tacit.given import open_file

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
