"""Renyi accounting: the product's cross-check, and its fallback where no fine grid of losses is affordable.

The Renyi divergence of each dominating pair is a one-dimensional integral of an analytic function, which the
trapezoid rule gives to machine precision; tests compare it with dp-accounting's series. Conversion to (epsilon, delta):
Canonne, Kamath, Steinke 2020 (arXiv 2004.00010, proposition 12, version 4).
"""

import math
from dataclasses import dataclass, field

import numpy as np

from tacit.privacy.dominating_pairs import Floats, Pair, PricedEvents, directions
from tacit.privacy.profile import Accountant, Law

ORDERS: Floats = 1 + np.concatenate([np.logspace(-4, 1, 110), np.logspace(1.03, 6, 130)])
_MOST_POINTS = 1 << 15
_ROUNDING = 1e-14  # added to each logarithm: what an integral of doubles may have lost


@dataclass(frozen=True)
class RenyiLaw(Law):
    """delta(epsilon) from Renyi divergences at a grid of orders; orders that were not computed are infinite."""

    orders: Floats = field(repr=False)
    divergences: Floats = field(repr=False)

    def deltas(self, epsilons: Floats) -> Floats:
        """The best order's delta, for each epsilon."""
        orders, divergences = self.orders[:, None], self.divergences[:, None]
        with np.errstate(divide="ignore"):
            total_variation = 0.5 * np.log(-np.expm1(-divergences))
        converted = (orders - 1) * (divergences - epsilons[None, :] + np.log1p(-1 / orders)) - np.log(orders)
        log_deltas = np.min(np.minimum(converted, total_variation), axis=0)
        return np.asarray(np.exp(np.minimum(log_deltas, 0.0)), dtype=np.float64)

    def epsilon(self, delta: float) -> float:
        candidates = (
            self.divergences + np.log1p(-1 / self.orders) - (math.log(delta) + np.log(self.orders)) / (self.orders - 1)
        )
        # a divergence of at most -log(1 - delta^2) bounds the total variation by delta (Bretagnolle-Huber)
        candidates = np.where(self.divergences <= -math.log1p(-(delta**2)), 0.0, candidates)
        return max(0.0, float(np.min(candidates)))


def renyi_law(spent: PricedEvents) -> RenyiLaw:
    """The law of noisy events for which each direction has a pair."""
    total = np.zeros_like(ORDERS)
    for event, count in spent.events:
        worst = np.max([log_moments(pair, ORDERS) for pair in directions(event)], axis=0)
        total += count * (np.maximum(worst, 0.0) + _ROUNDING) / (ORDERS - 1)
    return RenyiLaw(ORDERS, total)


RDP = Accountant("RDP (quadrature, improved conversion)", renyi_law)


def log_moments(pair: Pair, orders: Floats, most_points: int = _MOST_POINTS) -> Floats:
    """log E_lower[(upper / lower)^order] for each order; infinite where the integral would need too many points."""
    shift = pair.shift
    logs = _quadrature(pair, orders, most_points) if shift is None else orders * (orders - 1) * shift**2 / 2
    if pair.participation < 1:
        logs = np.logaddexp(math.log1p(-pair.participation), math.log(pair.participation) + logs)
    return np.asarray(logs, dtype=np.float64)


def _quadrature(pair: Pair, orders: Floats, most_points: int) -> Floats:
    # the integrand upper^a lower^(1-a) has no peak outside the centers a u + (1 - a) l
    spacing, margin = pair.spacing, 12.0
    upper, lower = max(map(abs, pair.upper.centers)), max(map(abs, pair.lower.centers))
    reach = np.abs(orders) * upper + np.abs(orders - 1) * lower + margin
    affordable = np.flatnonzero(reach <= max(spacing * most_points / 2, 2 * (upper + lower) + margin))
    result = np.full_like(orders, np.inf)
    # in groups of similar reach, so that small orders are not integrated over the large ones' line
    for chosen in np.array_split(affordable[np.argsort(reach[affordable])], 12):
        if len(chosen) == 0:
            continue
        half = float(reach[chosen[-1]])
        x = np.arange(-half, half + spacing, spacing)
        log_upper, log_lower = pair.upper.log_density(x), pair.lower.log_density(x)
        integrands = orders[chosen, None] * (log_upper - log_lower) + log_lower
        highest = np.max(integrands, axis=1, keepdims=True)
        sums = np.sum(np.exp(np.maximum(integrands - highest, -80.0)), axis=1)
        result[chosen] = highest[:, 0] + np.log(sums) + math.log(spacing / math.sqrt(2 * math.pi))
    return result
