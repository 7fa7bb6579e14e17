"""The accountants the papers printed their epsilons with. Kept to reproduce their tables, never to claim anything.

Both are the Renyi divergence of the Poisson-sampled Gaussian (Mironov, Talwar, Zhang 2019), the orders of their time,
and the old conversion epsilon = divergence + log(1/delta) / (order - 1) (Mironov 2017, proposition 3), which is the
moments accountant of Abadi et al. 2016 for whole orders.
"""

import math
from collections.abc import Sequence

import numpy as np

from tacit.accounting.pairs import directions
from tacit.accounting.renyi import log_moments
from tacit.events import Relation, SampledGaussian

SDP_ORDERS: tuple[float, ...] = (*(1 + k / 10 for k in range(1, 100)), *(float(k) for k in range(12, 64)))
UEDP_ORDERS: tuple[float, ...] = tuple(float(k) for k in range(2, 65))


def published_epsilon(
    sampling_rate: float, noise_multiplier: float, steps: int, delta: float, orders: Sequence[float]
) -> float:
    """The epsilon a paper would print."""
    grid = np.asarray(orders, dtype=np.float64)
    removal, *_ = directions(SampledGaussian(noise_multiplier, sampling_rate, 1, Relation.ZERO_OUT))
    divergences = steps * log_moments(removal, grid) / (grid - 1)
    return float(np.min(divergences + math.log(1 / delta) / (grid - 1)))
