"""Lower bounds on epsilon from what an attack got right. All of them point one way: they can refute a claim, never
prove one.

G1 (true). Under any mechanism whose epsilon at `delta` is at most e, a bound above e is reported with probability at
   most 1 - confidence. For `one_run_gaussian_bound` the same holds for mu under any mu-GDP mechanism.
G2 (fixed beforehand). Nothing is chosen on the data it is then judged by: several numbers of guesses share the doubt
   equally; a threshold is chosen on other repetitions than those it is judged by.
G3 (order). The order of candidates changes nothing; ties count against the bound.

One run needs canaries whose coins are fair and independent, and scores that depend on them through the release alone.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from tacit.accounting.profile import GaussianLaw
from tacit.audit.guesses import Approximate, GaussianCurve, Guesses, GuessPlan, count, default_plans, halved
from tacit.audit.scores import Floats, Judged, Scores
from tacit.errors import AttackError

ONE_RUN = "one run: Steinke et al. 2023, theorem 5.2, or the f-DP bound after Mahloujifar et al. 2024 if it is higher"
ONE_RUN_GAUSSIAN = "one run: the f-DP bound after Mahloujifar et al. 2024, for Gaussian trade-off curves"
MANY_RUNS = "independent repetitions: exact (Clopper-Pearson) rates at a threshold chosen on other repetitions"
_UNFAIR = 1e-9
_WIDEST = 64.0  # no count of guesses that fits in memory reaches so far


@dataclass(frozen=True, slots=True)
class LowerBound:
    """With `confidence`, epsilon at `delta` is at least `epsilon`.

    guesses: what was counted in one run, each with its share of the doubt; `used` is the one that gave the bound.
    mu: if not None, the bound supposes a Gaussian trade-off curve and says that its mu is at least this.
    """

    epsilon: float
    delta: float
    confidence: float
    method: str
    guesses: tuple[Guesses, ...] = ()
    used: Guesses | None = None
    mu: float | None = None

    def refutes(self, points: Sequence[tuple[float, float]]) -> bool:
        """Whether a mechanism that is (epsilon, delta)-DP at all `points` would allow this with too small a chance.

        It uses the whole profile, so it sees more than `epsilon` at one delta; the doubt is the same.
        """
        finite = tuple((epsilon, delta) for epsilon, delta in points if math.isfinite(epsilon))
        if any(delta <= self.delta and self.epsilon > epsilon for epsilon, delta in finite) and self.mu is None:
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


def one_run_gaussian_bound(
    judged: Judged, delta: float, confidence: float = 0.95, plans: Sequence[GuessPlan] | None = None
) -> LowerBound:
    """The same, if the mechanism is mu-GDP for some mu and no better anywhere: higher, and true of such ones only."""
    if delta == 0:
        raise AttackError("a delta above 0", "0", "take the delta of the claim: no Gaussian curve has epsilon at 0")
    tried = _counted(judged, delta, confidence, plans)
    mu, used = _highest(tried, lambda guesses, mu: guesses.refute(GaussianCurve(mu)))
    epsilon = _rounded_down(GaussianLaw(mu).epsilon(delta)) if mu > 0 else 0.0
    return LowerBound(epsilon, delta, confidence, ONE_RUN_GAUSSIAN, tried, used, mu)


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


def many_run_bound(
    present: Floats,
    absent: Floats,
    delta: float,
    confidence: float = 0.95,
    rehearsal: tuple[Floats, Floats] | None = None,
) -> LowerBound:
    """The bound from independent scores of two neighbouring worlds, one score a repetition.

    Two directions, and in each two rates, share the doubt. Thresholds are chosen on `rehearsal`: scores of both worlds
    that do not depend on the real ones, such as simulated ones, best as many. Without it they are chosen on one half of
    the real ones and judged on the other, by a fixed shuffle: scores that come sorted do no harm.
    """
    _check(delta, confidence)
    if min(len(present), len(absent)) < 2 or np.isnan(present).any() or np.isnan(absent).any():
        raise AttackError(
            expected="at least two repetitions in each world, each with a number",
            found=f"{len(present)} and {len(absent)}, or some that are not a number",
            way_out="repeat the experiment more often",
        )
    doubt = (1 - confidence) / 4
    real = (present, absent)
    if rehearsal is None:
        first, second = _shuffled(present), _shuffled(absent)
        rehearsal, real = (first[::2], second[::2]), (first[1::2], second[1::2])
    forth = _one_direction(real, rehearsal, delta, doubt)
    back = _one_direction((-real[1], -real[0]), (-rehearsal[1], -rehearsal[0]), delta, doubt)
    return LowerBound(max(forth, back), delta, confidence, MANY_RUNS)


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


def _rounded_down(epsilon: float) -> float:
    return epsilon * (1 - 1e-8)  # the accountant rounds upwards, by less than this


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


def _check(delta: float, confidence: float) -> None:
    if not (0 <= delta < 1 and 0 < confidence < 1):
        raise AttackError(
            expected="a delta in [0, 1) and a confidence between 0 and 1",
            found=f"delta {delta}, confidence {confidence}",
            way_out="take the delta of the claim, and a confidence such as .95",
        )
