"""How well a policy did on labelled held-out records, as counts for pages that stay inside.

G1 (numbers). It holds counts, and names of kinds that look like names: at most `MOST_KINDS`, one word, no
   number. All other kinds are counted together under `OTHERS`, so that no text of a corpus gets out as a kind.
G2 (inside). The counts are exact functions of what held-out people wrote, so they are written to `private/` alone.
G3 (labels). A policy that repeats the labels, and a corpus without labels, give none.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from tacit.corpus.record import Record, spans_fault
from tacit.errors import PolicyError
from tacit.policy.base import Policy
from tacit.policy.card import CardCounts, KindCounts, PolicyCard, knows_labels

MOST_KINDS = 40
OTHERS = "(others)"
_NAME = re.compile(r"[A-Za-z][A-Za-z_-]{0,29}\d{0,2}")


@dataclass(frozen=True, slots=True)
class MeasuredKind:
    """The counts of a kind: labelled ones by the label's kind, found ones by the policy's (`tacit.policy.card`)."""

    kind: str
    labelled: int
    wholly_found: int
    partly_found: int
    found: int
    overlapping: int


@dataclass(frozen=True, slots=True)
class MeasuredPolicy:
    """The card of a policy, as a run keeps it."""

    policy_id: str
    policy_hash: str
    records: int
    missed_records: int
    kinds: tuple[MeasuredKind, ...]

    @classmethod
    def of(cls, card: PolicyCard) -> "MeasuredPolicy":
        """The most frequent kinds with a name that may be printed; the others together."""
        kinds: dict[str, KindCounts] = {}
        order = sorted(card.counts.kinds.items(), key=lambda entry: (-entry[1].gold - entry[1].found, entry[0]))
        for kind, counts in order:
            named = kind if _NAME.fullmatch(kind) and len(kinds) < MOST_KINDS else OTHERS
            kinds[named] = kinds.get(named, KindCounts()).plus(counts)
        listed = tuple(MeasuredKind(kind, *counts[:5]) for kind, counts in kinds.items())
        return cls(card.policy_id, card.policy_hash, card.counts.records, card.counts.missed_records, listed)

    def card(self) -> PolicyCard:
        """The card that can be read off."""
        kinds = {
            one.kind: KindCounts(one.labelled, one.wholly_found, one.partly_found, one.found, one.overlapping)
            for one in self.kinds
        }
        return PolicyCard(self.policy_id, self.policy_hash, CardCounts(self.records, self.missed_records, kinds))


def measured(policy: Policy, records: Iterable[Record]) -> MeasuredPolicy | None:
    """The policy against the labels of `records`; a record that training would set aside is left out here too."""
    if knows_labels(policy):
        return None
    counts = CardCounts()
    for record in records:
        if record.spans is None or spans_fault(record.spans, len(record.text)):
            continue
        try:
            counts.add(record, policy.find(record))
        except PolicyError:
            continue
    if not counts.overall().gold:
        return None
    return MeasuredPolicy.of(PolicyCard(policy.id, policy.hash, counts))
