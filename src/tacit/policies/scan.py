"""What is secret in a corpus, as a policy sees it: counts, shares, a sample to look at, and the policy's card.

    result = scan("chats.jsonl", pii, show_secrets=False)

G1 (one result). The result does not depend on the number of processes; only `seconds` does.
G2 (discreet). Unless secrets are asked for, the result holds no text of a found or a gold span (see `excerpt`).
G3 (flat). Memory does not grow with the corpus, but for its users.
G4. The JSON form, read back, gives an equal result.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

from tacit.common.formatting import printable
from tacit.common.workers import Workers, processes_for
from tacit.data.corpus import CorpusReader, read
from tacit.data.records import Record
from tacit.errors import ConfigError, CorpusError
from tacit.policies.card import CardCounts, PolicyCard, knows_labels
from tacit.policies.excerpts import Excerpt
from tacit.policies.marking import STABILITY_RECORDS, BatchCounts, Looker, batches, check_stability, look
from tacit.policies.policy import Policy
from tacit.policies.stability import StabilityCounts

WORDS = "words and marks"
SMALL = 8  # batches: fewer are for one process
_FORMAT = 2


class KindTotal(NamedTuple):
    """How often a kind was found: spans, and records with at least one."""

    secrets: int
    records: int


class UserGroup(NamedTuple):
    """Users with `fewest` to `most` records, how many they are, and records of all users that a cap of `most` keeps."""

    fewest: int
    most: int
    users: int
    kept: int


@dataclass(frozen=True, slots=True)
class Scan:
    """The result of a scan."""

    corpus: str
    policy_id: str
    policy_hash: str
    records: int
    records_with_secrets: int
    characters: int
    tokens: int
    sensitive_tokens: int
    token_unit: str
    user_groups: tuple[UserGroup, ...]
    kinds: dict[str, KindTotal]
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
        """Users of all sizes."""
        return sum(group.users for group in self.user_groups)

    @property
    def share_of_tokens(self) -> float:
        """The share of tokens that overlap a secret."""
        return self.sensitive_tokens / self.tokens if self.tokens else 0.0

    @property
    def share_of_records(self) -> float:
        """The share of records with a secret."""
        return self.records_with_secrets / self.records if self.records else 0.0

    def to_json(self) -> dict[str, Any]:
        """The result as JSON values; the time it took is left out, so that equal results are equal files."""
        return {
            "format": _FORMAT,
            "corpus": self.corpus,
            "policy": {"id": self.policy_id, "hash": self.policy_hash},
            "records": self.records,
            "records_with_secrets": self.records_with_secrets,
            "share_of_records": self.share_of_records,
            "characters": self.characters,
            "tokens": self.tokens,
            "sensitive_tokens": self.sensitive_tokens,
            "share_of_tokens": self.share_of_tokens,
            "token_unit": self.token_unit,
            "users": self.users,
            "user_groups": [group._asdict() for group in self.user_groups],
            "secrets": self.secrets,
            "kinds": {kind: total._asdict() for kind, total in self.kinds.items()},
            "quarantined": self.quarantined,
            "card": self.card.to_json() if self.card else None,
            "stability": self.stability.to_json(),
            "shows_secrets": self.shows_secrets,
            "sample": [shown.to_json() for shown in self.sample],
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        """The result that `to_json` wrote."""
        try:
            return cls(
                corpus=value["corpus"],
                policy_id=value["policy"]["id"],
                policy_hash=value["policy"]["hash"],
                records=value["records"],
                records_with_secrets=value["records_with_secrets"],
                characters=value["characters"],
                tokens=value["tokens"],
                sensitive_tokens=value["sensitive_tokens"],
                token_unit=value["token_unit"],
                user_groups=tuple(UserGroup(**group) for group in value["user_groups"]),
                kinds={kind: KindTotal(**total) for kind, total in value["kinds"].items()},
                quarantined=value["quarantined"],
                card=PolicyCard.from_json(value["card"]) if value["card"] else None,
                stability=StabilityCounts.from_json(value["stability"]),
                sample=tuple(Excerpt.from_json(entry) for entry in value["sample"]),
                shows_secrets=value["shows_secrets"],
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CorpusError(
                expected="the result of a scan as tacit writes it",
                found=f"{type(error).__name__} while reading it",
                way_out="scan the corpus again with `tacit scan`",
            ) from error


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
    which mask stability is measured. `progress` hears the records and characters done so far.
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
    counted = StabilityCounts()
    looker = Looker(policy, sample, show_secrets)
    with Workers(looker, number) as workers:
        for _, part in workers.map(look, all_batches):
            total.merge(part, sample)
            if progress is not None:
                progress(total.records, total.characters)
        for _, counts in workers.map(check_stability, [record for _, record in total.to_check[:stability]]):
            counted += counts
            if progress is not None:
                progress(total.records, total.characters)
    return _result(records, policy, total, counted, show_secrets, time.perf_counter() - began)


def name_of(records: Iterable[Record]) -> str:
    """What a result calls the corpus."""
    return printable(records.path.name) if isinstance(records, CorpusReader) else "records"


def set_aside(records: Iterable[Record]) -> dict[str, int]:
    """How many records could not be read so far, by the reason why."""
    if not isinstance(records, CorpusReader):
        return {}
    return {reason.value: count for reason, count in sorted(records.tally.reasons.items())}


def measured_card(policy: Policy, counts: CardCounts) -> PolicyCard | None:
    """The card of `policy`; none without labels, or when the policy repeats them."""
    return PolicyCard(policy.id, policy.hash, counts) if counts.records and not knows_labels(policy) else None


def _result(
    records: Iterable[Record],
    policy: Policy,
    total: BatchCounts,
    stability: StabilityCounts,
    show_secrets: bool,
    seconds: float,
) -> Scan:
    return Scan(
        corpus=name_of(records),
        policy_id=policy.id,
        policy_hash=policy.hash,
        records=total.records,
        records_with_secrets=total.records_with_secrets,
        characters=total.characters,
        tokens=total.tokens,
        sensitive_tokens=total.sensitive_tokens,
        token_unit=WORDS,
        user_groups=user_groups(total.users),
        kinds={kind: KindTotal(total.secrets[kind], total.records_by_kind[kind]) for kind in sorted(total.secrets)},
        quarantined=set_aside(records),
        card=measured_card(policy, total.card),
        stability=stability,
        sample=tuple(shown for _, shown in total.sample),
        shows_secrets=show_secrets,
        seconds=seconds,
    )


def user_groups(records: Mapping[str, int]) -> tuple[UserGroup, ...]:
    """Users by how many records they have: 1, 2 to 3, 4 to 7 and so on."""
    users = Counter(size.bit_length() for size in records.values())

    def kept(cap: int) -> int:
        return sum(min(size, cap) for size in records.values())

    return tuple(UserGroup(2 ** (bits - 1), 2**bits - 1, users[bits], kept(2**bits - 1)) for bits in sorted(users))
