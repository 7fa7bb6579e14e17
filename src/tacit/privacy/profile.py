"""The whole privacy profile of a composition, and what can be read off it.

G1. `delta(epsilon)` never increases with epsilon, and `epsilon(delta)` never increases with delta.
G2. `epsilon(delta)` is an epsilon whose `delta` is at most the one asked for: rounding is always upwards.
G3. `mu()` is pessimistic: the profile is below that of mu-GDP for every delta above `SMALLEST_DELTA`.
G4. Every pair of `fine` is implied by the profile.

Exact prices (`CLOSED_FORM`) are those of Gaussian steps, and of steps whose draw is exposed. An exposed draw is known
to the adversary: with n ~ Bin(T, q) participations the run is a Gaussian mechanism of mu = sqrt(n) / sigma, and
delta(epsilon) is its mean over n. Unlikely n are dropped and their probability is added to delta.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from scipy import special

from tacit.errors import ClaimRefused
from tacit.privacy.dominating_pairs import Floats, PricedEvents, put_in_order
from tacit.privacy.events import Composition, ExposedGaussian, Gaussian, NoisyEvent, Relation, SampledGaussian

SMALLEST_DELTA = 1e-10  # below this the floating-point error of a composed distribution is not far away any more
CURVE_DELTAS = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9, 1e-10)
_SAMPLES, _FINE = 400, 32
_OFTEN = 1e-2
_DROPPED = 1e-16


class Law(ABC):
    """delta as a function of epsilon >= 0, for many epsilons at once, and its inverse."""

    @abstractmethod
    def deltas(self, epsilons: Floats) -> Floats:
        """The delta of each epsilon."""

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon for a delta in (0, 1), to nine digits and from above; infinite if there is none."""

        def small(epsilon: float) -> bool:
            return bool(self.deltas(np.array([epsilon]))[0] <= delta)

        return 0.0 if small(0.0) else bisect(small, 0.0, 1.0, growth=4.0, widest=1e12, relative=1e-9)[1]


@dataclass(frozen=True)
class Profile:
    """What a composition costs. Nothing spent: all zeros; nothing promised: epsilon is infinite and delta is 1."""

    accountant: str
    relation: Relation | None
    law: Law = field(repr=False)

    def epsilon(self, delta: float) -> float:
        if not 0 < delta < 1:
            raise ClaimRefused(
                "a delta between 0 and 1", repr(delta), "choose a delta well below one over the number of units"
            )
        return self.law.epsilon(delta)

    def delta(self, epsilon: float) -> float:
        if not epsilon >= 0:
            raise ClaimRefused("an epsilon of 0 or more", repr(epsilon), "ask for the delta of epsilon 0")
        if math.isinf(epsilon):
            return 1.0 if self.law == NO_BOUND else 0.0
        return float(min(1.0, self.law.deltas(np.array([epsilon]))[0]))

    def mu(self) -> float:
        """The smallest mu, rounded upwards, such that mu-GDP is no more private than this (for delta >= 1e-10)."""
        if isinstance(self.law, Constant):
            return self.law.epsilon(SMALLEST_DELTA)
        if isinstance(self.law, GaussianLaw):
            return self.law.mu
        return _dominating_mu(*self._sampled)

    def curve(self, deltas: Sequence[float] = CURVE_DELTAS) -> tuple[tuple[float, float], ...]:
        """(epsilon, delta) pairs, for storing."""
        return tuple((self.epsilon(delta), delta) for delta in deltas)

    def fine(self) -> tuple[tuple[float, float], ...]:
        """(epsilon, delta) pairs close enough for a smooth trade-off, deltas rounded upwards; none without a bound."""
        epsilons, deltas = self._sampled
        if not math.isfinite(epsilons[-1]):
            return ()
        often = np.linspace(0, int(np.argmax(deltas <= _OFTEN)), _FINE)  # most attacks are distinguished here
        rest = np.linspace(0, len(epsilons) - 1, _FINE // 2)
        chosen = np.unique(np.concatenate([often, rest]).round().astype(int))
        return tuple((float(epsilons[at]), _upwards(float(deltas[at]))) for at in chosen)

    @cached_property
    def _sampled(self) -> tuple[Floats, Floats]:
        """Epsilons from 0 to that of the smallest delta, and the delta of each: dear for some laws, and used twice."""
        widest = max(self.law.epsilon(SMALLEST_DELTA), 1e-12)
        epsilons = np.linspace(0.0, widest, _SAMPLES) if math.isfinite(widest) else np.array([widest])
        return epsilons, np.minimum(self.law.deltas(epsilons), 1.0)


@dataclass(frozen=True, slots=True)
class Constant(Law):
    """The same delta for every epsilon: 0 where nothing is spent, 1 where nothing is promised."""

    delta: float

    def deltas(self, epsilons: Floats) -> Floats:
        return np.full_like(epsilons, self.delta)

    def epsilon(self, delta: float) -> float:
        """0, or infinite."""
        return 0.0 if self.delta <= delta else math.inf


NOTHING, NO_BOUND = Constant(0.0), Constant(1.0)


@dataclass(frozen=True, slots=True)
class GaussianLaw(Law):
    """The exact law of the Gaussian mechanism with sensitivity / deviation = mu (Balle and Wang 2018, theorem 8)."""

    mu: float

    def deltas(self, epsilons: Floats) -> Floats:
        """Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu)."""
        return gaussian_deltas(epsilons, np.full_like(epsilons, self.mu))


@dataclass(frozen=True, slots=True)
class TwoHops(Law):
    """From content to null to other content: delta(e1 + e2) <= d(e1) + e^e1 d(e2), the best e1 of a fixed set.

    `law` prices one hop (zero-out). Every e1 is sound, so a coarse set only costs tightness; as it does not depend on
    the epsilon asked for, delta cannot increase with epsilon.
    """

    law: Law

    def deltas(self, epsilons: Floats) -> Floats:
        """The best first hop among 400, for each epsilon."""
        widest = self.law.epsilon(SMALLEST_DELTA)
        firsts = np.linspace(0.0, min(widest, 1e9), 400)
        spent = self.law.deltas(firsts)
        return np.array([self._best(float(epsilon), firsts, spent) for epsilon in epsilons])

    def _best(self, epsilon: float, firsts: Floats, spent: Floats) -> float:
        within = firsts <= epsilon
        with np.errstate(divide="ignore"):
            second = firsts[within] + np.log(self.law.deltas(epsilon - firsts[within]))
        return float(min(1.0, np.min(spent[within] + np.exp(np.minimum(second, 1.0)))))


@dataclass(frozen=True, slots=True)
class Envelope(Law):
    """Of laws that all hold the smallest; of the directions of a neighboring relation the largest (`worst`)."""

    laws: tuple[Law, ...]
    worst: bool = False

    def deltas(self, epsilons: Floats) -> Floats:
        """The smallest or largest delta, for each epsilon."""
        deltas = [law.deltas(epsilons) for law in self.laws]
        return np.asarray(np.max(deltas, axis=0) if self.worst else np.min(deltas, axis=0))

    def epsilon(self, delta: float) -> float:
        epsilons = [law.epsilon(delta) for law in self.laws]
        return max(epsilons) if self.worst else min(epsilons)


@dataclass(frozen=True, slots=True)
class Accountant:
    """Turns a composition into its privacy profile. `law` prices noisy events for which each direction has a pair."""

    name: str
    law: Callable[[PricedEvents], Law]

    def profile(self, composition: Composition) -> Profile:
        spent = put_in_order(composition)
        law: Law = NO_BOUND if spent.unbounded else NOTHING
        if spent.events and not spent.unbounded:
            law = TwoHops(self.law(spent.one_hop)) if spent.needs_two_hops else self.law(spent)
        return Profile(self.name, spent.relation, law)


def _upwards(value: float) -> float:
    """`value` with six digits, never less than it is."""
    near = float(f"{value:.5e}")
    return near if near >= value else float(f"{value * (1 + 1e-5):.5e}")


def gaussian_deltas(epsilons: Floats, mus: Floats) -> Floats:
    """The delta of mu-GDP at epsilon, element by element, accurate in the tails."""
    first = special.log_ndtr(mus / 2 - epsilons / mus)
    second = epsilons + special.log_ndtr(-mus / 2 - epsilons / mus)
    return np.asarray(np.exp(first) * -np.expm1(np.minimum(second - first, 0.0)), dtype=np.float64)


def _arithmetic_mean(low: float, high: float) -> float:
    return (low + high) / 2


def bisect(
    holds: Callable[[float], bool],
    low: float,
    high: float,
    *,
    growth: float = 1.0,
    widest: float = math.inf,
    absolute: float = 0.0,
    relative: float = 0.0,
    middle: Callable[[float, float], float] = _arithmetic_mean,
) -> tuple[float, float]:
    """Two numbers this close, by default adjacent ones, between which `holds` begins to hold: not at `low`, at `high`.

    With a `growth` above 1, `high` grows until `holds` is true there; from `widest` on it is infinite. `middle` chooses
    the place between two numbers that is tried next.
    """
    while growth > 1 and not holds(high):
        low, high = high, growth * high
        if high > widest:
            return low, math.inf
    while high - low > absolute + relative * high and low < (place := middle(low, high)) < high:
        low, high = (low, place) if holds(place) else (place, high)
    return low, high


def _dominating_mu(epsilons: Floats, deltas: Floats) -> float:
    if not math.isfinite(epsilons[-1]):
        return math.inf
    deltas = np.minimum(deltas, 1 - 1e-12)
    # between two points the profile is at most its left delta, so mu-GDP must reach that at the right epsilon
    right, left = np.append(epsilons[1:], 0.0), np.append(deltas[:-1], deltas[0])

    def enough(mu: float) -> bool:
        return bool(np.all(gaussian_deltas(right, np.full_like(right, mu)) >= left))

    return bisect(enough, 1e-12, 1e7, middle=lambda low, high: math.sqrt(low * high))[1]


@dataclass(frozen=True)
class ParticipationLaw(Law):
    """A mixture of Gaussian mechanisms by a known coin; `dropped` is the probability of the mus left out."""

    mus: Floats = field(repr=False)
    weights: Floats = field(repr=False)
    dropped: float

    def deltas(self, epsilons: Floats) -> Floats:
        """The mean delta over the mus, for each epsilon."""
        return np.array([self._delta(float(epsilon)) for epsilon in epsilons])

    def _delta(self, epsilon: float) -> float:
        deltas = gaussian_deltas(np.full_like(self.mus, epsilon), self.mus)
        return min(1.0, float(np.dot(self.weights, deltas)) + self.dropped)


def has_closed_form(spent: PricedEvents) -> bool:
    """Whether `CLOSED_FORM` can price these events."""
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
    return ParticipationLaw(mus, weights[spends], _DROPPED) if len(mus) else NOTHING


def _participations(count: int, rate: float) -> tuple[Floats, Floats]:
    from scipy import stats  # a third of a second, which most plans need not wait for

    low, high = stats.binom.ppf([_DROPPED / 2, 1 - 1e-15], count, rate)
    while stats.binom.sf(high, count, rate) > _DROPPED / 2:  # ppf cannot see a tail below 1e-16
        high += 1 + 0.01 * (high - low)
    numbers = np.arange(low, min(high, count) + 1, dtype=np.float64)
    return numbers, np.asarray(stats.binom.pmf(numbers, count, rate), dtype=np.float64)


CLOSED_FORM = Accountant("exact (closed form)", _law)
"""Gaussian events and at most one kind of exposed event; everything else is refused."""
