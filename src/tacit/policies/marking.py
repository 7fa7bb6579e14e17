"""The one pass in which policies see a corpus: each record once, on all cores, in order.

G1 (once). A policy is asked once for each record, the conservative one only where the other found nothing.
G2 (superset). A record with a marked span is flagged, whatever the conservative policy says.
G3 (order). Marks come in the order of the records, whatever the number of processes.

A few records kept for showing while a corpus goes by: chosen by a hash of their ids, secrets hidden.

G1 (hidden). What is kept holds no secret that the policy or a label marks, nor its length, nor a record's id
   (`tacit.policies.excerpts`).
G2 (chosen by hash). Which records are kept depends on ids and on where secrets are, not on the order.

What a policy sees in one batch of records, in a form that adds up: the inner part of a scan.
"""

import hashlib
import heapq
import random
import re
import time
from bisect import insort
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from tacit.common.workers import Workers, can_be_sent, cores, in_batches
from tacit.data.canaries import CANARY
from tacit.data.marked import MarkedRecord, Marks, Part, Refusal
from tacit.data.records import Record, Span, spans_fault
from tacit.errors import PolicyError, TacitError
from tacit.policies.card import CardCounts
from tacit.policies.excerpts import Excerpt, excerpt
from tacit.policies.policy import Policy, melted
from tacit.policies.stability import StabilityCounts, mask_stability

_BATCH_CHARACTERS = 20_000  # some seconds of the slowest policy, so that no process waits long for the last one


_BATCH_RECORDS = 1_000


SECONDS_ALONE = 3.0  # of processor time; what takes longer is worth the start of more processes


class Unmarked(NamedTuple):
    """A record that is to be marked, and the part that it belongs to."""

    part: Part
    record: Record


@dataclass(frozen=True, slots=True)
class Marker:
    """The policies of a run. `conservative`: what it finds routes a record to the protected set (CRT's pi_c)."""

    policy: Policy
    conservative: Policy | None = None

    def mark(self, one: Unmarked) -> Marks:
        """The marks of a record. A canary that is known is marked whatever the policy finds."""
        part, record = one
        try:
            spans = self.policy.find(record)
            if part == Part.PLANTED:
                spans = melted(spans, tuple(span for span in record.spans or () if span.kind == CANARY))
            doubtful = part != Part.HELD_OUT and not spans and self._doubts(record)
        except PolicyError as error:
            return Marks((), False, Refusal(error.expected, error.found, error.way_out))
        return Marks(spans, bool(spans) or doubtful)

    def _doubts(self, record: Record) -> bool:
        return self.conservative is not None and bool(self.conservative.find(record))


def mark_all(marker: Marker, records: Iterable[Unmarked]) -> Generator[tuple[Unmarked, Marks]]:
    """Each record with its marks, in order; more processes are started once it takes long."""
    batches = in_batches(records, lambda one: len(one.record.text), _BATCH_RECORDS, _BATCH_CHARACTERS)
    began = time.process_time()
    for batch in batches:
        yield from zip(batch, _mark_batch(marker, batch), strict=True)
        if time.process_time() - began > SECONDS_ALONE:
            break
    else:
        return
    with Workers(marker, cores() if can_be_sent(marker) else 1) as workers:
        for batch, marks in workers.map(_mark_batch, batches):
            yield from zip(batch, marks, strict=True)


def mark_records(policy: Policy, records: Iterable[Record]) -> Iterator[MarkedRecord]:
    """Records as one policy marks them."""
    return (MarkedRecord(one.record, marks) for one, marks in mark_all(Marker(policy), map(_held_out, records)))


def _held_out(record: Record) -> Unmarked:
    return Unmarked(Part.HELD_OUT, record)


def _mark_batch(marker: Marker, batch: list[Unmarked]) -> list[Marks]:
    return [marker.mark(one) for one in batch]


KEPT = 20


@dataclass
class RecordSampler:
    """Sees records one after the other, and keeps excerpts of some that hold a secret."""

    _seen: int = 0
    _kept: list[tuple[bytes, int, Excerpt]] = field(default_factory=list)

    def see(self, record: Record, marks: Marks) -> None:
        """Keep an excerpt of the record, if its hash is among the smallest so far."""
        self._seen += 1
        key = hashlib.blake2b(record.id.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        if not marks.spans or (len(self._kept) == KEPT and key >= self._kept[-1][0]):
            return
        shown = excerpt(record, marks.spans, self._seen, show_secrets=False)
        insort(self._kept, (key, self._seen, shown), key=lambda one: one[:2])
        del self._kept[KEPT:]

    def excerpts(self) -> tuple[Excerpt, ...]:
        """What was kept, in the order of the hashes."""
        return tuple(shown for _, _, shown in self._kept)


@dataclass(frozen=True, slots=True)
class Inside:
    """Training records for a page that stays inside your organization: excerpts, and counts per kind."""

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


STABILITY_RECORDS = 200


STABILITY_SPANS = 5


STABILITY_LONGEST = 5_000


_SCAN_CHARACTERS = 100_000


_SCAN_RECORDS = 1_000


_TOKEN = re.compile(r"\w+|[^\w\s]")


_ONE_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """Records in a row; the first of them is number `first` of the corpus."""

    first: int
    records: list[Record]


@dataclass(frozen=True, slots=True)
class Looker:
    """All that looking at a batch needs; sent to each process once."""

    policy: Policy
    sample: int
    show_secrets: bool


class KindKey(NamedTuple):
    """Orders records by a hash of their ids: the first few are a sample that depends on nothing else."""

    hash: bytes
    number: int


@dataclass
class BatchCounts:
    """Counts of a part of a corpus. `sample` and `to_check` hold the first records with secrets by `Key`."""

    records: int = 0
    records_with_secrets: int = 0
    characters: int = 0
    tokens: int = 0
    sensitive_tokens: int = 0
    users: Counter[str] = field(default_factory=Counter)
    secrets: Counter[str] = field(default_factory=Counter)
    records_by_kind: Counter[str] = field(default_factory=Counter)
    card: CardCounts = field(default_factory=CardCounts)
    sample: list[tuple[KindKey, Excerpt]] = field(default_factory=list)
    to_check: list[tuple[KindKey, Record]] = field(default_factory=list)

    def merge(self, other: "BatchCounts", sample: int) -> None:
        """Add what was counted elsewhere; at most `sample` excerpts stay."""
        self.records += other.records
        self.records_with_secrets += other.records_with_secrets
        self.characters += other.characters
        self.tokens += other.tokens
        self.sensitive_tokens += other.sensitive_tokens
        self.users.update(other.users)
        self.secrets += other.secrets
        self.records_by_kind += other.records_by_kind
        self.card += other.card
        self.sample = heapq.nsmallest(sample, self.sample + other.sample, key=_key)
        self.to_check = heapq.nsmallest(STABILITY_RECORDS, self.to_check + other.to_check, key=_key)


def batches(records: Iterable[Record]) -> Iterator[RecordBatch]:
    """Records in batches of bounded size, so that the slowest batch is not slow."""
    first = 1
    for batch in in_batches(records, lambda record: len(record.text), _SCAN_RECORDS, _SCAN_CHARACTERS):
        yield RecordBatch(first, batch)
        first += len(batch)


def look(looker: Looker, batch: RecordBatch) -> BatchCounts:
    """Count one batch."""
    return counted(looker, batch, find_all(looker.policy, batch))


def find_all(policy: Policy, batch: RecordBatch) -> list[tuple[Span, ...]]:
    """What `policy` finds in each record; one that it cannot read, or spans that are not tidy, are an error."""
    return [_find(policy, record, number) for number, record in enumerate(batch.records, batch.first)]


def counted(looker: Looker, batch: RecordBatch, spans: list[tuple[Span, ...]]) -> BatchCounts:
    """The counts of a batch in which `spans` were found."""
    part = BatchCounts()
    hits: list[tuple[KindKey, Record, tuple[Span, ...]]] = []
    for number, (record, found) in enumerate(zip(batch.records, spans, strict=True), batch.first):
        _count(part, record, found)
        if found:
            hits.append((KindKey(hashlib.blake2b(_bytes(record.id), digest_size=8).digest(), number), record, found))
    part.sample = [
        (key, excerpt(record, found, key.number, looker.show_secrets))
        for key, record, found in heapq.nsmallest(looker.sample, hits, key=_key)
    ]
    short = [(key, record) for key, record, _ in hits if len(record.text) <= STABILITY_LONGEST]
    part.to_check = heapq.nsmallest(STABILITY_RECORDS, short, key=_key)
    return part


def check_stability(looker: Looker, record: Record) -> StabilityCounts:
    """Mask stability of one record; chance is a function of its id."""
    rng = random.Random(_bytes(record.id))
    return mask_stability(looker.policy, record, rng, STABILITY_SPANS)


def count_tokens(text: str, spans: tuple[Span, ...]) -> tuple[int, int]:
    """How many tokens `text` has, and how many of them overlap a span.

    Words and marks of a span are those of the text cut at its ends, so only a word that reaches from one span into
    the next would count twice.
    """
    twice = sum(bool(_ONE_WORD.fullmatch(text, a.end - 1, b.start + 1)) for a, b in pairwise(spans))
    return len(_TOKEN.findall(text)), sum(len(_TOKEN.findall(text, *span[:2])) for span in spans) - twice


def _find(policy: Policy, record: Record, number: int) -> tuple[Span, ...]:
    try:
        found = policy.find(record)
    except TacitError as error:
        raise PolicyError(error.expected, f"{error.found}, at record {number:,}", error.way_out) from error
    except Exception as error:
        raise _bad_policy(policy, number, type(error).__name__) from error
    if fault := spans_fault(found, len(record.text)):
        raise _bad_policy(policy, number, fault)
    return found


def _bad_policy(policy: Policy, number: int, found: str) -> PolicyError:
    return PolicyError(
        expected=f"policy {policy.id} to give tidy spans for every record",
        found=f"{found} at record {number:,}",
        way_out="mend the policy, or take this record out of the corpus",
    )


def _count(part: BatchCounts, record: Record, found: tuple[Span, ...]) -> None:
    tokens, sensitive = count_tokens(record.text, found)
    part.records += 1
    part.records_with_secrets += bool(found)
    part.characters += len(record.text)
    part.tokens += tokens
    part.sensitive_tokens += sensitive
    if record.user is not None:
        part.users[record.user] += 1
    part.secrets.update(span.kind for span in found)
    part.records_by_kind.update({span.kind for span in found})
    part.card.add(record, found)


def _key(entry: tuple[KindKey, *tuple[object, ...]]) -> KindKey:
    return entry[0]


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
