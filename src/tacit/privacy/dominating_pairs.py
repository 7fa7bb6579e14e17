"""Dominating pairs: the two distributions on the real line that one event reduces to.

Everything is measured in units of the noise deviation, so each distribution is a mixture of unit Gaussians and the
pair's privacy loss log(upper / lower) increases along the line.

| event, relation                | upper                         | lower                         |
|--------------------------------|-------------------------------|-------------------------------|
| Gaussian, zero-out             | K/sigma                       | 0                             |
| Gaussian, replace              | 2K/sigma                      | 0                             |
| sampled, zero-out, removing    | j/sigma with Bin(K, q)        | 0                             |
| sampled, zero-out, adding      | 0                             | -j/sigma with Bin(K, q)       |
| sampled, replace, one copy     | 0 or 1/sigma with (1 - q, q)  | 0 or -1/sigma with (1 - q, q) |
| exposed                        | the Gaussian with probability q, nothing otherwise            |

Sampled, zero-out: Choquette-Choo et al. 2024 (mixture of Gaussians); Zhu, Dong, Wang 2022 for the two directions.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy import special

from tacit.errors import ClaimRefused
from tacit.privacy.events import (
    Composition,
    Event,
    ExposedGaussian,
    Gaussian,
    NoisyEvent,
    Relation,
    SampledGaussian,
    Unbounded,
)

Floats = npt.NDArray[np.float64]
_LARGEST_SHIFT, _MOST_EVENTS = 500.0, 10**12  # beyond them grids outgrow seconds and memory


@dataclass(frozen=True, slots=True)
class Mixture:
    """A mixture of unit Gaussians."""

    weights: tuple[float, ...]
    centers: tuple[float, ...]

    def log_density(self, x: Floats) -> Floats:
        """The logarithm of the density, without the constant -log(2 pi)/2 common to all mixtures."""
        total = np.full_like(x, -np.inf)
        for weight, center in zip(self.weights, self.centers, strict=True):
            total = np.logaddexp(total, math.log(weight) - 0.5 * np.square(x - center))
        return total

    def above(self, x: float) -> float:
        return float(np.dot(self.weights, special.ndtr(np.asarray(self.centers) - x)))

    def below(self, x: float) -> float:
        return float(np.dot(self.weights, special.ndtr(x - np.asarray(self.centers))))

    def mass_between(self, edges: Floats) -> Floats:
        """The probability of each interval between adjacent edges, accurate in both tails."""
        mass = np.zeros(len(edges) - 1)
        for weight, center in zip(self.weights, self.centers, strict=True):
            low, high = edges[:-1] - center, edges[1:] - center
            right = low > 0
            near, far = np.where(right, -low, high), np.where(right, -high, low)
            mass += weight * (special.ndtr(near) - special.ndtr(far))
        return mass

    def trimmed(self, mass: float) -> tuple["Mixture", float]:
        """Without the farthest components of at most this total weight, and their weight."""
        order = np.argsort(np.abs(self.centers))[::-1]
        tail = np.cumsum(np.asarray(self.weights)[order])
        gone = int(np.searchsorted(tail, mass, side="right"))
        kept = sorted(order[gone:])
        mixture = Mixture(tuple(self.weights[i] for i in kept), tuple(self.centers[i] for i in kept))
        return mixture, float(tail[gone - 1]) if gone else 0.0


@dataclass(frozen=True, slots=True)
class Pair:
    """One direction of one event.

    `participation` < 1: the pair applies only with this known probability. `dropped`: weight of the upper distribution
    that `trimmed` left out and that must be counted as an infinite loss.
    """

    upper: Mixture
    lower: Mixture
    participation: float = 1.0
    dropped: float = 0.0

    @property
    def shift(self) -> float | None:
        """The distance of the two centers when the pair is a plain Gaussian mechanism."""
        if len(self.upper.centers) == len(self.lower.centers) == 1:
            return self.upper.centers[0] - self.lower.centers[0]
        return None

    @property
    def spacing(self) -> float:
        """A step of x that resolves both the Gaussians and the passage from one component to the next."""
        centers = sorted({*self.upper.centers, *self.lower.centers})
        gap = centers[1] - centers[0]
        return min(0.125, 0.25 / gap)

    def trimmed(self, mass: float) -> "Pair":
        """Without far components of at most this weight; a lower distribution that is too small is only pessimistic."""
        upper, dropped = self.upper.trimmed(mass)
        return Pair(upper, self.lower.trimmed(mass)[0], self.participation, dropped)

    def loss(self, x: Floats) -> Floats:
        """log(upper / lower): increasing in x."""
        return self.upper.log_density(x) - self.lower.log_density(x)


def directions(event: NoisyEvent) -> tuple[Pair, ...]:
    """The pairs that dominate the event, one for each direction that differs."""
    factor = 1.0 if event.relation is Relation.ZERO_OUT else 2.0
    origin = Mixture((1.0,), (0.0,))
    sigma = event.noise_multiplier
    match event:
        case Gaussian():
            return (Pair(Mixture((1.0,), (factor * event.copies / sigma,)), origin),)
        case ExposedGaussian():
            return (Pair(Mixture((1.0,), (factor / sigma,)), origin, event.sampling_rate),)
        case SampledGaussian():
            if event.sampling_rate == 1.0:
                return directions(Gaussian(sigma, event.copies, event.relation))
            mixture = _binomial(event.copies, event.sampling_rate, sigma)
            if event.relation is Relation.ZERO_OUT:
                return Pair(mixture, origin), Pair(origin, _mirrored(mixture))
            if event.copies == 1:
                return (Pair(mixture, _mirrored(mixture)),)
            raise ClaimRefused(
                expected="replacement of one sampled record per unit",
                found=f"{event.copies} records",
                way_out="price the zero-out event and go through the blanked world twice",
            )


def _binomial(copies: int, rate: float, sigma: float) -> Mixture:
    counts = np.arange(copies + 1)
    ways = special.gammaln(copies + 1) - (special.gammaln(counts + 1) + special.gammaln(copies - counts + 1))
    weights = np.exp(ways + special.xlogy(counts, rate) + special.xlog1py(copies - counts, -rate))
    largest = int(np.argmax(weights))
    weights[largest] = 0.0
    weights[largest] = 1 - math.fsum(weights)  # the logarithms' rounding would leak mass at every step
    keep = weights > 1e-300  # below that a weight is nothing even after 1e7 steps and its logarithm is not safe
    return Mixture(tuple(map(float, weights[keep])), tuple(map(float, counts[keep] / sigma)))


def _mirrored(mixture: Mixture) -> Mixture:
    return Mixture(mixture.weights, tuple(-center for center in mixture.centers))


@dataclass(frozen=True, slots=True)
class PricedEvents:
    """A composition put in order: equal events added up, free ones left out, one relation."""

    events: tuple[tuple[NoisyEvent, int], ...]
    relation: Relation | None
    unbounded: bool

    @property
    def needs_two_hops(self) -> bool:
        """Whether some event is a replacement of several sampled records, for which no pair is known."""
        return self.relation is Relation.REPLACE and any(
            isinstance(event, SampledGaussian) and event.copies > 1 and event.sampling_rate < 1
            for event, _ in self.events
        )

    @property
    def one_hop(self) -> "PricedEvents":
        """The same events under zero-out: from content to null, the first half of a replacement."""
        events = tuple((replace(event, relation=Relation.ZERO_OUT), count) for event, count in self.events)
        return PricedEvents(events, Relation.ZERO_OUT, self.unbounded)


def put_in_order(composition: Composition) -> PricedEvents:
    """Add up equal events; refuse strangers, negative counts and mixed relations."""
    counts: dict[NoisyEvent, int] = {}
    unbounded = False
    for event, count in composition:
        if count < 0:
            raise ClaimRefused("a count of 0 or more", repr(count), "give how often the event took place")
        if not isinstance(event, Event):
            raise ClaimRefused(
                expected="an event with a proof: Free, Unbounded, Gaussian, SampledGaussian or ExposedGaussian",
                found=type(event).__name__,
                way_out="describe the step by one of these events, or claim nothing for it",
            )
        # a grid for a sampled event grows with the square of this shift
        shift = math.sqrt(event.copies) / event.noise_multiplier if isinstance(event, SampledGaussian) else 0.0
        if count > _MOST_EVENTS or shift > _LARGEST_SHIFT:
            raise ClaimRefused(
                expected=f"noise that is not lost beside what it hides, and at most {_MOST_EVENTS:.0e} steps",
                found=f"{float(count):.3g} of {event}",
                way_out="use more noise or fewer steps: this run promises nothing that could be computed",
            )
        if count and isinstance(event, NoisyEvent):
            counts[event] = counts.get(event, 0) + count
        unbounded = unbounded or (count > 0 and isinstance(event, Unbounded))
    relations = {event.relation for event in counts}
    if len(relations) > 1:
        raise ClaimRefused(
            expected="events of one neighboring relation",
            found=" and ".join(sorted(relations)),
            way_out="account for each relation by itself: the two epsilons answer different questions",
        )
    ordered = sorted(counts.items(), key=lambda item: repr(item[0]))
    return PricedEvents(tuple(ordered), next(iter(relations), None), unbounded)
