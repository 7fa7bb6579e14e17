"""Exposures from total log-probabilities: by the rank among all candidates, among a sample, or by a fit to it."""

import math
from dataclasses import dataclass

import numpy as np

from tacit.audits.statistics import Floats, SkewNormal


@dataclass(frozen=True, slots=True)
class Exposure:
    """Of one value. rank: the middle one, where known; ties: other candidates that are as probable.

    chance: how probable so high a rank is, at most, for a uniform value that the model knows nothing about (equal
    candidates count as above it); None where the rank is extrapolated.
    """

    bits: float
    standard_error: float
    rank: float | None
    ties: int
    chance: float | None


def exact_exposures(totals: Floats, own: Floats) -> list[Exposure]:
    """Of values with total log-probabilities `own` among all candidates' `totals`, which include them."""
    size, exposures = len(totals), []
    for higher, as_high in _above_and_equal(totals, own):
        rank = 1 + higher + (as_high - 1) / 2
        chance = (higher + as_high) / size
        exposures.append(Exposure(math.log2(size) - math.log2(rank), 0.0, rank, as_high - 1, chance))
    return exposures


def sampled_exposures(others: Floats, own: Floats) -> list[Exposure]:
    """Of values with total log-probabilities `own` among those of a uniform sample."""
    draws, exposures = len(others), []
    for above, equal in _above_and_equal(others, own):
        share = (1 + above + equal / 2) / (draws + 1)
        error = math.sqrt(max(1 - share, 0.0) / (share * draws)) / math.log(2)  # the delta method
        chance = (1 + above + equal) / (draws + 1)
        exposures.append(Exposure(-math.log2(share), error, None, equal, chance))
    return exposures


def extrapolated_exposures(fit: SkewNormal, others: Floats, own: Floats) -> list[Exposure]:
    """Of values with total log-probabilities `own`, by a fit to minus `others`."""
    found = zip(fit.surprises(-own), fit.standard_errors(-others, -own), _above_and_equal(others, own), strict=True)
    return [Exposure(float(bits), float(error), None, ties, None) for bits, error, (_, ties) in found]


def _above_and_equal(totals: Floats, own: Floats) -> list[tuple[int, int]]:
    rising = np.sort(totals)
    left, right = (np.searchsorted(rising, own, side).tolist() for side in ("left", "right"))
    return [(len(rising) - end, end - start) for start, end in zip(left, right, strict=True)]
