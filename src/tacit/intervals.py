"""Exact (Clopper-Pearson) intervals for a share, from counts."""

from typing import NamedTuple

from scipy.special import betaincinv

from tacit.errors import ConfigError


class Interval(NamedTuple):
    """A two-sided interval for a share."""

    low: float
    high: float


def exact_interval(successes: int, trials: int, confidence: float = 0.95) -> Interval:
    """The two-sided Clopper-Pearson interval for `successes` of `trials`; no trials know nothing: (0, 1)."""
    tail = (1 - confidence) / 2
    return Interval(lower_bound(successes, trials, 1 - tail), upper_bound(successes, trials, 1 - tail))


def upper_bound(successes: int, trials: int, confidence: float = 0.95) -> float:
    """One-sided upper bound: the true share is above it with probability at most 1 - confidence.

    BetaInv(confidence; m + 1, n - m): 0 of 200 gives .0149, 20 of 200 gives .142.
    """
    _check(successes, trials, confidence)
    return 1.0 if successes == trials else float(betaincinv(successes + 1, trials - successes, confidence))


def lower_bound(successes: int, trials: int, confidence: float = 0.95) -> float:
    """One-sided lower bound: the true share is below it with probability at most 1 - confidence."""
    _check(successes, trials, confidence)
    return 0.0 if successes == 0 else float(betaincinv(successes, trials - successes + 1, 1 - confidence))


def _check(successes: int, trials: int, confidence: float) -> None:
    if not 0 <= successes <= trials or not 0 < confidence < 1:
        raise ConfigError(
            expected="0 <= successes <= trials and a confidence between 0 and 1",
            found=f"{successes} of {trials} at confidence {confidence}",
            way_out="count again",
        )
