"""Whose a record is: contribution caps, invented users, and the entities in each record.

Units are users, entities or whatever else a record belongs to. Which record belongs to which unit is public (theory,
section 5), and caps look at nothing else: zeroing out a unit's content leaves the choice as it is.

G1 (caps hold). Every unit is in at most as many kept records as its noun's limit says.
G2 (greedy). A dropped record cannot be added back: one of its units is at its limit.
G3 (public). The kept records are a function of the incidence, the limits and the order.
G4 (dealt). For a corpus without users, as UeDP does for AG News (appendix I): every record has one invented user; a
   user has round(N(`mean`, `deviation`^2)) records, at least one, and the last user what is left.
G5 (at random). Which records share a user, and how many, is decided by SHA-256 of the salt and the records' ids:
   neither the text nor the order of the corpus matters, nor the version of any library.
G6 (superset). A record with a marked span is flagged, whatever the conservative policy says.
G7 (every occurrence). A record has each listed entity of which a string is in its text as whole words, without regard
   to case and white space: whatever the policy marked there, and also inside a longer entity.
"""

import hashlib
import math
import re
import unicodedata
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, pairwise, repeat, zip_longest
from pathlib import Path
from statistics import NormalDist
from typing import NamedTuple

import ahocorasick_rs
import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file, save_file

from tacit.common.files import read_text, why
from tacit.data.marked import MarkedRecord
from tacit.data.records import Span, common_kind, stands_alone, without_surrogates
from tacit.errors import ConfigError, PrepareError


class Capped(NamedTuple):
    """Units of one noun: record `i` belongs to `ids[offsets[i]:offsets[i + 1]]`, and each keeps `limit` records."""

    offsets: npt.NDArray[np.int64]
    ids: npt.NDArray[np.int64]  # from 0 on, none of a record twice
    limit: int


def cap_contributions(capped: Sequence[Capped], order: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Which records to keep so that no unit is over its limit, taken greedily in `order`."""
    _check(capped, order)
    kept = np.zeros(len(order), dtype=np.bool_)
    nouns = [
        (one.offsets.data, one.ids.data, one.limit, array("q", [0]) * (1 + one.ids.max(initial=-1))) for one in capped
    ]
    for record in order.data:
        own = [(ids[offsets[record] : offsets[record + 1]], limit, load) for offsets, ids, limit, load in nouns]
        if all(load[unit] < limit for units, limit, load in own for unit in units):
            kept[record] = True
            for units, _, load in own:
                for unit in units:
                    load[unit] += 1
    return kept


def salted_order(record_ids: Iterable[str], salt: str) -> npt.NDArray[np.int64]:
    """A public order that favors no place in the corpus: by 128 bits of SHA-256 of salt and record id."""
    digests = bytearray()
    for record_id in record_ids:
        digests += hashlib.sha256(f"{len(salt)}:{salt}{record_id}".encode("utf-8", "surrogatepass")).digest()[:16]
    high, low = np.frombuffer(digests, ">u8").reshape(-1, 2).T
    return np.lexsort((low, high))


def _check(capped: Sequence[Capped], order: npt.NDArray[np.int64]) -> None:
    low = [one.limit for one in capped if one.limit < 1]
    if low:
        raise PrepareError("limits of at least 1", f"{low}", "raise the limit, or leave those units out of the corpus")
    records = len(capped[0].offsets) - 1 if capped else len(order)
    if not np.array_equal(np.sort(order), np.arange(records)):
        raise PrepareError(
            expected=f"an order that names each of {records} records once",
            found=f"{len(order)} places",
            way_out="make the order with `salted_order`",
        )


_BITS = 52  # with a half added they are a float exactly, above 0 and below 1


def dealt_users(record_ids: Iterable[str], mean: float, deviation: float, salt: str) -> npt.NDArray[np.int64]:
    """The number of each record's user, from 1 on."""
    if not (math.isfinite(mean) and mean >= 1 and math.isfinite(deviation) and deviation >= 0):
        raise PrepareError(
            expected="a mean of at least one record per user, and a deviation of at least 0",
            found=f"{mean} and {deviation}",
            way_out="correct the numbers; UeDP's are 15 and 2",
        )
    order = salted_order(record_ids, salt)
    users = np.empty(len(order), np.int64)
    users[order] = np.fromiter(_repeated_numbers(mean, deviation, salt), np.int64, len(order))
    return users


def _repeated_numbers(mean: float, deviation: float, salt: str) -> Iterator[int]:
    """One invented user after the other, each as often as it has records."""
    for number in count(1):
        content = f"{len(salt)}:{salt}/size of user {number}"
        digest = hashlib.sha256(content.encode("utf-8", "surrogatepass")).digest()
        uniform = ((int.from_bytes(digest[:8]) >> (64 - _BITS)) + 0.5) / (1 << _BITS)
        yield from repeat(number, max(1, round(mean + deviation * NormalDist().inv_cdf(uniform))))


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
        for one in records:
            spans = one.marks.spans
            self._flagged.append(one.marks.flagged)
            self._marked |= bool(spans)
            listed = [span for span in spans if self.lists_entities and self._is_entity(span)]
            self._named |= bool(listed)
            self._entities.add({self._number(normalised(one.record.text[span.start : span.end])) for span in listed})
            yield one

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

    def _is_entity(self, span: Span) -> bool:
        """Whether its own kind is listed, or what that means in the one vocabulary: a listed kind is never widened."""
        return self.entity_kinds is None or not self.entity_kinds.isdisjoint({span.kind, common_kind(span.kind)})

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
