"""Epsilon from canaries: what fair coins prove to be spent, beside the claim.

G1 (one doubt). With `confidence`, no true claim is contradicted, however many plans of canaries there are.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tacit.audits.epsilon_bounds import LowerBound, one_run_bound, one_run_pairs_bound
from tacit.audits.findings import (
    About,
    Attack,
    Column,
    Finding,
    Outcome,
    Verdict,
    epsilon_at,
    figure_for,
    judge,
    measured_by,
    overall,
)
from tacit.audits.ranks import own_scores, twin_margins
from tacit.audits.statistics import judged
from tacit.audits.target import Target
from tacit.common.charts import Bar, ChartRow, Dot, LegendItem, RowChart, Table, axis_for
from tacit.common.formatting import name, number, percent, rounded_up
from tacit.common.progress import Observer
from tacit.config.audit_schema import AuditConfig, CanaryPlan
from tacit.data.canaries import CanaryRecord
from tacit.privacy.guarantee import Guarantee
from tacit.privacy.plan import Neighbors
from tacit.runs.verify import Planted

WHICH_CANARIES = """\
Canaries measure a claim about secrets with known: true, repetitions: 1 and inside_probability: 1.0 (a coin chose each
value); one about records or users with inside_probability: 0.5 (a coin chose whether there is one)."""


@dataclass(frozen=True, slots=True)
class PlanBound:
    """What the canaries of one plan prove about epsilon for `measured`, and the verdict on the claim."""

    template: str
    measured: Neighbors
    bound: LowerBound
    verdict: Verdict


def plan_bounds(target: Target, config: AuditConfig) -> tuple[PlanBound, ...]:
    """Of plans whose coins are fair and whose records were all read. Those that could contradict share the doubt."""
    guarantee = target.guarantee
    tried = [
        (planted, measured_by(guarantee, plan.known, plan.inside_probability == 1.0, plan.repetitions))
        for planted in target.planted
        if _is_fair(plan := planted.plan, planted.canaries) and not target.left_out(planted)
    ]
    comparable = sum(figure_for(guarantee, measured) is not None for _, measured in tried)
    confidence = 1 - (1 - config.confidence) / max(1, comparable)
    delta = max((figure.delta for figure in guarantee.figures), default=1e-5)
    found = []
    for planted, measured in tried:
        bound = _bound(target, planted, delta, confidence)
        found.append(PlanBound(planted.plan.template, measured, bound, judge(guarantee, measured, bound)))
    return tuple(found)


def _is_fair(plan: CanaryPlan, canaries: Sequence[CanaryRecord]) -> bool:
    """Inside by fair coins that fell on both sides; or always: then a fair coin chose the value and not its twin."""
    both = len({canary.inside for canary in canaries}) == 2
    return plan.inside_probability == 1.0 or (plan.inside_probability == 0.5 and both)


def _bound(target: Target, planted: Planted, delta: float, confidence: float) -> LowerBound:
    """Inside or not: the more probable, the likelier inside. Which of two: the more probable one."""
    learner, slot, canaries, spelling = target.learner, planted.plan.slot, planted.canaries, target.spelling(planted)
    if planted.plan.inside_probability == 1.0:
        return one_run_pairs_bound(twin_margins(learner, slot, canaries, spelling), delta, confidence)
    inside = {canary.id: canary.inside for canary in canaries}
    return one_run_bound(judged(own_scores(learner, slot, canaries, spelling), inside), delta, confidence)


def epsilon_finding(bounds: Sequence[PlanBound], guarantee: Guarantee, about: About = About.CANARIES) -> Finding:
    """Every bound beside what is claimed."""
    verdict = overall([one.verdict for one in bounds])
    hint = WHICH_CANARIES if guarantee.figures and verdict.outcome is Outcome.NOT_COMPARABLE else ""
    if not bounds:
        return Finding("epsilon", about, hint=hint)
    return Finding(
        "epsilon",
        about,
        hint=hint,
        tables=(_summary(bounds, guarantee),),
        charts=(_chart(bounds, guarantee),),
        figures={"measured epsilon": max(one.bound.epsilon for one in bounds)},
        verdict=verdict,
    )


def _summary(bounds: Sequence[PlanBound], guarantee: Guarantee) -> Table:
    rows = []
    for one in bounds:
        figure = figure_for(guarantee, one.measured)
        claimed = "nothing" if figure is None else rounded_up(figure.epsilon, 4)
        least, delta = f"{one.bound.epsilon:.3f}", f"{one.bound.delta:.2g}"
        rows.append((one.template, str(one.measured), least, claimed, delta, str(one.verdict.outcome)))
    heads = ("canaries", "what differs", "at least", "claimed", "delta", "finding")
    return Table(heads, tuple(rows), title=f"epsilon, with {100 * bounds[0].bound.confidence:.4g} % confidence")


def _chart(bounds: Sequence[PlanBound], guarantee: Guarantee) -> RowChart:
    """What is claimed and what the canaries prove to be spent, one row per plan of canaries."""
    claims = [_claimed(guarantee, one) for one in bounds]
    table = Table(
        ("Canaries", "Measured for", "Epsilon at least", "Claimed", "Delta", "Confidence", "Verdict"),
        tuple(
            (
                name(one.template),
                str(one.measured),
                number(one.bound.epsilon, 4),
                "not comparable" if claimed is None else rounded_up(claimed, 4),
                rounded_up(one.bound.delta, 3),
                percent(one.bound.confidence),
                str(one.verdict.outcome),
            )
            for one, claimed in zip(bounds, claims, strict=True)
        ),
    )
    drawn = [claimed for claimed in claims if claimed is not None and math.isfinite(claimed)]
    highest = max([1.0, *(one.bound.epsilon for one in bounds), *drawn])
    legend: tuple[LegendItem, ...] = (LegendItem("shown by the attack, at least", Dot(0.0, 3)),)
    if drawn:
        legend = (LegendItem("claimed, at most", Bar(0.0, 1.0, "claimed")), *legend)
    return RowChart(
        "bounds",
        "Epsilon: claimed and measured",
        "; ".join(one.verdict.sentence.rstrip(".") for one in bounds) + ".",
        axis_for("Epsilon", [0.0, highest], logarithmic=False),
        tuple(_row(one, claimed) for one, claimed in zip(bounds, claims, strict=True)),
        table,
        legend=legend,
        note="A bound above the claim would refute it; one below it proves nothing.",
    )


def _row(one: PlanBound, claimed: float | None) -> ChartRow:
    tip = f"{name(one.template)}\n{one.verdict.sentence}"
    label = f"{name(one.template)}: at least {number(one.bound.epsilon)}"
    label += " (not comparable)" if claimed is None else f", claimed {rounded_up(claimed, 4)}"
    bar = () if claimed is None or not math.isfinite(claimed) else (Bar(0.0, claimed, "claimed", tip),)
    return ChartRow(label, (*bar, Dot(one.bound.epsilon, 3, tip)))


def _claimed(guarantee: Guarantee, one: PlanBound) -> float | None:
    """The claimed epsilon for what was measured, at its delta or a smaller one; none where the two do not compare."""
    figure = figure_for(guarantee, one.measured)
    return None if figure is None else epsilon_at(figure, one.bound.delta)


def _run(target: Target, config: AuditConfig, observe: Observer) -> Finding | None:
    """Where duplicates are left out, which canaries bound anything depends on the corpus: then it stays inside."""
    if not target.planted:
        return None
    about = About.CANARIES if target.keeps_duplicates else About.TRAINING_RECORDS
    return epsilon_finding(plan_bounds(target, config), target.guarantee, about)


EPSILON = Attack("epsilon", _run, (Column("measured epsilon", least=0.0, in_tables=False),))
