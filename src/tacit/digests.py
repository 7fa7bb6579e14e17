"""SHA-256 of a file, or of all files of a folder."""

import hashlib
from pathlib import Path

_BLOCK = 1 << 20


def digest(path: Path) -> str:
    """Of a file its bytes; of a folder the names and bytes of its files, but those that begin with a dot."""
    if not path.is_dir():
        return _file(path).hex()
    total = hashlib.sha256()
    for file in sorted(file for file in path.rglob("*") if file.is_file()):
        parts = file.relative_to(path).parts
        if any(part.startswith(".") or part == "__pycache__" for part in parts):
            continue
        total.update("/".join(parts).encode("utf-8", "surrogateescape") + b"\0")
        total.update(_file(file))
    return total.hexdigest()


def _file(path: Path) -> bytes:
    state = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            state.update(block)
    return state.digest()
