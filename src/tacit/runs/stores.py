"""What training reads, compared with what was prepared: before a run is resumed, and before an audit.

G1. A changed byte in a prepared store, in the marks that make pools or in the planted canaries is refused: training
    would be another one under the same claim.

The canaries of a run are drawn before training, planted among its records, and kept for the audit.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tacit.common.files import digest
from tacit.config.canary_schema import CanaryPlan
from tacit.data.canaries import CanaryRecord, draw_canaries, plant
from tacit.data.records import Record
from tacit.data.store import PreparedCorpus
from tacit.errors import RunError
from tacit.runs.files import PrivateFile
from tacit.runs.folder import RunFolder

_STORES = (PrivateFile.PREPARED, PrivateFile.HELD_OUT, PrivateFile.MEMBERS, PrivateFile.CHOICE)
_BESIDE = (PrivateFile.MARKS, PrivateFile.CANARIES)


@dataclass(frozen=True, slots=True)
class Noted:
    """SHA-256 of files of `private/`: those beside the stores, and of each store the header that names the rest."""

    files: dict[str, str]


def note_stores(run: RunFolder) -> None:
    """Write down what was prepared; what is noted already stays."""
    known = _noted(run)
    found = {name: digest(run.folder / "private" / name) for name in _present(run) if name not in known}
    if found:
        run.write_json(PrivateFile.NOTED, Noted(known | found))


def check_stores(run: RunFolder) -> None:
    """Read all that was prepared so far; refuse what is not as it was written."""
    present = _present(run)
    for name, known in _noted(run).items():
        if name not in present or digest(run.folder / "private" / name) != known:
            raise RunError(
                expected=f"private/{name} as it was prepared",
                found="another content" if name in present else "no such file",
                way_out="restore it from a copy, or train again in another folder",
            )
    for store in _STORES:
        if run.path(store).exists():
            PreparedCorpus(run.path(store)).verify()


def _present(run: RunFolder) -> list[str]:
    headers = [f"{store}/private/header.json" for store in _STORES]
    return [name for name in (*_BESIDE, *headers) if (run.folder / "private" / name).is_file()]


def _noted(run: RunFolder) -> dict[str, str]:
    return run.read_json(Noted, PrivateFile.NOTED).files if run.path(PrivateFile.NOTED).exists() else {}


@dataclass(frozen=True, slots=True)
class Planted:
    """One plan and its canaries."""

    plan: CanaryPlan
    canaries: tuple[CanaryRecord, ...]


@dataclass(frozen=True, slots=True)
class Planting:
    """All that was planted with a run, a plan each."""

    planted: tuple[Planted, ...] = ()

    def records(self) -> Iterator[Record]:
        """Copies of those that are inside; where they stand in a corpus changes nothing, as draws are shuffled."""
        for one in self.planted:
            yield from plant((), one.plan, one.canaries, 0, np.random.default_rng(0))


def plant_canaries(run: RunFolder, plans: Sequence[CanaryPlan], seed: int | None) -> Planting:
    """What the run has; a new run draws it. Without a seed the operating system's randomness is taken."""
    if not run.path(PrivateFile.CANARIES).exists():
        generator = np.random.default_rng(seed)
        drawn = (Planted(plan, draw_canaries(plan, generator, f"canary-{n}")) for n, plan in enumerate(plans))
        run.write_json(PrivateFile.CANARIES, Planting(tuple(drawn)))
    return planted_canaries(run)


def planted_canaries(run: RunFolder) -> Planting:
    """What was planted with a run."""
    return run.read_json(Planting, PrivateFile.CANARIES) if run.path(PrivateFile.CANARIES).exists() else Planting()
