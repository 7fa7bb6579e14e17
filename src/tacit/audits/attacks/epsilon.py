"""Epsilon from canaries: what fair coins prove to be spent, beside the claim.

An audit can refute a claim; it cannot certify one.

G1 (contradicted). Iff the bound, at its confidence, exceeds what the claim allows: epsilon at the same delta, or at a
   smaller one; or any point of the claimed profile (the same guesses, the same doubt).
G2 (not comparable). When the attack measured another unit, relation or number of copies than the claim protects, or the
   claim has no figure: then no number is put beside another.
G3 (one doubt). With `confidence`, no true claim is contradicted, however many plans of canaries there are.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tacit.audits.attacks.exposure import check_canaries
from tacit.audits.candidates import Spelling, TokenTree, total_log_probabilities
from tacit.audits.epsilon_bounds import LowerBound, one_run_bound, one_run_pairs_bound
from tacit.audits.findings import About, Attack, Column, Finding, Outcome, Verdict, overall
from tacit.audits.ideal import ideal_bound, mu_of
from tacit.audits.statistics import Floats, Scores, judged
from tacit.audits.target import Target
from tacit.common.charts import Bar, ChartRow, Dot, LegendItem, RowChart, Table, axis_for
from tacit.common.formatting import name, number, percent, rounded_up
from tacit.common.progress import Observer
from tacit.config.audit_schema import AuditConfig, CanaryPlan, Slot
from tacit.data.marked import CanaryRecord
from tacit.models.language_model import Speaker
from tacit.privacy.events import Relation
from tacit.privacy.guarantee import Figure, Guarantee
from tacit.privacy.plan import Neighbors, Unit
from tacit.runs.verify import Planted

WHICH_CANARIES = """\
Canaries measure a claim about secrets with known: true, repetitions: 1 and inside_probability: 1.0 (a coin chose each
value); one about records or users with inside_probability: 0.5 (a coin chose whether there is one)."""
_DELTA_OF_NO_CLAIM = 1e-5


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
        (
            planted,
            measured_by(
                guarantee,
                known=plan.known,
                flagged=target.is_protected(planted),
                replaced=plan.inside_probability == 1.0,
                copies=plan.repetitions,
            ),
        )
        for planted in target.planted
        if _is_fair(plan := planted.plan, planted.canaries) and not target.left_out(planted)
    ]
    comparable = sum(figure_for(guarantee, measured) is not None for _, measured in tried)
    confidence = 1 - (1 - config.confidence) / max(1, comparable)
    found, delta = [], delta_for(guarantee)
    for planted, measured in tried:
        bound = _bound(target, planted, delta, confidence)
        found.append(PlanBound(planted.plan.template, measured, bound, judge(guarantee, measured, bound)))
    return tuple(found)


def delta_for(guarantee: Guarantee) -> float:
    """At which epsilon is bounded: the claim's. That of content which was not read is 0, where no bound shows much."""
    return max((figure.delta for figure in guarantee.figures), default=0.0) or _DELTA_OF_NO_CLAIM


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


def twin_margins(speaker: Speaker, space: Slot, canaries: Sequence[CanaryRecord], spelling: Spelling) -> Scores:
    """By id, how much more probable each canary's text is than its twin's."""
    values = [value for canary in canaries for value in (canary.value, canary.twin_value)]
    totals = _totals(speaker, space, canaries, spelling, values)
    return Scores.of([canary.id for canary in canaries], totals[::2] - totals[1::2])


def own_scores(speaker: Speaker, space: Slot, canaries: Sequence[CanaryRecord], spelling: Spelling) -> Scores:
    """By id, how probable each canary's text is: all share one template, so nothing else needs to be subtracted."""
    values = [canary.value for canary in canaries]
    return Scores.of([canary.id for canary in canaries], _totals(speaker, space, canaries, spelling, values))


def _totals(
    speaker: Speaker, space: Slot, canaries: Sequence[CanaryRecord], spelling: Spelling, values: Sequence[str]
) -> Floats:
    check_canaries(space, canaries)
    return total_log_probabilities(speaker, TokenTree.of(spelling.of_values(space, values), spelling.opening))


def measured_by(guarantee: Guarantee, *, known: bool, flagged: bool, replaced: bool, copies: int) -> Neighbors:
    """What canaries measure, in the terms of the claim where it has them.

    known: the policy marks their values. flagged: they are in the protected set. replaced: a coin chose between two
    values; otherwise whether there is one at all, which a claim about secrets alone does not hide. copies: records of
    each, all of one user.
    """
    relation = Relation.REPLACE if replaced else Relation.ZERO_OUT
    units = (Unit.USER, *[Unit.SECRETS] * (known and replaced), *[Unit.FLAGGED_RECORD] * flagged, Unit.RECORD)
    for unit in units:
        for figure in guarantee.figures:
            if _is_about(figure, unit, relation):
                return Neighbors(unit, relation, figure.neighbors.copies if unit == Unit.USER else copies)
    return Neighbors(Unit.RECORD, relation, copies)


def judge(guarantee: Guarantee, measured: Neighbors, bound: LowerBound) -> Verdict:
    """The verdict on `guarantee` from a bound that an attack measured for the unit, relation and copies `measured`."""
    figure = figure_for(guarantee, measured)
    if figure is None:
        return Verdict(Outcome.NOT_COMPARABLE, f"Not comparable: {_why_not(guarantee, measured)}.")
    claimed = epsilon_at(figure, bound.delta)
    if claimed is None:
        return Verdict(
            Outcome.NOT_COMPARABLE,
            f"Not comparable: the bound is for delta {bound.delta:.3g}, and the claim begins at {figure.delta:.3g}.",
        )
    found = (
        f"with {100 * bound.confidence:.6g} % confidence epsilon for {measured} is at least "
        f"{rounded_up(-bound.epsilon, 4).removeprefix('-')} at delta {bound.delta:.3g}"
    )
    if not bound.refutes(_points(figure)):
        return Verdict(
            Outcome.CONSISTENT,
            f"Consistent: {found}, which does not exceed the claimed {figure}; a stronger attack might find more.",
        )
    why = f"and so many right guesses are too unlikely under the whole profile of the claimed {figure}"
    if bound.epsilon > claimed:
        why = f"and the claim is {rounded_up(claimed, 4)}"
    return Verdict(Outcome.CONTRADICTED, f"Contradicted: {found}, {why}.")


def _points(figure: Figure) -> tuple[tuple[float, float], ...]:
    return ((figure.epsilon, figure.delta), *figure.profile)


def epsilon_at(figure: Figure, delta: float) -> float | None:
    """The least epsilon claimed at `delta` or below; a claim at a smaller delta is one at this delta, too."""
    return min((epsilon for epsilon, claimed in _points(figure) if claimed <= delta), default=None)


def figure_for(guarantee: Guarantee, measured: Neighbors) -> Figure | None:
    """The tightest figure that covers what was measured: at most as many copies as it allows for."""
    covering = [
        figure
        for figure in guarantee.figures
        if _is_about(figure, measured.unit, measured.relation) and figure.neighbors.copies >= measured.copies
    ]
    return min(covering, key=lambda figure: figure.neighbors.copies, default=None)


def _is_about(figure: Figure, unit: Unit, relation: Relation) -> bool:
    """A figure of 0 is about both relations: what equals a world without the content equals all such worlds."""
    either = figure.epsilon == figure.delta == 0
    return figure.neighbors.unit == unit and (either or figure.neighbors.relation == relation)


def _why_not(guarantee: Guarantee, measured: Neighbors) -> str:
    if not guarantee.figures:
        return f"{guarantee.mechanism} guarantees nothing that an attack could contradict"
    protected = " and ".join(str(figure.neighbors) for figure in guarantee.figures)
    return f"the attack measured {measured}; the claim protects {protected}"


def epsilon_finding(bounds: Sequence[PlanBound], guarantee: Guarantee, about: About = About.CANARIES) -> Finding:
    """All bounds beside what is claimed."""
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


def ideal_attackers(one: PlanBound, guarantee: Guarantee) -> float:
    """The bound that an ideal attacker would show if the claim is exact; without a claim, one who is always right."""
    figure, bound = figure_for(guarantee, one.measured), one.bound
    mu = math.inf if figure is None else mu_of(figure.epsilon, figure.delta)
    pairs = one.measured.relation is Relation.REPLACE
    return ideal_bound(mu, bound.guesses[0].canaries, bound.delta, bound.confidence, pairs)


def _summary(bounds: Sequence[PlanBound], guarantee: Guarantee) -> Table:
    rows = []
    for one in bounds:
        figure = figure_for(guarantee, one.measured)
        claimed = "nothing" if figure is None else rounded_up(figure.epsilon, 4)
        least, delta = f"{one.bound.epsilon:.3f}", f"{one.bound.delta:.2g}"
        count, ideal = f"{one.bound.guesses[0].canaries:,}", f"{ideal_attackers(one, guarantee):.3f}"
        rows.append((one.template, count, str(one.measured), least, ideal, claimed, delta, str(one.verdict.outcome)))
    heads = ("canaries", "n", "what differs", "at least", "an ideal attacker", "claimed", "delta", "finding")
    return Table(heads, tuple(rows), title=f"epsilon, with {100 * bounds[0].bound.confidence:.4g} % confidence")


def _chart(bounds: Sequence[PlanBound], guarantee: Guarantee) -> RowChart:
    """What is claimed and what the canaries prove to be spent, one row per plan of canaries."""
    rows, cells, drawn = [], [], []
    for one in bounds:
        figure, title, outcome = figure_for(guarantee, one.measured), name(one.template), str(one.verdict.outcome)
        claimed = None if figure is None else epsilon_at(figure, one.bound.delta)
        label, tip = f"{title}: at least {number(one.bound.epsilon)}", f"{title}\n{one.verdict.sentence}"
        dot, bar = Dot(one.bound.epsilon, 3, tip), None
        if claimed is not None and math.isfinite(claimed):
            drawn.append(claimed)
            bar = Bar(0.0, claimed, "claimed", tip)
        label += " (not comparable)" if claimed is None else f", claimed {rounded_up(claimed, 4)}"
        rows.append(ChartRow(label, (dot,) if bar is None else (bar, dot)))
        least, most = number(one.bound.epsilon, 4), "not comparable" if claimed is None else rounded_up(claimed, 4)
        delta, confidence = rounded_up(one.bound.delta, 3), percent(one.bound.confidence)
        cells.append((title, str(one.measured), least, most, delta, confidence, outcome))
    heads = ("Canaries", "Measured for", "Epsilon at least", "Claimed", "Delta", "Confidence", "Verdict")
    highest = max([1.0, *(one.bound.epsilon for one in bounds), *drawn])
    legend: tuple[LegendItem, ...] = (LegendItem("shown by the attack, at least", Dot(0.0, 3)),)
    if drawn:
        legend = (LegendItem("claimed, at most", Bar(0.0, 1.0, "claimed")), *legend)
    return RowChart(
        "bounds",
        "Epsilon: claimed and measured",
        "; ".join(one.verdict.sentence.rstrip(".") for one in bounds) + ".",
        axis_for("Epsilon", [0.0, highest], logarithmic=False),
        tuple(rows),
        Table(heads, tuple(cells)),
        legend=legend,
        note="A bound above the claim would refute it; one below it proves nothing.",
    )


def _run(target: Target, config: AuditConfig, observe: Observer) -> Finding | None:
    """Where duplicates are left out, which canaries bound anything depends on the corpus: then it stays inside."""
    if not target.planted:
        return None
    about = About.CANARIES if target.keeps_duplicates else About.TRAINING_RECORDS
    return epsilon_finding(plan_bounds(target, config), target.guarantee, about)


EPSILON = Attack("epsilon", _run, (Column("measured epsilon", least=0.0, in_tables=False),))
