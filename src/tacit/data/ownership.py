"""Contribution caps: no unit takes part in more records than it may.

Units are users, entities or whatever else a record belongs to. Which record belongs to which unit is public (theory,
section 5), and the choice looks at nothing else: zeroing out a unit's content leaves it as it is.

Formal guarantees:

G1 (caps hold). Every unit is in at most as many kept records as its noun's limit says.
G2 (greedy). A dropped record cannot be added back: one of its units is at its limit.
G3 (public). The kept records are a function of the incidence, the limits and the order.

Invented users for a corpus that names none, as UeDP does for AG News: N(15, 2^2) records each (appendix I).

They measure what user-level privacy costs; they are nobody. The deal looks at the records' ids and at how many there
are, never at their text: deal once, before anything is left out.

G1 (dealt). Every record has one user; a user has round(N(`mean`, `deviation`^2)) records, at least one, and the last
   user what is left.
G2 (at random). Which records meet in a user, and how many, is decided by SHA-256 of the salt: the order of the corpus
   does not matter, and no version of any library does.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from tacit.errors import PrepareError

UnitsOfRecord = Mapping[str, Collection[Hashable]]
"""The units a record belongs to, by noun: {"user": ["u17"], "entity": ["Ann", "Bern"]}."""


@dataclass(frozen=True, slots=True)
class NounReport:
    """What a limit did to the units of one noun."""

    limit: int
    units: int
    units_over_limit: int  # before the caps
    memberships: int  # (record, unit) pairs before the caps
    memberships_kept: int


@dataclass(frozen=True, slots=True)
class CapReport:
    """How many records the caps dropped, and what that meant for the units of each noun."""

    records: int
    kept: int
    nouns: dict[str, NounReport]

    @property
    def share_dropped(self) -> float:
        return 1 - self.kept / self.records if self.records else 0.0


def cap_contributions(
    units_of_records: Sequence[UnitsOfRecord], limits: Mapping[str, int], order: Sequence[int] | None = None
) -> tuple[npt.NDArray[np.bool_], CapReport]:
    """Which records to keep so that no unit is over its limit, taken greedily in `order` (as they stand when None).

    A record belongs to a unit once, however often it is listed. Nouns without a limit are not looked at.
    """
    _check(len(units_of_records), limits, order)
    memberships = [{(noun, unit) for noun in limits for unit in units.get(noun, ())} for units in units_of_records]
    kept = np.zeros(len(memberships), dtype=np.bool_)
    load: Counter[tuple[str, Hashable]] = Counter()
    for record in range(len(memberships)) if order is None else order:
        if all(load[unit] < limits[unit[0]] for unit in memberships[record]):
            kept[record] = True
            load.update(memberships[record])
    wanted = Counter(unit for units in memberships for unit in units)
    nouns = {noun: _noun_report(noun, limit, wanted, load) for noun, limit in limits.items()}
    return kept, CapReport(len(memberships), int(kept.sum()), nouns)


def salted_order(record_ids: Sequence[str], salt: str) -> list[int]:
    """A public order that favours no place in the corpus: by SHA-256 of salt and record id."""

    def key(record: int) -> tuple[bytes, int]:
        content = f"{len(salt)}:{salt}{record_ids[record]}"
        return hashlib.sha256(content.encode("utf-8", "surrogatepass")).digest(), record

    return sorted(range(len(record_ids)), key=key)


def _noun_report(
    noun: str, limit: int, wanted: Counter[tuple[str, Hashable]], load: Counter[tuple[str, Hashable]]
) -> NounReport:
    counts = [count for unit, count in wanted.items() if unit[0] == noun]
    return NounReport(
        limit=limit,
        units=len(counts),
        units_over_limit=sum(count > limit for count in counts),
        memberships=sum(counts),
        memberships_kept=sum(count for unit, count in load.items() if unit[0] == noun),
    )


def _check(records: int, limits: Mapping[str, int], order: Sequence[int] | None) -> None:
    low = {noun: limit for noun, limit in limits.items() if limit < 1}
    if low:
        raise PrepareError("limits of at least 1", f"{low}", "raise the limit, or leave those units out of the corpus")
    if order is not None and sorted(order) != list(range(records)):
        raise PrepareError(
            expected=f"an order that names each of {records} records once",
            found=f"{len(order)} places",
            way_out="make the order with `salted_order`",
        )


_BITS = 52  # with a half added they are a float exactly, above 0 and below 1


def dealt_users(record_ids: Sequence[str], mean: float, deviation: float, salt: str) -> list[str]:
    """The user of each record."""
    if not (math.isfinite(mean) and mean >= 1 and math.isfinite(deviation) and deviation >= 0):
        raise PrepareError(
            expected="a mean of at least one record a user, and a deviation of at least 0",
            found=f"{mean} and {deviation}",
            way_out="correct the numbers; UeDP's are 15 and 2",
        )
    users = [""] * len(record_ids)
    names = _repeated_names(mean, deviation, salt)
    for record in salted_order(record_ids, salt):
        users[record] = next(names)
    return users


def _repeated_names(mean: float, deviation: float, salt: str) -> Iterator[str]:
    """One invented user after the other, each as often as it has records."""
    number = 0
    while True:
        number += 1
        size = round(mean + deviation * NormalDist().inv_cdf(_uniform(salt, number)))
        for _ in range(max(1, size)):
            yield f"dealt-{number}"


def _uniform(salt: str, number: int) -> float:
    content = f"{len(salt)}:{salt}/size of user {number}"
    digest = hashlib.sha256(content.encode("utf-8", "surrogatepass")).digest()
    return ((int.from_bytes(digest[:8]) >> (64 - _BITS)) + 0.5) / (1 << _BITS)
