"""Several policies on one corpus, side by side: what each covers, what it misses, what it costs, where they agree.

    result = compare_policies("chats.jsonl", {"digits": digits, "pii": pii})

Recall, precision, F2 and missed records come from gold spans (see `tacit.policies.card`); a corpus without them, or a
policy that repeats them, has the rest: coverage, speed, mask stability and agreement.

G1 (one result). The result does not depend on the number of processes; only `seconds` does.
G2 (as alone). Each row equals what a scan with that policy alone counts.
G3 (discreet). The result contains no text of the corpus but the names of kinds.
G4 (flat). Memory does not grow with the corpus, except for its users.

Each bound on missed records holds by itself. A person who picks a policy because of its row needs bounds that hold for
all rows at once: `chosen_bound` splits the 5 % evenly among the policies (Bonferroni).
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from itertools import combinations
from operator import add
from pathlib import Path
from typing import Any, NamedTuple

from tacit.common.charts import Note, Result, Table
from tacit.common.formatting import ceiling, floor, number, percent, printable, short, upper_bound
from tacit.common.workers import Workers, processes_for
from tacit.data.corpus import read
from tacit.data.records import Message, Record, Span
from tacit.errors import ConfigError
from tacit.policies.card import CONFIDENCE, PRINTED_KINDS, PolicyCard, ShareOf, common_characters, quality
from tacit.policies.policy import Policy
from tacit.policies.scan import (
    SMALL,
    WORDS,
    BatchCounts,
    Looker,
    RecordBatch,
    Scan,
    batches,
    check_stability,
    counted,
    find_all,
    result_of,
)
from tacit.policies.stability import StabilityCounts

_FORMAT = 1
_WARM_UP = Record(
    "warm-up", "user: Ann Smith, 12 Elm Street, 555-0123.\n", spans=(), messages=(Message("user", 6, 41),)
)
_PAGE_WIDTH = 80
_QUALITY_HEAD = ("policy", "recall %", "precision %", "F2 %", "records\nmissed", "at most %\n(if chosen)")
_COST_HEAD = ("policy", "tokens", "records", "findings", "records/s\nper core", "mask\nmoved", "redaction\nstable")
PolicyPair = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedPolicy(Scan):
    """One policy's row. `seconds` is processor time spent in finding, without loading."""

    name: str
    found_characters: int

    @property
    def records_a_second(self) -> float:
        """Records per second on one core."""
        return self.records / max(self.seconds, 1e-9)

    def costs(self) -> tuple[str, ...]:
        """Cells: tokens, records, findings, speed, and how stable the mask is."""
        return (
            percent(self.share_of_tokens),
            percent(self.share_of_records),
            f"{self.secrets:,}",
            number(self.records_a_second),
            percent(self.mask_moved),
            floor(self.redaction_stable),
        )


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


class ComparedKindRow(NamedTuple):
    """One gold kind: how many labels it has, and each policy's recall; None without a card."""

    kind: str
    labels: int
    recalls: tuple[ShareOf | None, ...]


@dataclass(frozen=True, slots=True)
class PolicyComparison(Result):
    """Policies side by side on one corpus; `both` counts the characters that two of them find, by their places."""

    corpus: str
    records: int
    labelled: int
    characters: int
    token_unit: str
    quarantined: dict[str, int]
    policies: tuple[ComparedPolicy, ...]
    both: Mapping[PolicyPair, int]

    @property
    def kinds(self) -> tuple[str, ...]:
        """The gold kinds, in the order of the alphabet."""
        return tuple(sorted(row.kind for row in self.kind_rows()))

    def agreement(self, left: int, right: int) -> Agreement:
        """Of the policies at two places."""
        both = self.both[min(left, right), max(left, right)]
        return Agreement(both, self.policies[left].found_characters, self.policies[right].found_characters)

    def kind_rows(self) -> list[ComparedKindRow]:
        """The gold kinds, those with most labels first."""
        cards = [policy.card for policy in self.policies]
        counts = next((card.counts.kinds for card in cards if card), {})
        rows = [
            ComparedKindRow(
                kind,
                counted.gold,
                tuple(None if card is None else quality(card.counts.kinds[kind]).recall for card in cards),
            )
            for kind, counted in counts.items()
            if counted.gold
        ]
        return sorted(rows, key=lambda row: (-row.labels, row.kind))

    def agreement_rows(self) -> list[list[str]]:
        """For each policy, the share of its characters that each other one finds too."""

        def found_too(row: int, column: int) -> str:
            agreement = self.agreement(row, column)
            return percent(agreement.both / agreement.left if agreement.left else None)

        places = range(len(self.policies))
        return [["" if row == column else found_too(row, column) for column in places] for row in places]

    def chosen_bound(self, card: PolicyCard) -> float:
        """The bound on records with a miss that holds though the card's policy was chosen by this comparison."""
        measured = sum(one.card is not None for one in self.policies)
        counts = card.counts
        return upper_bound(counts.missed_records, counts.records, 1 - (1 - CONFIDENCE) / measured)

    def tables(self) -> Iterator[Table | Note]:
        labeled = f"{self.labelled:,} of them with labels" if self.labelled else "without labels"
        yield Note(f"{printable(self.corpus)}: {self.records:,} records, {labeled}")
        names = tuple(short(one.name) for one in self.policies)
        if any(one.card for one in self.policies):
            rows = tuple((name, *self._quality(one.card)) for name, one in zip(names, self.policies, strict=True))
            yield Table(_QUALITY_HEAD, rows, title="against the labels, with 95 % intervals")
        rows = tuple((name, *one.costs()) for name, one in zip(names, self.policies, strict=True))
        yield Table(_COST_HEAD, rows, title="coverage, speed and mask stability")
        if self.kinds:
            rows = tuple(
                (short(row.kind), f"{row.labels:,}", *("–" if one is None else one.cell("\n") for one in row.recalls))
                for row in self.kind_rows()
            )
            table = Table(("kind", "labels", *names), rows, title="recall by kind, %").cut(PRINTED_KINDS, "kinds")
            yield from table.within(_PAGE_WIDTH, repeated=2)
        if len(names) > 1:
            rows = tuple((name, *cells) for name, cells in zip(names, self.agreement_rows(), strict=True))
            title = "of the characters that the row finds, the share that the column finds too"
            yield from Table(("", *names), rows, title=title).within(_PAGE_WIDTH, repeated=1)

    def _quality(self, card: PolicyCard | None) -> tuple[str, ...]:
        if card is None:
            return ("–",) * 5
        all_kinds, counts = card.overall, card.counts
        bounds = (ceiling(bound).removesuffix(" %") for bound in (card.miss_bound, self.chosen_bound(card)))
        return (
            *(share.cell("\n") for share in (all_kinds.recall, all_kinds.precision, all_kinds.f2)),
            f"{counts.missed_records:,} of\n{counts.records:,}",
            "{}\n({})".format(*bounds),
        )

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
        same = ("name", "records_with_secrets", "share_of_records", "secrets", "tokens", "sensitive_tokens")
        return {name: getattr(policy, name) for name in (*same, "share_of_tokens")} | {
            "id": policy.policy_id,
            "hash": policy.policy_hash,
            "characters": policy.found_characters,
            "seconds_of_processor": policy.seconds,
            "records_a_second_and_core": policy.records_a_second,
            "stability": asdict(policy.stability),
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

    `progress` is called with the records and characters done so far.
    """
    if not policies:
        raise ConfigError("at least one policy to compare", "none", "name some, such as digits and pii")
    records = read(corpus) if isinstance(corpus, str | Path) else corpus
    lookers = tuple(map(Looker, policies.values()))
    number, all_batches = processes_for(batches(records), processes, SMALL)
    total = _Parts([BatchCounts() for _ in lookers], [0] * len(lookers), [0.0] * len(lookers), Counter())
    stability = [StabilityCounts() for _ in lookers]
    with Workers(lookers, number) as workers:
        for _, parts in workers.map(_look, all_batches):
            total.merge(parts)
            if progress is not None:
                progress(total.each[0].records, total.each[0].characters)
        to_check = [(at, record) for at, part in enumerate(total.each) for _, record in part.to_check]
        for (at, _), counts in workers.map(_check, to_check):
            stability[at] += counts
    rows = []
    for at, (name, looker) in enumerate(zip(policies, lookers, strict=True)):
        alone = result_of(records, looker, total.each[at], stability[at], total.seconds[at])
        values = {one.name: getattr(alone, one.name) for one in fields(alone)}
        rows.append(ComparedPolicy(name=name, found_characters=total.characters[at], **values))
    return PolicyComparison(
        corpus=rows[0].corpus,
        records=rows[0].records,
        labelled=total.each[0].card.records,
        characters=rows[0].characters,
        token_unit=WORDS,
        quarantined=rows[0].quarantined,
        policies=tuple(rows),
        both=total.both,
    )


@dataclass
class _Parts:
    """Counts of a part of the corpus: of each policy by itself, and of each two together."""

    each: list[BatchCounts]
    characters: list[int]
    seconds: list[float]
    both: Counter[PolicyPair]

    def merge(self, other: "_Parts") -> None:
        for mine, theirs in zip(self.each, other.each, strict=True):
            mine.merge(theirs, sample=0)
        self.characters = list(map(add, self.characters, other.characters))
        self.seconds = list(map(add, self.seconds, other.seconds))
        self.both.update(other.both)


def _look(lookers: tuple[Looker, ...], batch: RecordBatch) -> _Parts:
    parts = _Parts([], [], [], Counter())
    every: list[list[tuple[Span, ...]]] = []
    for looker in lookers:
        with suppress(Exception):  # what goes wrong here goes wrong below too, with a record to name
            looker.policy.find(_WARM_UP)  # word lists and models are loaded before the clock starts
        began = time.process_time()
        found = find_all(looker.policy, batch)
        parts.seconds.append(time.process_time() - began)
        parts.each.append(counted(looker, batch, found))
        parts.characters.append(sum(span.end - span.start for spans in found for span in spans))
        every.append(found)
    for left, right in combinations(range(len(lookers)), 2):
        records = zip(every[left], every[right], strict=True)
        parts.both[left, right] = sum(sum(common_characters(mine, theirs)) for mine, theirs in records)
    return parts


def _check(lookers: tuple[Looker, ...], item: tuple[int, Record]) -> StabilityCounts:
    at, record = item
    return check_stability(lookers[at], record)
