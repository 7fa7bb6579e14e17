"""Pools: the rows of a prepared store that a step may draw from, fixed by public annotation before training.

Formal guarantees:

G1 (public). A pool is a function of which record and which user each row belongs to, of how many secrets it has, and of
   the marks that were given: no secret is read.
G2 (whole). The pieces of one record are flagged all or none.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from tacit.errors import ConfigError
from tacit.plan import Pool
from tacit.prepare import Prepared

Rows = npt.NDArray[np.int64]
Marks = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Annotation:
    """What is public about each row of a store, one entry a row; None where nobody marked the rows."""

    records: npt.NDArray[np.uint64]
    users: npt.NDArray[np.uint64]  # 0: no user
    span_counts: npt.NDArray[np.int64]
    flagged: Marks | None = None  # routed to the protected set
    kept: Marks | None = None  # by the contribution caps
    with_entity: Marks | None = None  # a listed entity stands in it

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

    @classmethod
    def of(
        cls,
        store: Prepared,
        *,
        flagged: Marks | None = None,
        kept: Marks | None = None,
        with_entity: Marks | None = None,
    ) -> Self:
        """The annotation of a prepared store, with marks made elsewhere."""
        return cls(store.records, store.users, store.span_counts(), flagged, kept, with_entity)


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
