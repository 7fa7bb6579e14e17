"""What a policy sees in one batch of records, in a form that adds up: the inner part of a scan."""

import hashlib
import heapq
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from tacit.common.workers import in_batches
from tacit.data.records import Record, Span, spans_fault
from tacit.errors import PolicyError, TacitError
from tacit.policies.card import CardCounts
from tacit.policies.excerpts import Excerpt, excerpt
from tacit.policies.policy import Policy
from tacit.policies.stability import StabilityCounts, mask_stability

STABILITY_RECORDS = 200
STABILITY_SPANS = 5
STABILITY_LONGEST = 5_000
_BATCH_CHARACTERS = 100_000
_BATCH_RECORDS = 1_000
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
class Part:
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

    def merge(self, other: "Part", sample: int) -> None:
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
    for batch in in_batches(records, lambda record: len(record.text), _BATCH_RECORDS, _BATCH_CHARACTERS):
        yield RecordBatch(first, batch)
        first += len(batch)


def look(looker: Looker, batch: RecordBatch) -> Part:
    """Count one batch."""
    return counted(looker, batch, find_all(looker.policy, batch))


def find_all(policy: Policy, batch: RecordBatch) -> list[tuple[Span, ...]]:
    """What `policy` finds in each record; one that it cannot read, or spans that are not tidy, are an error."""
    return [_find(policy, record, number) for number, record in enumerate(batch.records, batch.first)]


def counted(looker: Looker, batch: RecordBatch, spans: list[tuple[Span, ...]]) -> Part:
    """The counts of a batch in which `spans` were found."""
    part = Part()
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


def _count(part: Part, record: Record, found: tuple[Span, ...]) -> None:
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
