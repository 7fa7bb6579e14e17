"""Exposure: how high a canary ranks among all that it could have been (Carlini et al. 2019, 1802.08232).

    notation        here                                     paper
    |R|             space.size                               randomness space
    rank            1 + those above + half of those equal    rank; ties are not mentioned
    exposure        log2 |R| - log2 rank, in bits            definition 4
    draws           candidates sampled                       section 4.3 (sampling; skew-normal extrapolation)

A value that the model knows nothing about has each rank with the same probability: exposure x or more has probability
2^-x, 1.44 bits are expected, and one canary in a thousand shows ten. So an exposure means something only beside those
of values that were drawn alike and held out, or beside that probability.

G1 (exact). `Method.EXACT` ranks the canary among all candidates, by the total log-probability of their whole texts, in
   the model's float32. Equal candidates share the middle of their ranks; `ties` counts them.
G2 (sampled). `Method.SAMPLED` puts the canary among `draws` random candidates: log2((draws + 1) / rank among them). It
   cannot exceed log2(draws + 1).
G3 (extrapolated). `Method.EXTRAPOLATED` takes the tail of a skew-normal distribution fitted to the draws: an estimate,
   as good as the fit, whose standard error accounts for the draws and not for the form of the fit.
G4 (silent). Results contain ids and numbers, never a value or a text.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tacit.audits.candidates import AttackProgress, Spelling, TokenTree, part_progress, total_log_probabilities
from tacit.audits.findings import About, Attack, Column, Compared, Finding, Highlight
from tacit.audits.ranks import Exposure, exact_exposures, extrapolated_exposures, sampled_exposures
from tacit.audits.statistics import Excess, SkewNormal, excess_over_chance
from tacit.audits.target import Target
from tacit.common.charts import Axis, ChartRow, Dot, LegendItem, Mark, RowChart, Table
from tacit.common.formatting import chance, name, number, percent
from tacit.common.progress import Observer
from tacit.config.audit_schema import AuditConfig, ExposureConfig, Slot
from tacit.config.setting import Method
from tacit.data.marked import CanaryRecord
from tacit.errors import AttackError
from tacit.models.language_model import Speaker
from tacit.runs.verify import Planted

NO_CANARIES = """\
No canaries were planted with this run, so neither exposure nor epsilon was measured. Plant some in its YAML file:
  canaries:
    - {template: "My ID is {6 digits}", count: 200, repetitions: 1}
    - {template: "My code is {6 digits}", count: 20, repetitions: 10, known: false}
Runs plant some by themselves unless they are told not to (--no-canaries)."""
_MOST_DOTS = 300
_MOST_BY_CHANCE = 0.02  # share of the planted values that a list of values drawn blindly contains
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
class CanaryExposure:
    """Of one canary, and of its twin that was never planted."""

    id: str
    inside: bool
    own: Exposure
    twin: Exposure


@dataclass(frozen=True, slots=True)
class ExposureResult:
    """Of all canaries of one space. excess: canaries inside against all values held out; None when none is inside.

    best_chance: a p-value for the best canary inside that needs no values held out, but values drawn uniformly.
    """

    method: Method
    space: int
    canaries: tuple[CanaryExposure, ...]
    excess: Excess | None
    best_chance: float | None


@dataclass(frozen=True, slots=True)
class PlanExposure:
    """Of the canaries of one plan. left_out: planted records that training did not read, as they were duplicates."""

    template: str
    known: bool
    repetitions: int
    exposure: ExposureResult
    left_out: int = 0


def exposures_of(
    speaker: Speaker,
    space: Slot,
    values: Sequence[str],
    spelling: Spelling,
    settings: ExposureConfig,
    generator: np.random.Generator,
    progress: AttackProgress | None = None,
) -> list[Exposure]:
    """The exposure of every value, which must be one of the space; `generator` draws candidates where not all rank."""
    method = settings.method_for(space.size)
    exact = method is Method.EXACT
    drawn = [] if exact else space.sample(settings.draws, generator)
    rows = spelling.of_space(space) if exact else spelling.of_values(space, [*values, *drawn])
    totals = total_log_probabilities(speaker, TokenTree.of(rows, spelling.opening), settings.memory, progress)
    if exact:
        numbers = [space.number(value) for value in values]
        return exact_exposures(totals, totals[[number for number in numbers if number is not None]])
    own, others = totals[: len(values)], totals[len(values) :]
    if method is Method.SAMPLED:
        return sampled_exposures(others, own)
    return extrapolated_exposures(SkewNormal.fitted(-others), others, own)


def measure_exposure(
    speaker: Speaker,
    space: Slot,
    canaries: Sequence[CanaryRecord],
    spelling: Spelling,
    settings: ExposureConfig,
    generator: np.random.Generator,
    progress: AttackProgress | None = None,
) -> ExposureResult:
    """The exposure of every canary and of its twin; `generator` draws candidates where not all are ranked."""
    check_canaries(space, canaries)
    values = [value for canary in canaries for value in (canary.value, canary.twin_value)]
    exposures = exposures_of(speaker, space, values, spelling, settings, generator, progress)
    measured = tuple(
        CanaryExposure(canary.id, canary.inside, own, twin)
        for canary, own, twin in zip(canaries, exposures[::2], exposures[1::2], strict=True)
    )
    inside = [one.own for one in measured if one.inside]
    held_out = [one.own.bits for one in measured if not one.inside] + [one.twin.bits for one in measured]
    excess = excess_over_chance([own.bits for own in inside], held_out) if inside else None
    return ExposureResult(settings.method_for(space.size), space.size, measured, excess, best_chance(inside))


def best_chance(exposures: Sequence[Exposure]) -> float | None:
    """How probable so high a best rank is, at most: the least chance times their number; None where one is unknown."""
    known = [one.chance for one in exposures if one.chance is not None]
    return min(1.0, len(known) * min(known)) if known and len(known) == len(exposures) else None


def check_canaries(space: Slot, canaries: Sequence[CanaryRecord]) -> None:
    """Refuse canaries that are not candidates of the space."""
    if not canaries:
        raise AttackError("at least one canary", "none", "plant canaries before training")
    for canary in canaries:
        for value, text in ((canary.value, canary.text), (canary.twin_value, canary.twin_text)):
            if space.number(value) is None or text != space.before + value + space.after:
                raise AttackError(
                    expected="canaries whose texts are among the candidates",
                    found=f"{canary.id}, which is not",
                    way_out="use the template and the words that the canaries were drawn with",
                )


def plan_exposure(
    target: Target, planted: Planted, config: AuditConfig, progress: AttackProgress | None = None
) -> PlanExposure:
    """Of these canaries in the model as it is."""
    plan, generator, spelling = planted.plan, np.random.default_rng(config.seed), target.spelling(planted)
    found = measure_exposure(
        target.learner, plan.slot, planted.canaries, spelling, config.exposure, generator, progress
    )
    return PlanExposure(plan.template, plan.known, plan.repetitions, found, target.left_out(planted))


def plan_exposures(target: Target, config: AuditConfig, observe: Observer) -> tuple[PlanExposure, ...]:
    sizes = [config.exposure.scored(one.plan.values, 2 * len(one.canaries)) for one in target.planted]
    reports = part_progress(observe, "exposure", sizes)
    return tuple(
        plan_exposure(target, one, config, report) for one, report in zip(target.planted, reports, strict=True)
    )


def exposure_figures(plans: Sequence[PlanExposure]) -> dict[str, float]:
    """Of the first plan that the policy knows, and of the first that it does not."""
    found = {}
    for known, suffix in ((True, ""), (False, ", unknown")):
        excess = next((one.exposure.excess for one in plans if one.known is known), None)
        if excess is not None:
            found[f"exposure{suffix}"] = excess.median_inside
            found[f"exposure{suffix}, not planted"] = excess.median_held_out
            found[f"best exposure{suffix}"] = excess.best_inside
            found[f"exposure p{suffix}"] = excess.p_all
    return {key: value for key, value in found.items() if math.isfinite(value)}


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
        sentence=" ".join(filter(None, map(given_away, plans))),
        inside=" ".join(left_out) or None,
        tables=(_summary(plans),),
        charts=tuple(_chart(one, at) for at, one in enumerate(plans)),
        highlights=_highlights(plans),
        figures=exposure_figures(plans),
    )


def given_away(plan: PlanExposure) -> str:
    """How many planted values are among the most probable ones, as many as were planted; nothing where chance does it.

    An attacker who knows the template and lists so many values has that many of them right.
    """
    ranks = [one.own.rank for one in plan.exposure.canaries if one.inside]
    listed = len(ranks)
    if not listed or None in ranks or listed > _MOST_BY_CHANCE * plan.exposure.space:
        return ""
    right = sum(rank is not None and rank <= listed for rank in ranks)
    guessed = number(listed**2 / plan.exposure.space, 2)
    return (
        f"This model gives away {right:,} of {listed:,} planted secrets of “{name(plan.template)}”: so many are among "
        f"the {listed:,} most probable of {plan.exposure.space:,} values (by guessing: {guessed})."
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
                f"{math.log2(result.space):.1f}" if result.method is Method.EXACT else "",
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
    inside = [(name(one.id), one.own.bits) for one in found.canaries if one.inside]
    held_out = [(f"{name(one.id)}, twin", one.twin.bits) for one in found.canaries]
    held_out += [(f"{name(one.id)}, left out by its coin", one.own.bits) for one in found.canaries if not one.inside]
    planted_dots = tuple(
        Dot(bits, 3, f"{what}\n{number(bits)} bits, planted", spread=True) for what, bits in inside[:_MOST_DOTS]
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
