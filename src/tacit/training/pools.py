"""Pools: the rows of a prepared store that a step may draw from, fixed by public annotation before training; what
samplers have in common; and the public numbers of a corpus that a plan needs.

G1 (public). A pool is a function of which record and which user each row belongs to, of how many secrets it has, and of
   the marks that were given: no secret is read.
G2 (whole). The pieces of one record are flagged all or none.
"""

import math
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from tacit.config.plan_schema import PlanConfig
from tacit.data.store import PreparedCorpus
from tacit.errors import ConfigError, RunError
from tacit.mechanisms.settings import default_batch
from tacit.privacy.plan import Pool

RowNumbers = npt.NDArray[np.signedinteger[Any]]


def narrow(numbers: npt.NDArray[np.signedinteger[Any]]) -> npt.NDArray[np.signedinteger[Any]]:
    """The same numbers in four bytes each, if all of them fit: they are kept for every row of a corpus."""
    fits = not len(numbers) or numbers.max() <= np.iinfo(np.int32).max
    return numbers.astype(np.int32, copy=False) if fits else numbers


@dataclass(frozen=True, slots=True, eq=False)
class DrawnUnits:
    """The rows of some units: unit `j` has `rows[offsets[j]:offsets[j + 1]]`. May be empty."""

    rows: RowNumbers
    offsets: RowNumbers

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def first(self, count: int) -> "DrawnUnits":
        """The first `count` units; their order says nothing but whose pool they are."""
        end = self.offsets[min(count, len(self))]
        return DrawnUnits(self.rows[:end], self.offsets[: count + 1])

    def units(self) -> Iterator[RowNumbers]:
        return (self.rows[start:end] for start, end in zip(self.offsets[:-1], self.offsets[1:], strict=True))


@dataclass(frozen=True, slots=True)
class ShuffleState:
    """A place in a shuffled pass: what the order was made from, and how many rows of it were taken."""

    key: str
    taken: int


class Sampler(ABC):
    """Draws the batches of one step. One whose every draw is fresh has no state."""

    @abstractmethod
    def draw(self, generator: np.random.Generator) -> Iterator[DrawnUnits]:
        """Exactly one batch, except for a shuffled pass, which has one after the other."""

    def state(self) -> ShuffleState | None:
        """What the sampler remembers between two draws."""
        return None

    def restore(self, state: ShuffleState | None) -> None:
        if state is not None:
            raise foreign_state("no state, as every draw is a fresh one", "the place in a shuffled pass")


def bernoulli_positions(count: int, rate: float, generator: np.random.Generator) -> RowNumbers:
    """The successes among `count` independent trials of probability `rate`, rising.

    The gaps between successes of such trials are independent and geometric, so the gaps alone are drawn.
    """
    if not 0 < rate <= 1:
        raise ConfigError("a sampling rate in (0, 1]", str(rate), "give the public rate that was priced")
    expected = count * rate
    block = int(expected + 4 * math.sqrt(expected)) + 8
    found: list[RowNumbers] = []
    last = -1
    while last < count:
        gaps = np.minimum(generator.geometric(rate, block), count + 1)  # a gap beyond the end is as good as endless
        positions = last + np.cumsum(gaps, dtype=np.int64)
        found.append(positions)
        last = int(positions[-1])
    positions = np.concatenate(found)
    return positions[: np.searchsorted(positions, count)]


def foreign_state(expected: str, found: str) -> RunError:
    """The error for a state of another sampler."""
    return RunError(expected=expected, found=found, way_out="resume with the plan and the store the run began with")


RowMask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class RowEntities:
    """Which of `count` listed entities occur in each row: row `i` has `ids[offsets[i]:offsets[i + 1]]`, from 0 on."""

    offsets: RowNumbers
    ids: RowNumbers
    count: int

    def __post_init__(self) -> None:
        offsets, ids = self.offsets, self.ids
        numbers = all(values.ndim == 1 and np.issubdtype(values.dtype, np.signedinteger) for values in (offsets, ids))
        _require(numbers, "`offsets` and `ids` of entities as whole numbers", f"{offsets.dtype} and {ids.dtype}")
        ordered = (
            len(offsets) > 0 and offsets[0] == 0 and offsets[-1] == len(ids) and bool(np.all(np.diff(offsets) >= 0))
        )
        _require(ordered, f"`offsets` that rise from 0 to {len(ids)}", f"{len(offsets)} that do not")
        known = not len(ids) or (ids.min() >= 0 and ids.max() < self.count)
        _require(bool(known), f"`ids` of entities from 0 to {self.count - 1}", "others")

    @classmethod
    def of(cls, entities_of_rows: Iterable[Collection[int]], count: int) -> Self:
        """From the entities of one row after another."""
        ids, ends = array("q"), array("q", [0])
        for entities in entities_of_rows:
            ids.extend(sorted(set(entities)))
            ends.append(len(ids))
        return cls(narrow(np.array(ends)), narrow(np.array(ids)), count)

    def __len__(self) -> int:
        return len(self.offsets) - 1


@dataclass(frozen=True, slots=True, eq=False)
class Annotation:
    """What is public about each row of a store, one entry per row; None where nobody marked the rows."""

    records: npt.NDArray[np.uint64]
    users: npt.NDArray[np.uint64]  # 0: no user
    span_counts: RowNumbers
    flagged: RowMask | None = None  # routed to the protected set
    kept: RowMask | None = None  # by the contribution caps
    with_entity: RowMask | None = None  # a listed entity occurs in it; follows from `entities` where they are given
    entities: RowEntities | None = None

    def __post_init__(self) -> None:
        rows = len(self.records)
        for name in ("users", "span_counts", "flagged", "kept", "with_entity"):
            found = getattr(self, name)
            if found is not None:
                _require(
                    found.shape == (rows,), f"`{name}` with one entry for each of {rows} rows", f"shape {found.shape}"
                )
                fits = name in ("users", "span_counts") or found.dtype == np.bool_
                _require(fits, f"`{name}` as true or false for each row", f"{found.dtype} numbers")
        if self.flagged is not None and rows:
            _check_flagged_whole(self.records, self.flagged)
        if self.entities is not None:
            given = len(self.entities)
            _require(given == rows, f"`entities` for each of {rows} rows", f"those of {given} rows")
            marks = np.diff(self.entities.offsets) > 0
            agree = self.with_entity is None or np.array_equal(self.with_entity, marks)
            _require(agree, "`with_entity` where `entities` has some", "other rows")
            object.__setattr__(self, "with_entity", marks)

    @classmethod
    def of(
        cls,
        store: PreparedCorpus,
        *,
        flagged: RowMask | None = None,
        kept: RowMask | None = None,
        with_entity: RowMask | None = None,
        entities: RowEntities | None = None,
    ) -> Self:
        """The annotation of a prepared store, with marks made elsewhere."""
        return cls(store.records, store.users, narrow(store.span_counts()), flagged, kept, with_entity, entities)


@dataclass(frozen=True, slots=True, eq=False)
class Units(DrawnUnits):
    """All rows of a pool, grouped by whom they belong to: a unit has at least one."""

    @property
    def one_row_each(self) -> bool:
        """Whether every unit has exactly one row."""
        return len(self) == len(self.rows)

    def sizes(self, units: RowNumbers) -> RowNumbers:
        """How many rows each of `units` has."""
        return self.offsets[units + 1] - self.offsets[units]

    def rows_of(self, units: RowNumbers) -> Iterator[RowNumbers]:
        """The rows of each of `units`."""
        return (self.rows[self.offsets[unit] : self.offsets[unit + 1]] for unit in units)


class Pools:
    """The pools of one store."""

    def __init__(self, annotation: Annotation) -> None:
        self._annotation = annotation
        self._rows: dict[Pool, RowNumbers] = {}

    def rows(self, pool: Pool) -> RowNumbers:
        """The row numbers of `pool`, rising; a pool without rows is refused."""
        if pool not in self._rows:
            rows = narrow(self._find(pool))
            if not len(rows):
                raise ConfigError(
                    expected=f"at least one row among {pool}",
                    found="none",
                    way_out="check the policy and the marks with `tacit scan`, or choose another mechanism",
                )
            self._rows[pool] = rows
        return self._rows[pool]

    def records(self, pool: Pool) -> Units:
        """The rows of `pool`, grouped by record."""
        return _grouped(self.rows(pool), self._annotation.records)

    def users(self, pool: Pool) -> Units:
        """The rows of `pool`, grouped by user; refused when a row has none."""
        rows, users = self.rows(pool), self._annotation.users
        without = int(np.count_nonzero(users[rows] == 0))
        if without:
            raise ConfigError(
                expected="a user for every row that is drawn by user",
                found=f"{without} rows without one",
                way_out="name the user of every record, leave those records out, or draw records",
            )
        return _grouped(rows, users)

    def owner(self, rows: RowNumbers) -> int:
        """The number of the user whose rows these are, which no other user decides; 0 for no rows."""
        return int(self._annotation.users[rows[0]]) if len(rows) else 0

    def entities(self) -> RowEntities:
        """Which listed entities occur in which row; refused when nobody said so."""
        entities = self._annotation.entities
        if entities is None:
            raise ConfigError(
                expected="the annotation `entities`: which listed entities occur in which row",
                found="none",
                way_out="look for the listed entities first, or choose a mechanism that does not draw them",
            )
        return entities

    def weights(self, drawn: DrawnUnits, weight_cap: int) -> npt.NDArray[np.float64]:
        """min(records / `weight_cap`, 1) for each unit of `drawn`: public numbers, at most 1."""
        if weight_cap < 1:
            raise ConfigError("a weight cap of at least 1", str(weight_cap), "correct the number")
        records = self._annotation.records
        counts = [len(np.unique(records[rows])) for rows in drawn.units()]
        return np.minimum(np.array(counts, dtype=np.float64) / weight_cap, 1.0)

    def _find(self, pool: Pool) -> npt.NDArray[np.intp]:
        annotation = self._annotation
        if pool == Pool.EVERY:
            return np.arange(len(annotation.records))
        if pool == Pool.WITH_SECRETS:
            return np.flatnonzero(annotation.span_counts > 0)
        if pool == Pool.CAPPED:
            return np.flatnonzero(_given(annotation.kept, pool, "kept", "cap the contributions"))
        if pool == Pool.NO_ENTITY:
            return np.flatnonzero(~_given(annotation.with_entity, pool, "with_entity", "look for the listed entities"))
        flagged = _given(annotation.flagged, pool, "flagged", "route the records with a detector or a policy")
        return np.flatnonzero(flagged if pool == Pool.FLAGGED else ~flagged)


def _grouped(rows: RowNumbers, owners: npt.NDArray[np.uint64]) -> Units:
    of_rows = owners[rows]
    if np.any(of_rows[1:] < of_rows[:-1]):  # not so for records, of which a corpus has too many to sort them in vain
        order = np.argsort(of_rows, kind="stable")
        rows, of_rows = rows[order], of_rows[order]
    starts = np.flatnonzero(of_rows[1:] != of_rows[:-1]) + 1
    return Units(rows, narrow(np.concatenate(([0], starts, [len(rows)]))))


def _given(marks: RowMask | None, pool: Pool, name: str, how: str) -> RowMask:
    if marks is None:
        raise ConfigError(
            expected=f"the annotation `{name}`, which says which are {pool}",
            found="none",
            way_out=f"{how} first, or choose a mechanism that does not need it",
        )
    return marks


def _check_flagged_whole(records: npt.NDArray[np.uint64], flagged: RowMask) -> None:
    of_one = _grouped(np.arange(len(records)), records)
    counts = np.add.reduceat(flagged[of_one.rows], of_one.offsets[:-1], dtype=np.int64)
    split = int(np.count_nonzero((counts > 0) & (counts < np.diff(of_one.offsets))))
    _require(split == 0, "records whose pieces are flagged all or none", f"{split} that are flagged in part")


def _require(holds: bool, expected: str, found: str) -> None:
    if not holds:
        raise ConfigError(expected=expected, found=found, way_out="make the annotation from the same prepared store")


_TRIALS = 200


def measured_counts(annotation: Annotation, pools: Pools, asked: PlanConfig) -> Mapping[str, Callable[[], float]]:
    """Each number by its word, counted when a mechanism asks for it; records are those that caps kept."""
    everyone = Pool.EVERY if annotation.kept is None else Pool.CAPPED

    def records(pool: Pool) -> Callable[[], float]:
        return lambda: len(pools.records(pool))

    return {
        "records": records(everyone),
        "secret_records": records(Pool.WITH_SECRETS),
        "flagged": records(Pool.FLAGGED),
        "other_records": records(Pool.NO_ENTITY),
        "users": lambda: len(pools.users(Pool.EVERY)),
        "sensitive_share": lambda: 0.0 if annotation.with_entity is None else float(annotation.with_entity.mean()),
        "segments_per_record": lambda: max(1, int(annotation.span_counts.max())),
        "events_per_batch": lambda: _most_segments(annotation, asked),
    }


def _most_segments(annotation: Annotation, asked: PlanConfig) -> float:
    """The most secrets of a record in a drawn batch, on average: how many private updates Algorithm 1 of S-DP makes."""
    counts, chance = annotation.span_counts, np.random.default_rng(0)
    rate = asked.sampling_rate or (asked.expected_batch_size or default_batch(len(counts))) / len(counts)
    draws = (counts[chance.random(len(counts)) < rate] for _ in range(_TRIALS))
    return max(1.0, float(np.mean([drawn.max(initial=0) for drawn in draws])))
