"""How well scores tell members from others: ROC, AUC, accuracy and rates at few false alarms, each with its interval.

| figure | interval |
|---|---|
| AUC | DeLong, DeLong, Clarke-Pearson 1988 on the logit scale (asymptotic); exact when the two separate perfectly |
| accuracy at the papers' cut | Clopper-Pearson over all candidates |
| true positives at a false-positive rate | Clopper-Pearson over the members |

Chance is tested exactly: given how many are inside, the members among the upper half are hypergeometric when the scores
know nothing. Ties are never broken by order: they count as their expected share, and against the attack in the test.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special, stats

from tacit.audit.scores import Floats, Judged, Scores
from tacit.errors import AttackError
from tacit.intervals import Interval, exact_interval

LOW_FALSE_RATES = (0.01, 0.001)


@dataclass(frozen=True, slots=True, eq=False)
class Roc:
    """Rates of "inside if the score is above a threshold", from nobody to everybody; one point a distinct score."""

    false_rates: Floats
    true_rates: Floats


@dataclass(frozen=True, slots=True)
class Measured:
    """A figure with its interval."""

    value: float
    interval: Interval


@dataclass(frozen=True, slots=True)
class RateAt:
    """Share of members found when at most `false_rate` of the others are taken for members.

    `false_interval` is for the false-positive rate that was really reached: with few others it says little.
    """

    false_rate: float
    found: Measured
    false_interval: Interval


@dataclass(frozen=True, slots=True)
class Cut:
    """The papers' test: the better half of the candidates is said to be inside. `chance` is that of doing as well."""

    candidates: int
    accuracy: Measured
    chance: float


@dataclass(frozen=True, slots=True)
class Rates:
    """Everything an attack is judged by. Higher than chance is a leak; chance is .5 (AUC, accuracy)."""

    members: int
    others: int
    auc: Measured
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


def auc(judged: Judged, confidence: float = 0.95) -> Measured:
    """The chance that a member scores above another candidate, ties as a half."""
    members, others = judged.members, judged.others
    over, under = _placements(members, others), 1 - _placements(others, members)
    value = float(over.mean())
    if len(members) < 2 or len(others) < 2 or value in (0.0, 1.0):
        return Measured(value, _pairs_interval(value, min(len(members), len(others)), confidence))
    variance = float(over.var(ddof=1) / len(members) + under.var(ddof=1) / len(others))
    half = stats.norm.ppf((1 + confidence) / 2) * math.sqrt(variance) / (value * (1 - value))
    low, high = special.expit(special.logit(value) + np.array([-half, half]))
    return Measured(value, Interval(float(low), float(high)))


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
    return Cut(total, Measured(right / total, Interval(low.low, high.high)), min(1.0, chance))


def rate_at(judged: Judged, false_rate: float, confidence: float = 0.95) -> RateAt:
    """Members above the lowest threshold that lets through at most `false_rate` of the others."""
    others = np.sort(judged.others)[::-1]
    allowed = math.floor(false_rate * len(others) + 1e-9)
    threshold = others[allowed] if allowed < len(others) else -math.inf
    found, alarms = int((judged.members > threshold).sum()), int((others > threshold).sum())
    members = len(judged.members)
    measured = Measured(found / members, exact_interval(found, members, confidence))
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
