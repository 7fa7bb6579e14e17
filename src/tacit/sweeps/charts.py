"""The charts that a recipe asks for and the page of a sweep, from the recipe and its results alone.

G1 (averages). A point is the mean over the seeds of one run, or of its checkpoints at one step; whiskers are one sample
   deviation to each side.
G2 (complete). A run that is asked for but has no number for an axis is named below the chart.
G3 (one look). A run has one color and shape in all charts of a page, as far as there are enough of them.
G4 (pure). Equal recipes and results give equal pages; nothing is loaded and nothing sent.
G5 (hostile text). Whatever a recipe or a result contains is escaped and cleaned.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tacit.audits.findings import Column
from tacit.common.charts import (
    Axis,
    Chart,
    ChartRule,
    Point,
    ScatterChart,
    Series,
    Table,
    axis_for,
    epsilon_axis,
    word_axis,
)
from tacit.common.formatting import number
from tacit.common.serialize import dotted
from tacit.errors import ConfigError
from tacit.reports.drawing import COLORS, render
from tacit.sweeps.recipe import Recipe, Variation, variations
from tacit.sweeps.result_columns import (
    EPSILONS,
    RUN,
    Averaged,
    ChartSpec,
    ResultLine,
    attack_columns,
    averaged,
    checkpoints,
    columns_of,
    is_number,
    rows_of,
)

PAGE = "sweep.html"
_MOST_DESCRIBED = 14
_APART = 0.11  # of the room that a category has


@dataclass(frozen=True, slots=True)
class RunSeries:
    """One run over its seeds: how the recipe makes it, and the lines of the seeds that are done."""

    name: str  # without the seed
    variation: Variation
    lines: tuple[ResultLine, ...]

    def setting(self, name: str) -> object:
        """Its value in the recipe, None if the recipe does not set it."""
        return dotted(self.variation.settings).get(name)


class ChartPlace(NamedTuple):
    """A point of a chart before it has axes; printed: from the paper."""

    run: RunSeries
    column: str
    series: str
    x: Averaged
    y: Averaged
    step: int | None = None
    printed: bool = False


def charts(recipe: Recipe, lines: Sequence[ResultLine]) -> list[Chart]:
    """Every chart, in the order of the recipe; one without points has a note with the reason."""
    first: dict[str, Variation] = {}
    for one in variations(recipe):
        first.setdefault(one.group, one)
    for name in (line["group"] for line in lines if line["group"] not in first):
        raise ConfigError("results of the recipe's runs", f"those of {name}", "sweep the recipe as it is now")
    done = [line for line in lines if line["figures"] is not None]
    runs = [RunSeries(name, one, tuple(line for line in done if line["group"] == name)) for name, one in first.items()]
    looks = {name: look for look, name in enumerate(dict.fromkeys(run.variation.run for run in runs))}
    return [_chart(f"draw-{at}", spec, recipe, runs, looks) for at, spec in enumerate(recipe.draws, 1)]


def anchors(recipe: Recipe) -> dict[str, str]:
    """The id of the table row of each run."""
    groups = dict.fromkeys(one.group for one in variations(recipe))
    return {group: f"row-{at}" for at, group in enumerate(groups)}


def _chart(key: str, spec: ChartSpec, recipe: Recipe, runs: Sequence[RunSeries], looks: Mapping[str, int]) -> Chart:
    chosen = [run for run in runs if not spec.runs or {run.name, run.variation.run} & set(spec.runs)]
    plot = _Plot(spec, _categories(spec, chosen), anchors(recipe))
    places = [place for run in chosen for place in plot.places(run)]
    printed = [place for run in chosen for place in plot.printed(run, recipe.paper.get(run.name, {}))]
    x, y = plot.axes([*places, *printed])
    drawn = {(place.run.name, place.column) for place in places}
    missing = [run.name for run in chosen if any((run.name, column) not in drawn for column in spec.y)]
    note = [spec.note.strip(), f"Without all numbers of this chart: {', '.join(missing)}." if missing else ""]
    return ScatterChart(
        key,
        spec.title,
        plot.description(places, x.label, y.label),
        x,
        y,
        plot.series([*places, *printed], looks, x.label, y.label),
        plot.table(places, x.label, y.label),
        rules=tuple(ChartRule((x.low, chance), (x.high, chance), "chance") for chance in _chances(spec)),
        note=" ".join(filter(None, note)),
    )


def _categories(spec: ChartSpec, runs: Sequence[RunSeries]) -> tuple[str, ...]:
    """The values along x if they are not numbers: those of a setting, in the order of the recipe."""
    if spec.x in spec.columns:
        return ()
    values = [value for run in runs if (value := run.setting(spec.x)) is not None]
    if all(map(is_number, values)):
        return ()
    return tuple(dict.fromkeys(_short(value) for value in values))


@dataclass(frozen=True, slots=True)
class _Plot:
    """A chart in the making; categories: the values along x if they are not numbers; rows: the ids of table rows."""

    spec: ChartSpec
    categories: tuple[str, ...]
    rows: Mapping[str, str]

    def places(self, run: RunSeries) -> Iterator[ChartPlace]:
        if self.spec.points == "checkpoints":
            curves = [{int(point["step"]): point for point in checkpoints(line)} for line in run.lines]
            for step in sorted(set.intersection(*map(set, curves))) if curves else []:
                yield from self._at(run, [curve[step] for curve in curves], step)
        elif run.lines:
            yield from self._at(run, run.lines, None)

    def _at(self, run: RunSeries, lines: Sequence[ResultLine], step: int | None) -> Iterator[ChartPlace]:
        x = self._x(run, lines)
        for column in self.spec.y:
            y = averaged(self.spec.columns[column](line) for line in lines)
            if x is not None and y is not None and self._fits(x.mean, y.mean):
                yield ChartPlace(run, column, self._series_name(run, column), x, y, step)

    def _x(self, run: RunSeries, lines: Sequence[ResultLine]) -> Averaged | None:
        name = self.spec.x
        if name in self.spec.columns:
            found = averaged(self.spec.columns[name](line) for line in lines)
            claims_nothing = found is None and name == "epsilon" and lines
            return Averaged(math.inf) if claims_nothing else found
        value = run.setting(name)
        if value is None:
            return None
        return Averaged(float(self.categories.index(_short(value)) if self.categories else str(value)))

    def _fits(self, x: float, y: float) -> bool:
        """Whether a logarithmic axis that was asked for has a place for it."""
        across = self.spec.x in EPSILONS or not self.spec.log.get("x") or x > 0
        return across and (not self.spec.log.get("y") or y > 0)

    def printed(self, run: RunSeries, paper: Mapping[str, float | str]) -> Iterator[ChartPlace]:
        """What the paper prints for both axes of a run; its epsilon is the one it prints."""
        if self.spec.points == "checkpoints":
            return
        x, name = self._x(run, run.lines), self.spec.x
        if name in self.spec.columns:
            claims_nothing = x is not None and math.isinf(x.mean)
            given = paper.get(name, paper.get("printed epsilon") if name == "epsilon" else None)
            x = Averaged(float(given)) if is_number(given) else x if claims_nothing else None
        for column in self.spec.y:
            y = paper.get(column)
            if x is not None and is_number(y) and self._fits(x.mean, y):
                series = self._series_name(run, column)
                yield ChartPlace(run, column, series, x, Averaged(float(y)), printed=True)

    def _series_name(self, run: RunSeries, column: str) -> str:
        if not self.spec.series:
            return column
        parts = []
        for name in self.spec.series:
            value = run.variation.run if name == RUN else run.setting(name)
            if value is not None:
                parts.append(str(value) if name == RUN else f"{_readable(name)} {_short(value)}")
        series = ", ".join(parts) or run.variation.run
        return f"{series}: {column}" if len(self.spec.y) > 1 else series

    def axes(self, places: Sequence[ChartPlace]) -> tuple[Axis, Axis]:
        spec, label = self.spec, _label(self.spec.x, self.spec.x in self.spec.columns)
        across = _values(place.x for place in places)
        if self.categories:
            x = word_axis(label, self.categories)
        elif spec.x in EPSILONS:
            x = epsilon_axis(label, across)
        else:
            x = _axis(label, across, spec.log.get("x"))
        up = _values(place.y for place in places) + _chances(spec)
        names = list(dict.fromkeys(_label(column, True) for column in spec.y))
        named = names[0] if len(names) == 1 else _together(names)
        least = {column.least for column in _attack_columns(spec)}
        if len(least) == 1 and (begin := least.pop()) is not None and not spec.log.get("y"):
            return x, axis_for(named, up, logarithmic=False, least=begin)
        return x, _axis(named, up, spec.log.get("y"))

    def series(self, places: Sequence[ChartPlace], looks: Mapping[str, int], x: str, y: str) -> tuple[Series, ...]:
        found: dict[tuple[str, bool], list[ChartPlace]] = {}
        for place in places:
            found.setdefault((place.series, place.printed), []).append(place)
        own = {name: looks[members[0].run.variation.run] for (name, _), members in reversed(found.items())}
        names = list(dict.fromkeys(name for name, _ in found))
        if len({look % COLORS for look in own.values()}) < len(names):
            own = {name: look for look, name in enumerate(names)}
        several = any(len({one.x.mean for one in members}) > 1 for members in found.values())
        step = _APART if self.categories and len(found) > 1 and several else 0.0
        series = []
        for at, ((name, printed), members) in enumerate(found.items()):
            members.sort(key=lambda place: (place.step or 0, place.x.mean, place.y.mean))
            shift = step * (at - (len(found) - 1) / 2)
            series.append(
                Series(
                    f"{name} (paper)" if printed else name,
                    tuple(self._point(place, shift, x, y) for place in members),
                    own[name],
                    f"{'paper' if printed else 'series'}: {name}",
                    lines=len(members) > 1 and not printed and not self.categories,
                    hollow=printed,
                )
            )
        return tuple(series)

    def _point(self, place: ChartPlace, shift: float, x: str, y: str) -> Point:
        """shift: how far from its category it is drawn, so that series of one category are next to each other."""
        head = f"{place.run.name}, as the paper prints it" if place.printed else place.run.name
        step = [f"After {place.step:,} steps"] if place.step is not None else []
        across, up = self._written(place)
        tip = "\n".join([head, *step, f"{x.partition(':')[0]} {across}", f"{y.partition(':')[0]} {up}"])
        row = f"#{self.rows[place.run.name]}"
        return Point(place.x.mean + shift, place.y.mean, tip, row, x_ends=place.x.ends, y_ends=place.y.ends)

    def _written(self, place: ChartPlace) -> tuple[str, str]:
        if self.categories:
            return self.categories[round(place.x.mean)], _number(place.y)
        return "no claim" if math.isinf(place.x.mean) else _number(place.x), _number(place.y)

    def description(self, places: Sequence[ChartPlace], x: str, y: str) -> str:
        if not places:
            return "Nothing to draw: no run has both numbers."
        points = [f"{place.series}: {', '.join(self._written(place))}" for place in places[:_MOST_DESCRIBED]]
        more = f"; and {len(places) - _MOST_DESCRIBED} more points" if len(places) > _MOST_DESCRIBED else ""
        return f"{y} over {x.partition(':')[0].lower()}. {'; '.join(points)}{more}."

    def table(self, places: Sequence[ChartPlace], x: str, y: str) -> Table:
        steps = self.spec.points == "checkpoints" and self.spec.x != "step"
        rows = tuple(
            (place.series, place.run.name, *((f"{place.step:,}",) if steps else ()), *self._written(place))
            for place in places
        )
        return Table(("Line", "Run", *(("Step",) if steps else ()), x.partition(":")[0], y), rows)


def _number(value: Averaged) -> str:
    deviation = f" ± {number(value.deviation, 2)}" if value.deviation else ""
    return f"{number(value.mean, 4)}{deviation}"


def _short(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value).lstrip("$")


def _readable(name: str) -> str:
    """A setting as a person reads it: plan.noise_multiplier is "noise multiplier"."""
    return name.split(".")[-1].replace("_", " ")


def _label(name: str, is_column: bool) -> str:
    brought = attack_columns().get(name) if is_column else None
    if brought is not None and brought.label:
        return brought.label
    label = name if is_column else _readable(name)
    if name == "epsilon" and is_column:
        label += ": different units are different scales"
    return label[0].upper() + label[1:]


def _values(averages: Iterable[Averaged]) -> list[float]:
    """All that an axis must have room for."""
    return [value for one in averages for value in (one.mean, *(one.ends or ()))]


def _axis(label: str, values: list[float], logarithmic: bool | None) -> Axis:
    return axis_for(label, [value for value in values if value > 0] if logarithmic else values, logarithmic)


def _together(labels: list[str]) -> str:
    """One label for an axis of several columns: their common unit, or all their labels."""
    units = {label.rpartition(", ")[2] if label.endswith("bits") else label.split()[-1] for label in labels}
    return units.pop().capitalize() if len(units) == 1 else ", ".join(labels)


def _attack_columns(spec: ChartSpec) -> list[Column]:
    """What attacks declare about the columns along y; about other columns nothing is known."""
    brought = attack_columns()
    return [brought.get(name, Column(name)) for name in spec.y]


def _chances(spec: ChartSpec) -> list[float]:
    return list(dict.fromkeys(one.chance for one in _attack_columns(spec) if one.chance is not None))


def sweep_page(recipe: Recipe, results: dict[str, Any], compared: str | None = None, linked: bool = False) -> str:
    """The whole HTML page.

    compared: the page that compares the runs; linked: whether the runs' folders are next to the page.
    """
    lines = results["runs"]
    columns = columns_of(lines, recipe.paper)
    drawn = charts(recipe, lines)
    sections = [("pictures", "Pictures")] if drawn else []
    return render(
        "sweep.html.jinja",
        recipe=recipe,
        results=results,
        compared=compared,
        linked=linked,
        sections=[*sections, ("table", "Runs")],
        charts=drawn,
        columns=columns,
        meanings={name: one.meaning for name, one in attack_columns().items() if name in columns and one.meaning},
        rows=rows_of(lines, columns, recipe.paper),
        anchors=anchors(recipe),
    )
