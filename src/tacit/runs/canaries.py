"""The canaries of a run: drawn before training, planted among its records, and kept for the audit in `private/`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tacit.config.canary_schema import CanaryPlan
from tacit.data.canaries import CanaryRecord, draw_canaries, plant
from tacit.data.records import Record
from tacit.runs.files import PrivateFile
from tacit.runs.folder import RunFolder


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
