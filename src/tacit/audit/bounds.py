"""Lower bounds on epsilon from what an attack got right. All of them point one way: they can refute a claim, never
prove one.

G1 (true). Under any mechanism whose epsilon at `delta` is at most e, a bound above e is reported with probability at
   most 1 - confidence.
G2 (fixed beforehand). Nothing is chosen on the data it is then judged by: several numbers of guesses share the doubt
   equally.
G3 (order). The order of candidates changes nothing; ties count against the bound.

One run needs canaries whose coins are fair and independent, and scores that depend on them through the release alone.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from tacit.audit.guesses import Approximate, Guesses, GuessPlan, count, default_plans, halved
from tacit.audit.scores import Judged, Scores
from tacit.errors import AttackError

ONE_RUN = "one run: Steinke et al. 2023, theorem 5.2, or the f-DP bound after Mahloujifar et al. 2024 if it is higher"
_UNFAIR = 1e-9
_WIDEST = 64.0  # no count of guesses that fits in memory reaches so far


@dataclass(frozen=True, slots=True)
class LowerBound:
    """With `confidence`, epsilon at `delta` is at least `epsilon`.

    guesses: what was counted in one run, each with its share of the doubt; `used` is the one that gave the bound.
    """

    epsilon: float
    delta: float
    confidence: float
    method: str
    guesses: tuple[Guesses, ...] = ()
    used: Guesses | None = None

    def refutes(self, points: Sequence[tuple[float, float]]) -> bool:
        """Whether a mechanism that is (epsilon, delta)-DP at all `points` would allow this with too small a chance.

        It uses the whole profile, so it sees more than `epsilon` at one delta; the doubt is the same.
        """
        finite = tuple((epsilon, delta) for epsilon, delta in points if math.isfinite(epsilon))
        if any(delta <= self.delta and self.epsilon > epsilon for epsilon, delta in finite):
            return True
        return bool(finite) and any(guesses.refute(Approximate(finite)) for guesses in self.guesses)


def one_run_bound(
    judged: Judged, delta: float, confidence: float = 0.95, plans: Sequence[GuessPlan] | None = None
) -> LowerBound:
    """The bound from one training run with coin-flipped canaries; nothing is supposed about the mechanism.

    `plans` say how many guesses are tried, and must not depend on the scores; by default they depend on the number of
    canaries.
    """
    tried = _counted(judged, delta, confidence, plans)
    epsilon, used = _highest(tried, lambda guesses, epsilon: _too_lucky(guesses, epsilon, delta))
    return LowerBound(epsilon, delta, confidence, ONE_RUN, tried, used)


def one_run_pairs_bound(margins: Scores, delta: float, confidence: float = 0.95) -> LowerBound:
    """The same for pairs of which a fair coin chose the one to plant: the one that scores higher is guessed.

    margins: by id, how much higher the planted one scores than the other. All pairs are guessed, and the half, the
    quarter, ... of them whose scores are furthest apart.
    """
    _check(delta, confidence)
    values = np.array(list(margins.by_id.values()), dtype=np.float64)
    if not len(values):
        raise AttackError("at least one pair", "none", "plant canaries that are always inside, each with its twin")
    right = (values > 0)[np.lexsort((values > 0, -np.abs(values)))]  # ties count against the bound
    sizes = halved(len(values))
    doubt = (1 - confidence) / len(sizes)
    tried = tuple(Guesses(len(values), size, int(right[:size].sum()), doubt) for size in sizes)
    epsilon, used = _highest(tried, lambda guesses, epsilon: _too_lucky(guesses, epsilon, delta))
    return LowerBound(epsilon, delta, confidence, ONE_RUN, tried, used)


def _counted(judged: Judged, delta: float, confidence: float, plans: Sequence[GuessPlan] | None) -> tuple[Guesses, ...]:
    _check(delta, confidence)
    inside = int(judged.inside.sum())
    if stats.binomtest(inside, len(judged)).pvalue < _UNFAIR:
        raise AttackError(
            expected="canaries that are inside by fair coins",
            found=f"{inside} of {len(judged)} inside",
            way_out="plant them with inside_probability 0.5: the theorem holds for no other coin",
        )
    chosen = default_plans(len(judged)) if plans is None else tuple(plans)
    if not chosen:
        raise AttackError("at least one plan of guesses", "none", "leave `plans` out")
    return tuple(count(judged, plan, (1 - confidence) / len(chosen)) for plan in chosen)


def _too_lucky(guesses: Guesses, epsilon: float, delta: float) -> bool:
    """Whether one of the two bounds on the same chance is below the doubt; as they are no tests, neither costs any."""
    return guesses.refute(Approximate(((epsilon, delta),))) or guesses.chance(epsilon, delta) <= guesses.doubt


def _highest(tried: tuple[Guesses, ...], refutes: Callable[[Guesses, float], bool]) -> tuple[float, Guesses]:
    """The largest number that one of the guesses refutes, from below, to 1e-6, and which; 0 if none is."""
    low, used = 0.0, tried[0]
    for guesses in tried:
        if refutes(guesses, low):
            low, used = _largest(refutes, guesses, low), guesses
    return low, used


def _largest(refutes: Callable[[Guesses, float], bool], guesses: Guesses, low: float) -> float:
    high = low + 1.0
    while refutes(guesses, high):
        low, high = high, 2 * high
        if high > _WIDEST:
            return low
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if refutes(guesses, middle) else (low, middle)
    return low


def _check(delta: float, confidence: float) -> None:
    if not (0 <= delta < 1 and 0 < confidence < 1):
        raise AttackError(
            expected="a delta in [0, 1) and a confidence between 0 and 1",
            found=f"delta {delta}, confidence {confidence}",
            way_out="take the delta of the claim, and a confidence such as .95",
        )
