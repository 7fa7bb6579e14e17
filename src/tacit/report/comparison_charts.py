"""The papers' pictures, for several runs: privacy against utility, and what attacks found against utility."""

import math
from collections.abc import Callable, Sequence
from itertools import takewhile

from tacit.report.amplification import amplification_chart
from tacit.report.charts import PAGE_LABELS, Chart, Point, Series, Sketch, Table, draw
from tacit.report.comparing import Family, differing
from tacit.report.facts import (
    error_rate,
    exposure,
    membership_accuracy,
    perplexity,
    private_perplexity,
    public_perplexity,
)
from tacit.report.runs import Finished
from tacit.report.scales import axis_for, epsilon_axis
from tacit.report.words import abridged, number
from tacit.rounding import rounded_up

_LONGEST_LABEL = 20
Measure = Callable[[Finished], float | None]


def comparison_charts(runs: Sequence[Finished], groups: Sequence[Family]) -> list[Chart]:
    """Every picture for which at least one run has both numbers."""
    apart = differing(runs)
    price = "Epsilon: different units are different scales"
    wanted: list[tuple[str, str, str, Measure, str, Measure]] = []
    against = "Privacy against utility"
    if not all(run.released.classifies for run in runs):
        wanted += [
            ("utility", against, price, _epsilon, "Perplexity", perplexity),
            ("public", f"{against} on public text", price, _epsilon, "Perplexity, public tokens", public_perplexity),
            ("private", f"{against} on secrets", price, _epsilon, "Perplexity, private tokens", private_perplexity),
            ("exposure", "How much of a canary is known", "Perplexity", perplexity, "Exposure in bits", _exposure),
            ("missed", "How much of a missed canary is known", "Perplexity", perplexity, "Exposure in bits", _missed),
            ("membership", "Telling who was trained on", "Perplexity", perplexity, "Accuracy", membership_accuracy),
        ]
    if any(run.released.classifies for run in runs):
        wanted.append(("errors", "Privacy against errors", price, _epsilon, "Test error rate", error_rate))
    drawn = [_chart(*words, runs=runs, groups=groups, apart=apart) for words in wanted]
    looks = {run.at: (family.key, family.look) for family in groups for run in family.runs}
    drawn.append(amplification_chart(runs, looks))
    return [chart for chart in drawn if chart is not None]


_NOTES = {
    "utility": "Lower is better. Points of one colour and shape protect the same thing; others do not compare.",
    "public": "What remains when secrets do not count: redaction and crt do not try to predict them.",
    "private": "Lower on private tokens means that secrets of new people are better guessed: useful, and not a leak.",
    "exposure": "Median over canaries that the policy was told of; the most repeated ones. Chance is about 1 bit.",
    "missed": "The same, of canaries that the policy was not told of. Claims about whole records mean to hide them.",
    "membership": "The best attack of each run; its interval stands on the page of the run. Chance is 0.5.",
    "errors": "Lower is better.",
}


def _chart(
    key: str,
    title: str,
    x_name: str,
    x_of: Measure,
    y_name: str,
    y_of: Measure,
    *,
    runs: Sequence[Finished],
    groups: Sequence[Family],
    apart: dict[int, list[str]],
) -> Chart | None:
    known = {run.at: (x, y) for run in runs if (x := _number(x_of(run))) is not None and _finite(y := y_of(run))}
    places = {at: (x, float(y)) for at, (x, y) in known.items() if y is not None}
    if not places:
        return None
    across = [x for x, _ in places.values()]
    x_axis = epsilon_axis(x_name, across) if x_of is _epsilon else axis_for(x_name, across)
    y_axis = axis_for(y_name, [y for _, y in places.values()] + ([0.5] if key == "membership" else []))
    labels = _labels(runs) if len(places) <= PAGE_LABELS else {}
    series = tuple(
        Series(family.name, points, family.look, family.key, lines=x_of is _epsilon and _is_curve(points))
        for family in groups
        if (points := _points(family, places, apart, (x_name, y_name), labels))
    )
    rows = tuple(
        (run.name, number(places[run.at][0], 4), number(places[run.at][1], 4)) for run in runs if run.at in places
    )
    said = "; ".join(f"{name}: {x}, {y}" for name, x, y in rows[:PAGE_LABELS])
    described = f"{y_name} over {x_name.partition(':')[0].lower()}. {said}."
    table = Table(("Run", x_name.partition(":")[0], y_name), rows)
    sketch = Sketch(f"chart-{key}", title, described, x_axis, y_axis, series, table, note=_NOTES[key], legend=False)
    return draw(sketch)


def _labels(runs: Sequence[Finished]) -> dict[int, str]:
    """The names without what all of them end with, as a seed."""
    parts = {run.at: run.name.split("-") for run in runs}
    endings = zip(*(reversed(own) for own in parts.values()), strict=False)
    alike = len(list(takewhile(lambda ending: len(set(ending)) == 1, endings))) if len(runs) > 1 else 0
    kept = {at: "-".join(own[: len(own) - alike] or own) for at, own in parts.items()}
    return {at: abridged(name, _LONGEST_LABEL) for at, name in kept.items()}


def _is_curve(points: Sequence[Point]) -> bool:
    """Runs at one epsilon differ in something else, and nothing leads from one to the other."""
    return len({point.x for point in points}) == len(points) > 1


def _points(
    family: Family,
    places: dict[int, tuple[float, float]],
    apart: dict[int, list[str]],
    names: tuple[str, str],
    labels: dict[int, str],
) -> tuple[Point, ...]:
    points = [
        Point(
            *places[run.at],
            _tip(run, places[run.at], names, apart[run.at]),
            f"#{run.key}",
            labels.get(run.at, ""),
        )
        for run in family.runs
        if run.at in places
    ]
    return tuple(sorted(points, key=lambda point: (point.x, point.y, point.tip)))


def _tip(run: Finished, place: tuple[float, float], names: tuple[str, str], apart: list[str]) -> str:
    x_name, y_name = (name.partition(":")[0] for name in names)
    x = "none" if math.isinf(place[0]) else number(place[0], 4)
    protects = "claims nothing" if run.headline is None else f"protects {run.headline.neighbours}"
    return "\n".join(
        [run.name, f"{run.guarantee.mechanism}, {protects}", f"{x_name} {x}", f"{y_name} {number(place[1], 4)}", *apart]
    )


def _epsilon(run: Finished) -> float:
    return math.inf if run.headline is None else float(rounded_up(run.headline.epsilon, 4))


def _exposure(run: Finished) -> float | None:
    exposed = exposure(run)
    return None if exposed is None else exposed.planted


def _missed(run: Finished) -> float | None:
    exposed = exposure(run, known=False)
    return None if exposed is None else exposed.planted


def _number(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else value


def _finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)
