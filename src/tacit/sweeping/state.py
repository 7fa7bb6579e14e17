"""What a sweep knows of each of its runs, in one file a run: enough to go on after any death.

G1 (before). A run's identity is on the disk before its folder is made, so that a folder is never taken for another's.
G2 (whole). Every change is one rename.
"""

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tacit.codec import from_json, to_json
from tacit.errors import ConfigError, RunError
from tacit.run.files import read_bytes, write_bytes


@dataclass(frozen=True, slots=True)
class Identity:
    """Hashes of what a run is trained with, of how it is audited (none: not), and of what its figures are stated in."""

    trained: str
    audited: str | None
    stated: str | None


@dataclass(frozen=True, slots=True)
class State:
    """How far a run is: what its present audit and figures were made with, its figures, or why it has none."""

    trained: str
    audited: str | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    figures: dict[str, Any] | None = None
    stated: str | None = None
    refused: dict[str, str] | None = None

    def is_done(self, wanted: Identity) -> bool:
        """Whether nothing is left to do."""
        return self.figures is not None and Identity(self.trained, self.audited, self.stated) == wanted


def content_hash(content: object) -> str:
    """SHA-256 of plain JSON content."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def read_state(path: Path) -> State | None:
    """What is known; none of a run that was never begun."""
    if not path.exists():
        return None
    try:
        return from_json(State, read_bytes(path))
    except ConfigError as error:
        raise RunError(error.expected, f"{error.found}, in {path.name}", f"remove {path.parent.parent}") from error


def write_state(path: Path, state: State) -> None:
    """Have it on the disk."""
    write_bytes(path, to_json(state).encode())
