"""Samplers: a draw of the plan, turned into the rows of a batch.

G1 (Poisson). A Poisson draw takes each unit with exactly the given probability, independently of every other unit, of
   every other draw and of every shuffled batch. It may be empty, and is a draw all the same.
G2 (one unit, one row). A Poisson draw of records and a shuffled pass take at most one row of a record, whatever pieces
   it was cut into: the record enters one clipped gradient of the draw, as it is priced.
G3 (passes). A pass of shuffled batches has each row of the pool exactly once; a `ShuffledPass`, each record.
G4 (cheap). Time and memory of a Poisson draw grow with the draw, not with the pool.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pkgutil import resolve_name

import numpy as np

from tacit.errors import ConfigError
from tacit.privacy.plan import Draw, Plan, PoissonRecords, PoissonUsers, Pool, ShuffledBatch, ShuffledPass, Step
from tacit.training.pools import (
    DrawnUnits,
    Pools,
    RowNumbers,
    Sampler,
    ShuffleState,
    Units,
    bernoulli_positions,
    foreign_state,
)

_KEY_BYTES = 16
_PAIR_SAMPLER = "tacit.papers.algorithms:PairSampler"  # of UeDP as printed


@dataclass(frozen=True)
class PoissonRecordSampler(Sampler):
    """Each record of the pool independently; a drawn record of several rows gives one of them, any as likely."""

    units: Units
    rate: float

    def draw(self, generator: np.random.Generator) -> Iterator[DrawnUnits]:
        drawn = bernoulli_positions(len(self.units), self.rate, generator)
        yield _of_single_rows(_one_row_each(self.units, drawn, generator))


@dataclass(frozen=True)
class PoissonUserSampler(Sampler):
    """Each user independently, with all of the user's rows in the pool."""

    units: Units
    rate: float

    def draw(self, generator: np.random.Generator) -> Iterator[DrawnUnits]:
        drawn = bernoulli_positions(len(self.units), self.rate, generator)
        rows = np.concatenate((np.empty(0, np.int64), *self.units.rows_of(drawn)))
        yield DrawnUnits(rows, np.concatenate(([0], np.cumsum(self.units.sizes(drawn)))))


class ShuffledPassSampler(Sampler):
    """All records once, in shuffled batches; one row of each record. The last batch may be short."""

    def __init__(self, units: Units, batch_size: int) -> None:
        self._units, self._batch_size = units, _checked(batch_size)

    def draw(self, generator: np.random.Generator) -> Iterator[DrawnUnits]:
        order = generator.permutation(len(self._units))
        rows = _one_row_each(self._units, order, generator)
        for start in range(0, len(rows), self._batch_size):
            yield _of_single_rows(rows[start : start + self._batch_size])


class ShuffledBatchSampler(Sampler):
    """Endless shuffled passes over the rows of a pool, one batch per draw. The last batch of a pass may be short."""

    def __init__(self, rows: RowNumbers, batch_size: int) -> None:
        self._rows, self._batch_size = rows, _checked(batch_size)
        self.restore(None)

    def draw(self, generator: np.random.Generator) -> Iterator[DrawnUnits]:
        if self._taken >= len(self._order):
            self._begin_pass(generator.bytes(_KEY_BYTES).hex())
        rows = self._order[self._taken : self._taken + self._batch_size]
        self._taken += len(rows)
        yield _of_single_rows(rows)

    def state(self) -> ShuffleState | None:
        return ShuffleState(self._key, self._taken) if self._key else None

    def restore(self, state: ShuffleState | None) -> None:
        if state is None:
            self._key, self._order, self._taken = "", np.empty(0, np.int64), 0
            return
        if not 0 <= state.taken <= len(self._rows):
            raise foreign_state(f"a place in a pass over {len(self._rows)} rows", f"place {state.taken}")
        self._begin_pass(state.key)
        self._taken = state.taken

    def _begin_pass(self, key: str) -> None:
        # The key tells this order and no more: the stream it came from cannot be told from it.
        shuffler = np.random.Generator(np.random.PCG64DXSM(int(key, 16)))
        self._key, self._order, self._taken = key, shuffler.permutation(self._rows), 0


class Samplers:
    """One sampler for each step of a plan. Two steps that are equal share theirs."""

    def __init__(self, plan: Plan, pools: Pools) -> None:
        self._samplers = {step: sampler_for(step.draw, step.pool, pools) for step in plan.executions()}

    def draw(self, step: Step, generator: np.random.Generator) -> Iterator[DrawnUnits]:
        """The batches of one execution of `step`. Take them all."""
        return self._samplers[step].draw(generator)

    def states(self) -> dict[str, ShuffleState]:
        states = {name: sampler.state() for name, sampler in self._named()}
        return {name: state for name, state in states.items() if state is not None}

    def restore(self, states: Mapping[str, ShuffleState]) -> None:
        unknown = sorted(states.keys() - dict(self._named()).keys())
        if unknown:
            raise foreign_state("the samplers of this plan", ", ".join(unknown))
        for name, sampler in self._named():
            sampler.restore(states.get(name))

    def _named(self) -> Iterator[tuple[str, Sampler]]:
        return ((f"{number} {step.name}", sampler) for number, (step, sampler) in enumerate(self._samplers.items()))


def sampler_for(draw: Draw, pool: Pool, pools: Pools) -> Sampler:
    """The sampler that carries out `draw` on `pool`."""
    if isinstance(draw, PoissonRecords):
        return PoissonRecordSampler(pools.records(pool), draw.rate)
    if isinstance(draw, PoissonUsers):
        return PoissonUserSampler(pools.users(pool), draw.rate)
    if isinstance(draw, ShuffledBatch):
        return ShuffledBatchSampler(pools.rows(pool), draw.batch_size)
    if isinstance(draw, ShuffledPass):
        return ShuffledPassSampler(pools.records(pool), draw.batch_size)
    sampler: Sampler = resolve_name(_PAIR_SAMPLER)(pools.users(pool), pools.entities(), draw)
    return sampler


def _one_row_each(units: Units, drawn: RowNumbers, generator: np.random.Generator) -> RowNumbers:
    starts = units.offsets[drawn]
    return units.rows[starts if units.one_row_each else starts + generator.integers(0, units.sizes(drawn))]


def _of_single_rows(rows: RowNumbers) -> DrawnUnits:
    return DrawnUnits(rows, np.arange(len(rows) + 1))


def _checked(batch_size: int) -> int:
    if batch_size < 1:
        raise ConfigError("a batch size of at least 1", str(batch_size), "correct the number")
    return batch_size
