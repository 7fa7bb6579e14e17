"""The pictures that a recipe asks for, from the lines of its results.

G1 (averages). A point is the mean over the seeds of one run, at one step where a point is a model on the way; whiskers
   are one sample deviation to each side.
G2 (all or said). A run that is asked for and has no number for an axis is named below the picture.
G3 (one look). A run has one colour and shape on all pictures of a page, as far as there are enough of them.

The page of a sweep: the recipe's pictures and the table of its runs, from the recipe and its results alone.

G1 (pure). Equal recipes and results give equal pages; nothing is loaded and nothing sent.
G2 (hostile text). Whatever stands in a recipe or a reason is escaped and cleaned.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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
from tacit.errors import ConfigError
from tacit.reports.drawing import COLOURS
from tacit.reports.environment import script, script_policy, template
from tacit.sweeps.recipe import Recipe, Variation, dotted, variations
from tacit.sweeps.result_columns import (
    PRICES,
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

_MOST_SAID = 14
_BESIDE = 0.11  # of the room that a word has


@dataclass(frozen=True, slots=True)
class RunSeries:
    """One run over its seeds: how the recipe makes it, and the lines of those that were done."""

    variation: Variation
    lines: tuple[ResultLine, ...]

    @property
    def name(self) -> str:
        """Without the seed."""
        return self.variation.group

    def setting(self, word: str) -> object:
        """What the recipe says, none where it says nothing."""
        return dotted(self.variation.words).get(word)


@dataclass(frozen=True, slots=True)
class ChartPlace:
    """A point of a picture before it has axes."""

    run: RunSeries
    column: str
    series: str
    x: Averaged
    y: Averaged
    step: int | None = None
    printed: bool = False


def charts(recipe: Recipe, lines: Sequence[ResultLine]) -> list[Chart]:
    """Every picture, in the order of the recipe; one without points says why."""
    runs = _runs(recipe, lines)
    looks = {name: look for look, name in enumerate(dict.fromkeys(run.variation.run for run in runs))}
    return [_chart(f"draw-{at}", one, recipe, runs, looks) for at, one in enumerate(recipe.draws, 1)]


def anchors(recipe: Recipe) -> dict[str, str]:
    """Where on the page the row of each run is."""
    groups = dict.fromkeys(one.group for one in variations(recipe))
    return {group: f"row-{at}" for at, group in enumerate(groups)}


def _runs(recipe: Recipe, lines: Sequence[ResultLine]) -> list[RunSeries]:
    first: dict[str, Variation] = {}
    for one in variations(recipe):
        first.setdefault(one.group, one)
    for name in (line["group"] for line in lines if line["group"] not in first):
        raise ConfigError("results of the recipe's runs", f"those of {name}", "sweep the recipe as it stands now")
    done = [line for line in lines if line["figures"] is not None]
    return [RunSeries(one, tuple(line for line in done if line["group"] == group)) for group, one in first.items()]


def _chart(key: str, wanted: ChartSpec, recipe: Recipe, runs: Sequence[RunSeries], looks: Mapping[str, int]) -> Chart:
    chosen = [run for run in runs if not wanted.runs or {run.name, run.variation.run} & set(wanted.runs)]
    words = _words(wanted, chosen)
    places = [place for run in chosen for place in _places(wanted, run, words)]
    drawn = {(place.run.name, place.column) for place in places}
    printed = [place for run in chosen for place in _printed(wanted, run, words, recipe.paper.get(run.name, {}))]
    x, y = _axes(wanted, [*places, *printed], words)
    series = _series([*places, *printed], looks, anchors(recipe), (x.label, y.label), words)
    rules = tuple(ChartRule((x.low, chance), (x.high, chance), "chance") for chance in _chances(wanted))
    missing = [run.name for run in chosen if any((run.name, column) not in drawn for column in wanted.y)]
    said = [wanted.note.strip(), f"Without all numbers of this picture: {', '.join(missing)}." if missing else ""]
    return ScatterChart(
        key,
        wanted.title,
        _described(places, x.label, y.label, words),
        x,
        y,
        series,
        _table(places, x.label, y.label, words, wanted.points == "checkpoints" and wanted.x != "step"),
        rules=rules,
        note=" ".join(filter(None, said)),
    )


def _words(wanted: ChartSpec, runs: Sequence[RunSeries]) -> tuple[str, ...]:
    """What stands along x where it is no number: the values of a setting, in the order of the recipe."""
    if wanted.x in wanted.columns:
        return ()
    values = [value for run in runs if (value := run.setting(wanted.x)) is not None]
    if all(is_number(value) for value in values):
        return ()
    return tuple(dict.fromkeys(str(value).lstrip("$") for value in values))


def _places(wanted: ChartSpec, run: RunSeries, words: tuple[str, ...]) -> Iterator[ChartPlace]:
    if wanted.points == "checkpoints":
        curves = [{int(point["step"]): point for point in checkpoints(line)} for line in run.lines]
        shared = sorted(set.intersection(*(set(curve) for curve in curves))) if curves else []
        for step in shared:
            yield from _at(wanted, run, words, [curve[step] for curve in curves], step)
    elif run.lines:
        yield from _at(wanted, run, words, run.lines, None)


def _at(
    wanted: ChartSpec, run: RunSeries, words: tuple[str, ...], lines: Sequence[ResultLine], step: int | None
) -> Iterator[ChartPlace]:
    x = _across(wanted, run, words, lines)
    for column in wanted.y:
        y = averaged(wanted.columns[column](line) for line in lines)
        if x is not None and y is not None and _has_place(wanted, x.mean, y.mean):
            yield ChartPlace(run, column, _series_name(wanted, run, column), x, y, step)


def _across(wanted: ChartSpec, run: RunSeries, words: tuple[str, ...], lines: Sequence[ResultLine]) -> Averaged | None:
    if wanted.x in wanted.columns:
        found = averaged(wanted.columns[wanted.x](line) for line in lines)
        claims_nothing = found is None and wanted.x == "epsilon" and lines
        return _exactly(math.inf) if claims_nothing else found
    value = run.setting(wanted.x)
    if value is None:
        return None
    return _exactly(words.index(str(value).lstrip("$")) if words else float(str(value)))


def _exactly(value: float) -> Averaged:
    return Averaged(float(value), 0.0, 1, 1)


def _has_place(wanted: ChartSpec, x: float, y: float) -> bool:
    """Whether a logarithmic axis that was asked for has a place for it."""
    across = wanted.x in PRICES or not wanted.log.get("x") or x > 0
    return across and (not wanted.log.get("y") or y > 0)


def _printed(
    wanted: ChartSpec, run: RunSeries, words: tuple[str, ...], paper: Mapping[str, float | str]
) -> Iterator[ChartPlace]:
    """What the paper prints of both axes, for a run and no model on the way; its epsilon is the one it prints."""
    if wanted.points == "checkpoints":
        return
    x = _across(wanted, run, words, run.lines)
    if wanted.x in wanted.columns:
        claims_nothing = x is not None and math.isinf(x.mean)
        given = paper.get(wanted.x, paper.get("printed epsilon") if wanted.x == "epsilon" else None)
        x = _exactly(given) if isinstance(given, int | float) else x if claims_nothing else None
    for column in wanted.y:
        y = paper.get(column)
        if x is not None and isinstance(y, int | float) and _has_place(wanted, x.mean, y):
            yield ChartPlace(run, column, _series_name(wanted, run, column), x, _exactly(y), printed=True)


def _series_name(wanted: ChartSpec, run: RunSeries, column: str) -> str:
    parts = []
    for word in wanted.series:
        value = run.variation.run if word == RUN else run.setting(word)
        if value is not None:
            parts.append(str(value) if word == RUN else f"{_spoken(word)} {_short(value)}")
    if not wanted.series:
        return column
    name = ", ".join(parts) or run.variation.run
    return f"{name}: {column}" if len(wanted.y) > 1 else name


def _short(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value).lstrip("$")


def _spoken(word: str) -> str:
    """A setting as a person says it: plan.noise_multiplier is "noise multiplier"."""
    return word.split(".")[-1].replace("_", " ")


def _label(word: str, is_column: bool) -> str:
    brought = attack_columns().get(word) if is_column else None
    if brought is not None and brought.label:
        return brought.label
    said = word if is_column else _spoken(word)
    if word == "epsilon" and is_column:
        said += ": different units are different scales"
    return said[0].upper() + said[1:]


def _axes(wanted: ChartSpec, places: Sequence[ChartPlace], words: tuple[str, ...]) -> tuple[Axis, Axis]:
    label = _label(wanted.x, wanted.x in wanted.columns)
    across = [value for place in places for value in (place.x.mean, *(place.x.ends or ()))]
    if words:
        x = word_axis(label, words)
    elif wanted.x in PRICES:
        x = epsilon_axis(label, across)
    else:
        x = _axis(label, across, wanted.log.get("x"))
    up = [value for place in places for value in (place.y.mean, *(place.y.ends or ()))]
    up += _chances(wanted)
    names = dict.fromkeys(_label(column, True) for column in wanted.y)
    named = next(iter(names)) if len(names) == 1 else _together(list(names))
    least = {column.least for column in _brought(wanted)}
    if len(least) == 1 and (begin := least.pop()) is not None and not wanted.log.get("y"):
        return x, axis_for(named, up, logarithmic=False, least=begin)
    return x, _axis(named, up, wanted.log.get("y"))


def _axis(label: str, values: list[float], logarithmic: bool | None) -> Axis:
    return axis_for(label, [value for value in values if value > 0] if logarithmic else values, logarithmic)


def _together(labels: list[str]) -> str:
    """One name for an axis of several columns: theirs, or what they are measured in."""
    units = {label.rpartition(", ")[2] if label.endswith("bits") else label.split()[-1] for label in labels}
    return units.pop().capitalize() if len(units) == 1 else ", ".join(labels)


def _brought(wanted: ChartSpec) -> list[Column]:
    """What attacks say about the columns along y; of others nothing is known."""
    brought = attack_columns()
    return [brought.get(name, Column(name)) for name in wanted.y]


def _chances(wanted: ChartSpec) -> list[float]:
    """What guessing reaches, each once."""
    return list(dict.fromkeys(one.chance for one in _brought(wanted) if one.chance is not None))


def _series(
    places: Sequence[ChartPlace],
    looks: Mapping[str, int],
    rows: Mapping[str, str],
    labels: tuple[str, str],
    words: tuple[str, ...],
) -> tuple[Series, ...]:
    found: dict[tuple[str, bool], list[ChartPlace]] = {}
    for place in places:
        found.setdefault((place.series, place.printed), []).append(place)
    names = list(dict.fromkeys(name for name, _ in found))
    own = {name: looks[next(place.run.variation.run for place in places if place.series == name)] for name in names}
    if len({look % COLOURS for look in own.values()}) < len(names):
        own = {name: look for look, name in enumerate(names)}
    crowded = words and len(found) > 1 and any(len({one.x.mean for one in members}) > 1 for members in found.values())
    apart = {one: _BESIDE * (at - (len(found) - 1) / 2) if crowded else 0.0 for at, one in enumerate(found)}
    return tuple(
        Series(
            f"{name} (paper)" if printed else name,
            tuple(_point(place, apart[name, printed], rows, labels, words) for place in _in_order(members)),
            own[name],
            f"{'paper' if printed else 'series'}: {name}",
            lines=len(members) > 1 and not printed and not words,
            hollow=printed,
        )
        for (name, printed), members in found.items()
    )


def _in_order(places: list[ChartPlace]) -> list[ChartPlace]:
    return sorted(places, key=lambda place: (place.step or 0, place.x.mean, place.y.mean))


def _point(
    place: ChartPlace, apart: float, rows: Mapping[str, str], labels: tuple[str, str], words: tuple[str, ...]
) -> Point:
    """apart: how far from its word it stands, so that lines of one word are seen beside each other."""
    head = f"{place.run.name}, as the paper prints it" if place.printed else place.run.name
    step = [f"After {place.step:,} steps"] if place.step is not None else []
    x, y = _said(place, words)
    names = [label.partition(":")[0] for label in labels]
    tip = "\n".join([head, *step, f"{names[0]} {x}", f"{names[1]} {y}"])
    return Point(
        place.x.mean + apart, place.y.mean, tip, f"#{rows[place.run.name]}", x_ends=place.x.ends, y_ends=place.y.ends
    )


def _said(place: ChartPlace, words: tuple[str, ...]) -> tuple[str, str]:
    """Both coordinates as they are read aloud."""
    across = words[round(place.x.mean)] if words else "no claim" if math.isinf(place.x.mean) else _number(place.x)
    return across, _number(place.y)


def _number(value: Averaged) -> str:
    deviation = f" ± {number(value.deviation, 2)}" if value.deviation else ""
    return f"{number(value.mean, 4)}{deviation}"


def _described(places: Sequence[ChartPlace], x: str, y: str, words: tuple[str, ...]) -> str:
    if not places:
        return "Nothing to draw: no run has both numbers."
    told = [f"{place.series}: {', '.join(_said(place, words))}" for place in places[:_MOST_SAID]]
    more = f"; and {len(places) - _MOST_SAID} more points" if len(places) > _MOST_SAID else ""
    return f"{y} over {x.partition(':')[0].lower()}. {'; '.join(told)}{more}."


def _table(places: Sequence[ChartPlace], x: str, y: str, words: tuple[str, ...], steps: bool) -> Table:
    rows = tuple(
        (place.series, place.run.name, *((f"{place.step:,}",) if steps else ()), *_said(place, words))
        for place in places
    )
    head = ("Line", "Run", *(("Step",) if steps else ()), x.partition(":")[0], y)
    return Table(head, rows)


PAGE = "sweep.html"


def sweep_page(recipe: Recipe, results: dict[str, Any], compared: str | None = None, linked: bool = False) -> str:
    """The whole HTML page. compared: the page that compares the runs; linked: whether the runs' folders are beside."""
    lines = results["runs"]
    columns = columns_of(lines, recipe.paper)
    drawn = charts(recipe, lines)
    sections = [("pictures", "Pictures")] if drawn else []
    page = template("sweep.html.jinja").render(
        recipe=recipe,
        results=results,
        compared=compared,
        linked=linked,
        policy=script_policy(),
        script=script(),
        sections=[*sections, ("table", "Runs")],
        charts=drawn,
        columns=columns,
        meanings={name: one.meaning for name, one in attack_columns().items() if name in columns and one.meaning},
        rows=rows_of(lines, columns, recipe.paper),
        anchors=anchors(recipe),
    )
    return page.lstrip()
