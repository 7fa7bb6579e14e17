"""What a model is worth on held-out text, in sums that add up: training writes it, people and pages read it."""

import math
from dataclasses import dataclass

from tacit.common.formatting import Interval, exact_interval


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
        """All records."""
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
class Utility:
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
