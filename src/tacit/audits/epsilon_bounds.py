"""Lower bounds on epsilon from what an attack got right in one run. They can refute a claim, never prove one.

G1 (true). Under any mechanism whose epsilon at `delta` is at most e, a bound above e is reported with probability at
   most 1 - confidence.
G2 (fixed beforehand). Nothing is chosen on the data it is then judged by: several numbers of guesses share the doubt
   equally.
G3 (order). The order of candidates changes nothing; ties count against the bound.

The canaries' coins must be fair and independent, and the scores may depend on them through the release alone.

m canaries, each inside by its own fair coin; a mechanism sees the coins; an adversary sees what it releases and guesses
at most r coins (it may pass on the others). W is the number of right guesses. Two theorems bound the chance of W >= v.

| here | Steinke, Nasr, Jagielski 2023 (2305.08846) | Mahloujifar, Melis, Chaudhuri 2024 (2410.22235) |
|---|---|---|
| canaries | m | m |
| made | r | c' |
| correct | v | c |

1. (epsilon, delta)-DP, Steinke et al., theorem 5.2: with q = e^epsilon / (1 + e^epsilon) and B ~ Bin(r, q),
   P(W >= v) <= P(B >= v) + 2 m delta max_i P(v - i <= B < v) / i.

2. f-DP, after Mahloujifar et al. Let F = 1 - f, concave and increasing: P(M(S) in E) <= F(P(M(S') in E)) when the coins
   S and S' differ in one place. Let p_w = P(W = w), A_j = sum_{w >= j} w p_w / m, B_j = sum_{w >= j} (r - w) p_w / m.
   Then A_j <= F(B_{j-1}) for j = 1..r.
   Proof. Fix a canary i. "i is guessed right, and W >= j" becomes, when coin i is turned and the output stays, "i is
   guessed wrong, and W >= j - 1". So P(right_i, W >= j | S) <= F(P(wrong_i, W >= j - 1 | S turned at i)); take the mean
   over S and over all m canaries, guessed or not: F is concave. (The mean over the guessed ones only would be false: a
   mechanism that shows each coin with probability delta guesses delta m coins and is always right.)
   From P(W >= v) = t follows a least total probability: collapsing all mass above v to v, and moving surplus mass down
   wherever a constraint has room, keeps every constraint j <= v, so the least total has p_v = t and each p_{j-1} just
   large enough for constraint j. If that total is above 1, P(W >= v) < t: the total is convex in t and 0 at 0, so it is
   above 1 for every larger t, too.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy import special, stats

from tacit.audits.statistics import Floats, Judged, Scores
from tacit.errors import AttackError
from tacit.privacy.profile import bisect

Points = Sequence[tuple[float, float]]
"""(epsilon, delta)-DP at several points at once; each must hold, in both directions."""

_FEWEST_GUESSES = 8
_UNFAIR = 1e-9
_WIDEST = 64.0  # no number of guesses that fits in memory reaches this far


def _least_probability(probability: float, points: Points) -> float:
    """The least that an event can have in one world if it has `probability` in the other."""
    least = 0.0
    for epsilon, delta in points:
        forth = (probability - delta) * math.exp(-epsilon)
        back = 1.0 - delta - math.exp(min(epsilon, 700.0)) * (1.0 - probability)
        least = max(least, forth, back)
    return least


@dataclass(frozen=True, slots=True)
class Guesses:
    """`correct` of at most `made` guesses about `canaries` coins, to be judged with a chance `doubt` of error."""

    canaries: int
    made: int
    correct: int
    doubt: float

    def refute(self, points: Points) -> bool:
        """Whether so many right guesses have a chance below `doubt` under every mechanism with these `points`."""
        share, wrong = self.correct / self.canaries, (self.made - self.correct) / self.canaries
        right_mass, wrong_mass = self.doubt * share, self.doubt * wrong  # A_v and B_v
        whole = self.made / self.canaries
        for below in range(self.correct - 1, -1, -1):
            needed = _least_probability(min(right_mass, 1.0), points)
            if needed <= wrong_mass:
                return False  # nothing more is needed further down, either
            right_mass += below / (self.made - below) * (needed - wrong_mass)
            wrong_mass = needed
            if right_mass + wrong_mass > whole * (1 + 1e-9):
                return True
        return False

    def chance(self, epsilon: float, delta: float) -> float:
        """Theorem 5.2's bound on the chance of so many right guesses under (epsilon, delta)-DP."""
        if self.correct == 0:
            return 1.0
        plain = float(special.bdtrc(self.correct - 1, self.made, special.expit(epsilon)))
        below = np.cumsum(_binomial(self.made, self.correct, epsilon))
        lifted = float(np.max(below / np.arange(1, self.correct + 1)))
        return min(1.0, plain + 2 * self.canaries * delta * lifted)


def _binomial(made: int, correct: int, epsilon: float) -> Floats:
    """P(B = w) for w = correct - 1 .. 0, where B ~ Bin(made, e^epsilon / (1 + e^epsilon))."""
    right = np.arange(correct - 1, -1, -1)
    ways = special.gammaln(made + 1) - special.gammaln(right + 1) - special.gammaln(made - right + 1)
    chances = right * special.log_expit(epsilon) + (made - right) * special.log_expit(-epsilon)
    return np.asarray(np.exp(ways + chances), dtype=np.float64)


@dataclass(frozen=True, slots=True)
class GuessPlan:
    """The `highest` scores are guessed to be inside, the `lowest` to be outside. Fixed before the scores are seen."""

    highest: int
    lowest: int

    @property
    def made(self) -> int:
        return self.highest + self.lowest


def default_plans(canaries: int) -> tuple[GuessPlan, ...]:
    """All, a half, a quarter, ... of the canaries from both ends; a half, a quarter, ... from the upper end only."""
    sizes = halved(canaries)
    both = [GuessPlan(size - size // 2, size // 2) for size in sizes]
    return (*both, *(GuessPlan(size, 0) for size in sizes[1:]))


def halved(canaries: int) -> list[int]:
    """All, a half, a quarter, ... of them, while enough are left."""
    return [canaries >> times for times in range(6) if canaries >> times >= _FEWEST_GUESSES] or [canaries]


def count(judged: Judged, plan: GuessPlan, doubt: float) -> Guesses:
    """The guesses of `plan`. Equal scores count against us: a bound must not depend on the order they came in."""
    if plan.highest < 0 or plan.lowest < 0 or not 1 <= plan.made <= len(judged):
        raise AttackError(
            expected=f"between 1 and {len(judged)} guesses, none of them negative",
            found=f"{plan.highest} at the upper end and {plan.lowest} at the lower end",
            way_out="guess each canary at most once",
        )
    upper = np.lexsort((judged.inside, -judged.values))[: plan.highest]
    lower = np.lexsort((~judged.inside, judged.values))[: plan.lowest]
    correct = int(judged.inside[upper].sum()) + int((~judged.inside[lower]).sum())
    return Guesses(len(judged), plan.made, correct, doubt)


@dataclass(frozen=True, slots=True)
class LowerBound:
    """With `confidence`, epsilon at `delta` is at least `epsilon`.

    guesses: what was counted, each with its share of the doubt.
    """

    epsilon: float
    delta: float
    confidence: float
    guesses: tuple[Guesses, ...] = ()

    @classmethod
    def of(cls, guesses: tuple[Guesses, ...], delta: float, confidence: float) -> "LowerBound":
        """The largest epsilon that one of the guesses refutes, from below, to 1e-6; 0 if none is."""
        if not (0 <= delta < 1 and 0 < confidence < 1):
            raise AttackError(
                expected="a delta in [0, 1) and a confidence between 0 and 1",
                found=f"delta {delta}, confidence {confidence}",
                way_out="take the delta of the claim, and a confidence such as 0.95",
            )
        low = 0.0
        for one in guesses:
            if not _plausible(one, delta, low):
                stays = partial(_plausible, one, delta)
                low = bisect(stays, low, low + 1.0, growth=2.0, widest=_WIDEST, absolute=1e-6)[0]
        return cls(low, delta, confidence, guesses)

    def refutes(self, points: Points) -> bool:
        """Whether a mechanism that is (epsilon, delta)-DP at all `points` would allow this with too small a chance.

        It uses the whole profile, so it sees more than `epsilon` at one delta; the doubt is the same.
        """
        finite = [(epsilon, delta) for epsilon, delta in points if math.isfinite(epsilon)]
        if any(delta <= self.delta and self.epsilon > epsilon for epsilon, delta in finite):
            return True
        return bool(finite) and any(guesses.refute(finite) for guesses in self.guesses)


def _plausible(guesses: Guesses, delta: float, epsilon: float) -> bool:
    """Whether neither bound on the same chance is below the doubt; as they are no tests, neither costs any."""
    return not guesses.refute([(epsilon, delta)]) and guesses.chance(epsilon, delta) > guesses.doubt


def one_run_bound(
    judged: Judged, delta: float, confidence: float = 0.95, plans: Sequence[GuessPlan] | None = None
) -> LowerBound:
    """The bound from one training run with canaries by fair coins; nothing is assumed about the mechanism.

    `plans` (how many guesses are tried) must not depend on the scores; the default ones depend on the number of
    canaries.
    """
    inside = int(judged.inside.sum())
    if stats.binomtest(inside, len(judged)).pvalue < _UNFAIR:
        raise AttackError(
            expected="canaries that are inside by fair coins",
            found=f"{inside} of {len(judged)} inside",
            way_out="plant them with inside_probability 0.5: the theorem holds for no other coin",
        )
    chosen = default_plans(len(judged)) if plans is None else plans
    if not chosen:
        raise AttackError("at least one plan of guesses", "none", "leave `plans` out")
    guesses = tuple(count(judged, plan, (1 - confidence) / len(chosen)) for plan in chosen)
    return LowerBound.of(guesses, delta, confidence)


def one_run_pairs_bound(margins: Scores, delta: float, confidence: float = 0.95) -> LowerBound:
    """The same for pairs of which a fair coin chose the one to plant: the one that scores higher is guessed.

    margins: by id, how much higher the planted one scores than the other. All pairs are guessed, and the half, the
    quarter, ... of them whose scores are furthest apart.
    """
    values = np.array(list(margins.by_id.values()), dtype=np.float64)
    if not len(values):
        raise AttackError("at least one pair", "none", "plant canaries that are always inside, each with its twin")
    right = (values > 0)[np.lexsort((values > 0, -np.abs(values)))]  # ties count against the bound
    sizes = halved(len(values))
    doubt = (1 - confidence) / len(sizes)
    guesses = tuple(Guesses(len(values), size, int(right[:size].sum()), doubt) for size in sizes)
    return LowerBound.of(guesses, delta, confidence)
