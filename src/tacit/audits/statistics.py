"""How well scores distinguish members from others, and whether planted values rank above others, by exact tests.

| figure | interval |
|---|---|
| AUC | DeLong, DeLong, Clarke-Pearson 1988 on the logit scale (asymptotic); exact when the two separate perfectly |
| accuracy at the papers' cut | Clopper-Pearson over all candidates |
| true positives at a false-positive rate | Clopper-Pearson over the members |

Given how many are inside, the members among the upper half are hypergeometric when the scores know nothing: that is
the test of an attack. Canaries and the values held out were drawn alike, and coins decided which were planted: if the
model reveals nothing about them, every way to deal the observed exposures out to both sides is equally probable.

G1 (by id). Scores and truth are joined by id: their order changes nothing. An id that comes twice, is missing on one
   side, or has no number is an error that names it; texts never appear here.
G2 (ties). Ties are never broken by order: they count as their expected share, and against the attack in a test.
G3 (valid). If the training did not see the planted values, each p-value of `Excess` is at most p with probability at
   most p. (The sum of ranks of more than 600 values is taken as normal.)
G4 (one look). Each p-value is one test: whoever takes the smallest of three multiplies it by three.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import integrate, special, stats

from tacit.common.formatting import Interval, exact_interval
from tacit.errors import AttackError

Floats = npt.NDArray[np.float64]
Booleans = npt.NDArray[np.bool_]
IntegerCounts = npt.NDArray[np.signedinteger]
LOW_FALSE_RATES = (0.01, 0.001)
_SHOWN = 3  # ids in an error
_EXACT_UP_TO = 600
_GROUPS = 10
_SMALL = 1e-4  # below it the library's distribution function loses digits


@dataclass(frozen=True, slots=True)
class Scores:
    """One number per candidate's id: the higher, the more it looks like a member."""

    by_id: Mapping[str, float]

    def __post_init__(self) -> None:
        unknown = [name for name, value in self.by_id.items() if np.isnan(value)]
        if unknown:
            raise AttackError(
                expected="a number for every candidate",
                found=f"no number for {_named(unknown)}",
                way_out="check why the model gives it no probability: an empty text, or weights that are not finite",
            )

    @classmethod
    def of(cls, ids: Sequence[str], values: Iterable[float]) -> "Scores":
        """Scores from two lists in the same order."""
        numbers = [float(value) for value in values]
        if len(ids) != len(numbers):
            raise AttackError("one score for each id", f"{len(numbers)} scores for {len(ids)} ids", "score them again")
        repeated = [name for name, times in Counter(ids).items() if times > 1]
        if repeated:
            raise AttackError("every id once", f"{_named(repeated)} again", "score each candidate once")
        return cls(dict(zip(ids, numbers, strict=True)))

    def only(self, ids: Iterable[str]) -> "Scores":
        return Scores({name: self.by_id[name] for name in ids})


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """Scores beside the truth, in the order of the ids; there is someone inside and someone outside."""

    ids: tuple[str, ...]
    values: Floats
    inside: Booleans

    @property
    def members(self) -> Floats:
        return self.values[self.inside]

    @property
    def others(self) -> Floats:
        return self.values[~self.inside]

    def __len__(self) -> int:
        return len(self.ids)


def judged(scores: Scores, inside: Mapping[str, bool]) -> Judged:
    """Scores and truth joined by id; both must be about the same candidates, some inside and some outside."""
    if scores.by_id.keys() != inside.keys():
        raise AttackError(
            expected="scores and truth about the same candidates",
            found=f"{_missing(inside.keys() - scores.by_id.keys(), 'score')}; "
            f"{_missing(scores.by_id.keys() - inside.keys(), 'truth')}",
            way_out="score every candidate once, and nothing else",
        )
    ids = tuple(sorted(inside))
    truth = np.array([bool(inside[name]) for name in ids], dtype=np.bool_)
    if not ids or truth.all() or not truth.any():
        raise AttackError(
            expected="candidates inside and candidates outside",
            found=f"{int(truth.sum())} inside and {int((~truth).sum())} outside",
            way_out="plant more canaries, each by a fair coin",
        )
    return Judged(ids, np.array([scores.by_id[name] for name in ids], dtype=np.float64), truth)


def _missing(ids: Iterable[str], what: str) -> str:
    names = sorted(ids)
    return f"no {what} for {_named(names)}" if names else f"no {what} missing"


def _named(ids: Sequence[str]) -> str:
    rest = f" and {len(ids) - _SHOWN} more" if len(ids) > _SHOWN else ""
    return ", ".join(ids[:_SHOWN]) + rest


@dataclass(frozen=True, slots=True)
class MeasuredRate:
    """A figure with its interval."""

    value: float
    interval: Interval


@dataclass(frozen=True, slots=True)
class RateAt:
    """Share of members found when at most `false_rate` of the others are taken for members."""

    false_rate: float
    found: MeasuredRate


@dataclass(frozen=True, slots=True)
class Cut:
    """The papers' test: the better half of the candidates is guessed to be inside. chance: of doing as well."""

    candidates: int
    accuracy: MeasuredRate
    chance: float


@dataclass(frozen=True, slots=True)
class Rates:
    """All figures of one attack. Higher than chance is a leak; chance is 0.5 (AUC, accuracy)."""

    members: int
    others: int
    auc: MeasuredRate
    cut: Cut
    low: tuple[RateAt, ...]
    confidence: float


def rates(judged: Judged, confidence: float = 0.95) -> Rates:
    low = tuple(rate_at(judged, rate, confidence) for rate in LOW_FALSE_RATES)
    members = int(judged.inside.sum())
    return Rates(members, len(judged) - members, auc(judged, confidence), half_cut(judged, confidence), low, confidence)


def roc(judged: Judged) -> tuple[Floats, Floats]:
    """False and true rates of "inside if the score is above a threshold", from nobody to everybody.

    There is one point per distinct score.
    """
    order = np.argsort(-judged.values, kind="stable")
    values, inside = judged.values[order], judged.inside[order]
    last_of_ties = np.append(values[1:] != values[:-1], True)
    true, false = np.cumsum(inside)[last_of_ties], np.cumsum(~inside)[last_of_ties]
    return np.append(0.0, false / false[-1]), np.append(0.0, true / true[-1])


def auc(judged: Judged, confidence: float = 0.95) -> MeasuredRate:
    """The chance that a member scores above another candidate, ties as a half."""
    members, others = judged.members, judged.others
    over, under = _placements(members, others), 1 - _placements(others, members)
    value = float(over.mean())
    if value in (0.0, 1.0):  # then any choice of disjoint pairs compares alike, and the interval is theirs
        pairs = min(len(members), len(others))
        return MeasuredRate(value, exact_interval(pairs if value else 0, pairs, confidence))
    if len(members) < 2 or len(others) < 2:
        return MeasuredRate(value, Interval(0.0, 1.0))
    variance = float(over.var(ddof=1) / len(members) + under.var(ddof=1) / len(others))
    half = stats.norm.ppf((1 + confidence) / 2) * math.sqrt(variance) / (value * (1 - value))
    low, high = special.expit(special.logit(value) + np.array([-half, half]))
    return MeasuredRate(value, Interval(float(low), float(high)))


def half_cut(judged: Judged, confidence: float = 0.95) -> Cut:
    """Rank all, guess the better half inside: S-DP with 500 and 500, CADP-LM with 50 and 50, CRT with 1,000 each."""
    total, inside = len(judged), int(judged.inside.sum())
    taken = total // 2
    threshold = np.sort(judged.values)[::-1][taken - 1] if taken else math.inf
    above, tied = judged.values > threshold, judged.values == threshold
    room = taken - int(above.sum())
    sure, tied_members = int(judged.inside[above].sum()), int(judged.inside[tied].sum())
    expected = sure + (room * tied_members / int(tied.sum()) if room else 0.0)
    worst = sure + max(0, room - (int(tied.sum()) - tied_members))
    right = total - taken - inside + 2 * expected  # members above, and others below
    low, high = (exact_interval(int(count), total, confidence) for count in (math.floor(right), math.ceil(right)))
    chance = float(stats.hypergeom.sf(worst - 1, total, inside, taken))
    return Cut(total, MeasuredRate(right / total, Interval(low.low, high.high)), min(1.0, chance))


def rate_at(judged: Judged, false_rate: float, confidence: float = 0.95) -> RateAt:
    """Members above the lowest threshold that lets through at most `false_rate` of the others."""
    others = np.sort(judged.others)[::-1]
    allowed = math.floor(false_rate * len(others) + 1e-9)
    threshold = others[allowed] if allowed < len(others) else -math.inf
    found, members = int((judged.members > threshold).sum()), len(judged.members)
    return RateAt(false_rate, MeasuredRate(found / members, exact_interval(found, members, confidence)))


def grouped(scores: Scores, inside: Mapping[str, bool], size: int, generator: np.random.Generator) -> Judged | None:
    """Summed scores of random disjoint groups of `size`, each all inside or all outside; CRT's have 20.

    Candidates left over are in no group. None where a side has no whole group.
    """
    if size < 1:
        raise AttackError("a group size of at least 1", str(size), "CRT's groups have 20 members")
    sums, truth = {}, {}
    for side in (True, False):
        ids = generator.permutation(sorted(one for one, known in inside.items() if bool(known) is side)).tolist()
        for start in range(0, len(ids) - size + 1, size):
            group = f"{side}-{start}"
            sums[group] = math.fsum(scores.by_id[one] for one in ids[start : start + size])
            truth[group] = side
    return judged(Scores(sums), truth) if len(set(truth.values())) == 2 else None


def _placements(these: Floats, those: Floats) -> Floats:
    """For each of `these`, the share of `those` below it, ties as a half."""
    order = np.sort(those)
    below, not_above = np.searchsorted(order, these, "left"), np.searchsorted(order, these, "right")
    return np.asarray((below + not_above) / (2 * len(those)), dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Excess:
    """Exposures in bits, and the probability that chance alone puts the planted values as high.

    p_best: the most exposed planted value, never below inside / (inside + held_out); p_median: the upper median of
    them; p_all: all, by the sum of ranks (Mann and Whitney). area: the share of pairs in which the planted value is
    higher; equal ones count half.
    """

    inside: int
    held_out: int
    best_inside: float
    best_held_out: float
    median_inside: float
    median_held_out: float
    area: float
    p_best: float
    p_median: float
    p_all: float


def excess_over_chance(inside: Sequence[float], held_out: Sequence[float]) -> Excess:
    """Of exposures of planted values over those of values that were held out."""
    if not inside or not held_out:
        raise AttackError(
            expected="exposures on both sides",
            found=f"{len(inside)} inside and {len(held_out)} held out",
            way_out="plant more canaries, so that some are inside",
        )
    if np.isnan([*inside, *held_out]).any():
        raise AttackError("exposures that are numbers", "NaN", "measure them again")
    own, others = np.sort(np.array(inside))[::-1], np.sort(np.array(held_out))
    as_high = len(others) - np.searchsorted(others, own, side="left")  # held-out values that each one does not beat
    return Excess(
        inside=len(own),
        held_out=len(others),
        best_inside=float(own[0]),
        best_held_out=float(others[-1]),
        median_inside=float(np.median(own)),
        median_held_out=float(np.median(others)),
        area=float(_placements(own, others).mean()),
        p_best=_p_of_place(1, as_high, len(own), len(others)),
        p_median=_p_of_place((len(own) + 1) // 2, as_high, len(own), len(others)),
        p_all=_p_of_sum(as_high, len(own), len(others)),
    )


def _p_of_place(place: int, as_high: IntegerCounts, inside: int, held_out: int) -> float:
    """The probability that the `place`-th highest planted value has so few held-out ones above it.

    That is: of the highest `place` + so many of all, at least `place` are planted; a hypergeometric tail.
    """
    highest = place + int(as_high[place - 1])
    return float(stats.hypergeom.sf(place - 1, inside + held_out, inside, highest))


def _p_of_sum(as_high: IntegerCounts, inside: int, held_out: int) -> float:
    """Mann and Whitney's exact test, equal values placed as if the held-out ones were higher."""
    places = as_high + np.arange(inside)  # of the planted values among all, from the highest
    others = np.setdiff1d(np.arange(inside + held_out), places)
    method = "exact" if inside + held_out <= _EXACT_UP_TO else "asymptotic"
    return float(stats.mannwhitneyu(places, others, alternative="less", method=method).pvalue)


@dataclass(frozen=True, slots=True)
class SkewNormal:
    """The density 2/scale phi(z) Phi(shape z), z = (x - place) / scale: ranks in spaces too large to enumerate."""

    shape: float
    place: float
    scale: float

    @classmethod
    def fitted(cls, values: Floats) -> "SkewNormal":
        if not np.isfinite(values).all() or np.ptp(values) == 0:
            raise AttackError(
                expected="candidates of different, finite log-probabilities, to fit a distribution to",
                found="equal or infinite ones",
                way_out="use the sampled method",
            )
        return cls(*(float(number) for number in stats.skewnorm.fit(values)))

    def surprises(self, values: Floats) -> Floats:
        """In bits: minus the log of the probability of a value as low or lower."""
        return np.array([abs(self._log_tail((value - self.place) / self.scale)) / math.log(2) for value in values])

    def standard_errors(self, sample: Floats, values: Floats) -> Floats:
        """Of `surprises(values)`, by the jackknife: the fit to `sample` is made again without each tenth of it."""
        parts = (np.delete(sample, slice(group, None, _GROUPS)) for group in range(_GROUPS))
        again = np.array([SkewNormal.fitted(part).surprises(values) for part in parts])
        errors: Floats = np.sqrt((_GROUPS - 1) * again.var(axis=0))
        return errors

    def _log_tail(self, z: float) -> float:
        share = float(stats.skewnorm.cdf(z, self.shape))
        if share > _SMALL:
            return math.log(min(share, 1.0))
        # The density is log-concave, so below z it falls at least as fast as at z: integrate in units of that slope.
        here = self._log_density(z)
        unit = 1 / self._slope(z)
        area, _ = integrate.quad(lambda t: math.exp(self._log_density(z - unit * t) - here), 0, np.inf)
        return here + math.log(unit * area)

    def _log_density(self, z: float) -> float:
        return math.log(2 / math.sqrt(2 * math.pi)) - z * z / 2 + float(special.log_ndtr(self.shape * z))

    def _slope(self, z: float) -> float:
        """The derivative of the log-density; phi(y) / Phi(y) through the scaled error function."""
        y = self.shape * z
        hazard = math.sqrt(2 / math.pi) / float(special.erfcx(-y / math.sqrt(2)))
        return -z + self.shape * hazard
