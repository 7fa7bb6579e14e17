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

Which records are protected, and which listed entities are in them.

G1 (superset). A record with a marked span is flagged, whatever the conservative policy says.
G2 (every occurrence). A record has each listed entity of which a string is in its text as whole words, without regard
   to case and white space: whatever the policy marked there, and also inside a longer entity.
"""

import hashlib
import math
import re
import unicodedata
from array import array
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, zip_longest
from pathlib import Path
from statistics import NormalDist

import ahocorasick_rs
import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file, save_file

from tacit.common.files import read_text, why
from tacit.data.marked import MarkedRecord
from tacit.data.records import Span, common_kind, stands_alone, without_surrogates
from tacit.errors import ConfigError, PrepareError

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


_SPACE = re.compile(r"\s+")


@dataclass(frozen=True, slots=True, eq=False)
class RecordMarks:
    """What was seen of each record, by its number in the stream; entities as ids, the strings are not kept."""

    flagged: npt.NDArray[np.bool_]
    entity_offsets: npt.NDArray[np.int64]
    entity_ids: npt.NDArray[np.int64]
    entity_list_hash: str

    def entities(self, record: int) -> list[int]:
        """The ids of the listed entities of a record."""
        return [int(one) for one in self.entity_ids[self.entity_offsets[record] : self.entity_offsets[record + 1]]]

    def save(self, path: Path) -> None:
        """As safetensors."""
        arrays = {name: getattr(self, name) for name in ("flagged", "entity_offsets", "entity_ids")}
        save_file({**arrays, "listed": np.frombuffer(self.entity_list_hash.encode(), np.uint8)}, path)

    @classmethod
    def load(cls, path: Path) -> "RecordMarks":
        """What `save` wrote."""
        found = load_file(path)
        listed = found["listed"].tobytes().decode()
        return cls(found["flagged"], found["entity_offsets"], found["entity_ids"], listed)


@dataclass(slots=True)
class Annotator:
    """Notes the marks of records as they stream by to be prepared; entities are looked for once more.

    lists_entities: whether entities are listed at all. entity_kinds: marked spans that are entities; None is all kinds.
    aliases: other strings of an entity, which is then listed.
    """

    lists_entities: bool = True
    entity_kinds: frozenset[str] | None = None
    aliases: Mapping[str, str] = field(default_factory=dict)
    _flagged: bytearray = field(default_factory=bytearray, init=False)
    _entities: "_Lists" = field(default_factory=lambda: _Lists(), init=False)
    _ids: dict[str, int] = field(default_factory=dict, init=False)
    _marked: bool = field(default=False, init=False)
    _named: bool = field(default=False, init=False)

    def watching(self, records: Iterable[MarkedRecord]) -> Iterator[MarkedRecord]:
        """The same records, each seen."""
        for record in records:
            self._see(record)
            yield record

    def search(self, records: Iterable[MarkedRecord]) -> None:
        """Look for every listed string in the same records: what is an entity here may be marked otherwise there."""
        entities = {string: self._number(string) for string in (*self._ids, *self.aliases, *self.aliases.values())}
        strings = [string for string in entities if string]
        automaton = ahocorasick_rs.AhoCorasick(strings)
        found_in = _Lists()
        for one, known in zip_longest(records, self._entities):
            if one is None or known is None:
                raise PrepareError("the same records twice", "fewer or more", "leave the corpus alone during a run")
            text = normalised(one.record.text)
            hits = automaton.find_matches_as_indexes(text, overlapping=True)
            found = {entities[strings[which]] for which, start, end in hits if stands_alone(text, start, end)}
            found_in.add({*known, *found})
        self._entities = found_in

    def marks(self) -> RecordMarks:
        """What was seen; refused where kinds are listed and nothing is of them."""
        if self.entity_kinds is not None and self._marked and not self._named:
            raise ConfigError(
                expected=f"an entity of the kinds {', '.join(sorted(self.entity_kinds))}",
                found="none, though the policy marks other kinds",
                way_out="name kinds that `tacit scan` lists in entity_kinds, or leave it out for all",
            )
        listed = "\n".join(sorted(self._ids))
        digest = hashlib.sha256(listed.encode("utf-8", "surrogatepass")).hexdigest()
        flagged = np.frombuffer(self._flagged, np.bool_)
        return RecordMarks(flagged, np.array(self._entities.ends), np.array(self._entities.ids), digest)

    def _see(self, one: MarkedRecord) -> None:
        record, spans = one.record, one.marks.spans
        self._flagged.append(one.marks.flagged)
        self._marked |= bool(spans)
        listed = [span for span in spans if self.lists_entities and self._is_entity(span)]
        self._named |= bool(listed)
        self._entities.add({self._number(normalised(record.text[span.start : span.end])) for span in listed})

    def _is_entity(self, span: Span) -> bool:
        """Whether its own kind is listed, or what that means in the one vocabulary: a listed kind is never widened."""
        if self.entity_kinds is None:
            return True
        return span.kind in self.entity_kinds or common_kind(span.kind) in self.entity_kinds

    def _number(self, string: str) -> int:
        return self._ids.setdefault(self.aliases.get(string, string), len(self._ids))


class _Lists:
    """Lists of numbers, one for each record, in two arrays."""

    def __init__(self) -> None:
        self.ids = array("q")
        self.ends = array("q", [0])

    def add(self, ids: Collection[int]) -> None:
        self.ids.extend(sorted(ids))
        self.ends.append(len(self.ids))

    def __iter__(self) -> Iterator["array[int]"]:
        return (self.ids[start:end] for start, end in pairwise(self.ends))


def normalised(text: str) -> str:
    """An entity's string as it is listed, or a text in which it is looked for: lower case, one space between words."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return without_surrogates(_SPACE.sub(" ", folded).strip())


def read_aliases(path: Path) -> dict[str, str]:
    """A text file with one entity per line: its name, then its other names, tabs between them."""
    aliases: dict[str, str] = {}
    names: set[str] = set()
    try:
        lines = read_text(path).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("a readable file of aliases", why(error), "check the path") from error
    for line in lines:
        name, *others = [normalised(part) for part in line.split("\t") if part.strip()] or [""]
        names.add(name)
        for other in others:
            if aliases.setdefault(other, name) != name:
                raise ConfigError("each alias under one entity", "one under two", "remove one of the two lines")
    if any(name in names for name, entity in aliases.items() if name != entity):
        raise ConfigError("each name as an entity or as an alias", "one as both", "put all names into one line")
    return aliases
