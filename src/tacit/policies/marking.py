"""Public annotation of a corpus: which records are protected, whose they are, which listed entities are in them.

Annotation is fixed before training and treated as public (theory, sections 2 to 5): zeroing out what a unit says leaves
it as it is. It decides which pool a record is in, and nothing else.

G1 (whole records). Every mark is a record's: its pieces share it.
G2 (superset). A record with a marked span is flagged, whatever the conservative policy says.
G3 (caps). No user and no entity is in more kept records than its cap.
G4 (every occurrence). A record has each listed entity of which a string is in its text as whole words, without regard
   to case and white space: whatever the policy marked there, and also inside a longer entity.

A few records kept for showing while a corpus goes by: chosen by a hash of their ids, secrets hidden.

G1 (hidden). What is kept holds no secret that the policy or a label marks, nor its length, nor a record's id
   (`tacit.policies.excerpts`).
G2 (chosen by hash). Which records are kept depends on ids and on where secrets stand, not on the order.
"""

import hashlib
import re
import unicodedata
from bisect import insort
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

import ahocorasick_rs
import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file, save_file

from tacit.common.files import read_text, why
from tacit.data.ownership import cap_contributions, salted_order
from tacit.data.prepare import Routing
from tacit.data.records import Record, Span, common_kind
from tacit.data.store import PreparedCorpus
from tacit.errors import ConfigError, PolicyError, PrepareError, TacitError
from tacit.policies.excerpts import Excerpt, excerpt
from tacit.policies.patterns import stands_alone, without_surrogates
from tacit.policies.policy import Policy
from tacit.policies.stability import affordable, stable_spans
from tacit.training.pools import Annotation, RowEntities

_SALT = "tacit caps"
_SPACE = re.compile(r"\s+")


@dataclass(frozen=True, slots=True, eq=False)
class RecordMarks:
    """What was seen of each record, by its number in the stream; entities as ids, the strings are not kept."""

    flagged: npt.NDArray[np.bool_]
    entity_offsets: npt.NDArray[np.int64]
    entity_ids: npt.NDArray[np.int64]
    entity_list_hash: str
    spans: int
    stable_spans: int

    def entities(self, record: int) -> list[int]:
        """The ids of the listed entities of a record."""
        return [int(one) for one in self.entity_ids[self.entity_offsets[record] : self.entity_offsets[record + 1]]]

    def save(self, path: Path) -> None:
        """As safetensors."""
        arrays = {name: getattr(self, name) for name in ("flagged", "entity_offsets", "entity_ids")}
        listed = np.frombuffer(self.entity_list_hash.encode(), np.uint8)
        save_file({**arrays, "listed": listed, "spans": np.array([self.spans, self.stable_spans])}, path)

    @classmethod
    def load(cls, path: Path) -> "RecordMarks":
        """What `save` wrote."""
        found = load_file(path)
        spans, stable = (int(number) for number in found["spans"])
        listed = found["listed"].tobytes().decode()
        return cls(found["flagged"], found["entity_offsets"], found["entity_ids"], listed, spans, stable)


@dataclass(slots=True)
class Annotator:
    """Looks at records as they stream by to be prepared, and once more for entities.

    conservative: flags records (CRT's pi_c). entity_kinds: spans of `policy` that are entities; None is all kinds.
    aliases: other strings of an entity, which is then listed. check_stability: look whether redaction of spans is
    stable: of every span, or in a long record of as many as can be checked.
    """

    policy: Policy
    conservative: Policy | None = None
    entity_kinds: frozenset[str] | None = None
    aliases: Mapping[str, str] = field(default_factory=dict)
    check_stability: bool = False
    _flagged: list[bool] = field(default_factory=list, init=False)
    _doubtful: list[bool] = field(default_factory=list, init=False)
    _entities: list[list[int]] = field(default_factory=list, init=False)
    _ids: dict[str, int] = field(default_factory=dict, init=False)
    _marked: bool = field(default=False, init=False)
    _named: bool = field(default=False, init=False)
    _spans: int = field(default=0, init=False)
    _stable: int = field(default=0, init=False)

    def watching(self, records: Iterable[Record]) -> Iterator[Record]:
        """The same records, each seen."""
        for record in records:
            self._see(record)
            yield record

    def search(self, records: Iterable[Record]) -> None:
        """Look for every listed string in the same records: what is an entity here may be marked otherwise there."""
        entities = {string: self._number(string) for string in (*self._ids, *self.aliases, *self.aliases.values())}
        strings = [string for string in entities if string]
        automaton = ahocorasick_rs.AhoCorasick(strings)
        for record, known in zip_longest(records, self._entities):
            if record is None or known is None:
                raise PrepareError("the same records twice", "fewer or more", "leave the corpus alone during a run")
            text = normalised(record.text)
            hits = automaton.find_matches_as_indexes(text, overlapping=True)
            found = {entities[strings[which]] for which, start, end in hits if stands_alone(text, start, end)}
            known[:] = sorted({*known, *found})

    def routing(self, number: int) -> Routing:
        """Of the record of this number; doubtful is what the conservative policy alone flagged."""
        return Routing(self._flagged[number], self._doubtful[number])

    def marks(self) -> RecordMarks:
        """What was seen; refused where kinds are listed and nothing is of them."""
        if self.entity_kinds is not None and self._marked and not self._named:
            raise ConfigError(
                expected=f"an entity of the kinds {', '.join(sorted(self.entity_kinds))}",
                found="none, though the policy marks other kinds",
                way_out="name kinds that `tacit scan` lists in entity_kinds, or leave it out for all",
            )
        offsets = np.cumsum([0, *(len(ids) for ids in self._entities)])
        ids = np.array([one for ids in self._entities for one in ids], np.int64)
        listed = "\n".join(sorted(self._ids))
        digest = hashlib.sha256(listed.encode("utf-8", "surrogatepass")).hexdigest()
        return RecordMarks(np.array(self._flagged, np.bool_), offsets, ids, digest, self._spans, self._stable)

    def _see(self, record: Record) -> None:
        found = self.policy.find(record)
        doubtful = self.conservative is not None and not found and bool(self.conservative.find(record))
        self._doubtful.append(doubtful)
        self._flagged.append(bool(found) or doubtful)
        self._marked |= bool(found)
        named = {self._id(record, span) for span in found if self._is_entity(span)}
        self._named |= bool(named)
        self._entities.append(sorted(named))
        if self.check_stability:
            chosen = affordable(record, found)
            self._spans += len(chosen)
            self._stable += stable_spans(self.policy, record, found, chosen)

    def _is_entity(self, span: Span) -> bool:
        """Whether its own kind is listed, or what that means in the one vocabulary: a listed kind is never widened."""
        if self.entity_kinds is None:
            return True
        return span.kind in self.entity_kinds or common_kind(span.kind) in self.entity_kinds

    def _id(self, record: Record, span: Span) -> int:
        return self._number(normalised(record.text[span.start : span.end]))

    def _number(self, string: str) -> int:
        return self._ids.setdefault(self.aliases.get(string, string), len(self._ids))


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
    entities = RowEntities.of(
        (marks.entities(int(record)) for record in numbers), int(marks.entity_ids.max(initial=-1)) + 1
    )
    kept, dropped = _kept(store, numbers, marks, caps) if caps.limits() else (None, None)
    return Annotation.of(store, flagged=marks.flagged[numbers], kept=kept, entities=entities), dropped


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


KEPT = 20


@dataclass
class RecordSampler:
    """Watches records, and keeps excerpts of some that hold a secret."""

    policy: Policy
    _kept: list[tuple[bytes, int, Excerpt]] = field(default_factory=list)

    def watching(self, records: Iterable[Record]) -> Iterator[Record]:
        """The same records, each seen."""
        for number, record in enumerate(records, 1):
            self._see(record, number)
            yield record

    def excerpts(self) -> tuple[Excerpt, ...]:
        """What was kept, in the order of the hashes."""
        return tuple(shown for _, _, shown in self._kept)

    def _see(self, record: Record, number: int) -> None:
        key = hashlib.blake2b(record.id.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        if len(self._kept) == KEPT and key >= self._kept[-1][0]:
            return
        try:
            found = self.policy.find(record)
        except TacitError:
            return  # whoever prepares it says so
        if found:
            insort(
                self._kept, (key, number, excerpt(record, found, number, show_secrets=False)), key=lambda one: one[:2]
            )
            del self._kept[KEPT:]


@dataclass(frozen=True, slots=True)
class Inside:
    """What a page that stays in the house shows of training records: excerpts, and how often each kind was marked."""

    excerpts: tuple[Excerpt, ...]
    kinds: tuple[tuple[str, int], ...]

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {"excerpts": [one.to_json() for one in self.excerpts], "kinds": [list(one) for one in self.kinds]}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "Inside":
        """What `to_json` wrote."""
        try:
            kinds = tuple((str(kind), int(count)) for kind, count in value["kinds"])
            return cls(tuple(Excerpt.from_json(one) for one in value["excerpts"]), kinds)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise PolicyError(
                expected="a sample as tacit writes it",
                found=f"{type(error).__name__} while reading it",
                way_out="use a run folder that nobody changed",
            ) from error
