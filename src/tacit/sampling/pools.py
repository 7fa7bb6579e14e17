"""Pools: the rows of a prepared store that a step may draw from, fixed by public annotation before training.

Formal guarantees:

G1 (public). A pool is a function of which record and which user each row belongs to, of how many secrets it has, and of
   the marks that were given: no secret is read.
G2 (whole). The pieces of one record are flagged all or none.
"""

from array import array
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from tacit.errors import ConfigError
from tacit.plan import Pool
from tacit.prepare import Prepared
from tacit.sampling.base import Batch, Rows

Marks = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class RowEntities:
    """Which of `count` listed entities stand in each row: row `i` has `ids[offsets[i]:offsets[i + 1]]`, from 0 on."""

    offsets: Rows
    ids: npt.NDArray[np.signedinteger[Any]]
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
        small = np.int32 if count <= np.iinfo(np.int32).max else np.int64
        return cls(np.array(ends, dtype=np.int64), np.array(ids, dtype=np.int64).astype(small), count)

    def __len__(self) -> int:
        """How many rows."""
        return len(self.offsets) - 1


@dataclass(frozen=True, slots=True, eq=False)
class Annotation:
    """What is public about each row of a store, one entry a row; None where nobody marked the rows."""

    records: npt.NDArray[np.uint64]
    users: npt.NDArray[np.uint64]  # 0: no user
    span_counts: npt.NDArray[np.int64]
    flagged: Marks | None = None  # routed to the protected set
    kept: Marks | None = None  # by the contribution caps
    with_entity: Marks | None = None  # a listed entity stands in it; follows from `entities` where they are given
    entities: RowEntities | None = None

    def __post_init__(self) -> None:
        rows = len(self.records)
        for name in ("users", "span_counts"):
            _check_length(name, getattr(self, name), rows)
        for name in ("flagged", "kept", "with_entity"):
            marks = getattr(self, name)
            if marks is not None:
                _check_length(name, marks, rows)
                _require(marks.dtype == np.bool_, f"`{name}` as true or false for each row", f"{marks.dtype} numbers")
        if self.flagged is not None:
            _check_flagged_whole(self.records, self.flagged)
        if self.entities is not None:
            found = len(self.entities)
            _require(found == rows, f"`entities` for each of {rows} rows", f"those of {found} rows")
            marks = np.diff(self.entities.offsets) > 0
            agree = self.with_entity is None or np.array_equal(self.with_entity, marks)
            _require(agree, "`with_entity` where `entities` has some", "other rows")
            object.__setattr__(self, "with_entity", marks)

    @classmethod
    def of(
        cls,
        store: Prepared,
        *,
        flagged: Marks | None = None,
        kept: Marks | None = None,
        with_entity: Marks | None = None,
        entities: RowEntities | None = None,
    ) -> Self:
        """The annotation of a prepared store, with marks made elsewhere."""
        return cls(store.records, store.users, store.span_counts(), flagged, kept, with_entity, entities)


@dataclass(frozen=True, slots=True, eq=False)
class Units:
    """Rows grouped by whom they belong to: unit `j` has `rows[offsets[j]:offsets[j + 1]]`, at least one."""

    rows: Rows
    offsets: Rows

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def one_row_each(self) -> bool:
        """Whether every unit has exactly one row."""
        return len(self) == len(self.rows)

    def sizes(self, units: Rows) -> Rows:
        """How many rows each of `units` has."""
        return self.offsets[units + 1] - self.offsets[units]

    def rows_of(self, units: Rows) -> Iterator[Rows]:
        """The rows of each of `units`."""
        return (self.rows[self.offsets[unit] : self.offsets[unit + 1]] for unit in units)


class Pools:
    """The pools of one store."""

    def __init__(self, annotation: Annotation) -> None:
        self._annotation = annotation
        self._rows: dict[Pool, Rows] = {}

    def rows(self, pool: Pool) -> Rows:
        """The row numbers of `pool`, rising; a pool without rows is refused."""
        if pool not in self._rows:
            rows = self._find(pool).astype(np.int64)
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

    def owner(self, rows: Rows) -> int:
        """The number of the user whose rows these are, which no other user decides; 0 for no rows."""
        return int(self._annotation.users[rows[0]]) if len(rows) else 0

    def entities(self) -> RowEntities:
        """Which listed entities stand in which row; refused when nobody said so."""
        entities = self._annotation.entities
        if entities is None:
            raise ConfigError(
                expected="the annotation `entities`, which says which listed entities stand in which row",
                found="none",
                way_out="look for the listed entities first, or choose a mechanism that does not draw them",
            )
        return entities

    def weights(self, drawn: Batch, weight_cap: int) -> npt.NDArray[np.float64]:
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


def _grouped(rows: Rows, owners: npt.NDArray[np.uint64]) -> Units:
    of_rows = owners[rows]
    order = np.argsort(of_rows, kind="stable")
    starts = np.flatnonzero(np.diff(of_rows[order])) + 1
    return Units(rows[order], np.concatenate(([0], starts, [len(rows)])).astype(np.int64))


def _given(marks: Marks | None, pool: Pool, name: str, how: str) -> Marks:
    if marks is None:
        raise ConfigError(
            expected=f"the annotation `{name}`, which says which are {pool}",
            found="none",
            way_out=f"{how} first, or choose a mechanism that does not need it",
        )
    return marks


def _check_length(name: str, values: npt.NDArray[Any], rows: int) -> None:
    _require(values.shape == (rows,), f"`{name}` with one entry for each of {rows} rows", f"shape {values.shape}")


def _check_flagged_whole(records: npt.NDArray[np.uint64], flagged: Marks) -> None:
    split = np.intersect1d(records[flagged], records[~flagged]).size
    _require(split == 0, "records whose pieces are flagged all or none", f"{split} that are flagged in part")


def _require(holds: bool, expected: str, found: str) -> None:
    if not holds:
        raise ConfigError(expected=expected, found=found, way_out="make the annotation from the same prepared store")
