"""Pictures of what attacks found: membership beside what the claim allows, exposures, extraction, bounds on epsilon."""

import math
from dataclasses import replace

from tacit.audits.findings import (
    Audit,
    BlindFinding,
    BoundFinding,
    CanaryExposure,
    CanaryFinding,
    ExtractedShare,
    Extraction,
    ExtractionFinding,
)
from tacit.audits.statistics import Rates
from tacit.common.charts import (
    Axis,
    Bar,
    Chart,
    ChartRow,
    ChartRule,
    Dot,
    LegendItem,
    Mark,
    Point,
    Region,
    RowChart,
    ScatterChart,
    Series,
    Table,
    Whisker,
    axis_for,
)
from tacit.common.formatting import chance, interval, name, number, percent, rounded_up
from tacit.privacy.events import Relation
from tacit.privacy.guarantee import Figure, Guarantee
from tacit.privacy.plan import Neighbors, Unit
from tacit.privacy.tradeoff import allowed, frontier

_MOST_DOTS = 300
_MOST_ROWS = 40
_FEWEST_FOR_LOW_RATES = 200
_LOWEST_RATE = 1e-3


def record_figure(guarantee: Guarantee) -> Figure | None:
    """The figure that bounds an attack on a record's membership; a claim about anything else bounds none."""
    return next(
        (figure for figure in guarantee.figures if figure.neighbours == Neighbors(Unit.RECORD, Relation.ZERO_OUT, 1)),
        None,
    )


def allowed_chart(figure: Figure) -> Chart:
    """What the claim allows whoever attacks its unit, and nothing beside it."""
    title = "What the claim allows an attacker"
    return _tradeoff("allowed", title, figure, (), Table(*_allowed_table(figure)), low=False)


def membership_charts(guarantee: Guarantee, audit: Audit) -> list[Chart]:
    """ROC curves of the attacks on membership; with many candidates also on logarithmic axes."""
    if not audit.membership:
        return []
    figure = record_figure(guarantee)
    series = [
        Series(
            name(finding.attack),
            tuple(Point(*place) for place in finding.curve),
            look,
            f"attack-{look}",
            markers=False,
            tip=_attack_tip(name(finding.attack), finding.rates),
        )
        for look, finding in enumerate(audit.membership)
    ]
    if audit.blind is not None:
        series.append(_blind_series(audit.blind, len(series)))
    table = _membership_table(audit)
    charts = [_tradeoff("membership", "Can it be told who was trained on?", figure, tuple(series), table, low=False)]
    if min(finding.rates.others for finding in audit.membership) >= _FEWEST_FOR_LOW_RATES:
        title = "The same, where few false alarms are allowed"
        stepped = tuple(_at_few_alarms(one) for one in series)
        charts.append(_tradeoff("membership-low", title, figure, stepped, table, low=True))
    return charts


def _at_few_alarms(series: Series) -> Series:
    """A whole curve as steps; one that is known at a few points as those points."""
    if series.markers:
        return replace(series, points=tuple(point for point in series.points if 0 < point.x < 1), lines=False)
    return replace(series, points=_steps(series.points))


def _steps(points: tuple[Point, ...]) -> tuple[Point, ...]:
    """What was reached at each false-positive rate: nothing is gained between two thresholds."""
    found: list[Point] = []
    for point in points:
        if found:
            found.append(Point(point.x, found[-1].y))
        found.append(point)
    return tuple(found)


def _tradeoff(
    key: str, title: str, figure: Figure | None, series: tuple[Series, ...], table: Table, low: bool
) -> Chart:
    ends = (_LOWEST_RATE, 1.0) if low else (0.0, 1.0)
    regions: tuple[Region, ...] = ()
    if figure is not None:
        above = frontier(figure, ends[0])
        said = f"what the claim allows ({figure.neighbours})"
        regions = (Region(said, f"{key}-allowed", (*above, (ends[0], ends[0]))),)
    described = [series_.tip.replace("\n", ", ") for series_ in series if series_.tip]
    if figure is not None:
        described.append(f"at 1 % false alarms the claim allows {percent(allowed(figure, [0.01])[0])} true ones")
    return ScatterChart(
        key,
        title,
        "; ".join(described) + ".",
        Axis("False-positive rate", *ends, low),
        Axis("True-positive rate", *ends, low),
        series,
        table,
        regions,
        (ChartRule((ends[0], ends[0]), (1.0, 1.0), "chance"),),
    )


def _allowed_table(figure: Figure) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    rates = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5)
    rows = tuple((percent(rate), percent(most)) for rate, most in zip(rates, allowed(figure, rates), strict=True))
    return ("False-positive rate", "True-positive rate, at most"), rows


def _attack_tip(attack: str, rates: Rates) -> str:
    return f"{attack}\nAUC {number(rates.auc.value)}, accuracy {percent(rates.cut.accuracy.value)}"


def _blind_series(blind: BlindFinding, look: int) -> Series:
    """Known points of its curve: at few false alarms, and at the half cut, where both rates add up to 1."""
    rates = blind.rates
    known = [(0.0, 0.0), (1.0, 1.0), *((one.false_rate, one.found.value) for one in rates.low)]
    if rates.members == rates.others:
        known.append((1 - rates.cut.accuracy.value, rates.cut.accuracy.value))
    points = tuple(Point(x, y) for x, y in sorted(known))
    said = "without the model (blind)"
    return Series(said, points, look, "attack-blind", tip=_attack_tip(said, rates))


def _membership_table(audit: Audit) -> Table:
    rows = [
        (name(one.attack), *_rate_cells(one.rates), percent(one.groups.cut.accuracy.value) if one.groups else "–")
        for one in audit.membership
    ]
    if audit.blind is not None:
        rows.append(("without the model (blind)", *_rate_cells(audit.blind.rates), "–"))
    heads = ("Attack", "AUC", "95 % interval", "Accuracy", "95 % interval", "Found at 1 %", "at 0.1 % false alarms")
    size = audit.membership[0].group_size
    return Table((*heads, f"Accuracy on groups of {size}"), tuple(rows))


def _rate_cells(rates: Rates) -> tuple[str, ...]:
    ends = rates.auc.interval
    low = {one.false_rate: percent(one.found.value) for one in rates.low}
    return (
        number(rates.auc.value),
        f"{math.floor(1000 * ends.low) / 1000:.3f} to {math.ceil(1000 * ends.high) / 1000:.3f}",
        percent(rates.cut.accuracy.value),
        interval(rates.cut.accuracy.interval),
        low.get(0.01, "–"),
        low.get(0.001, "–"),
    )


def exposure_chart(finding: CanaryFinding, at: int) -> Chart:
    """Exposure of each canary in a strip: planted ones, and those that were held out."""
    found = finding.exposure
    inside = [canary for canary in found.canaries if canary.inside]
    most = math.log2(max(found.space, 2))
    held_out = [(f"{name(canary.id)}, twin", canary.twin.bits) for canary in found.canaries]
    held_out += [
        (f"{name(canary.id)}, left out by its coin", canary.own.bits) for canary in found.canaries if not canary.inside
    ]
    rows = (
        ChartRow(
            f"Planted {finding.repetitions} times ({len(inside)})",
            tuple(
                Dot(canary.own.bits, 3, f"{name(canary.id)}\n{number(canary.own.bits)} bits, planted", spread=True)
                for canary in inside[:_MOST_DOTS]
            ),
        ),
        ChartRow(
            f"Never planted ({len(held_out)})",
            tuple(
                Dot(bits, 0, f"{said}\n{number(bits)} bits", hollow=True, spread=True)
                for said, bits in held_out[:_MOST_DOTS]
            ),
        ),
    )
    legend = (LegendItem("planted", Dot(0.0, 3)), LegendItem("never planted", Dot(0.0, 0, hollow=True)))
    said = _exposure_words(finding)
    title = f"“{name(finding.template)}”"
    key, axis = f"exposure-{at}", Axis("Exposure in bits", 0.0, most * 1.02)
    marks = (Mark(most, f"wholly known: {number(most)} bits"),)
    table = _exposure_table(found.canaries)
    return RowChart(key, title, said, axis, rows, table, marks, legend, said, band=38)


def _exposure_words(finding: CanaryFinding) -> str:
    known = "The policy marks these values." if finding.known else "The policy does not mark these values."
    if finding.left_out:
        known += (
            f" {finding.left_out:,} planted records were left out of training as duplicates: these canaries bound no "
            "epsilon, and their exposure may say less than it seems."
        )
    excess = finding.exposure.excess
    if excess is None:
        return f"{known} None was planted."
    higher = percent(excess.area)
    return (
        f"{known} Planted values stand above held-out ones in {higher} of pairs (chance: 50 %; "
        f"p {chance(excess.p_all)}). Median {number(excess.median_inside)} against "
        f"{number(excess.median_held_out)} bits, highest {number(excess.best_inside)} against "
        f"{number(excess.best_held_out)}. Method: {finding.exposure.method}, {finding.exposure.space:,} candidates."
    )


def _exposure_table(canaries: tuple[CanaryExposure, ...]) -> Table:
    rows = tuple(
        (name(one.id), "yes" if one.inside else "no", number(one.own.bits), number(one.twin.bits))
        for one in canaries[:_MOST_ROWS]
    )
    left = len(canaries) - len(rows)
    more = f"And {left:,} more canaries." if left else ""
    return Table(("Canary", "Planted", "Its exposure, bits", "Its twin's, never planted"), rows, more)


def extraction_chart(finding: ExtractionFinding) -> Chart:
    """How many secrets come out word for word, of the training side and of the held-out side."""
    pairs = list(zip(_shares(finding.trained), _shares(finding.held_out), strict=False))
    rows = tuple(
        ChartRow(
            f"{said}: {trained.count:,} of {trained.of:,}",
            (
                Whisker(*trained.interval),
                Dot(_share(trained), 3, f"{said}\ntrained: {percent(_share(trained))}", spread=True),
                Dot(_share(held_out), 0, f"{said}\nheld out: {percent(_share(held_out))}", hollow=True, spread=True),
            ),
        )
        for (said, trained), (_, held_out) in pairs
    )
    table = Table(
        ("How", "Secrets of the training side", "95 % interval", "Of the held-out side", "95 % interval"),
        tuple(
            (said, f"{a.count:,} of {a.of:,}", interval(a.interval), f"{b.count:,} of {b.of:,}", interval(b.interval))
            for (said, a), (_, b) in pairs
        ),
    )
    widest = max([0.05, *(share.interval.high for _, share in _shares(finding.trained))])
    legend = (LegendItem("training side", Dot(0.0, 3)), LegendItem("held-out side", Dot(0.0, 0, hollow=True)))
    axis = axis_for("Share of secrets said word for word", [0.0, min(1.0, widest)], logarithmic=False)
    said = "; ".join(row.name for row in rows) + "."
    sure = " and ".join(sorted({percent(one.probability) for one in finding.trained.discoverable}))
    likely = f" Likely: with a probability of at least {sure}." if sure else ""
    note = f"Secrets of the held-out side come out by being easy to guess; only the excess is a leak.{likely}"
    return RowChart("extraction", "Secrets that come out word for word", said, axis, rows, table, (), legend, note)


def _shares(found: Extraction) -> list[tuple[str, ExtractedShare]]:
    return [
        ("Most probable continuation", found.greedy),
        (f"In {_samples(found.tries)} that were drawn", found.sampled),
        *((f"Likely within {_samples(one.tries)}", one.share) for one in found.discoverable),
    ]


def _samples(tries: int) -> str:
    return "one sample" if tries == 1 else f"{tries:,} samples"


def _share(share: ExtractedShare) -> float:
    return share.count / share.of if share.of else 0.0


def bounds_chart(guarantee: Guarantee, bounds: tuple[BoundFinding, ...]) -> Chart | None:
    """What is claimed and what the canaries prove to be spent, one row a plan of canaries."""
    if not bounds:
        return None
    claims = [_claimed(guarantee, one) for one in bounds]
    rows = tuple(_bound_row(one, claimed) for one, claimed in zip(bounds, claims, strict=True))
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
                str(one.verdict.finding),
            )
            for one, claimed in zip(bounds, claims, strict=True)
        ),
    )
    highest = max(
        [1.0, *(one.bound.epsilon for one in bounds), *(claimed for claimed in claims if claimed is not None)]
    )
    legend: tuple[LegendItem, ...] = (LegendItem("shown by the attack, at least", Dot(0.0, 3)),)
    if any(claimed is not None for claimed in claims):
        legend = (LegendItem("claimed, at most", Bar(0.0, 1.0, "claimed")), *legend)
    said = "; ".join(one.verdict.sentence.rstrip(".") for one in bounds) + "."
    axis = axis_for("Epsilon", [0.0, highest], logarithmic=False)
    return RowChart(
        "bounds",
        "Epsilon: claimed and measured",
        said,
        axis,
        rows,
        table,
        legend=legend,
        note="A bound above the claim would refute it; one below it proves nothing.",
    )


def _bound_row(one: BoundFinding, claimed: float | None) -> ChartRow:
    tip = f"{name(one.template)}\n{one.verdict.sentence}"
    dot = Dot(one.bound.epsilon, 3, tip)
    said = f"{name(one.template)}: at least {number(one.bound.epsilon)}"
    said += " (not comparable)" if claimed is None else f", claimed {rounded_up(claimed, 4)}"
    return ChartRow(said, (dot,) if claimed is None else (Bar(0.0, claimed, "claimed", tip), dot))


def _claimed(guarantee: Guarantee, one: BoundFinding) -> float | None:
    """The claimed epsilon for what was measured, at its delta or a smaller one; none where the two do not compare."""
    covering = [
        figure
        for figure in guarantee.figures
        if (figure.neighbours.unit, figure.neighbours.relation) == (one.measured.unit, one.measured.relation)
        and figure.neighbours.copies >= one.measured.copies
    ]
    nearest = min(covering, key=lambda figure: figure.neighbours.copies, default=None)
    if nearest is None:
        return None
    points = ((nearest.epsilon, nearest.delta), *nearest.profile)
    return min((epsilon for epsilon, delta in points if delta <= one.bound.delta), default=None)
