"""The pass in which policies mark a corpus, and excerpts of the records they marked.

Marking
G1 (once). A policy is asked once for each record, the conservative one only where the other found nothing.
G2 (superset). A record with a marked span is flagged, whatever the conservative policy finds.
G3 (order). Marks come in the order of the records, whatever the number of processes.

Excerpts
G4 (hidden). Unless secrets are asked for, an excerpt contains no character of a found span or of a gold span, nor of
    a place where the text of one (3 to 500 characters, whole words, in whatever case) occurs again; nor the length
    of any of them, nor the record's id. Text that neither the policy nor a label calls secret is shown as it is.
G5 (safe). Text contains no control characters, bidirectional overrides or lone surrogates.
G6 (short). An excerpt is at most about `VISIBLE` characters long, however long the record.
G7 (chosen by hash). Which records a sampler keeps depends on ids and on where secrets are, not on the order.
"""

import hashlib
import re
import time
from bisect import insort
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from tacit.common.formatting import BLOCK, VISIBLE, printable, short
from tacit.common.workers import Workers, can_be_sent, cores, in_batches
from tacit.data.marked import CANARY, MarkedRecord, Marks, Part, Refusal
from tacit.data.records import Record, Span, resolve_overlaps
from tacit.errors import PolicyError
from tacit.policies.policy import Policy, difference, melted

_BATCH_RECORDS = 1_000
_BATCH_CHARACTERS = 5_000  # a second of the slowest policy, so that no process waits long for the last one
SECONDS_ALONE = 1.0  # of processor time; what takes longer is worth the start of more processes
KEPT = 20
_LEAD = 120
_COST_OF_A_SECRET = 8
_LONGEST_SECRET_SHOWN = 200
_SHORTEST_REPEAT = 3
_LONGEST_REPEAT = 500


class Unmarked(NamedTuple):
    """A record that is to be marked, and the part that it belongs to."""

    part: Part
    record: Record


@dataclass(frozen=True, slots=True)
class Policies:
    """The policies of a run. What `conservative` finds also routes a record to the protected set (CRT's pi_c)."""

    marking: Policy
    conservative: Policy | None = None

    def together(self) -> Policy:
        """Both as one policy: what either of them learned from matters."""
        return self.marking if self.conservative is None else self.marking | self.conservative

    def mark(self, one: Unmarked) -> Marks:
        """The marks of a record. A canary that is known is marked whatever the policy finds."""
        part, record = one
        doubtful = False
        try:
            spans = self.marking.marks(record)
            if part == Part.PLANTED:
                spans = melted(spans, tuple(span for span in record.spans or () if span.kind == CANARY))
            if self.conservative is not None and part != Part.HELD_OUT and not spans:
                doubtful = bool(self.conservative.marks(record))
        except PolicyError as error:
            return Marks((), False, Refusal(error.expected, error.found, error.way_out))
        return Marks(spans, bool(spans) or doubtful)


def mark_all(policies: Policies, records: Iterable[Unmarked]) -> Generator[tuple[Unmarked, Marks]]:
    """Each record with its marks, in order; more processes are started once it takes long."""
    batches = in_batches(records, lambda one: len(one.record.text), _BATCH_RECORDS, _BATCH_CHARACTERS)
    began = time.process_time()
    for batch in batches:
        yield from zip(batch, _mark_batch(policies, batch), strict=True)
        if time.process_time() - began > SECONDS_ALONE:
            break
    else:
        return
    with Workers(policies, cores() if can_be_sent(policies) else 1) as workers:
        for batch, marks in workers.map(_mark_batch, batches):
            yield from zip(batch, marks, strict=True)


def mark_records(policy: Policy, records: Iterable[Record]) -> Iterator[MarkedRecord]:
    """Records as one policy marks them."""
    unmarked = (Unmarked(Part.HELD_OUT, record) for record in records)
    return (MarkedRecord(one.record, marks) for one, marks in mark_all(Policies(policy), unmarked))


def _mark_batch(policies: Policies, batch: list[Unmarked]) -> list[Marks]:
    return [policies.mark(one) for one in batch]


class ExcerptState(StrEnum):
    """What is known about a piece of text."""

    PLAIN = "plain"
    FOUND = "found"  # the policy marks it
    MISSED = "missed"  # a label marks it, the policy does not
    AGAIN = "again"  # the same text as a secret of this record, but not marked here


@dataclass(frozen=True, slots=True)
class ExcerptPart:
    """A run of text of one state; the text of a secret is None unless secrets were asked for."""

    state: ExcerptState
    kind: str
    text: str | None

    @property
    def shown(self) -> str:
        """The text, or a block in place of a hidden one."""
        return BLOCK if self.text is None else self.text

    def label(self) -> str:
        """What is written beside a secret, so that color is never the only sign."""
        kind = self.kind or "secret"
        labels = {ExcerptState.MISSED: f"missed {kind}", ExcerptState.AGAIN: f"{kind} again, unmarked"}
        return labels.get(self.state, kind)


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Part of a record; `record` is its place in the corpus, from 1."""

    record: int
    id: str | None
    cut_before: bool
    cut_after: bool
    pieces: tuple[ExcerptPart, ...]


def excerpt(record: Record, found: tuple[Span, ...], number: int, show_secrets: bool) -> Excerpt:
    """The part of `record` around its first secrets."""
    secrets = _secrets(record, found)
    first = secrets[0][0].start if secrets else 0
    start = 0 if first <= VISIBLE // 3 else first - _LEAD
    pieces: list[ExcerptPart] = []
    left = VISIBLE
    end = start
    for span, state in _pieces(record.text, secrets, start):
        if left <= 0:
            break
        end = min(span.end, span.start + left) if state is ExcerptState.PLAIN else span.end
        text = record.text[span.start : end]
        if state is ExcerptState.PLAIN:
            pieces.append(ExcerptPart(state, "", printable(text)))
        else:
            shown = printable(text[:_LONGEST_SECRET_SHOWN]) + ("…" if len(text) > _LONGEST_SECRET_SHOWN else "")
            pieces.append(ExcerptPart(state, short(span.kind), shown if show_secrets else None))
        left -= len(text) if state is ExcerptState.PLAIN else _COST_OF_A_SECRET
    shown_id = printable(record.id)[:_LONGEST_SECRET_SHOWN] if show_secrets else None
    return Excerpt(number, shown_id, start > 0, end < len(record.text), tuple(pieces))


def _secrets(record: Record, found: tuple[Span, ...]) -> list[tuple[Span, ExcerptState]]:
    """What the policy found, and the parts of gold spans that it did not; sorted and disjoint."""
    missed = difference(resolve_overlaps(record.spans or ()), found, len(record.text))
    return sorted([*((span, ExcerptState.FOUND) for span in found), *((span, ExcerptState.MISSED) for span in missed)])


def _pieces(text: str, secrets: list[tuple[Span, ExcerptState]], start: int) -> Iterator[tuple[Span, ExcerptState]]:
    """Secrets, the text between them from `start` on, and in it the places where a secret's text occurs again."""
    again = _Again(text, secrets, start)
    border = 0
    for span, state in secrets:
        yield from again.between(border, start, span.start)
        yield span, state
        border = start = span.end
    yield from again.between(border, start, len(text))


class _Again:
    """Finds the texts of secrets where they occur unmarked, as far as an excerpt from `start` on can reach."""

    def __init__(self, text: str, secrets: list[tuple[Span, ExcerptState]], start: int) -> None:
        self._text = text
        spans = [span for span, _ in reversed(secrets) if span.end - span.start <= _LONGEST_REPEAT]
        kinds = {text[span.start : span.end].strip().casefold(): span.kind for span in spans}
        self._longest = max(map(len, kinds), default=0)
        window = text[max(0, start - self._longest) : self._reach(secrets, start) + self._longest].casefold()
        self._kinds = {
            value: kind for value, kind in kinds.items() if len(value) >= _SHORTEST_REPEAT and value in window
        }
        longest_first = sorted(self._kinds, key=len, reverse=True)
        self._pattern = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, longest_first))})(?!\w)", re.IGNORECASE)

    def between(self, border: int, start: int, end: int) -> Iterator[tuple[Span, ExcerptState]]:
        """Text from `start` to `end`, or as far as can be shown; a repetition may begin as early as `border`."""
        end = min(end, start + VISIBLE + self._longest)
        border = max(border, start - self._longest)
        for match in self._pattern.finditer(self._text, border, end) if self._kinds else ():
            if match.end() > start:
                if match.start() > start:
                    yield Span(start, match.start(), ""), ExcerptState.PLAIN
                yield Span(*match.span(), self._kinds.get(match[0].casefold(), "")), ExcerptState.AGAIN
                start = match.end()
        if start < end:
            yield Span(start, end, ""), ExcerptState.PLAIN

    @staticmethod
    def _reach(secrets: list[tuple[Span, ExcerptState]], start: int) -> int:
        left = VISIBLE
        for span, _ in secrets:
            left -= max(0, span.start - start) + _COST_OF_A_SECRET
            start = span.end
            if left <= 0:
                break
        return start + max(0, left)


@dataclass
class RecordSampler:
    """Sees records one after the other, and keeps excerpts of some that contain a secret."""

    _seen: int = 0
    _kept: list[tuple[bytes, int, Excerpt]] = field(default_factory=list)

    def see(self, record: Record, marks: Marks) -> None:
        """Keep an excerpt of the record, if its hash is among the smallest so far."""
        self._seen += 1
        key = id_hash(record)
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


def id_hash(record: Record) -> bytes:
    """Orders records by a hash of their ids: the first few are a sample that depends on nothing else."""
    return hashlib.blake2b(record.id.encode("utf-8", "surrogatepass"), digest_size=8).digest()
