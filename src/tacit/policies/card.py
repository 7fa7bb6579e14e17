"""How well a policy does on labeled text, with exact intervals: the policy card.

What is counted, with kinds of one vocabulary (`common_kind`: NAME and PER are one kind)
- recall, by the label's kind: gold spans whose every character but white space is in found spans, of whatever kinds;
  those of which some characters are found are counted beside it, and are misses.
- precision, by the policy's kind: found spans that overlap a gold span of whatever kind; and the same for characters.
- records: a record is missed when it contains at least one gold span that is not completely found.

Intervals for recall and precision are two-sided Clopper-Pearson, exact if spans were drawn one by one; spans of one
record resemble each other, so read them as a guide. The claim a certificate may use is the bound on records, which
needs only that the labeled records were drawn at random (theory, section 7).

F2 = 5 P R / (4 P + R) grows with P and with R. Its interval takes both lower ends and both upper ends of the
97.5 % intervals of P and R: both hold at once with 95 % confidence however the two depend on each other.

G1 (additive). Counting records in several parts and adding with `+` equals counting them in one.
G2 (bound). `miss_bound` is the one-sided 95 % Clopper-Pearson upper bound on the share of records with any missed
   secret: 0 of 200 gives .0149, 20 of 200 gives .142.
G3 (complete). The JSON form of a card contains the counts and everything computed from them.
G4 (inside). The card that a run keeps names only kinds that look like names: at most `MOST_KINDS`, one word, no
   number. All other kinds are counted together under `OTHERS`, so that no text of a corpus gets out as a kind. Its
   counts are exact functions of what held-out people wrote, so it is written to `private/` alone.
G5 (labels). A policy that repeats the labels, and a corpus without labels, have no card.
"""

import math
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from typing import Any, NamedTuple

from tacit.common.charts import Note, Table
from tacit.common.formatting import Interval, exact_interval, interval, percent, short, upper_bound
from tacit.data.records import Record, Span, common_kind, spans_fault
from tacit.errors import PolicyError
from tacit.policies.patterns import Gold
from tacit.policies.policy import Policy, difference, nested, overlaps

PRINTED_KINDS = 20
CONFIDENCE = 0.95
_BOTH_HOLD = 1 - (1 - CONFIDENCE) / 2
MOST_KINDS = 40
OTHERS = "(others)"
_NAME = re.compile(r"[A-Za-z][A-Za-z_-]{0,29}\d{0,2}")


class KindCounts(NamedTuple):
    """Counts of one kind: gold ones by the label's kind, found ones by the policy's kind."""

    gold: int = 0
    covered: int = 0
    partly: int = 0
    found: int = 0
    overlapping: int = 0
    found_characters: int = 0
    right_characters: int = 0

    def plus(self, other: "KindCounts") -> "KindCounts":
        return KindCounts(*map(add, self, other))


@dataclass
class CardCounts:
    """What a card is computed from. Counts of parts of a corpus add up to the counts of the whole, in any order."""

    records: int = 0
    missed_records: int = 0
    kinds: dict[str, KindCounts] = field(default_factory=dict)

    def add(self, record: Record, found: tuple[Span, ...]) -> None:
        """Count one record against the spans a policy found in it; a record without labels counts for nothing."""
        if record.spans is None:
            return
        for whose, spans in (("gold", record.spans), ("found", found)):
            if fault := spans_fault(spans, len(record.text)):
                raise PolicyError(
                    expected=f"{whose} spans that are sorted, disjoint and inside the text",
                    found=fault,
                    way_out="pass them through tacit.data.records.resolve_overlaps",
                )
        self.records += 1
        missed = False
        for span, common in zip(record.spans, common_characters(record.spans, found), strict=True):
            left = difference([span], found, len(record.text)) if common < span.end - span.start else ()
            covered = not any(record.text[start:end].strip() for start, end, _ in left)
            missed |= not covered
            self._count(span.kind, KindCounts(gold=1, covered=int(covered), partly=int(common > 0 and not covered)))
        self.missed_records += missed
        for span, common in zip(found, common_characters(found, record.spans), strict=True):
            length = span.end - span.start
            self._count(
                span.kind,
                KindCounts(found=1, overlapping=int(common > 0), found_characters=length, right_characters=common),
            )

    def add_usable(self, record: Record, found: tuple[Span, ...]) -> None:
        """Count one record; one whose spans make no sense, which training sets aside, is left out here too."""
        with suppress(PolicyError):
            self.add(record, found)

    def __add__(self, other: "CardCounts") -> "CardCounts":
        total = CardCounts(self.records + other.records, self.missed_records + other.missed_records, dict(self.kinds))
        for kind, counts in other.kinds.items():
            total._count(kind, counts)
        return total

    def overall(self) -> KindCounts:
        """The counts of all kinds together."""
        return reduce(KindCounts.plus, self.kinds.values(), KindCounts())

    def _count(self, label: str, counts: KindCounts) -> None:
        kind = common_kind(label)
        self.kinds[kind] = self.kinds.get(kind, KindCounts()).plus(counts)


class ShareOf(NamedTuple):
    """A share with its interval; `value` is None when there was nothing to take a share of."""

    value: float | None
    interval: Interval

    def cell(self, between: str = " ") -> str:
        """The share in per cent, and behind `between` its interval."""
        if self.value is None:
            return percent(None)
        ends = interval(self.interval).removesuffix(" %").replace(" to ", "-")
        return f"{percent(self.value).removesuffix(' %')}{between}({ends})"


class PolicyQuality(NamedTuple):
    """Recall, precision and F2 of one kind, or of all kinds together."""

    counts: KindCounts
    recall: ShareOf
    precision: ShareOf
    character_precision: float | None
    f2: ShareOf


@dataclass(frozen=True)
class PolicyCard:
    """A policy's measured quality."""

    policy_id: str
    policy_hash: str
    counts: CardCounts

    @property
    def miss_bound(self) -> float:
        """With 95 % confidence at most this share of records contains a secret that the policy misses."""
        return upper_bound(self.counts.missed_records, self.counts.records, CONFIDENCE)

    @property
    def overall(self) -> PolicyQuality:
        return quality(self.counts.overall())

    @property
    def kinds(self) -> dict[str, PolicyQuality]:
        """Each kind by itself, in the order of the alphabet."""
        return {kind: quality(self.counts.kinds[kind]) for kind in sorted(self.counts.kinds)}

    def sentence(self) -> str:
        """The coverage line of a certificate."""
        records, missed = self.counts.records, self.counts.missed_records
        share = math.ceil(self.miss_bound * 1e4) / 1e4  # an upper bound is rounded up
        return (
            f"With {CONFIDENCE:.0%} confidence at most {share:.4f} of the records hold a secret that policy "
            f"{self.policy_id} does not wholly mark ({missed:,} of {records:,} labelled records did)."
        )

    def tables(self) -> Iterator[Table | Note]:
        rows = tuple(
            (
                kind,
                of.recall.cell(),
                of.precision.cell(),
                percent(of.f2.value).removesuffix(" %"),
                f"{of.counts.gold:,}",
                f"{of.counts.found:,}",
            )
            for kind, of in [("all kinds", self.overall), *((short(kind), of) for kind, of in self.kinds.items())]
        )
        head = ("kind", "recall %", "precision %", "F2 %", "labeled", "found")
        yield Table(head, rows, title="policy card, with 95 % intervals").cut(PRINTED_KINDS + 1, "kinds")
        yield Note(self.sentence())

    def to_json(self) -> dict[str, Any]:
        return {
            "policy": {"id": self.policy_id, "hash": self.policy_hash},
            "confidence": CONFIDENCE,
            "records": self.counts.records,
            "records_with_a_miss": self.counts.missed_records,
            "upper_bound_on_share_of_records_with_a_miss": self.miss_bound,
            "attribution": "recall by the label's kind, precision by the policy's kind",
            "overall": _quality_to_json(self.overall),
            "kinds": {kind: _quality_to_json(quality_) for kind, quality_ in self.kinds.items()},
        }


def knows_labels(policy: Policy) -> bool:
    """Whether the policy, or a part of it, repeats the labels: measuring it against them would mean nothing."""
    return any(part == Gold().content() for part in nested(policy.content()))


def quality(counts: KindCounts) -> PolicyQuality:
    """The shares that follow from counts."""
    recall = _share(counts.covered, counts.gold)
    precision = _share(counts.overlapping, counts.found)
    characters = counts.right_characters / counts.found_characters if counts.found_characters else None
    recall_ends = exact_interval(counts.covered, counts.gold, _BOTH_HOLD)
    precision_ends = exact_interval(counts.overlapping, counts.found, _BOTH_HOLD)
    ends = Interval(f2(precision_ends.low, recall_ends.low), f2(precision_ends.high, recall_ends.high))
    middle = None
    if recall.value is not None and precision.value is not None:
        middle = f2(precision.value, recall.value)
    elif recall.value == 0.0:
        middle = 0.0  # nothing covered: 0 whatever the precision
    return PolicyQuality(counts, recall, precision, characters, ShareOf(middle, ends))


def f2(precision: float, recall: float) -> float:
    """The F measure that weighs recall four times as much as precision."""
    return 0.0 if precision * recall == 0 else 5 * precision * recall / (4 * precision + recall)


def _share(part: int, whole: int) -> ShareOf:
    return ShareOf(part / whole if whole else None, exact_interval(part, whole, CONFIDENCE))


def common_characters(spans: tuple[Span, ...], others: tuple[Span, ...]) -> list[int]:
    """For each of `spans`, how many of its characters lie in `others`; both sorted and disjoint."""
    common = [0] * len(spans)
    for place, start, end in overlaps(spans, others):
        common[place] += end - start
    return common


def _quality_to_json(measured: PolicyQuality) -> dict[str, Any]:
    shares = {"recall": measured.recall, "precision": measured.precision, "f2": measured.f2}
    return {
        "counts": measured.counts._asdict(),
        **{name: {"value": share.value, **share.interval._asdict()} for name, share in shares.items()},
        "character_precision": measured.character_precision,
    }


def measured_card(policy: Policy, counts: CardCounts) -> PolicyCard | None:
    """The card of `policy`; none without labels, or when the policy repeats them."""
    return PolicyCard(policy.id, policy.hash, counts) if counts.records and not knows_labels(policy) else None


def card_of_run(policy: Policy, counts: CardCounts) -> PolicyCard | None:
    """The card that a run keeps: the most frequent kinds with a name that may be printed, the others together."""
    if not counts.overall().gold:
        return None
    kinds: dict[str, KindCounts] = {}
    for kind, found in sorted(counts.kinds.items(), key=lambda entry: (-entry[1].gold - entry[1].found, entry[0])):
        named = kind if _NAME.fullmatch(kind) and len(kinds) < MOST_KINDS else OTHERS
        kinds[named] = kinds.get(named, KindCounts()).plus(found)
    return measured_card(policy, CardCounts(counts.records, counts.missed_records, kinds))
