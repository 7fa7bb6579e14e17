"""What is secret in a corpus, as a policy sees it: counts, shares, a sample to look at, and the policy's card.

    result = scan("chats.jsonl", pii, show_secrets=False)

G1 (one result). The result does not depend on the number of processes; only `seconds` does.
G2 (discreet). Unless secrets are asked for, the result contains no text of a found or a gold span (see `excerpt`).
G3 (flat). Memory does not grow with the corpus, except for its users.
"""

import heapq
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from tacit.common.charts import Note, Result, Table
from tacit.common.formatting import floor, percent, printable, short
from tacit.common.workers import Workers, in_batches, processes_for
from tacit.data.corpus import CorpusReader, read
from tacit.data.records import Record, Span, spans_fault
from tacit.errors import ConfigError, PolicyError, TacitError
from tacit.policies.card import PRINTED_KINDS, CardCounts, PolicyCard, measured_card
from tacit.policies.label_kinds import label_kinds, label_sentence
from tacit.policies.marking import Excerpt, excerpt, id_hash
from tacit.policies.policy import Policy
from tacit.policies.stability import StabilityCounts, mask_stability

WORDS = "words and marks"
SMALL = 8  # batches: fewer are for one process
STABILITY_RECORDS = 200
_STABILITY_SPANS = 5
_STABILITY_LONGEST = 5_000
_BATCH_RECORDS = 1_000
_BATCH_CHARACTERS = 100_000
_FORMAT = 2
_TOKEN = re.compile(r"\w+|[^\w\s]")
_ONE_WORD = re.compile(r"\w+")
Key = tuple[bytes, int]
"""The hash of a record's id and the record's number."""


@dataclass(frozen=True, slots=True)
class KindTotal:
    """How often a kind was found: spans, and records with at least one."""

    secrets: int
    records: int


@dataclass(frozen=True, slots=True, order=True)
class UserGroup:
    """Users with `fewest` to `most` records, how many they are, and records of all users that a cap of `most` keeps."""

    fewest: int
    most: int
    users: int
    kept: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan(Result):
    """The result of a scan."""

    corpus: str
    policy_id: str
    policy_hash: str
    records: int
    records_with_secrets: int
    characters: int
    tokens: int
    sensitive_tokens: int
    token_unit: str = WORDS
    user_groups: tuple[UserGroup, ...]
    kinds: dict[str, KindTotal]
    label_kinds: dict[str, str] = field(default_factory=dict)
    quarantined: dict[str, int]
    card: PolicyCard | None
    stability: StabilityCounts
    sample: tuple[Excerpt, ...]
    shows_secrets: bool
    seconds: float = field(compare=False, default=0.0)

    @property
    def secrets(self) -> int:
        """Found spans of all kinds."""
        return sum(total.secrets for total in self.kinds.values())

    @property
    def users(self) -> int:
        return sum(group.users for group in self.user_groups)

    @property
    def share_of_tokens(self) -> float:
        """The share of tokens that overlap a secret."""
        return self.sensitive_tokens / self.tokens if self.tokens else 0.0

    @property
    def share_of_records(self) -> float:
        """The share of records with a secret."""
        return self.records_with_secrets / self.records if self.records else 0.0

    @property
    def mask_moved(self) -> float | None:
        """Of the secrets that were replaced by another of their kind, the share that moved the rest of the mask."""
        return self.stability.rest_changed / self.stability.spans if self.stability.spans else None

    @property
    def redaction_stable(self) -> float | None:
        """Of the secrets that were masked, the share after which redaction gives the same text."""
        return self.stability.redaction_stable / self.stability.spans if self.stability.spans else None

    def tables(self) -> Iterator[Table | Note]:
        yield Table((), tuple(self._counts().items()))
        order = sorted(self.kinds.items(), key=lambda entry: (-entry[1].secrets, entry[0]))
        kinds = tuple((short(kind), f"{total.secrets:,}", f"{total.records:,}") for kind, total in order)
        yield Table(("kind", "secrets", "records"), kinds, title="secrets by kind").cut(PRINTED_KINDS, "kinds")
        if sentence := label_sentence(self.label_kinds):
            yield Note(sentence)
        if self.card is not None:
            yield from self.card.tables()

    def _counts(self) -> dict[str, str]:
        rows = {
            "corpus": self.corpus,
            "policy": f"{printable(self.policy_id)} ({self.policy_hash[:12]})",
            "records": f"{self.records:,}",
            "  with a secret": f"{self.records_with_secrets:,} ({percent(self.share_of_records)})",
            "  set aside": f"{sum(self.quarantined.values()):,}",
            "users": f"{self.users:,}" if self.users else "not given",
            f"tokens ({self.token_unit})": f"{self.tokens:,}",
            "  sensitive": f"{self.sensitive_tokens:,} ({percent(self.share_of_tokens)})",
            "secrets": f"{self.secrets:,}",
            "time": f"{self.seconds:.1f} s ({self.characters / max(self.seconds, 1e-9):,.0f} characters/s)",
        }
        if self.stability.spans:
            rows["mask stability"] = (
                f"of {self.stability.spans:,} secrets: rest of the mask changed with {percent(self.mask_moved)}, "
                f"redaction stable for {floor(self.redaction_stable)}"
            )
        return rows

    def to_json(self) -> dict[str, Any]:
        """The result as JSON values; the time it took is left out, so that equal results are equal files."""
        values = asdict(self)
        del values["seconds"]
        policy = {"id": values.pop("policy_id"), "hash": values.pop("policy_hash")}
        derived = {name: getattr(self, name) for name in ("secrets", "users", "share_of_records", "share_of_tokens")}
        card = self.card.to_json() if self.card else None
        return {"format": _FORMAT, "policy": policy} | values | derived | {"card": card}


class RecordBatch(NamedTuple):
    """Records in a row; the first of them is number `first` of the corpus."""

    first: int
    records: list[Record]


class Looker(NamedTuple):
    """All that looking at a batch needs; sent to each process once."""

    policy: Policy
    sample: int = 0
    show_secrets: bool = False


@dataclass
class BatchCounts:
    """Counts of a part of a corpus. `sample` and `to_check` contain the first records with secrets by `Key`."""

    records: int = 0
    records_with_secrets: int = 0
    characters: int = 0
    tokens: int = 0
    sensitive_tokens: int = 0
    users: Counter[str] = field(default_factory=Counter)
    secrets: Counter[str] = field(default_factory=Counter)
    records_by_kind: Counter[str] = field(default_factory=Counter)
    card: CardCounts = field(default_factory=CardCounts)
    sample: list[tuple[Key, Excerpt]] = field(default_factory=list)
    to_check: list[tuple[Key, Record]] = field(default_factory=list)

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

    def add(self, record: Record, found: tuple[Span, ...]) -> None:
        tokens, sensitive = count_tokens(record.text, found)
        self.records += 1
        self.records_with_secrets += bool(found)
        self.characters += len(record.text)
        self.tokens += tokens
        self.sensitive_tokens += sensitive
        if record.user is not None:
            self.users[record.user] += 1
        self.secrets.update(span.kind for span in found)
        self.records_by_kind.update({span.kind for span in found})
        self.card.add(record, found)


def scan(
    corpus: Path | str | Iterable[Record],
    policy: Policy,
    *,
    sample: int = 5,
    show_secrets: bool = False,
    stability: int = STABILITY_RECORDS,
    processes: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Scan:
    """Look through `corpus` with `policy`, on all cores unless told otherwise.

    The sample is chosen by a hash of the record's id among records with secrets, and so are the `stability` records on
    which mask stability is measured. `progress` is called with the records and characters done so far.
    """
    if sample < 0:
        raise ConfigError(expected="a sample of 0 or more records", found=str(sample), way_out="give a whole number")
    if not 0 <= stability <= STABILITY_RECORDS:
        expected = f"mask stability of 0 to {STABILITY_RECORDS} records"
        raise ConfigError(expected, str(stability), "leave it out, or give 0 to measure none")
    began = time.perf_counter()
    records = read(corpus) if isinstance(corpus, str | Path) else corpus
    number, all_batches = processes_for(batches(records), processes, SMALL)
    total = BatchCounts()
    stable = StabilityCounts()
    looker = Looker(policy, sample, show_secrets)
    with Workers(looker, number) as workers:
        for _, part in workers.map(_look, all_batches):
            total.merge(part, sample)
            if progress is not None:
                progress(total.records, total.characters)
        for _, counts in workers.map(check_stability, [record for _, record in total.to_check[:stability]]):
            stable += counts
            if progress is not None:
                progress(total.records, total.characters)
    return result_of(records, looker, total, stable, time.perf_counter() - began)


def result_of(
    records: Iterable[Record], looker: Looker, total: BatchCounts, stability: StabilityCounts, seconds: float
) -> Scan:
    """What was counted of all `records`."""
    file = records if isinstance(records, CorpusReader) else None
    return Scan(
        corpus="records" if file is None else printable(file.path.name),
        policy_id=looker.policy.id,
        policy_hash=looker.policy.hash,
        records=total.records,
        records_with_secrets=total.records_with_secrets,
        characters=total.characters,
        tokens=total.tokens,
        sensitive_tokens=total.sensitive_tokens,
        user_groups=user_groups(total.users),
        kinds={kind: KindTotal(found, total.records_by_kind[kind]) for kind, found in sorted(total.secrets.items())},
        label_kinds=label_kinds(looker.policy),
        quarantined={} if file is None else {why.value: count for why, count in sorted(file.tally.reasons.items())},
        card=measured_card(looker.policy, total.card),
        stability=stability,
        sample=tuple(shown for _, shown in total.sample),
        shows_secrets=looker.show_secrets,
        seconds=seconds,
    )


def user_groups(records: Mapping[str, int]) -> tuple[UserGroup, ...]:
    """Users by how many records they have: 1, 2 to 3, 4 to 7 and so on."""
    users = Counter(size.bit_length() for size in records.values())

    def kept(cap: int) -> int:
        return sum(min(size, cap) for size in records.values())

    return tuple(UserGroup(2 ** (bits - 1), 2**bits - 1, users[bits], kept(2**bits - 1)) for bits in sorted(users))


def batches(records: Iterable[Record]) -> Iterator[RecordBatch]:
    """Records in batches of bounded size, so that the slowest batch is not slow."""
    first = 1
    for batch in in_batches(records, lambda record: len(record.text), _BATCH_RECORDS, _BATCH_CHARACTERS):
        yield RecordBatch(first, batch)
        first += len(batch)


def _look(looker: Looker, batch: RecordBatch) -> BatchCounts:
    return counted(looker, batch, find_all(looker.policy, batch))


def find_all(policy: Policy, batch: RecordBatch) -> list[tuple[Span, ...]]:
    """What `policy` finds in each record; one that it cannot read, or spans that are not tidy, are an error."""
    every = []
    for number, record in enumerate(batch.records, batch.first):
        cause = None
        try:
            every.append(policy.marks(record))
            fault = spans_fault(every[-1], len(record.text))
        except TacitError as error:
            raise PolicyError(error.expected, f"{error.found}, at record {number:,}", error.way_out) from error
        except Exception as error:
            cause, fault = error, type(error).__name__
        if fault:
            raise PolicyError(
                expected=f"policy {policy.id} to give tidy spans for every record",
                found=f"{fault} at record {number:,}",
                way_out="correct the policy, or remove this record from the corpus",
            ) from cause
    return every


def counted(looker: Looker, batch: RecordBatch, spans: list[tuple[Span, ...]]) -> BatchCounts:
    """The counts of a batch in which `spans` were found."""
    part = BatchCounts()
    hits: list[tuple[Key, Record, tuple[Span, ...]]] = []
    for number, (record, found) in enumerate(zip(batch.records, spans, strict=True), batch.first):
        part.add(record, found)
        if found:
            hits.append(((id_hash(record), number), record, found))
    part.sample = [
        (key, excerpt(record, found, key[1], looker.show_secrets))
        for key, record, found in heapq.nsmallest(looker.sample, hits, key=_key)
    ]
    short = [(key, record) for key, record, _ in hits if len(record.text) <= _STABILITY_LONGEST]
    part.to_check = heapq.nsmallest(STABILITY_RECORDS, short, key=_key)
    return part


def check_stability(looker: Looker, record: Record) -> StabilityCounts:
    """Mask stability of one record; chance is a function of its id."""
    rng = random.Random(record.id.encode("utf-8", "surrogatepass"))
    return mask_stability(looker.policy, record, rng, _STABILITY_SPANS)


def count_tokens(text: str, spans: tuple[Span, ...]) -> tuple[int, int]:
    """How many tokens `text` has, and how many of them overlap a span.

    Words and marks of a span are those of the text cut at its ends, so only a word that reaches from one span into
    the next would count twice.
    """
    twice = sum(bool(_ONE_WORD.fullmatch(text, a.end - 1, b.start + 1)) for a, b in pairwise(spans))
    return len(_TOKEN.findall(text)), sum(len(_TOKEN.findall(text, *span[:2])) for span in spans) - twice


def _key(entry: tuple[Key, *tuple[object, ...]]) -> Key:
    return entry[0]
