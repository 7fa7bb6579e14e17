"""What a run was made with: versions of all that can move a number, and a hash of the code itself.

G1. Nothing here names a place of the machine, a person or a moment.
G2. A run that was resumed under other versions says both, in order.
"""

import hashlib
import platform
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tacit.runs.files import ReleaseFile
from tacit.runs.folder import RunFolder

_LIBRARIES = ("tacit", "torch", "numpy", "scipy", "dp-accounting", "tokenizers", "transformers", "peft", "faker")
_CODE = (".py", ".jinja", ".cpp")


@dataclass(frozen=True, slots=True)
class Made:
    """One environment. `code`: SHA-256 over the files of the package; `libraries`: (name, version), installed ones."""

    code: str
    python: str
    system: str
    libraries: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class MadeWith:
    """Every environment that wrote to the run, in order."""

    environments: tuple[Made, ...] = ()


def here() -> Made:
    """The environment of this process."""
    found = ((name, _version(name)) for name in _LIBRARIES)
    installed = tuple((name, known) for name, known in found if known is not None)
    return Made(code_hash(), platform.python_version(), f"{platform.system()} {platform.machine()}", installed)


def note(run: RunFolder) -> None:
    """Have the run say that this environment wrote to it."""
    known = run.read_json(MadeWith, ReleaseFile.MADE) if run.path(ReleaseFile.MADE).exists() else MadeWith()
    if not known.environments or known.environments[-1] != here():
        run.write_json(ReleaseFile.MADE, MadeWith((*known.environments, here())))


@cache
def code_hash() -> str:
    """SHA-256 over the names and contents of the package's files, in the order of their names."""
    root = Path(__file__).parent.parent
    state = hashlib.sha256()
    for file in sorted(path for path in root.rglob("*") if path.suffix in _CODE):
        content = file.read_bytes()
        state.update(f"{file.relative_to(root).as_posix()}\0{len(content)}\0".encode())
        state.update(content)
    return state.hexdigest()


def _version(library: str) -> str | None:
    try:
        return version(library)
    except PackageNotFoundError:
        return None
