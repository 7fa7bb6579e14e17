"""The page of several runs: a pure function of their files. Its exact numbers must stay inside your organization.

G1 (pure), G2 (hostile text), G3 (bounded): as for the page of one run.
G4 (no ranking). No run is put above another by its epsilon: runs keep the order in which they were given, and only
   `guarantee.compare`, with its reason, relates two of them.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import Any, NamedTuple

from tacit.audits.findings import Compared
from tacit.common.charts import Chart, Point, ScatterChart, Series, Table, axis_for, epsilon_axis
from tacit.common.formatting import abridged, number, percent, rounded_up
from tacit.privacy.guarantee import GuaranteeComparison, Order, Status, compare
from tacit.reports.claim_charts import average_case_chart
from tacit.reports.drawing import PAGE_LABELS, Entry, render, series_swatch
from tacit.reports.finished_run import Finished
from tacit.reports.run_page import flat_settings, tiles

SECTIONS = (("pictures", "Pictures"), ("table", "Table"), ("standing", "What compares"), ("runs", "Runs"))
SIGNS = {Order.BETTER: ">", Order.WORSE: "<", Order.EQUAL: "=", Order.NOT_COMPARABLE: "·"}
_MOST_SETTINGS = 8
_MOST_PAIRS = 6
_MOST_CLAIMS = 40  # next to each other in a table
_SETTINGS_PER_CHART = 400
_LONGEST_LABEL = 20
_ORDERS = {
    Order.BETTER: "promises more",
    Order.WORSE: "promises more",
    Order.EQUAL: "equal",
    Order.NOT_COMPARABLE: "not comparable",
}
Measure = Callable[[Finished], float | None]


@dataclass(frozen=True, slots=True)
class Family:
    """Runs of one mechanism that protect the same unit: one series of every chart."""

    name: str
    key: str
    look: int
    runs: tuple[Finished, ...]


def families(runs: Sequence[Finished]) -> tuple[Family, ...]:
    """The runs by mechanism and unit, in the order of their first."""
    found: dict[str, list[Finished]] = {}
    for run in runs:
        protects = f": {run.headline.neighbors}" if run.headline is not None else ""
        found.setdefault(f"{run.guarantee.mechanism}{protects}", []).append(run)
    return tuple(
        Family(name, f"family-{look}", look, tuple(members)) for look, (name, members) in enumerate(found.items())
    )


def perplexity(run: Finished, part: str = "overall") -> float | None:
    """Exact if known, otherwise as released, which has no parts; None for a classifier."""
    if run.released.classifies:
        return None
    if run.utility is None:
        return run.released.perplexity.value if part == "overall" else None
    found: float = getattr(run.utility, part).perplexity
    return found


def error_rate(run: Finished) -> float | None:
    """The error rate of a classifier: exact if known, otherwise as released."""
    if not run.released.classifies:
        return None
    exact = None if run.utility is None else run.utility.labels
    return run.released.error_rate.value if exact is None else exact.overall.share


def _epsilon(run: Finished) -> float:
    return math.inf if run.headline is None else float(rounded_up(run.headline.epsilon, 4))


def compared(run: Finished) -> list[Compared]:
    """The numbers of its findings by which runs are compared."""
    return [one.compared for finding in run.findings for one in finding.highlights if one.compared is not None]


def columns(runs: Sequence[Finished]) -> dict[str, str]:
    """The columns that attacks on any of the runs bring, with their meaning."""
    return {one.column: one.meaning for run in runs for one in compared(run)}


def _line(run: Finished, wanted: Sequence[str]) -> dict[str, Any]:
    figure, labels = run.headline, None if run.utility is None else run.utility.labels
    return {
        "run": run,
        "protects": "nothing" if figure is None else str(figure.neighbors),
        "epsilon": "none" if figure is None else rounded_up(figure.epsilon, 4),
        "delta": None if figure is None else rounded_up(figure.delta, 3),
        "assumed": sum(condition.status in (Status.ASSUMED, Status.UNMET) for condition in run.guarantee.holds_if),
        "overall": _worth(perplexity(run), error_rate(run)),
        "private": _worth(perplexity(run, "private"), None if labels is None else labels.with_secrets.share),
        "found": [" ".join(one.cell for one in compared(run) if one.column == column) or "–" for column in wanted],
    }


def _worth(perplexity: float | None, error_rate: float | None) -> str:
    return f"{percent(error_rate)} wrong" if error_rate is not None else number(perplexity)


def differing(runs: Sequence[Finished]) -> dict[int, list[str]]:
    """For each run, by its place, the settings in which the runs are not all alike."""
    flat = {run.at: flat_settings(run.config) for run in runs}
    names = sorted({name for settings in flat.values() for name in settings})
    apart = [name for name in names if len({settings.get(name, "not set") for settings in flat.values()}) > 1]
    return {
        at: [f"{name}: {settings[name]}" for name in apart if name in settings][:_MOST_SETTINGS]
        for at, settings in flat.items()
    }


def standing(first: Finished, second: Finished) -> GuaranteeComparison:
    """How the claim of one run compares with that of another."""
    deltas = {tuple(delta for _, delta in run.headline.profile) for run in (first, second) if run.headline is not None}
    if len(deltas) > 1:
        return GuaranteeComparison(Order.NOT_COMPARABLE, "their privacy profiles are stated at different deltas")
    return compare(first.guarantee, second.guarantee)


def claims(runs: Sequence[Finished]) -> list[list[Finished]]:
    """The runs grouped by what they promise: seeds and settings without a price do not make another claim."""
    found: list[list[Finished]] = []
    for run in runs:
        same = next((claim for claim in found if standing(claim[0], run).order is Order.EQUAL), None)
        if same is None:
            found.append([run])
        else:
            same.append(run)
    return found


def matrix(runs: Sequence[Finished]) -> list[list[GuaranteeComparison | None]]:
    """How the run of a row compares with the run of a column; None on the diagonal."""
    return [[None if row is column else standing(row, column) for column in runs] for row in runs]


def reasons(different: Sequence[Sequence[Finished]]) -> list[dict[str, Any]]:
    """Each reason once, with the pairs it is true of; the first run of a claim represents the others."""
    found: dict[tuple[str, str], list[str]] = {}
    for row, (first, *same) in enumerate(different):
        for other in same:
            comparison = standing(first, other)
            pairs = found.setdefault((_ORDERS[comparison.order], comparison.reason), [])
            pairs.append(f"{first.name} and {other.name}")
        for second, *_ in different[row + 1 :]:
            one, other, comparison = first, second, standing(first, second)
            if _is_clearer_reversed(comparison, one, other):
                one, other, comparison = other, one, standing(other, one)
            order = _ORDERS[comparison.order]
            joint = f" {order} than " if comparison.order is Order.BETTER else " and "
            found.setdefault((order, comparison.reason), []).append(f"{one.name}{joint}{other.name}")
    orders = list(dict.fromkeys(_ORDERS.values()))
    return [
        {"order": order, "reason": reason, "pairs": pairs[:_MOST_PAIRS], "more": max(0, len(pairs) - _MOST_PAIRS)}
        for (order, reason), pairs in sorted(found.items(), key=lambda entry: orders.index(entry[0][0]))
    ]


def _is_clearer_reversed(comparison: GuaranteeComparison, first: Finished, second: Finished) -> bool:
    """Whether the reason reads as "promises more", or names two units in one fixed order, from the other side."""
    if comparison.order is not Order.NOT_COMPARABLE or first.headline is None or second.headline is None:
        return comparison.order is Order.WORSE
    return str(first.headline.neighbors) > str(second.headline.neighbors)


class _Plot(NamedTuple):
    """A chart over runs: what is measured along each axis, and what guessing reaches along y."""

    key: str
    title: str
    x_name: str
    x_of: Measure
    y_name: str
    y_of: Measure
    note: str
    chance: float | None = None


def comparison_charts(runs: Sequence[Finished], groups: Sequence[Family]) -> list[Chart]:
    """Every chart for which at least one run has both numbers."""
    most = max(2, _SETTINGS_PER_CHART // max(1, len(runs)))
    apart = {at: settings[:most] for at, settings in differing(runs).items()}
    price = ("Epsilon: different units are different scales", _epsilon)
    against = "Privacy against utility"
    wanted = []
    if not all(run.released.classifies for run in runs):
        note = "Lower is better. Points of one color and shape protect the same thing; others do not compare."
        wanted.append(_Plot("utility", against, *price, "Perplexity", perplexity, note))
        note = "What remains when secrets do not count: redaction does not try to predict them."
        measure, y_name = partial(perplexity, part="public"), "Perplexity, public tokens"
        wanted.append(_Plot("public", f"{against} on public text", *price, y_name, measure, note))
        note = "Lower on private tokens means that secrets of new people are better guessed: useful, and not a leak."
        measure, y_name = partial(perplexity, part="private"), "Perplexity, private tokens"
        wanted.append(_Plot("private", f"{against} on secrets", *price, y_name, measure, note))
    if any(run.released.classifies for run in runs):
        wanted.append(
            _Plot("errors", "Privacy against errors", *price, "Test error rate", error_rate, "Lower is better.")
        )
    for one in {one.key: one for run in runs if not run.released.classifies for one in compared(run)}.values():
        found = partial(_value, key=one.key)
        wanted.append(_Plot(one.key, one.title, "Perplexity", perplexity, one.axis, found, one.note, one.chance))
    looks = {run.at: (family.key, family.look) for family in groups for run in family.runs}
    drawn = [*(_chart(plot, runs, groups, apart) for plot in wanted), average_case_chart(runs, looks)]
    return [chart for chart in drawn if chart is not None]


def _value(run: Finished, key: str) -> float | None:
    return next((one.value for one in compared(run) if one.key == key), None)


def _chart(
    plot: _Plot, runs: Sequence[Finished], groups: Sequence[Family], apart: dict[int, list[str]]
) -> Chart | None:
    places: dict[int, tuple[float, float]] = {}
    for run in runs:
        x, y = plot.x_of(run), plot.y_of(run)
        if x is not None and not math.isnan(x) and y is not None and math.isfinite(y):
            places[run.at] = (x, y)
    if not places:
        return None
    of_price, across = plot.x_of is _epsilon, [x for x, _ in places.values()]
    up = [y for _, y in places.values()] + ([] if plot.chance is None else [plot.chance])
    labels = _labels(runs) if len(places) <= PAGE_LABELS else {}
    series = []
    for family in groups:
        points = [
            Point(
                *places[run.at], _tip(plot, run, places[run.at], apart[run.at]), f"#{run.key}", labels.get(run.at, "")
            )
            for run in family.runs
            if run.at in places
        ]
        points.sort(key=lambda point: (point.x, point.y, point.tip))
        curve = of_price and len({point.x for point in points}) == len(points) > 1  # runs at one epsilon are no curve
        if points:
            series.append(Series(family.name, tuple(points), family.look, family.key, lines=curve))
    rows = tuple((run.name, *(number(one, 4) for one in places[run.at])) for run in runs if run.at in places)
    x_short = plot.x_name.partition(":")[0]
    points_text = "; ".join(f"{name}: {x}, {y}" for name, x, y in rows[:PAGE_LABELS])
    return ScatterChart(
        f"chart-{plot.key}",
        plot.title,
        f"{plot.y_name} over {x_short.lower()}. {points_text}.",
        epsilon_axis(plot.x_name, across) if of_price else axis_for(plot.x_name, across),
        axis_for(plot.y_name, up),
        tuple(series),
        Table(("Run", x_short, plot.y_name), rows),
        note=plot.note,
        legend=False,
    )


def _labels(runs: Sequence[Finished]) -> dict[int, str]:
    """The names without what all of them end with, such as a seed."""
    parts = {run.at: run.name.split("-") for run in runs}
    endings = zip(*(reversed(own) for own in parts.values()), strict=False)
    alike = len(list(takewhile(lambda ending: len(set(ending)) == 1, endings))) if len(runs) > 1 else 0
    kept = {at: "-".join(own[: len(own) - alike] or own) for at, own in parts.items()}
    return {at: abridged(name, _LONGEST_LABEL) for at, name in kept.items()}


def _tip(plot: _Plot, run: Finished, place: tuple[float, float], apart: list[str]) -> str:
    x_name, y_name = (name.partition(":")[0] for name in (plot.x_name, plot.y_name))
    x = "none" if math.isinf(place[0]) else number(place[0], 4)
    protects = "claims nothing" if run.headline is None else f"protects {run.headline.neighbors}"
    return "\n".join(
        [run.name, f"{run.guarantee.mechanism}, {protects}", f"{x_name} {x}", f"{y_name} {number(place[1], 4)}", *apart]
    )


def comparison_page(runs: Sequence[Finished]) -> str:
    """The whole HTML page."""
    groups, different, found = families(runs), claims(runs), columns(runs)
    shown = [claim[0] for claim in different] if len(different) <= _MOST_CLAIMS else []
    sample = (Point(0.0, 0.0),)
    return render(
        "comparison.html.jinja",
        runs=runs,
        inside=any(run.inside for run in runs),
        sections=SECTIONS,
        legend=[
            Entry(family.name, family.key, series_swatch(Series(family.name, sample, family.look, family.key)))
            for family in groups
        ],
        charts=comparison_charts(runs, groups),
        lines=[_line(run, list(found)) for run in runs],
        families={run.at: family for family in groups for run in family.runs},
        columns=found,
        claims=different,
        standings=matrix(shown),
        signs=SIGNS,
        reasons=reasons(different),
        tiles={run.at: tiles(run) for run in runs},
        apart=differing(runs),
    )
