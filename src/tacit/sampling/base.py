"""What every sampler has in common: what it yields, what it remembers, and how independent coins are tossed."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tacit.errors import ConfigError, RunError

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """The rows of some units: unit `j` has `rows[offsets[j]:offsets[j + 1]]`. May be empty."""

    rows: Rows
    offsets: Rows

    def __len__(self) -> int:
        """How many units."""
        return len(self.offsets) - 1

    def first(self, count: int) -> "Batch":
        """The first `count` units; their order says nothing but whose pool they are."""
        end = self.offsets[min(count, len(self))]
        return Batch(self.rows[:end], self.offsets[: count + 1])

    def units(self) -> Iterator[Rows]:
        """The rows of each unit."""
        return (self.rows[start:end] for start, end in zip(self.offsets[:-1], self.offsets[1:], strict=True))


@dataclass(frozen=True, slots=True)
class ShuffleState:
    """Where a sampler stands in its pass: what the order was made from, and how many rows of it were taken."""

    key: str
    taken: int


class Sampler(Protocol):
    """Draws the batches of one step: one, or those of a whole pass."""

    def draw(self, generator: np.random.Generator) -> Iterator[Batch]:
        """A fresh draw: exactly one batch, except for a shuffled pass, which has one after the other."""

    def state(self) -> ShuffleState | None:
        """Where the sampler stands between two draws; None when it remembers nothing."""

    def restore(self, state: ShuffleState | None) -> None:
        """Go on from `state`."""


def bernoulli_positions(count: int, rate: float, generator: np.random.Generator) -> Rows:
    """The successes among `count` independent trials of probability `rate`, rising.

    The gaps between successes of such trials are independent and geometric, so the gaps alone are drawn.
    """
    if not 0 < rate <= 1:
        raise ConfigError("a sampling rate in (0, 1]", str(rate), "give the public rate that was priced")
    expected = count * rate
    block = int(expected + 4 * math.sqrt(expected)) + 8
    found: list[Rows] = []
    last = -1
    while last < count:
        gaps = np.minimum(generator.geometric(rate, block), count + 1)  # a gap beyond the end is as good as endless
        positions = last + np.cumsum(gaps, dtype=np.int64)
        found.append(positions)
        last = int(positions[-1])
    positions = np.concatenate(found)
    return positions[: np.searchsorted(positions, count)]


def remembers_nothing(state: ShuffleState | None) -> None:
    """Refuse a state: every draw of this sampler is a fresh one."""
    if state is not None:
        raise foreign_state("no state, as every draw is a fresh one", "the place in a shuffled pass")


def foreign_state(expected: str, found: str) -> RunError:
    """The error for a state of another sampler."""
    return RunError(expected=expected, found=found, way_out="resume with the plan and the store the run began with")
