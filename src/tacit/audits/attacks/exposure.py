"""Exposure of canaries: how high each ranks among all that it could have been, beside values never planted."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tacit.audits.candidates import AttackProgress
from tacit.audits.findings import About, Attack, Column, Compared, Finding, Highlight, finite
from tacit.audits.ranks import CanaryExposure, ExposureResult, measure_exposure
from tacit.audits.target import Target
from tacit.common.charts import Axis, ChartRow, Dot, LegendItem, Mark, RowChart, Table
from tacit.common.formatting import chance, name, number, percent
from tacit.common.progress import Observer, Progress
from tacit.config.audit_schema import AuditConfig
from tacit.runs.verify import Planted

NO_CANARIES = """\
No canaries were planted with this run, so neither exposure nor epsilon was measured. Plant some in its YAML file:
  canaries:
    - {template: "My ID is {6 digits}", count: 200, repetitions: 1}
    - {template: "My code is {6 digits}", count: 20, repetitions: 10, known: false}"""
_MOST_DOTS = 300
_MEANING = "median bits over planted canaries, in brackets over values that were never planted"
_TOLD = (
    "exposure",
    "How much of a canary is known",
    "Median over canaries that the policy was told of; the most repeated ones. Chance is about 1 bit.",
)
_MISSED = (
    "missed",
    "How much of a missed canary is known",
    "The same, of canaries that the policy was not told of. Claims about whole records mean to hide them.",
)


@dataclass(frozen=True, slots=True)
class PlanExposure:
    """Of the canaries of one plan. The template is public; what they say is not here.

    left_out: planted records that training did not read, as they were duplicates: then they bound no epsilon.
    """

    template: str
    known: bool
    repetitions: int
    exposure: ExposureResult
    left_out: int = 0


def plan_exposure(
    target: Target, planted: Planted, config: AuditConfig, progress: AttackProgress | None = None
) -> PlanExposure:
    """Of these canaries in the model as it is."""
    plan, generator = planted.plan, np.random.default_rng(config.seed)
    found = measure_exposure(
        target.learner, plan.slot, planted.canaries, target.spelling(planted), config.exposure, generator, progress
    )
    return PlanExposure(plan.template, plan.known, plan.repetitions, found, target.left_out(planted))


def plan_exposures(target: Target, config: AuditConfig, observe: Observer) -> tuple[PlanExposure, ...]:
    """Of the canaries of every plan."""
    sizes = [config.exposure.scored(one.plan.values, 2 * len(one.canaries)) for one in target.planted]
    found: list[PlanExposure] = []
    for place, planted in enumerate(target.planted):

        def report(done: int, _: int, before: int = sum(sizes[:place])) -> None:
            observe(Progress("exposure", before + done, sum(sizes)))

        found.append(plan_exposure(target, planted, config, report))
    return tuple(found)


def exposure_figures(plans: Sequence[PlanExposure]) -> dict[str, float]:
    """Of the first plan that the policy knows, and of the first that it does not."""
    found: dict[str, float | None] = {}
    for known, suffix in ((True, ""), (False, ", unknown")):
        excess = next((one.exposure.excess for one in plans if one.known is known), None)
        if excess is not None:
            found[f"exposure{suffix}"] = excess.median_inside
            found[f"exposure{suffix}, not planted"] = excess.median_held_out
            found[f"best exposure{suffix}"] = excess.best_inside
            found[f"exposure p{suffix}"] = excess.p_all
    return finite(found)


def exposure_finding(plans: Sequence[PlanExposure]) -> Finding:
    """What the canaries of all plans showed."""
    if not plans:
        return Finding("exposure", About.CANARIES, hint=NO_CANARIES)
    left_out = [
        f"“{name(one.template)}”: {one.left_out:,} planted records were left out of training as duplicates. These "
        "canaries bound no epsilon, and their exposure may say less than it seems."
        for one in plans
        if one.left_out
    ]
    return Finding(
        "exposure",
        About.CANARIES,
        inside=" ".join(left_out) or None,
        tables=(_summary(plans),),
        charts=tuple(_chart(one, at) for at, one in enumerate(plans)),
        highlights=_highlights(plans),
        figures=exposure_figures(plans),
    )


def _summary(plans: Sequence[PlanExposure]) -> Table:
    rows = []
    for one in plans:
        result, excess = one.exposure, one.exposure.excess
        head = (one.template, "knows" if one.known else "does not")
        if excess is None:
            rows.append((*head, "none", "", "", "", "", ""))
            continue
        rows.append(
            (
                *head,
                f"{excess.inside} x {one.repetitions}",
                f"{excess.median_inside:.1f} ({excess.median_held_out:.1f})",
                f"{excess.best_inside:.1f} ({excess.best_held_out:.1f})",
                "" if result.draws is not None else f"{math.log2(result.space):.1f}",
                f"{excess.p_all:.2g}",
                "" if result.best_chance is None else f"{result.best_chance:.2g}",
            )
        )
    heads = ("template", "policy", "planted", "median", "best", "at most", "p all", "p best")
    title = "exposure of planted canaries in bits, in brackets that of values held out"
    return Table(heads, tuple(rows), title=title)


def _chart(plan: PlanExposure, at: int) -> RowChart:
    """Exposure of each canary in a strip: planted ones, and those that were held out."""
    found = plan.exposure
    inside = [canary for canary in found.canaries if canary.inside]
    held_out = [(f"{name(canary.id)}, twin", canary.twin.bits) for canary in found.canaries]
    held_out += [
        (f"{name(canary.id)}, left out by its coin", canary.own.bits) for canary in found.canaries if not canary.inside
    ]
    planted_dots = tuple(
        Dot(canary.own.bits, 3, f"{name(canary.id)}\n{number(canary.own.bits)} bits, planted", spread=True)
        for canary in inside[:_MOST_DOTS]
    )
    other_dots = tuple(
        Dot(bits, 0, f"{what}\n{number(bits)} bits", hollow=True, spread=True) for what, bits in held_out[:_MOST_DOTS]
    )
    most = math.log2(max(found.space, 2))
    words = _words(plan)
    return RowChart(
        f"exposure-{at}",
        f"“{name(plan.template)}”",
        words,
        Axis("Exposure in bits", 0.0, most * 1.02),
        (
            ChartRow(f"Planted {plan.repetitions} times ({len(inside)})", planted_dots),
            ChartRow(f"Never planted ({len(held_out)})", other_dots),
        ),
        _every_canary(found.canaries),
        (Mark(most, f"wholly known: {number(most)} bits"),),
        (LegendItem("planted", Dot(0.0, 3)), LegendItem("never planted", Dot(0.0, 0, hollow=True))),
        words,
        band=38.0,
    )


def _words(plan: PlanExposure) -> str:
    known = "The policy marks these values." if plan.known else "The policy does not mark these values."
    excess = plan.exposure.excess
    if excess is None:
        return f"{known} None was planted."
    return (
        f"{known} Planted values are above held-out ones in {percent(excess.area)} of pairs (chance: 50 %; "
        f"p {chance(excess.p_all)}). Median {number(excess.median_inside)} against "
        f"{number(excess.median_held_out)} bits, highest {number(excess.best_inside)} against "
        f"{number(excess.best_held_out)}. Method: {plan.exposure.method}, {plan.exposure.space:,} candidates."
    )


def _every_canary(canaries: Sequence[CanaryExposure]) -> Table:
    """Most exposed first."""
    rows = tuple(
        (
            name(one.id),
            "yes" if one.inside else "no",
            number(one.own.bits),
            "–" if one.own.rank is None else f"{one.own.rank:,g}",
            number(one.twin.bits),
        )
        for one in sorted(canaries, key=lambda canary: (-canary.own.bits, canary.id))
    )
    return Table(("Canary", "Planted", "Its exposure, bits", "Rank", "Its twin's, never planted"), rows)


def _highlights(plans: Sequence[PlanExposure]) -> tuple[Highlight, ...]:
    """Of the canaries that the policy was told of, and of those it was not; each of those that were repeated most."""
    found = []
    for known, whose, before, (key, title, note) in (
        (True, "canaries", "", _TOLD),
        (False, "canaries that the policy was not told of", "not told: ", _MISSED),
    ):
        meant = [one for one in plans if one.known is known]
        most = max((one.repetitions for one in meant), default=1)
        canaries = [canary for one in meant if one.repetitions == most for canary in one.exposure.canaries]
        planted = [canary.own.bits for canary in canaries if canary.inside]
        if planted:
            median, other = (statistics.median(bits) for bits in (planted, [one.twin.bits for one in canaries]))
            cell = f"{before}{number(median)} ({number(other)})"
            compared = Compared("Exposure", cell, _MEANING, key, title, "Exposure in bits", median, note)
            detail = f"bits, median; never planted {number(other)}"
            found.append(Highlight(f"Exposure of {whose}", number(median), detail, compared))
    return tuple(found)


def _run(target: Target, config: AuditConfig, observe: Observer) -> Finding:
    return exposure_finding(plan_exposures(target, config, observe))


def _at_checkpoint(target: Target, config: AuditConfig) -> dict[str, float]:
    return exposure_figures([plan_exposure(target, one, config) for one in target.planted])


def _column(named: str, *, in_tables: bool = True, meaning: str = "") -> Column:
    label = f"{named[0].upper()}{named[1:]}, bits"
    return Column(named, label, meaning, least=0.0, in_tables=in_tables, at_checkpoints=True)


EXPOSURE = Attack(
    "exposure",
    _run,
    (
        _column("exposure", meaning="median bits over planted canaries"),
        _column("exposure, not planted"),
        _column("exposure, unknown"),
        _column("exposure, unknown, not planted"),
        _column("best exposure", in_tables=False),
        _column("best exposure, unknown", in_tables=False),
        Column("exposure p", in_tables=False, at_checkpoints=True),
        Column("exposure p, unknown", in_tables=False, at_checkpoints=True),
    ),
    _at_checkpoint,
)
