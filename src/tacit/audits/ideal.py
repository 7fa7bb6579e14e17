"""What the best attacker would show with as many canaries, so that a bound can be compared with what was possible.

The ideal attacker sees, for each canary, one number: standard normal if it was not there, shifted by mu if it was. That
is the Gaussian mechanism with the claim's (epsilon, delta). Its numbers are put at the quantiles of their law: a
typical result, not a limit, as luck or a claim of another profile may give more.

G1. A larger mu never shows less; infinite mu is an attacker who is always right.
"""

import math
from functools import lru_cache, partial

import numpy as np
from scipy import special

from tacit.audits.epsilon_bounds import one_run_bound, one_run_pairs_bound
from tacit.audits.statistics import Floats, Scores, judged
from tacit.privacy.profile import GaussianLaw, bisect

_SURE = 100.0  # deviations: no guess is wrong
_LARGEST_MU = 64.0
_FINEST = 1e-3


def mu_of(epsilon: float, delta: float) -> float:
    """The mu of the Gaussian mechanism that has this epsilon at `delta`."""

    def too_small(mu: float) -> bool:
        return mu == 0 or float(GaussianLaw(mu).deltas(np.array([float(epsilon)]))[0]) < delta

    if epsilon == 0:
        return 0.0
    return bisect(lambda mu: not too_small(mu), 0.0, 1.0, growth=2.0, widest=_LARGEST_MU, absolute=_FINEST)[1]


def epsilon_of(mu: float, delta: float) -> float:
    """The epsilon that mu-GDP has at `delta`."""

    def enough(epsilon: float) -> bool:
        return float(GaussianLaw(mu).deltas(np.array([epsilon]))[0]) <= delta

    if mu == 0 or enough(0.0):
        return 0.0
    return bisect(enough, 0.0, 1.0, growth=2.0, widest=_LARGEST_MU**2, absolute=_FINEST)[1]


@lru_cache(maxsize=256)
def ideal_bound(mu: float, canaries: int, delta: float, confidence: float, pairs: bool) -> float:
    """The epsilon that an ideal attacker shows with so many coins; pairs: the coin chose one of two values."""
    shift = min(mu, _SURE)
    if pairs:
        margins = _quantiles(canaries) + shift / 2
        return one_run_pairs_bound(_scores("pair", margins), delta, confidence).epsilon
    inside = canaries - canaries // 2
    there, away = _scores("in", _quantiles(inside) + shift), _scores("out", _quantiles(canaries - inside))
    truth = {name: name.startswith("in") for name in (*there.by_id, *away.by_id)}
    return one_run_bound(judged(Scores({**there.by_id, **away.by_id}), truth), delta, confidence).epsilon


@lru_cache(maxsize=256)
def least_shown(canaries: int, delta: float, confidence: float, pairs: bool) -> float:
    """The least epsilon of which an ideal attacker shows anything; infinite where so few canaries never show any."""
    shows = partial(_shows, canaries, delta, confidence, pairs)
    if not shows(_SURE):
        return math.inf
    mu = bisect(shows, 0.0, 1.0, growth=2.0, widest=_LARGEST_MU, absolute=_FINEST)[1]
    return epsilon_of(mu, delta)


def _shows(canaries: int, delta: float, confidence: float, pairs: bool, mu: float) -> bool:
    return ideal_bound(mu, canaries, delta, confidence, pairs) > 0


def _quantiles(count: int) -> Floats:
    return np.asarray(special.ndtri((np.arange(count) + 0.5) / count), dtype=np.float64)


def _scores(name: str, values: Floats) -> Scores:
    return Scores({f"{name}-{number}": float(value) for number, value in enumerate(values)})
