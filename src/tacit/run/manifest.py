"""release/manifest.json: SHA-256 of every released file, and where the ledger ends. It is written last.

G1 (changes show). A released file that was changed, removed or added since the manifest was written is named.
G2 (no signature). Whoever rewrites file and manifest alike is not found out here; what `tacit verify` proves even then
   is that the claim follows from plan and ledger.
G3 (regular). Only regular files directly in the folder are opened, whatever the manifest names.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tacit.digests import digest
from tacit.ledger import Parsed
from tacit.run.files import DRAFT
from tacit.run.names import ReleaseFile


@dataclass(frozen=True, slots=True)
class LedgerEnd:
    """The digest of the ledger's last line, and how many lines there are."""

    head: str
    length: int

    @classmethod
    def of(cls, parsed: Parsed) -> "LedgerEnd":
        """Where these lines end."""
        return cls(parsed.chain, parsed.lines)


@dataclass(frozen=True, slots=True)
class Manifest:
    """`files`: the SHA-256 of each, by its name."""

    files: dict[str, str]
    ledger: LedgerEnd


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A file that is not as the manifest has it, and why, in a sentence that names it; `unknown`: no entry has it."""

    file: str
    why: str
    unknown: bool = False


def released(folder: Path) -> list[str]:
    """The names in `folder` but the manifest's own and drafts, which the next writer removes."""
    return sorted(
        place.name
        for place in folder.iterdir()
        if place.name != ReleaseFile.MANIFEST and not place.name.startswith(DRAFT)
    )


def digests(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """SHA-256 of each of these files that is there."""
    return {name: digest(folder / name) for name in names if _is_regular(folder / name)}


def disagreements(folder: Path, manifest: Manifest, leave_out: frozenset[str] = frozenset()) -> Iterator[Disagreement]:
    """What in `folder` is not as `manifest` has it, small files first; files to `leave_out` are not opened."""
    present = set(released(folder)) - leave_out
    covered = manifest.files.keys() - leave_out
    for name in sorted(covered - present):
        yield Disagreement(name, f"{name} is missing; manifest.json names it")
    for name in sorted(present - covered):
        yield Disagreement(name, f"{name} is not covered by the manifest", unknown=True)
    for name in sorted(covered & present, key=lambda name: (folder / name).lstat().st_size):
        if not _is_regular(folder / name):
            yield Disagreement(name, f"{name} is not a regular file")
        elif digest(folder / name) != manifest.files[name]:
            yield Disagreement(name, f"{name} was changed: its SHA-256 is not the one in manifest.json")


def _is_regular(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()
