"""Utility as it may leave: one noisy sum over held-out records, and what follows from it (theory, section 9).

Each held-out record is cut to its first `longest` tokens, and no token counts for more than `most_nats`. The record's
vector is (nats / (most_nats * longest), tokens / longest, right guesses / longest); for a classifier it is (1,) where
the class is wrong, and (0,) where it is right. The number of records is public.

G1 (bound). No coordinate of a vector is outside [0, 1]: one record moves the sum by at most sqrt(coordinates).
G2 (grid). Vectors and noise are multiples of 2^-30, so that last digits of floating-point sums reveal nothing.
G3 (once). A run releases one sum, and its ledger counts it before it is written. Ratios and intervals are functions of
   the released numbers alone.
"""

import math
import random
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from tacit.privacy.account import account, calibrate_noise, default_delta
from tacit.privacy.events import Composition, Event, Free, Gaussian, Relation
from tacit.privacy.guarantee import MeasuredUtility

EPSILON = 1.0
LONGEST = 64
STEP = "utility"
HELD_OUT = "a held-out record, zero-out"
NOT_READ = Free("reads no held-out record")
HELD_OUT_ALONE = Free("reads held-out records alone, and no unit is on both sides")
_GRID = 2.0**-30


@dataclass(frozen=True, slots=True, eq=False)
class Contributions:
    """A vector for each held-out record. longest and most_nats: where its text and its tokens' nats were cut."""

    vectors: NDArray[np.float64]
    longest: int = 0
    most_nats: float = 0.0


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number, and where the exact one is with 95 % confidence: the noise is known, so the interval is too."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class ReleasedUtility:
    """The noisy sum of all vectors, and all that is needed to read it."""

    records: int
    noise_multiplier: float
    longest: int
    most_nats: float
    sums: tuple[float, ...]

    @property
    def classifies(self) -> bool:
        """Whether errors of a classifier were counted, not tokens."""
        return len(self.sums) == 1

    @property
    def perplexity(self) -> Estimate:
        """e to the mean nats per token, of records and tokens that were cut."""
        nats = self._ratio(0)
        return Estimate(*(math.exp(self.most_nats * one) for one in (nats.value, nats.low, nats.high)))

    @property
    def accuracy(self) -> Estimate:
        """The share of tokens that were the model's first guess."""
        return self._ratio(2)

    @property
    def error_rate(self) -> Estimate:
        """The share of records that a classifier gave a wrong class."""
        errors, off = self.sums[0], self._off(1)
        return Estimate(*(_between(one / self.records) for one in (errors, errors - off, errors + off)))

    def _ratio(self, place: int) -> Estimate:
        """A coordinate per token; both bounds hold at once, as each gets half of the doubt."""
        part, tokens, off = self.sums[place], self.sums[1], self._off(2)
        fewest = max(tokens - off, self.records / self.longest)  # a record has a token at least
        most = max(tokens + off, fewest)
        usual = min(max(tokens, fewest), most)
        return Estimate(_between(part / usual), _between((part - off) / most), _between((part + off) / fewest))

    def _off(self, bounds: int) -> float:
        """How far a sum is from the exact one at most, where so many share 5 % of doubt."""
        return -float(ndtri(0.05 / bounds / 2)) * self.noise_multiplier * math.sqrt(len(self.sums))


def calibrated(records: int) -> float:
    """The noise multiplier of a release about so many held-out records."""
    return calibrate_noise(lambda noise: ((price(noise), 1),), EPSILON, default_delta(records))


def price(noise_multiplier: float) -> Event:
    """What one release costs a held-out record."""
    return Gaussian(noise_multiplier, 1, Relation.ZERO_OUT)


def noisy(contributions: Contributions, noise_multiplier: float, rng: random.Random) -> ReleasedUtility:
    """The sum as it may leave. The noise of each coordinate is `noise_multiplier` times the bound on a vector."""
    vectors = contributions.vectors
    records, width = vectors.shape
    if not ((vectors >= 0) & (vectors <= 1)).all():
        raise ValueError("coordinates outside [0, 1]")
    deviation = noise_multiplier * math.sqrt(width)
    whole = np.floor(vectors / _GRID).astype(np.int64).sum(axis=0)
    sums = tuple((int(one) + round(rng.gauss(0.0, deviation) / _GRID)) * _GRID for one in whole)
    return ReleasedUtility(records, noise_multiplier, contributions.longest, contributions.most_nats, sums)


def measured_utility(released: Composition, records: int, runs: int = 1) -> MeasuredUtility:
    """What each held-out record has after these releases, of so many runs."""
    delta = default_delta(records)
    return MeasuredUtility(account(released).epsilon(delta), delta, records, runs)


def _between(share: float) -> float:
    return min(max(share, 0.0), 1.0)
