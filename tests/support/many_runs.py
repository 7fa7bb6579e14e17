"""A lower bound on epsilon from independent repetitions: exact (Clopper-Pearson) rates at one threshold.

It refutes claims that are false, in tests that can repeat an experiment many times; it cannot prove a claim.
"""

import numpy as np
from scipy import stats

from tacit.audits.statistics import Floats


def many_run_bound(
    present: Floats,
    absent: Floats,
    delta: float,
    confidence: float = 0.95,
    rehearsal: tuple[Floats, Floats] | None = None,
) -> float:
    """A lower bound on epsilon at `delta` from independent scores of two neighboring worlds, one score a repetition.

    Two directions, and in each two rates, share the doubt. Thresholds are chosen on `rehearsal`: scores of both worlds
    that do not depend on the real ones, such as simulated ones, best as many. Without it they are chosen on one half of
    the real ones and judged on the other, by a fixed shuffle: scores that come sorted do no harm.
    """
    assert not np.isnan([*present, *absent]).any()
    doubt = (1 - confidence) / 4
    real = (present, absent)
    if rehearsal is None:
        first, second = _shuffled(present), _shuffled(absent)
        rehearsal, real = (first[::2], second[::2]), (first[1::2], second[1::2])
    forth = _one_direction(real, rehearsal, delta, doubt)
    back = _one_direction((-real[1], -real[0]), (-rehearsal[1], -rehearsal[0]), delta, doubt)
    return max(forth, back)


def _shuffled(scores: Floats) -> Floats:
    return np.random.default_rng(len(scores)).permutation(np.asarray(scores, dtype=np.float64))


def _one_direction(real: tuple[Floats, Floats], rehearsal: tuple[Floats, Floats], delta: float, doubt: float) -> float:
    thresholds = np.unique(np.quantile(np.concatenate(rehearsal), np.linspace(0.0, 1.0, 2001), method="lower"))
    best = thresholds[np.argmax(_bounds_at(thresholds, *rehearsal, delta, doubt))]
    return float(_bounds_at(np.array([best]), *real, delta, doubt)[0])


def _bounds_at(thresholds: Floats, present: Floats, absent: Floats, delta: float, doubt: float) -> Floats:
    """log((P(present above) - delta) / P(absent above)) at each threshold, both rates at their unfavourable ends."""
    caught, alarms = (
        len(scores) - np.searchsorted(np.sort(scores), thresholds, "right") for scores in (present, absent)
    )
    least = np.where(caught > 0, stats.beta.ppf(doubt, np.maximum(caught, 1), len(present) - caught + 1), 0.0)
    left = len(absent) - alarms
    most = np.where(left > 0, stats.beta.ppf(1 - doubt, alarms + 1, np.maximum(left, 1)), 1.0)
    return np.log(np.maximum((least - delta) / most, 1.0))
