"""The one pass in which policies see a corpus: each record once, on all cores, in order.

G1 (once). A policy is asked once for each record, the conservative one only where the other found nothing.
G2 (superset). A record with a marked span is flagged, whatever the conservative policy says.
G3 (order). Marks come in the order of the records, whatever the number of processes.

A few records kept for showing while a corpus goes by: chosen by a hash of their ids, secrets hidden.

G1 (hidden). What is kept holds no secret that the policy or a label marks, nor its length, nor a record's id
   (`tacit.policies.excerpts`).
G2 (chosen by hash). Which records are kept depends on ids and on where secrets are, not on the order.
"""

import hashlib
import time
from bisect import insort
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tacit.common.workers import Workers, can_be_sent, cores, in_batches
from tacit.data.canaries import CANARY
from tacit.data.marked import MarkedRecord, Marks, Part, Refusal
from tacit.data.records import Record
from tacit.errors import PolicyError
from tacit.policies.excerpts import Excerpt, excerpt
from tacit.policies.policy import Policy, melted

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
