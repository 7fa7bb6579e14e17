"""Several policies on one corpus, side by side: what each covers, what it misses, what it costs, where they agree.

    result = compare_policies("chats.jsonl", {"digits": digits, "pii": pii})

Recall, precision, F2 and missed records come from gold spans (see `tacit.policies.card`); a corpus without them, or a
policy that repeats them, has the rest: coverage, speed, mask stability and agreement.

G1 (one result). The result does not depend on the number of processes; only `seconds` does.
G2 (as alone). Each row equals what a scan with that policy alone counts.
G3 (discreet). The result holds no text of the corpus but the names of kinds.
G4 (flat). Memory does not grow with the corpus, but for its users.

Each bound on missed records holds by itself. A person who picks a policy because of its row needs bounds that hold for
all rows at once: `chosen_bound` splits the 5 % evenly among the policies (Bonferroni).
"""

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

from tacit.common.formatting import percent, upper_bound
from tacit.common.workers import Workers, processes_for
from tacit.data.corpus import read
from tacit.data.records import Record, Span
from tacit.errors import ConfigError
from tacit.policies.card import CONFIDENCE, PolicyCard, ShareOf, common_characters, quality
from tacit.policies.marking import BatchCounts, Looker, RecordBatch, batches, check_stability, counted, find_all
from tacit.policies.policy import Policy
from tacit.policies.scan import SMALL, WORDS, measured_card, name_of, set_aside
from tacit.policies.stability import StabilityCounts

_FORMAT = 1
_WARM_UP = Record("warm-up", "SYS: Who is it?\nUSR: Ann Smith, 12 Elm Street, 555-0123.", spans=())
PolicyPair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class ComparedPolicy:
    """One policy's row. `seconds` is processor time spent in finding, without loading."""

    name: str
    id: str
    hash: str
    records: int
    records_with_secrets: int
    secrets: int
    characters: int
    tokens: int
    sensitive_tokens: int
    card: PolicyCard | None
    stability: StabilityCounts
    seconds: float = field(compare=False)

    @property
    def share_of_records(self) -> float:
        """The share of records in which it finds anything."""
        return self.records_with_secrets / self.records if self.records else 0.0

    @property
    def share_of_tokens(self) -> float:
        """The share of tokens that overlap a finding."""
        return self.sensitive_tokens / self.tokens if self.tokens else 0.0

    @property
    def records_a_second(self) -> float:
        """Records that one core looks through in a second."""
        return self.records / max(self.seconds, 1e-9)

    @property
    def mask_moved(self) -> float | None:
        """Of the secrets that were replaced by another of their kind, the share that moved the rest of the mask."""
        return self.stability.rest_changed / self.stability.spans if self.stability.spans else None

    @property
    def redaction_stable(self) -> float | None:
        """Of the secrets that were masked, the share after which redaction gives the same text."""
        return self.stability.redaction_stable / self.stability.spans if self.stability.spans else None

    def recall_of(self, kind: str) -> ShareOf | None:
        """The recall of a gold kind; None without a card."""
        return None if self.card is None else quality(self.card.counts.kinds[kind]).recall


class Agreement(NamedTuple):
    """How many characters two policies both find."""

    both: int
    left: int
    right: int

    @property
    def jaccard(self) -> float | None:
        """Of the characters that either finds, the share that both find."""
        either = self.left + self.right - self.both
        return self.both / either if either else None


@dataclass(frozen=True, slots=True)
class ComparedKindRow:
    """One gold kind: how many labels it has, and each policy's recall."""

    kind: str
    labels: int
    recalls: tuple[ShareOf | None, ...]


@dataclass(frozen=True, slots=True)
class PolicyComparison:
    """Policies side by side on one corpus; `both` counts the characters that two of them find, by their places."""

    corpus: str
    records: int
    labelled: int
    characters: int
    token_unit: str
    quarantined: dict[str, int]
    policies: tuple[ComparedPolicy, ...]
    both: dict[PolicyPair, int]

    @property
    def kinds(self) -> tuple[str, ...]:
        """The gold kinds, in the order of the alphabet."""
        cards = [policy.card for policy in self.policies if policy.card is not None]
        return tuple(kind for kind, counts in sorted(cards[0].counts.kinds.items()) if counts.gold) if cards else ()

    def agreement(self, left: int, right: int) -> Agreement:
        """Of the policies at two places."""
        both = self.both[min(left, right), max(left, right)]
        return Agreement(both, self.policies[left].characters, self.policies[right].characters)

    def kind_rows(self) -> list[ComparedKindRow]:
        """The gold kinds, those with most labels first."""
        counts = next((policy.card.counts.kinds for policy in self.policies if policy.card), {})
        rows = [
            ComparedKindRow(kind, counts[kind].gold, tuple(policy.recall_of(kind) for policy in self.policies))
            for kind in self.kinds
        ]
        return sorted(rows, key=lambda row: (-row.labels, row.kind))

    def agreement_rows(self) -> list[list[str]]:
        """For each policy, the share of its characters that each other one finds too."""
        places = range(len(self.policies))
        return [[self._found_too(row, column) for column in places] for row in places]

    def _found_too(self, row: int, column: int) -> str:
        if row == column:
            return ""
        agreement = self.agreement(row, column)
        return percent(agreement.both / agreement.left if agreement.left else None)

    def chosen_bound(self, card: PolicyCard) -> float:
        """The bound on records with a miss that holds though the card's policy was chosen by this comparison."""
        measured = sum(one.card is not None for one in self.policies)
        counts = card.counts
        return upper_bound(counts.missed_records, counts.records, 1 - (1 - CONFIDENCE) / measured)

    def to_json(self) -> dict[str, Any]:
        """The result as JSON values; speeds are measurements, and all in which two comparisons differ."""
        pairs = combinations(range(len(self.policies)), 2)
        return {
            "format": _FORMAT,
            "corpus": self.corpus,
            "records": self.records,
            "labelled_records": self.labelled,
            "characters": self.characters,
            "token_unit": self.token_unit,
            "quarantined": self.quarantined,
            "policies": [self._policy_json(policy) for policy in self.policies],
            "agreement": [self._pair_json(left, right) for left, right in pairs],
        }

    def _policy_json(self, policy: ComparedPolicy) -> dict[str, Any]:
        return {
            "name": policy.name,
            "id": policy.id,
            "hash": policy.hash,
            "records_with_secrets": policy.records_with_secrets,
            "share_of_records": policy.share_of_records,
            "secrets": policy.secrets,
            "characters": policy.characters,
            "tokens": policy.tokens,
            "sensitive_tokens": policy.sensitive_tokens,
            "share_of_tokens": policy.share_of_tokens,
            "seconds_of_processor": policy.seconds,
            "records_a_second_and_core": policy.records_a_second,
            "stability": policy.stability.to_json(),
            "card": policy.card.to_json() if policy.card else None,
            "upper_bound_if_chosen_by_this_comparison": self.chosen_bound(policy.card) if policy.card else None,
        }

    def _pair_json(self, left: int, right: int) -> dict[str, Any]:
        agreement = self.agreement(left, right)
        return {
            "left": self.policies[left].name,
            "right": self.policies[right].name,
            "characters_of_left": agreement.left,
            "characters_of_right": agreement.right,
            "characters_of_both": agreement.both,
            "both_of_either": agreement.jaccard,
        }


def compare_policies(
    corpus: Path | str | Iterable[Record],
    policies: Mapping[str, Policy],
    *,
    processes: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> PolicyComparison:
    """Look through `corpus` once with all of `policies`, by name, on all cores unless told otherwise.

    `progress` hears the records and characters done so far.
    """
    if not policies:
        raise ConfigError("at least one policy to compare", "none", "name some, such as digits and pii")
    records = read(corpus) if isinstance(corpus, str | Path) else corpus
    lookers = tuple(Looker(policy, sample=0, show_secrets=False) for policy in policies.values())
    number, all_batches = processes_for(batches(records), processes, SMALL)
    total = _Parts.empty(len(lookers))
    stability = [StabilityCounts() for _ in lookers]
    with Workers(lookers, number) as workers:
        for _, parts in workers.map(_look, all_batches):
            total.merge(parts)
            if progress is not None:
                progress(total.each[0].records, total.each[0].characters)
        to_check = [(at, record) for at, part in enumerate(total.each) for _, record in part.to_check]
        for (at, _), counts in workers.map(_check, to_check):
            stability[at] += counts
    return PolicyComparison(
        corpus=name_of(records),
        records=total.each[0].records,
        labelled=total.each[0].card.records,
        characters=total.each[0].characters,
        token_unit=WORDS,
        quarantined=set_aside(records),
        policies=tuple(
            _row(name, policy, total, at, stability[at]) for at, (name, policy) in enumerate(policies.items())
        ),
        both=total.both,
    )


@dataclass
class _Parts:
    """Counts of a part of the corpus: of each policy by itself, and of each two together."""

    each: list[BatchCounts]
    characters: list[int]
    seconds: list[float]
    both: dict[PolicyPair, int]

    @classmethod
    def empty(cls, policies: int) -> "_Parts":
        pairs = combinations(range(policies), 2)
        return cls([BatchCounts() for _ in range(policies)], [0] * policies, [0.0] * policies, dict.fromkeys(pairs, 0))

    def merge(self, other: "_Parts") -> None:
        for mine, theirs in zip(self.each, other.each, strict=True):
            mine.merge(theirs, sample=0)
        self.characters = [mine + theirs for mine, theirs in zip(self.characters, other.characters, strict=True)]
        self.seconds = [mine + theirs for mine, theirs in zip(self.seconds, other.seconds, strict=True)]
        for pair, characters in other.both.items():
            self.both[pair] += characters


def _look(lookers: tuple[Looker, ...], batch: RecordBatch) -> _Parts:
    parts = _Parts.empty(len(lookers))
    found: list[list[tuple[Span, ...]]] = []
    for at, looker in enumerate(lookers):
        with suppress(Exception):  # what goes wrong here goes wrong below too, with a record to name
            looker.policy.find(_WARM_UP)  # word lists and models are loaded before the clock starts
        began = time.process_time()
        found.append(find_all(looker.policy, batch))
        parts.seconds[at] = time.process_time() - began
        parts.each[at] = counted(looker, batch, found[at])
        parts.characters[at] = sum(span.end - span.start for spans in found[at] for span in spans)
    for left, right in parts.both:
        records = zip(found[left], found[right], strict=True)
        parts.both[left, right] = sum(sum(common_characters(mine, theirs)) for mine, theirs in records)
    return parts


def _check(lookers: tuple[Looker, ...], item: tuple[int, Record]) -> StabilityCounts:
    at, record = item
    return check_stability(lookers[at], record)


def _row(name: str, policy: Policy, total: _Parts, at: int, stability: StabilityCounts) -> ComparedPolicy:
    part = total.each[at]
    return ComparedPolicy(
        name=name,
        id=policy.id,
        hash=policy.hash,
        records=part.records,
        records_with_secrets=part.records_with_secrets,
        secrets=part.secrets.total(),
        characters=total.characters[at],
        tokens=part.tokens,
        sensitive_tokens=part.sensitive_tokens,
        card=measured_card(policy, part.card),
        stability=stability,
        seconds=total.seconds[at],
    )
