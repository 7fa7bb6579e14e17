"""Exact prices: Gaussian steps, and steps whose draw is exposed.

An exposed draw is known to the adversary: with n ~ Bin(T, q) participations the run is a Gaussian mechanism of
mu = sqrt(n) / sigma, and delta(epsilon) is its mean over n. Unlikely n are dropped and their probability is added to
delta.
"""

import math
from dataclasses import dataclass, field

import numpy as np
from scipy import stats

from tacit.errors import ClaimRefused
from tacit.privacy.dominating_pairs import Floats, PricedEvents
from tacit.privacy.events import Composition, ExposedGaussian, Gaussian, NoisyEvent, Relation, SampledGaussian
from tacit.privacy.profile import GaussianLaw, Law, Nothing, Profile, gaussian_deltas, invert, price

_DROPPED = 1e-16


@dataclass(frozen=True)
class ParticipationLaw:
    """A mixture of Gaussian mechanisms by a known coin; `dropped` is the probability of the mus left out."""

    mus: Floats = field(repr=False)
    weights: Floats = field(repr=False)
    dropped: float

    def deltas(self, epsilons: Floats) -> Floats:
        """The mean delta over the mus, for each epsilon."""
        return np.array([self._delta(float(epsilon)) for epsilon in epsilons])

    def epsilon(self, delta: float) -> float:
        """By bisection."""
        return invert(self.deltas, delta)

    def _delta(self, epsilon: float) -> float:
        deltas = gaussian_deltas(np.full_like(self.mus, epsilon), self.mus)
        return min(1.0, float(np.dot(self.weights, deltas)) + self.dropped)


@dataclass(frozen=True, slots=True)
class ClosedForm:
    """Gaussian events and at most one kind of exposed event; everything else is refused."""

    name: str = "exact (closed form)"

    def profile(self, composition: Composition) -> Profile:
        """The profile of the composition."""
        return price(self.name, composition, _law)


def has_closed_form(spent: PricedEvents) -> bool:
    """Whether `ClosedForm` can price these events."""
    exposed = [event for event, _ in spent.events if isinstance(event, ExposedGaussian)]
    return len(exposed) <= 1 and all(_is_plain(event) for event, _ in spent.events if event not in exposed)


def _is_plain(event: NoisyEvent) -> bool:
    return isinstance(event, Gaussian) or (isinstance(event, SampledGaussian) and event.sampling_rate == 1.0)


def _law(spent: PricedEvents) -> Law:
    if not has_closed_form(spent):
        raise ClaimRefused(
            expected="Gaussian events and at most one kind of exposed event",
            found=", ".join(sorted({type(event).__name__ for event, _ in spent.events})),
            way_out="account by PLD",
        )
    sure, by_luck, law = 0.0, 0.0, None
    factor = 2.0 if spent.relation is Relation.REPLACE else 1.0
    for event, count in spent.events:
        copies = 1 if isinstance(event, ExposedGaussian) else event.copies
        square = (factor * copies / event.noise_multiplier) ** 2
        if isinstance(event, ExposedGaussian) and event.sampling_rate < 1:
            by_luck, law = square, _participations(count, event.sampling_rate)
        else:
            sure += count * square
    if law is None:
        return GaussianLaw(math.sqrt(sure))
    numbers, weights = law
    spends = numbers * by_luck + sure > 0
    mus = np.sqrt(numbers[spends] * by_luck + sure)
    return ParticipationLaw(mus, weights[spends], _DROPPED) if len(mus) else Nothing()


def _participations(count: int, rate: float) -> tuple[Floats, Floats]:
    low, high = stats.binom.ppf([_DROPPED / 2, 1 - 1e-15], count, rate)
    while stats.binom.sf(high, count, rate) > _DROPPED / 2:  # ppf cannot see a tail below 1e-16
        high += 1 + 0.01 * (high - low)
    numbers = np.arange(low, min(high, count) + 1, dtype=np.float64)
    return numbers, np.asarray(stats.binom.pmf(numbers, count, rate), dtype=np.float64)
