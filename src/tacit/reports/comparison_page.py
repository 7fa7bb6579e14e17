"""The page of several runs: a pure function of their files, in the order they were given. Exact numbers stay inside.

G1 (pure), G2 (hostile text), G3 (bounded): as for the page of one run.
G4 (no ranking). The table keeps the given order; what compares with what is said by `guarantee.compare` alone.

Several runs side by side: what tells them apart, and which promise more than which.

G1. No run is put above another by its epsilon: the order is the one the person gave, and two runs are related only by
    `guarantee.compare`, with its reason.

The papers' pictures, for several runs: privacy against utility, and what attacks found against utility.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from tacit.audits.findings import Compared
from tacit.common.charts import Chart, Point, ScatterChart, Series, Table, axis_for, epsilon_axis
from tacit.common.formatting import abridged, number, percent, rounded_up
from tacit.privacy.guarantee import GuaranteeComparison, Order, Status, compare
from tacit.reports.average_case_chart import average_case_chart
from tacit.reports.drawing import PAGE_LABELS, Entry, series_swatch
from tacit.reports.environment import script, script_policy, template
from tacit.reports.finished_run import Finished
from tacit.reports.run_page import error_rate, flat_settings, perplexity, private_perplexity, public_perplexity, tiles

_MOST_SETTINGS = 8
_MOST_PAIRS = 6
_MOST_CLAIMS = 40  # beside each other in a table
_SETTINGS_OF_A_PICTURE = 400

_WORDS = {
    Order.BETTER: "promises more",
    Order.WORSE: "promises more",
    Order.EQUAL: "equal",
    Order.NOT_COMPARABLE: "not comparable",
}

SIGNS = {Order.BETTER: ">", Order.WORSE: "<", Order.EQUAL: "=", Order.NOT_COMPARABLE: "·"}


@dataclass(frozen=True, slots=True)
class Family:
    """Runs of one mechanism that protect the same unit: one series of every picture."""

    name: str
    key: str
    look: int
    runs: tuple[Finished, ...]


@dataclass(frozen=True, slots=True)
class DifferenceReason:
    """Why pairs of runs stand as they do."""

    order: str
    reason: str
    pairs: tuple[str, ...]
    more: int


@dataclass(frozen=True, slots=True)
class ComparedLine:
    """A run's line of the table."""

    run: Finished
    family: Family
    protects: str
    epsilon: str
    delta: str
    assumed: int
    overall: str
    private: str
    found: tuple[str, ...]


def families(runs: Sequence[Finished]) -> tuple[Family, ...]:
    """The runs by mechanism and unit, in the order of their first."""
    found: dict[str, list[Finished]] = {}
    for run in runs:
        protects = f": {run.headline.neighbors}" if run.headline is not None else ""
        found.setdefault(f"{run.guarantee.mechanism}{protects}", []).append(run)
    return tuple(
        Family(name, f"family-{look}", look, tuple(members)) for look, (name, members) in enumerate(found.items())
    )


def compared(run: Finished) -> list[Compared]:
    """The numbers of its findings by which runs are compared."""
    return [one.compared for finding in run.findings for one in finding.highlights if one.compared is not None]


def columns(runs: Sequence[Finished]) -> dict[str, str]:
    """What attacks on any of the runs are compared by, with its meaning."""
    return {one.column: one.meaning for run in runs for one in compared(run)}


def lines(runs: Sequence[Finished]) -> list[ComparedLine]:
    """The table, in the order the runs were given."""
    belongs = {run.at: family for family in families(runs) for run in family.runs}
    return [_line(run, belongs[run.at], list(columns(runs))) for run in runs]


def _line(run: Finished, family: Family, wanted: list[str]) -> ComparedLine:
    figure = run.headline
    return ComparedLine(
        run,
        family,
        "nothing" if figure is None else str(figure.neighbors),
        "none" if figure is None else rounded_up(figure.epsilon, 4),
        "–" if figure is None else rounded_up(figure.delta, 3),
        sum(condition.status in (Status.ASSUMED, Status.UNMET) for condition in run.guarantee.holds_if),
        _worth(perplexity(run), error_rate(run)),
        _worth(private_perplexity(run), _with_secrets(run)),
        tuple(" ".join(one.cell for one in compared(run) if one.column == column) or "–" for column in wanted),
    )


def _worth(perplexity: float | None, error_rate: float | None) -> str:
    return f"{percent(error_rate)} wrong" if error_rate is not None else number(perplexity)


def _with_secrets(run: Finished) -> float | None:
    labels = None if run.utility is None else run.utility.labels
    return None if labels is None else labels.with_secrets.share


def differing(runs: Sequence[Finished]) -> dict[int, list[str]]:
    """For each run, by its place, the settings in which the runs are not all alike."""
    flat = {run.at: flat_settings(run.config) for run in runs}
    words = sorted({word for settings in flat.values() for word in settings})
    apart = [word for word in words if len({settings.get(word, "not set") for settings in flat.values()}) > 1]
    return {
        at: [f"{word}: {settings[word]}" for word in apart if word in settings][:_MOST_SETTINGS]
        for at, settings in flat.items()
    }


def standing(first: Finished, second: Finished) -> GuaranteeComparison:
    """How the claim of one stands to that of another."""
    ours, theirs = first.headline, second.headline
    if ours is not None and theirs is not None and _deltas(first) != _deltas(second):
        return GuaranteeComparison(Order.NOT_COMPARABLE, "their privacy profiles are stated at different deltas")
    return compare(first.guarantee, second.guarantee)


def _deltas(run: Finished) -> list[float]:
    return [] if run.headline is None else [delta for _, delta in run.headline.profile]


@dataclass(frozen=True, slots=True)
class Claim:
    """Runs that promise the same, by the first of them."""

    run: Finished
    others: tuple[Finished, ...] = ()


def claims(runs: Sequence[Finished]) -> list[Claim]:
    """The different claims of all runs: seeds and settings without a price do not make another one."""
    found: list[Claim] = []
    for run in runs:
        at = next((at for at, one in enumerate(found) if standing(one.run, run).order is Order.EQUAL), None)
        if at is None:
            found.append(Claim(run))
        else:
            found[at] = replace(found[at], others=(*found[at].others, run))
    return found


def matrix(runs: Sequence[Finished]) -> list[list[GuaranteeComparison | None]]:
    """How the run of a row stands to the run of a column; none on the diagonal."""
    return [[None if row is column else standing(row, column) for column in runs] for row in runs]


def reasons(different: Sequence[Claim]) -> list[DifferenceReason]:
    """Each reason once, with the pairs it is true of; runs that promise the same stand for each other."""
    found: dict[tuple[str, str], list[str]] = {}
    for row, claim in enumerate(different):
        for other in claim.others:
            comparison = standing(claim.run, other)
            pairs = found.setdefault((_WORDS[comparison.order], comparison.reason), [])
            pairs.append(f"{claim.run.name} and {other.name}")
        for second in (one.run for one in different[row + 1 :]):
            one, other, comparison = claim.run, second, standing(claim.run, second)
            if _better_said_the_other_way(comparison, one, other):
                one, other, comparison = other, one, standing(other, one)
            words = _WORDS[comparison.order]
            joint = f" {words} than " if comparison.order is Order.BETTER else " and "
            found.setdefault((words, comparison.reason), []).append(f"{one.name}{joint}{other.name}")
    order = list(dict.fromkeys(_WORDS.values()))
    return [
        DifferenceReason(words, reason, tuple(pairs[:_MOST_PAIRS]), max(0, len(pairs) - _MOST_PAIRS))
        for (words, reason), pairs in sorted(found.items(), key=lambda entry: order.index(entry[0][0]))
    ]


def _better_said_the_other_way(comparison: GuaranteeComparison, first: Finished, second: Finished) -> bool:
    """Whether the reason reads as "promises more", and names two units in one fixed order, from the other side."""
    if comparison.order is not Order.NOT_COMPARABLE or first.headline is None or second.headline is None:
        return comparison.order is Order.WORSE
    return str(first.headline.neighbors) > str(second.headline.neighbors)


_LONGEST_LABEL = 20
Measure = Callable[[Finished], float | None]


def comparison_charts(runs: Sequence[Finished], groups: Sequence[Family]) -> list[Chart]:
    """Every picture for which at least one run has both numbers."""
    most = max(2, _SETTINGS_OF_A_PICTURE // max(1, len(runs)))
    apart = {at: settings[:most] for at, settings in differing(runs).items()}
    price = "Epsilon: different units are different scales"
    wanted: list[tuple[str, str, str, Measure, str, Measure]] = []
    against = "Privacy against utility"
    if not all(run.released.classifies for run in runs):
        wanted += [
            ("utility", against, price, _epsilon, "Perplexity", perplexity),
            ("public", f"{against} on public text", price, _epsilon, "Perplexity, public tokens", public_perplexity),
            ("private", f"{against} on secrets", price, _epsilon, "Perplexity, private tokens", private_perplexity),
        ]
    if any(run.released.classifies for run in runs):
        wanted.append(("errors", "Privacy against errors", price, _epsilon, "Test error rate", error_rate))
    drawn = [_chart(*words, _NOTES[words[0]], runs=runs, groups=groups, apart=apart) for words in wanted]
    found = {one.key: one for run in runs if not run.released.classifies for one in compared(run)}
    drawn += [_compared_chart(one, runs=runs, groups=groups, apart=apart) for one in found.values()]
    looks = {run.at: (family.key, family.look) for family in groups for run in family.runs}
    drawn.append(average_case_chart(runs, looks))
    return [chart for chart in drawn if chart is not None]


_NOTES = {
    "utility": "Lower is better. Points of one colour and shape protect the same thing; others do not compare.",
    "public": "What remains when secrets do not count: redaction and crt do not try to predict them.",
    "private": "Lower on private tokens means that secrets of new people are better guessed: useful, and not a leak.",
    "errors": "Lower is better.",
}


def _compared_chart(
    one: Compared, *, runs: Sequence[Finished], groups: Sequence[Family], apart: dict[int, list[str]]
) -> Chart | None:
    """A number of findings over perplexity."""

    def value(run: Finished) -> float | None:
        return next((other.value for other in compared(run) if other.key == one.key), None)

    words = (one.key, one.title, "Perplexity", perplexity, one.axis, value, one.note)
    return _chart(*words, also=one.chance, runs=runs, groups=groups, apart=apart)


def _chart(
    key: str,
    title: str,
    x_name: str,
    x_of: Measure,
    y_name: str,
    y_of: Measure,
    note: str,
    also: float | None = None,
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
    y_axis = axis_for(y_name, [y for _, y in places.values()] + ([] if also is None else [also]))
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
    return ScatterChart(f"chart-{key}", title, described, x_axis, y_axis, series, table, note=note, legend=False)


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
        Point(*places[run.at], _tip(run, places[run.at], names, apart[run.at]), f"#{run.key}", labels.get(run.at, ""))
        for run in family.runs
        if run.at in places
    ]
    return tuple(sorted(points, key=lambda point: (point.x, point.y, point.tip)))


def _tip(run: Finished, place: tuple[float, float], names: tuple[str, str], apart: list[str]) -> str:
    x_name, y_name = (name.partition(":")[0] for name in names)
    x = "none" if math.isinf(place[0]) else number(place[0], 4)
    protects = "claims nothing" if run.headline is None else f"protects {run.headline.neighbors}"
    return "\n".join(
        [run.name, f"{run.guarantee.mechanism}, {protects}", f"{x_name} {x}", f"{y_name} {number(place[1], 4)}", *apart]
    )


def _epsilon(run: Finished) -> float:
    return math.inf if run.headline is None else float(rounded_up(run.headline.epsilon, 4))


def _number(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else value


def _finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


SECTIONS = (("pictures", "Pictures"), ("table", "Table"), ("standing", "What compares"), ("runs", "Runs"))


def comparison_page(runs: Sequence[Finished]) -> str:
    """The whole HTML page."""
    groups, different = families(runs), claims(runs)
    shown = [one.run for one in different] if len(different) <= _MOST_CLAIMS else []
    page = template("comparison.html.jinja").render(
        runs=runs,
        inside=any(run.inside for run in runs),
        policy=script_policy(),
        script=script(),
        sections=SECTIONS,
        legend=[
            Entry(family.name, family.key, series_swatch(Series(family.name, _SAMPLE, family.look, family.key)))
            for family in groups
        ],
        charts=comparison_charts(runs, groups),
        lines=lines(runs),
        columns=columns(runs),
        claims=different,
        standings=matrix(shown),
        signs=SIGNS,
        reasons=reasons(different),
        tiles={run.at: tiles(run) for run in runs},
        apart=differing(runs),
    )
    return page.lstrip()


_SAMPLE = (Point(0.0, 0.0),)
