"""What a model is worth on held-out text, in sums that add up; and what of a run's results may leave.

`private/` has them whole (theory, section 9: nothing exact leaves).

G1 (hashes). A policy's hash leaves as it is only if the policy has nothing but what comes with tacit. Every other hash
   of a person's words, of a model's folder or of strings of the corpus is keyed, and the key stays.
G2 (counts). Labelled training records are counted inside alone. A released claim states that they were counted.
G3 (utility). It leaves as one noisy sum (`tacit.privacy.noisy_utility`), counted by the ledger before it is written.
G4 (attacks). Of an audit only canaries leave, which are made up, and what they show about epsilon. Where equal texts
   were left out, a record of the corpus may decide whether a canary was read: then no bound leaves either.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random

from tacit.common.charts import Note, Result, Table
from tacit.common.files import keyed
from tacit.common.formatting import Interval, exact_interval
from tacit.mechanisms.build import Terms
from tacit.policies.policy import Policy
from tacit.privacy.guarantee import Evidence
from tacit.privacy.noisy_utility import STEP, Contributions, noisy
from tacit.runs.folder import RunFolder
from tacit.runs.release import ReleaseFile


@dataclass(frozen=True, slots=True)
class ErrorRate:
    """How many of `records` records were given a wrong class."""

    errors: int = 0
    records: int = 0

    def __add__(self, other: "ErrorRate") -> "ErrorRate":
        return ErrorRate(self.errors + other.errors, self.records + other.records)

    @property
    def share(self) -> float:
        """The test error rate; not a number without records."""
        return self.errors / self.records if self.records else float("nan")

    def interval(self, confidence: float = 0.95) -> Interval:
        """The exact two-sided interval for records like these, drawn independently of each other."""
        return exact_interval(self.errors, self.records, confidence)


@dataclass(frozen=True, slots=True)
class LabelQuality:
    """How often a classifier errs on held-out records, and how often whoever always says their commonest class does."""

    with_secrets: ErrorRate
    without_secrets: ErrorRate
    commonest: ErrorRate

    @property
    def overall(self) -> ErrorRate:
        return self.with_secrets + self.without_secrets


@dataclass(frozen=True, slots=True)
class TokenQuality:
    """Sums over some tokens; `perplexity` and `accuracy` are what people read."""

    tokens: int = 0
    nats: float = 0.0
    right: int = 0

    def __add__(self, other: "TokenQuality") -> "TokenQuality":
        return TokenQuality(self.tokens + other.tokens, self.nats + other.nats, self.right + other.right)

    @property
    def perplexity(self) -> float:
        """e to the mean nats a token; not a number without tokens."""
        return math.exp(min(self.nats / self.tokens, 700.0)) if self.tokens else math.nan

    @property
    def accuracy(self) -> float:
        """The share of tokens that were the model's first guess."""
        return self.right / self.tokens if self.tokens else math.nan


@dataclass(frozen=True, slots=True)
class Utility(Result):
    """What a model is worth on one held-out store. Nats a character compare models with different tokenizers.

    `labels` is a classifier's, which predicts no token.
    """

    public: TokenQuality
    private: TokenQuality
    characters: int
    labels: LabelQuality | None = None

    @property
    def overall(self) -> TokenQuality:
        """All tokens."""
        return self.public + self.private

    @property
    def nats_a_character(self) -> float:
        """Total nats over the characters of the text."""
        return self.overall.nats / self.characters if self.characters else math.nan

    def tables(self) -> Iterator[Table | Note]:
        """Perplexity and accuracy of all, public and private tokens; or error rates of a classifier."""
        labels = self.labels
        if labels is None:
            parts = {"overall": self.overall, "public": self.public, "private": self.private}
            rows = tuple(
                (name, f"{one.tokens:,}", f"{one.perplexity:.4g}", f"{one.accuracy:.1%}") for name, one in parts.items()
            )
            yield Table(("held-out text", "tokens", "perplexity", "accuracy"), rows)
            yield Note(f"nats per character {self.nats_a_character:.4f}")
            return
        rates = {
            "overall": labels.overall,
            "without secrets": labels.without_secrets,
            "with secrets": labels.with_secrets,
            "always the commonest class": labels.commonest,
        }
        cells = []
        for name, one in rates.items():
            interval = "{:.1%} to {:.1%}".format(*one.interval())
            cells.append((name, f"{one.records:,}", f"{one.errors:,}", f"{one.share:.1%}", interval))
        yield Table(("held-out records", "records", "errors", "test error rate", "95 % interval"), tuple(cells))


_DIGEST = re.compile(r", SHA-256 [0-9a-f]+")
"""In what a detector's card states of the files it was trained on, which may have the words of a person."""


def hash_outside(policy: Policy, key: bytes) -> str:
    """The hash of a policy as it may leave: under one key, equal for equal policies."""
    return policy.hash if policy.public else keyed(key, policy.hash)


def evidence_outside(evidence: Evidence, policy: Policy, key: bytes) -> Evidence:
    """What a released claim may be concluded from."""
    entities = evidence.entity_list_hash
    return replace(
        evidence,
        policy_hash=hash_outside(policy, key),
        entity_list_hash=None if entities is None else keyed(key, entities),
        detector_data=None if evidence.detector_data is None else _DIGEST.sub("", evidence.detector_data),
        coverage=None,
        conservative_coverage=None,
        among_secrets=None,
        coverage_inside=evidence.coverage is not None or evidence.conservative_coverage is not None,
    )


def release_utility(run: RunFolder, contributions: Contributions, rng: Random) -> None:
    """Write release/tacit/utility.json, once: a second sum would be a second release, and the ledger counts each."""
    measuring = run.read_json(Terms, ReleaseFile.PLAN).measuring
    if run.path(ReleaseFile.UTILITY).exists() or measuring is None:
        return
    run.ledger.charge(STEP)
    run.write_json(ReleaseFile.UTILITY, noisy(contributions, measuring.noise_multiplier, rng))
