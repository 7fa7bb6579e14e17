"""Membership: was this record trained on? Up to seven scores, each beside what the texts alone give away."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from tacit.audits.findings import Attack, Column, Compared, Finding, Highlight
from tacit.audits.passages import (
    Blind,
    blind,
    loss_scores,
    min_k_scores,
    neighborhood_scores,
    reference_scores,
    zlib_scores,
)
from tacit.audits.sample_sizes import ENOUGH, FEWEST_FOR_THOUSANDTHS, dash, measured, smaller_side
from tacit.audits.shadows import shadow_scores
from tacit.audits.statistics import Judged, RateAt, Rates, Scores, grouped, judged, rates, roc
from tacit.audits.target import Candidates, Target
from tacit.common.charts import Point, ScatterChart, Series, Table
from tacit.common.formatting import interval, name, number, percent
from tacit.common.progress import Observer, Progress
from tacit.config.audit_schema import AuditConfig
from tacit.privacy.events import Relation
from tacit.privacy.guarantee import Guarantee
from tacit.privacy.plan import Neighbors, Unit
from tacit.privacy.tradeoff import tradeoff_chart

FEW_ROWS = "Membership was not attacked: one side of the corpus has fewer than 10 records. Raise held_out."
ATTACKS = ("loss", "zlib", "min-k", "neighborhood", "reference", "likelihood ratio", "rmia")
_BLIND = "without the model (blind)"
_MEANING = "accuracy of ranking by loss; chance is 0.5"
_CURVE_POINTS = 200
_FEWEST_FOR_LOW_RATES = 200
_LOWEST_RATE = 1e-3


@dataclass(frozen=True, slots=True)
class AttackRates:
    """Of one score on single candidates, and on groups of `group_size`; the curve is (false rate, true rate)."""

    attack: str
    rates: Rates
    curve: tuple[tuple[float, float], ...]
    group_size: int
    groups: Rates | None


@dataclass(frozen=True, slots=True)
class MembershipResult:
    """Every score, and the baseline."""

    attacks: tuple[AttackRates, ...]
    blind: Blind


def membership(target: Target, config: AuditConfig, observe: Observer) -> MembershipResult | None:
    """None where a side has too few candidates."""
    candidates = target.candidates(config)
    if candidates is None:
        return None
    found = blind(candidates.texts, candidates.inside, config.confidence)
    scores = _every_score(target, candidates, observe)
    attacks = (_judged_attack(attack, one, candidates.inside, config) for attack, one in scores.items())
    return MembershipResult(tuple(attacks), found)


def _every_score(target: Target, candidates: Candidates, observe: Observer) -> dict[str, Scores]:
    learner, passages, reference = target.learner, candidates.passages, target.reference
    with_neighbors = [one for one in passages if candidates.neighbors[one.id]]
    attacks: dict[str, Callable[[], Scores]] = {
        "loss": lambda: loss_scores(learner, passages),
        "zlib": lambda: zlib_scores(learner, passages, candidates.texts),
        "min-k": lambda: min_k_scores(learner, passages),
    }
    if len({candidates.inside[one.id] for one in with_neighbors}) == 2:
        attacks["neighborhood"] = lambda: neighborhood_scores(learner, with_neighbors, candidates.neighbors)
    if reference is not None:
        attacks["reference"] = lambda: reference_scores(learner, reference, passages)
    found = {}
    for place, (attack, score) in enumerate(attacks.items(), 1):
        found[attack] = score()
        observe(Progress("membership", place, len(attacks)))
    scores = shadow_scores(learner, target.shadows, passages, candidates.records) if target.shadows else {}
    both = (one for one in scores.items() if len({candidates.inside[name] for name in one[1].by_id}) == 2)
    return found | dict(both)


def _judged_attack(attack: str, scores: Scores, inside: dict[str, bool], config: AuditConfig) -> AttackRates:
    known = {one: inside[one] for one in scores.by_id}
    truth = judged(scores, known)
    sums = grouped(scores, known, config.group_size, np.random.default_rng(config.seed))
    figures = None if sums is None else rates(sums, config.confidence)
    return AttackRates(attack, rates(truth, config.confidence), _curve(truth), config.group_size, figures)


def _curve(truth: Judged) -> tuple[tuple[float, float], ...]:
    """The ROC curve with at most so many points, its ends among them."""
    false, true = roc(truth)
    places = np.unique(np.linspace(0, len(false) - 1, _CURVE_POINTS).round().astype(int))
    return tuple(zip(false[places].tolist(), true[places].tolist(), strict=True))


def membership_finding(found: MembershipResult, guarantee: Guarantee) -> Finding:
    """What distinguishes members from others, with and without the model."""
    chance, told = f"{found.blind.chance:.2g}", [one for one in found.attacks if smaller_side(one.rates) >= ENOUGH]
    warning = f"The texts alone tell members from others (p = {chance}): no figure of membership means anything."
    return Finding(
        "membership",
        warning=warning if found.blind.flagged else "",
        tables=(_summary(found), *_groups(found.attacks)),
        charts=_charts(found, guarantee),
        highlights=_highlights(found, max(one.rates.cut.accuracy.value for one in told)) if told else (),
        figures=_figures(found),
    )


def _highlights(found: MembershipResult, best: float) -> tuple[Highlight, ...]:
    baseline, count = percent(found.blind.rates.cut.accuracy.value), f"{smaller_side(found.blind.rates):,}"
    compared = Compared(
        "Membership",
        percent(best),
        "accuracy of the best attack; chance is 50 %",
        "membership",
        "Telling who was trained on",
        "Accuracy",
        best,
        "The best attack of each run; its interval is on the page of the run. Chance is 0.5.",
        0.5,
    )
    detail = f"best attack, {count} of each side; chance is 50 %; without the model {baseline}"
    return (Highlight("Membership told", percent(best), detail, compared),)


def _figures(found: MembershipResult) -> dict[str, float]:
    """`membership` ranks by loss, as the papers do: the best of several would be chosen by the truth.

    A rate of too few is no figure.
    """
    figures = {}
    if smaller_side(found.blind.rates) >= ENOUGH:
        figures["blind"] = found.blind.rates.cut.accuracy.value
    for one in found.attacks:
        if smaller_side(one.rates) >= ENOUGH:
            figures[f"membership by {one.attack}"] = one.rates.cut.accuracy.value
            figures[f"AUC by {one.attack}"] = one.rates.auc.value
            if one.attack == "loss":
                figures["membership"] = one.rates.cut.accuracy.value
        if one.attack == "loss" and _groups_of(one) >= ENOUGH and one.groups is not None:
            figures["group membership"] = one.groups.cut.accuracy.value
    return figures


def _groups_of(one: AttackRates) -> int:
    return 0 if one.groups is None else one.groups.members + one.groups.others


def _summary(found: MembershipResult) -> Table:
    whole = found.blind.rates
    title = (
        f"membership in %, with {100 * whole.confidence:.4g} % intervals: {whole.members:,} members and "
        f"{whole.others:,} others"
    )
    heads = ("attack", "members, others", "accuracy", "AUC", "TPR at 1 % FPR", "at 0.1 % FPR")
    named = (("text alone", whole), *((one.attack, one.rates) for one in found.attacks))
    rows = tuple((attack, f"{one.members:,}, {one.others:,}", *_printed(one)) for attack, one in named)
    return Table(heads, rows, title=title)


def _printed(one: Rates) -> tuple[str, ...]:
    """Accuracy, AUC and rates at few false alarms; a dash where there are too few for it."""
    few = dash(smaller_side(one))
    if smaller_side(one) < ENOUGH:
        return (few,) * (2 + len(one.low))
    low = (measured(rate.found) if _can_be_told(rate, one) else "–" for rate in one.low)
    return (measured(one.cut.accuracy), measured(one.auc), *low)


def _can_be_told(rate: RateAt, one: Rates) -> bool:
    return rate.false_rate >= 1 / 100 or one.others > FEWEST_FOR_THOUSANDTHS


def _groups(attacks: Sequence[AttackRates]) -> tuple[Table, ...]:
    rows = tuple(
        (one.attack, f"{count:,}", *_of_groups(count, groups))
        for one in attacks
        if (groups := one.groups) is not None and (count := _groups_of(one))
    )
    heads = ("attack", "groups", "accuracy", "AUC")
    return (Table(heads, rows, title=f"membership of groups of {attacks[0].group_size}"),) if rows else ()


def _of_groups(count: int, groups: Rates) -> tuple[str, str]:
    few = dash(count)
    return (few, few) if count < ENOUGH else (measured(groups.cut.accuracy), measured(groups.auc))


def _charts(found: MembershipResult, guarantee: Guarantee) -> tuple[ScatterChart, ...]:
    """ROC curves; with many candidates also on logarithmic axes."""
    record = Neighbors(Unit.RECORD, Relation.ZERO_OUT, 1)  # a claim about anything else bounds no membership
    figure = next((one for one in guarantee.figures if one.neighbors == record), None)
    series = [
        _series(name(one.attack), one.rates, one.curve, look, f"attack-{look}", markers=False)
        for look, one in enumerate(found.attacks)
    ]
    series.append(_blind_series(found.blind.rates, len(series)))
    table = _table(found)
    whole = tradeoff_chart("membership", "Can it be told who was trained on?", figure, tuple(series), table)
    charts = (replace(whole, note=_why_no_bound(guarantee) if figure is None else ""),)
    if min(one.rates.others for one in found.attacks) < _FEWEST_FOR_LOW_RATES:
        return charts
    title = "The same, where few false alarms are allowed"
    stepped = tuple(_at_few_alarms(one) for one in series)
    return (*charts, tradeoff_chart("membership-low", title, figure, stepped, table, _LOWEST_RATE))


def _series(
    attack: str, one: Rates, points: Iterable[tuple[float, float]], look: int, key: str, *, markers: bool
) -> Series:
    tip = f"{attack}\nAUC {number(one.auc.value)}, accuracy {percent(one.cut.accuracy.value)}"
    return Series(attack, tuple(Point(*place) for place in points), look, key, markers=markers, tip=tip)


def _why_no_bound(guarantee: Guarantee) -> str:
    if not guarantee.figures:
        return "Nothing is claimed, so nothing bounds what an attack may reach."
    return (
        f"The claim is about {guarantee.figures[0].neighbors.unit}. The attacks on membership ask whether a record "
        "was used, which this claim does not hide, so no bound is drawn beside them."
    )


def _at_few_alarms(series: Series) -> Series:
    """A whole curve as steps; one that is known at a few points as those points."""
    if series.markers:
        return replace(series, points=tuple(point for point in series.points if 0 < point.x < 1), lines=False)
    points = list(series.points[:1])
    for before, point in pairwise(series.points):  # nothing is gained between two thresholds
        points += [Point(point.x, before.y), point]
    return replace(series, points=tuple(points))


def _blind_series(one: Rates, look: int) -> Series:
    """Known points of its curve: at few false alarms, and at the half cut, where both rates add up to 1."""
    known = [(0.0, 0.0), (1.0, 1.0), *((low.false_rate, low.found.value) for low in one.low)]
    if one.members == one.others:
        known.append((1 - one.cut.accuracy.value, one.cut.accuracy.value))
    return _series(_BLIND, one, sorted(known), look, "attack-blind", markers=True)


def _table(found: MembershipResult) -> Table:
    rows = [
        (name(one.attack), *_cells(one.rates), _of_groups(_groups_of(one), one.groups)[0] if one.groups else "–")
        for one in found.attacks
    ]
    rows.append((_BLIND, *_cells(found.blind.rates), "–"))
    heads = (
        "Attack",
        "n",
        "AUC",
        "95 % interval",
        "Accuracy",
        "95 % interval",
        "Found at 1 %",
        "at 0.1 % false alarms",
    )
    return Table((*heads, f"Accuracy on groups of {found.attacks[0].group_size}"), tuple(rows))


def _cells(one: Rates) -> tuple[str, ...]:
    count, ends = smaller_side(one), one.auc.interval
    if count < ENOUGH:
        return (f"{count:,}", *["–"] * 6)
    low = {rate.false_rate: percent(rate.found.value) for rate in one.low if _can_be_told(rate, one)}
    return (
        f"{count:,}",
        number(one.auc.value),
        f"{math.floor(1000 * ends.low) / 1000:.3f} to {math.ceil(1000 * ends.high) / 1000:.3f}",
        percent(one.cut.accuracy.value),
        interval(one.cut.accuracy.interval),
        low.get(0.01, "–"),
        low.get(0.001, "–"),
    )


def _run(target: Target, config: AuditConfig, observe: Observer) -> Finding:
    found = membership(target, config, observe)
    return Finding("membership", hint=FEW_ROWS) if found is None else membership_finding(found, target.guarantee)


def _at_checkpoint(target: Target, config: AuditConfig) -> dict[str, float]:
    candidates = target.candidates(config)
    if candidates is None:
        return {}
    found = rates(judged(loss_scores(target.learner, candidates.passages), candidates.inside), config.confidence)
    return {"membership": found.cut.accuracy.value} if smaller_side(found) >= ENOUGH else {}


MEMBERSHIP = Attack(
    "membership",
    _run,
    (
        Column("membership", "Membership accuracy", _MEANING, chance=0.5, at_checkpoints=True),
        Column("group membership", "Group membership accuracy", chance=0.5),
        Column("blind", chance=0.5),
        *(
            Column(f"{what} by {attack}", in_tables=False, chance=0.5)
            for attack in ATTACKS
            for what in ("membership", "AUC")
        ),
    ),
    _at_checkpoint,
)
