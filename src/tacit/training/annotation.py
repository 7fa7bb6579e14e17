"""Which rows of a prepared store are protected, whose they are and which of them caps keep: public annotation.

Annotation is fixed before training and treated as public (theory, sections 2 to 5): zeroing out what a unit says leaves
it as it is. It decides which pool a record is in, and nothing else.

G1 (whole records). Every mark is a record's: its pieces share it.
G3 (caps). No user and no entity is in more kept records than its cap.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tacit.data.ownership import RecordMarks, cap_contributions, salted_order
from tacit.data.store import PreparedCorpus
from tacit.errors import ConfigError
from tacit.training.pools import Annotation, RowEntities

_SALT = "tacit caps"


@dataclass(frozen=True, slots=True)
class Caps:
    """The most records that a user and an entity keep; None is no limit."""

    user: int | None = None
    entity: int | None = None

    def limits(self) -> dict[str, int]:
        """By noun, as `cap_contributions` wants them."""
        return {noun: cap for noun, cap in (("user", self.user), ("entity", self.entity)) if cap is not None}


def annotate(store: PreparedCorpus, marks: RecordMarks, caps: Caps) -> tuple[Annotation, float | None]:
    """The annotation of every row of `store`, and the share of records that the caps dropped."""
    numbers = store.records.astype(np.int64)
    entities = _row_entities(marks, numbers)
    kept, dropped = _kept(store, numbers, marks, caps) if caps.limits() else (None, None)
    return Annotation.of(store, flagged=marks.flagged[numbers], kept=kept, entities=entities), dropped


def _row_entities(marks: RecordMarks, numbers: npt.NDArray[np.int64]) -> RowEntities:
    """Of each row the entities of its record."""
    starts, ends = marks.entity_offsets[numbers], marks.entity_offsets[numbers + 1]
    offsets = np.concatenate(([0], np.cumsum(ends - starts)))
    places = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], ends - starts)
    count = int(marks.entity_ids.max(initial=-1)) + 1
    small = np.int32 if count <= np.iinfo(np.int32).max else np.int64
    return RowEntities(offsets, marks.entity_ids[places].astype(small), count)


def _kept(
    store: PreparedCorpus, numbers: npt.NDArray[np.int64], marks: RecordMarks, caps: Caps
) -> tuple[npt.NDArray[np.bool_], float]:
    records, first = np.unique(numbers, return_index=True)
    owners = store.users[first]
    if caps.user is not None and not owners.all():
        raise ConfigError(
            expected="a user for every record whose users are capped",
            found=f"{int(np.count_nonzero(owners == 0))} records without one",
            way_out="name the user of every record, or set users: documents, or users: dealt",
        )
    units = [
        {"user": [int(owner)], "entity": marks.entities(int(record))}
        for record, owner in zip(records, owners, strict=True)
    ]
    order = salted_order([store.record_id(int(row)) for row in first], _SALT)
    kept, report = cap_contributions(units, caps.limits(), order)
    return np.isin(numbers, records[kept]), report.share_dropped
