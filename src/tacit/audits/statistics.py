"""How well scores tell members from others: ROC, AUC, accuracy and rates at few false alarms, each with its interval.

| figure | interval |
|---|---|
| AUC | DeLong, DeLong, Clarke-Pearson 1988 on the logit scale (asymptotic); exact when the two separate perfectly |
| accuracy at the papers' cut | Clopper-Pearson over all candidates |
| true positives at a false-positive rate | Clopper-Pearson over the members |

Chance is tested exactly: given how many are inside, the members among the upper half are hypergeometric when the scores
know nothing. Ties are never broken by order: they count as their expected share, and against the attack in the test.

What an attack thinks of each candidate, and the truth about them: joined by id, never by position.

G1. The order in which scores or truths come changes nothing.
G2. An id that comes twice, is missing on one side, or has no number is an error that names it; texts never appear here.

Whether values that were planted rank above values that were not, by exact tests.

Both were drawn alike, and coins decided which were planted. So if the model reveals nothing of them, every way to
deal the observed exposures out to both sides is equally probable: no model of the exposures is needed.

Formal guarantees:

G1 (valid). If the model's training did not see the planted values, each p-value is at most p with probability at most
   p. Equal exposures count against the attack. (The sum of ranks of more than 600 values is taken as normal.)
G2 (one look). Each p-value is one test: who takes the smallest of three multiplies it by three.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
from scipy import special, stats

from tacit.common.formatting import Interval, exact_interval
from tacit.errors import AttackError

Floats = npt.NDArray[np.float64]
Booleans = npt.NDArray[np.bool_]
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Scores:
    """One number for each candidate's id: the higher, the more it looks like a member."""

    by_id: Mapping[str, float]

    def __post_init__(self) -> None:
        unknown = [name for name, value in self.by_id.items() if np.isnan(value)]
        if unknown:
            raise AttackError(
                expected="a number for every candidate",
                found=f"no number for {_named(unknown)}",
                way_out="see why the model has no probability for it: an empty text, or weights that are not finite",
            )

    @classmethod
    def of(cls, ids: Sequence[str], values: Iterable[float]) -> Self:
        """Scores from two lists in the same order."""
        numbers = [float(value) for value in values]
        if len(ids) != len(numbers):
            raise AttackError("one score for each id", f"{len(numbers)} scores for {len(ids)} ids", "score them again")
        _refuse_repeated(ids)
        return cls(dict(zip(ids, numbers, strict=True)))

    def __len__(self) -> int:
        return len(self.by_id)

    def only(self, ids: Iterable[str]) -> "Scores":
        """The scores of these ids."""
        return Scores({name: self.by_id[name] for name in ids})


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """Scores beside the truth, in the order of the ids; there is someone inside and someone outside."""

    ids: tuple[str, ...]
    values: Floats
    inside: Booleans

    @property
    def members(self) -> Floats:
        """Scores of those inside."""
        return self.values[self.inside]

    @property
    def others(self) -> Floats:
        """Scores of those outside."""
        return self.values[~self.inside]

    def __len__(self) -> int:
        return len(self.ids)


def judged(scores: Scores, inside: Mapping[str, bool]) -> Judged:
    """Scores and truth joined by id; both must speak of the same candidates, some inside and some outside."""
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


def _refuse_repeated(ids: Sequence[str]) -> None:
    if len(set(ids)) < len(ids):
        seen: set[str] = set()
        repeated = [name for name in ids if name in seen or seen.add(name)]  # type: ignore[func-returns-value]
        raise AttackError("every id once", f"{_named(repeated)} again", "score each candidate once")


def _missing(ids: Iterable[str], what: str) -> str:
    names = sorted(ids)
    return f"no {what} for {_named(names)}" if names else f"no {what} missing"


def _named(ids: Sequence[str]) -> str:
    rest = f" and {len(ids) - _SHOWN} more" if len(ids) > _SHOWN else ""
    return ", ".join(ids[:_SHOWN]) + rest


LOW_FALSE_RATES = (0.01, 0.001)


@dataclass(frozen=True, slots=True, eq=False)
class Roc:
    """Rates of "inside if the score is above a threshold", from nobody to everybody; one point a distinct score."""

    false_rates: Floats
    true_rates: Floats


@dataclass(frozen=True, slots=True)
class MeasuredRate:
    """A figure with its interval."""

    value: float
    interval: Interval


@dataclass(frozen=True, slots=True)
class RateAt:
    """Share of members found when at most `false_rate` of the others are taken for members.

    `false_interval` is for the false-positive rate that was really reached: with few others it is wide.
    """

    false_rate: float
    found: MeasuredRate
    false_interval: Interval


@dataclass(frozen=True, slots=True)
class Cut:
    """The papers' test: the better half of the candidates is said to be inside. `chance` is that of doing as well."""

    candidates: int
    accuracy: MeasuredRate
    chance: float


@dataclass(frozen=True, slots=True)
class Rates:
    """Everything an attack is judged by. Higher than chance is a leak; chance is .5 (AUC, accuracy)."""

    members: int
    others: int
    auc: MeasuredRate
    cut: Cut
    low: tuple[RateAt, ...]
    confidence: float


def rates(judged: Judged, confidence: float = 0.95) -> Rates:
    """All figures of one attack."""
    low = tuple(rate_at(judged, rate, confidence) for rate in LOW_FALSE_RATES)
    members = int(judged.inside.sum())
    return Rates(members, len(judged) - members, auc(judged, confidence), half_cut(judged, confidence), low, confidence)


def roc(judged: Judged) -> Roc:
    """The whole curve, by sorting once."""
    order = np.argsort(-judged.values, kind="stable")
    values, inside = judged.values[order], judged.inside[order]
    last_of_ties = np.append(values[1:] != values[:-1], True)
    true, false = np.cumsum(inside)[last_of_ties], np.cumsum(~inside)[last_of_ties]
    return Roc(np.append(0.0, false / false[-1]), np.append(0.0, true / true[-1]))


def auc(judged: Judged, confidence: float = 0.95) -> MeasuredRate:
    """The chance that a member scores above another candidate, ties as a half."""
    members, others = judged.members, judged.others
    over, under = _placements(members, others), 1 - _placements(others, members)
    value = float(over.mean())
    if len(members) < 2 or len(others) < 2 or value in (0.0, 1.0):
        return MeasuredRate(value, _pairs_interval(value, min(len(members), len(others)), confidence))
    variance = float(over.var(ddof=1) / len(members) + under.var(ddof=1) / len(others))
    half = stats.norm.ppf((1 + confidence) / 2) * math.sqrt(variance) / (value * (1 - value))
    low, high = special.expit(special.logit(value) + np.array([-half, half]))
    return MeasuredRate(value, Interval(float(low), float(high)))


def half_cut(judged: Judged, confidence: float = 0.95) -> Cut:
    """Rank all, say "inside" of the better half: S-DP with 500 and 500, CADP-LM with 50 and 50, CRT with 1,000 each."""
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
    found, alarms = int((judged.members > threshold).sum()), int((others > threshold).sum())
    members = len(judged.members)
    measured = MeasuredRate(found / members, exact_interval(found, members, confidence))
    return RateAt(false_rate, measured, exact_interval(alarms, len(others), confidence))


Groups = Mapping[str, Sequence[str]]


def disjoint_groups(inside: Mapping[str, bool], size: int, generator: np.random.Generator) -> dict[str, list[str]]:
    """Random groups of `size` members, and of `size` others; who is left over is in none. CRT's have 20."""
    if size < 1:
        raise AttackError("a group size of at least 1", str(size), "CRT's groups have 20 members")
    groups: dict[str, list[str]] = {}
    for side, name in ((True, "inside"), (False, "outside")):
        ids = generator.permutation(sorted(one for one, truth in inside.items() if bool(truth) is side)).tolist()
        for number in range(len(ids) // size):
            groups[f"group-{name}-{number}"] = ids[number * size : (number + 1) * size]
    return groups


def grouped(scores: Scores, inside: Mapping[str, bool], groups: Groups) -> tuple[Scores, dict[str, bool]]:
    """Summed scores and truth of whole groups; each is all inside or all outside, and nobody is in two."""
    everybody = [one for group in groups.values() for one in group]
    unknown = [one for one in everybody if one not in scores.by_id or one not in inside]
    if unknown or len(set(everybody)) < len(everybody):
        raise AttackError(
            expected="groups of candidates with a score, nobody in two of them",
            found=f"{len(unknown)} without a score or a truth, {len(everybody) - len(set(everybody))} in two",
            way_out="make the groups with disjoint_groups: intervals suppose that groups are independent",
        )
    mixed = [name for name, group in groups.items() if len({bool(inside[one]) for one in group}) != 1]
    if mixed:
        raise AttackError("groups that are all inside or all outside", f"{mixed[0]} is not", "group by the truth")
    sums = {name: math.fsum(scores.by_id[one] for one in group) for name, group in groups.items()}
    return Scores(sums), {name: bool(inside[group[0]]) for name, group in groups.items()}


def _placements(these: Floats, those: Floats) -> Floats:
    """For each of `these`, the share of `those` below it, ties as a half."""
    order = np.sort(those)
    below, not_above = np.searchsorted(order, these, "left"), np.searchsorted(order, these, "right")
    return np.asarray((below + not_above) / (2 * len(those)), dtype=np.float64)


def _pairs_interval(value: float, pairs: int, confidence: float) -> Interval:
    """Exact, from disjoint pairs of a member and another: when all compare alike, so does any choice of pairs."""
    if value in (0.0, 1.0):
        return exact_interval(pairs if value else 0, pairs, confidence)
    return Interval(0.0, 1.0)


IntegerCounts = npt.NDArray[np.signedinteger]
_EXACT_UP_TO = 600


@dataclass(frozen=True, slots=True)
class Excess:
    """Exposures in bits, and the probability that chance alone puts the planted values as high.

    p_best: the most exposed planted value, never below inside / (inside + held_out); p_median: the upper median of
    them; p_all: all, by the sum of ranks (Mann and Whitney). area: the share of pairs in which the planted value stands
    higher, equal ones counted half.
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
    equal = np.searchsorted(others, own, side="right") - np.searchsorted(others, own, side="left")
    beaten = len(others) - as_high
    return Excess(
        inside=len(own),
        held_out=len(others),
        best_inside=float(own[0]),
        best_held_out=float(others[-1]),
        median_inside=float(np.median(own)),
        median_held_out=float(np.median(others)),
        area=float((beaten + equal / 2).mean() / len(others)),
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
