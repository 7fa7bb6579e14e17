"""Pages from templates, and charts drawn as SVG, each with a title, a description and a table behind it.

Everything in a template is escaped, and an undefined variable is an error. Lines differ by dash and markers by shape,
never by color alone. A series can be switched off by its key. Long tables are cut, and say how much was left out.
Values are cleaned and escaped; numbers have at most two decimals.
"""

import base64
import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from tacit.common.charts import (
    Axis,
    Bar,
    Chart,
    ChartRule,
    Dot,
    Point,
    Region,
    RowChart,
    ScatterChart,
    Series,
    Table,
    Whisker,
)
from tacit.common.formatting import ceiling, floor, interval, name, number, percent, printable, rounded_up, short, text

WIDTH, HEIGHT = 480.0, 330.0
COLORS = 8
PAGE_LABELS = 14  # more points than this are named by hovering alone
MOST_ROWS = 60  # of a table
_LEFT, _RIGHT, _TOP, _BOTTOM = 56.0, 14.0, 34.0, 46.0
_ROWS_LEFT, _ROWS_RIGHT, _ROWS_TOP = 10.0, 18.0, 8.0
_LABEL, _GAP = 18.0, 12.0
_LETTER, _LINE = 7.8, 15.0
_GOLDEN = (math.sqrt(5) - 1) / 2
Attribute = str | int | float | None


def element(tag: str, attributes: Mapping[str, Attribute], *children: str | Markup) -> Markup:
    """One element; an attribute that is None is left out, and children that are not markup are escaped."""
    written = "".join(
        Markup(' {}="{}"').format(key, round_off(value) if isinstance(value, float) else printable(str(value)))
        for key, value in attributes.items()
        if value is not None
    )
    inside = Markup("").join(child if isinstance(child, Markup) else escape(printable(child)) for child in children)
    return Markup("<") + tag + Markup(written) + (Markup(">") + inside + Markup("</{}>").format(tag))


def group(attributes: Mapping[str, Attribute], *children: str | Markup) -> Markup:
    return element("g", attributes, *children)


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    return element("line", {"class": kind, "x1": x1, "y1": y1, "x2": x2, "y2": y2})


def caption(x: float, y: float, content: str, kind: str, anchor: str = "start") -> Markup:
    """A line of text of a class; anchor: start, middle or end."""
    return element("text", {"class": kind, "x": x, "y": y, "text-anchor": anchor}, content)


def path(points: list[tuple[float, float]], kind: str, closed: bool = False) -> Markup:
    moves = "M" + "L".join(f"{round_off(x)} {round_off(y)}" for x, y in points) + ("Z" if closed else "")
    return element("path", {"class": kind, "d": moves})


def whisker(start: tuple[float, float], end: tuple[float, float], kind: str = "whisker", half: float = 5.0) -> Markup:
    """A level or upright line between two places, with a short line across each end."""
    (x1, y1), (x2, y2) = start, end
    across, up = (0.0, half) if y1 == y2 else (half, 0.0)
    ends = [line(x - across, y - up, x + across, y + up, kind) for x, y in (start, end)]
    return group({}, line(x1, y1, x2, y2, kind), *ends)


def marker(shape: int, x: float, y: float, size: float, kind: str) -> Markup:
    """One of eight shapes that differ in black and white, of about equal area."""
    shape %= 8
    if shape == 0:
        return element("circle", {"class": kind, "cx": x, "cy": y, "r": size})
    half = size * 0.92
    outline = {
        1: [(-half, -half), (half, -half), (half, half), (-half, half)],
        2: [(0, -1.25 * size), (1.15 * size, 0.85 * size), (-1.15 * size, 0.85 * size)],
        3: [(0, -1.35 * size), (1.35 * size, 0), (0, 1.35 * size), (-1.35 * size, 0)],
        4: _plus(size),
        5: [(0, 1.25 * size), (1.15 * size, -0.85 * size), (-1.15 * size, -0.85 * size)],
        6: [(0.7071 * (a - b), 0.7071 * (a + b)) for a, b in _plus(size)],
        7: [(0.55 * size * a, 1.15 * size * b) for a, b in ((-1, -1), (1, -1), (2.1, 0), (1, 1), (-1, 1), (-2.1, 0))],
    }[shape]
    return path([(x + a, y + b) for a, b in outline], kind, closed=True)


def _plus(size: float) -> list[tuple[float, float]]:
    long, thin = 1.3 * size, 0.45 * size
    corner = [(thin, -long), (thin, -thin), (long, -thin), (long, thin), (thin, thin), (thin, long)]
    return corner + [(-a, -b) for a, b in corner]


def rect(kind: str, x: float, y: float, width: float, height: float, rounded: float | None = None) -> Markup:
    return element("rect", {"class": kind, "x": x, "y": y, "width": width, "height": height, "rx": rounded})


def round_off(value: float) -> str:
    """At most two decimals, and no zeros at the end."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of a legend: what a look means, and the key that switches it."""

    name: str
    key: str
    swatch: Markup


@dataclass(frozen=True, slots=True)
class Drawing:
    """A chart as a picture, with its legend and its table."""

    picture: Markup
    legend: tuple[Entry, ...]
    table: Table


def draw(chart: Chart) -> Drawing:
    height, drawn = _scatter(chart) if isinstance(chart, ScatterChart) else _rows(chart)
    legend = _scatter_legend(chart) if isinstance(chart, ScatterChart) else _rows_legend(chart)
    return Drawing(_frame(chart, height, drawn), legend, cut(chart.table))


def cut(table: Table) -> Table:
    left = len(table.rows) - MOST_ROWS
    return table if left <= 0 else replace(table, rows=table.rows[:MOST_ROWS], more=f"And {left:,} more rows.")


def place_on(chart: ScatterChart, x: float, y: float) -> tuple[float, float]:
    """Where a point is on the picture."""
    across = _LEFT + (WIDTH - _LEFT - _RIGHT) * chart.x.place(x)
    return across, HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * chart.y.place(y)


def series_swatch(series: Series) -> Markup:
    """The look of a series, small."""
    color = series.look % COLORS
    drawn = [line(1, 8, 27, 8, f"series c{color} d{color}")] if series.lines else []
    if series.markers:
        drawn.append(marker(series.look, 14, 8, 4.5, _marker_class(series.look, series.hollow)))
    return _swatch(*drawn)


def _scatter(chart: ScatterChart) -> tuple[float, list[Markup]]:
    labels = _Labels([place_on(chart, point.x, point.y) for series in chart.series for point in series.points])
    return HEIGHT, [
        *_axes(chart),
        *(_region(chart, region) for region in chart.regions),
        *(_rule(chart, rule) for rule in chart.rules),
        *(_series(chart, series, labels) for series in chart.series),
    ]


def _scatter_legend(chart: ScatterChart) -> tuple[Entry, ...]:
    if not chart.legend:
        return ()
    entries = {region.key: Entry(region.name, region.key, _box(region.kind)) for region in chart.regions}
    for series in chart.series:
        entries.setdefault(series.key, Entry(series.name, series.key, series_swatch(series)))
    return tuple(entries.values())


def _frame(chart: Chart, height: float, drawn: Sequence[Markup]) -> Markup:
    """The SVG element around a picture, with its description for a screen reader."""
    attributes = {
        "class": "picture",
        "viewBox": f"0 0 {WIDTH:g} {height:g}",
        "role": "group",
        "aria-labelledby": f"{chart.key}-title {chart.key}-description",
    }
    title = element("title", {"id": f"{chart.key}-title"}, chart.title)
    description = element("desc", {"id": f"{chart.key}-description"}, chart.description)
    return element("svg", attributes, title, description, *drawn)


def _tick_line(axis: Axis, left: float, right: float, top: float, bottom: float) -> list[Markup]:
    """The numbers and grid lines of a horizontal axis, and its name below."""
    drawn, wide = [], right - left
    for begin, end, band in axis.bands:
        drawn.append(rect("band", left + wide * begin, top, wide * (end - begin), bottom - top))
        drawn.append(caption(left + wide * (begin + end) / 2, bottom + 17, band, "tick", "middle"))
    for tick in axis.ticks():
        x = left + wide * axis.place(tick)
        drawn += [line(x, top, x, bottom, "grid"), caption(x, bottom + 17, axis.written(tick), "tick", "middle")]
    axis_line = line(left, bottom, right, bottom, "axis")
    return [*drawn, axis_line, caption((left + right) / 2, bottom + 37, axis.label, "name", "middle")]


def _axes(chart: ScatterChart) -> list[Markup]:
    right, bottom = WIDTH - _RIGHT, HEIGHT - _BOTTOM
    drawn = _tick_line(chart.x, _LEFT, right, _TOP, bottom)
    for tick in chart.y.ticks():
        y = bottom - (bottom - _TOP) * chart.y.place(tick)
        drawn += [line(_LEFT, y, right, y, "grid"), caption(_LEFT - 8, y + 4, chart.y.written(tick), "tick", "end")]
    return [*drawn, caption(4, 16, chart.y.label, "name")]


def _region(chart: ScatterChart, region: Region) -> Markup:
    outline = [place_on(chart, x, y) for x, y in region.points]
    return group({"data-series": region.key}, path(outline, region.kind, closed=True))


def _rule(chart: ScatterChart, rule: ChartRule) -> Markup:
    start, end = place_on(chart, *rule.start), place_on(chart, *rule.end)
    x, y = (one + 0.72 * (other - one) for one, other in zip(start, end, strict=True))
    return group({}, path([start, end], "rule"), caption(x + 8, y + 14, rule.label, "ruled"))


def _series(chart: ScatterChart, series: Series, labels: "_Labels") -> Markup:
    color = series.look % COLORS
    places = [place_on(chart, point.x, point.y) for point in series.points]
    drawn: list[Markup] = []
    if series.lines and len(places) > 1:
        drawn.append(path(places, f"series c{color} d{color}"))
        if series.tip:
            drawn.append(group({"class": "near", "data-tip": series.tip}, path(places, "hit")))
    if series.markers:
        drawn += [_whiskers(chart, point, f"whisker c{color}") for point in series.points]
        drawn += [_point(point, place, series, labels) for point, place in zip(series.points, places, strict=True)]
    return group({"data-series": series.key}, *drawn)


def _whiskers(chart: ScatterChart, point: Point, kind: str) -> Markup:
    across = [place_on(chart, x, point.y) for x in point.x_ends or ()]
    up = [place_on(chart, point.x, y) for y in point.y_ends or ()]
    return Markup("").join(whisker(ends[0], ends[1], kind) for ends in (across, up) if ends)


def _point(point: Point, place: tuple[float, float], series: Series, labels: "_Labels") -> Markup:
    drawn = [marker(series.look, *place, 5.5, _marker_class(series.look, series.hollow))]
    if point.label:
        drawn.append(labels.beside(place, point.label, f"label t{series.look % COLORS}"))
    spoken = point.tip.replace("\n", ", ")
    if point.link is None:
        return group({"class": "point", "data-tip": point.tip or None, "aria-label": spoken or None}, *drawn)
    hit = element("circle", {"class": "hit", "cx": place[0], "cy": place[1], "r": 11})
    attributes = {"class": "point", "href": point.link, "data-tip": point.tip, "aria-label": spoken}
    return element("a", attributes, hit, *drawn)


@dataclass(slots=True)
class _Labels:
    """Puts names beside points where there is room, or nowhere."""

    taken: list[tuple[float, float]]
    boxes: list[tuple[float, float, float, float]] = field(default_factory=list)

    def beside(self, place: tuple[float, float], label: str, kind: str) -> Markup:
        x, y = place
        wide = _LETTER * len(label)
        for left, base, anchor in (
            (x + 10, y + 4, "start"),
            (x - 10 - wide, y + 4, "end"),
            (x - wide / 2, y - 11, "middle"),
            (x - wide / 2, y + 20, "middle"),
        ):
            box = (left, base - _LINE + 3, left + wide, base + 3)
            if self._free(box, place):
                self.boxes.append(box)
                return caption({"start": left, "end": left + wide, "middle": x}[anchor], base, label, kind, anchor)
        return Markup("")

    def _free(self, box: tuple[float, float, float, float], own: tuple[float, float]) -> bool:
        left, top, right, bottom = box
        inside = left >= _LEFT and right <= WIDTH - 4 and top >= _TOP - 8 and bottom <= HEIGHT - _BOTTOM
        covers = any(left - 7 < x < right + 7 and top - 7 < y < bottom + 7 for x, y in self.taken if (x, y) != own)
        overlaps = any(left < r and right > a and top < b and bottom > t for a, t, r, b in self.boxes)
        return inside and not covers and not overlaps


def _rows(chart: RowChart) -> tuple[float, list[Markup]]:
    top = _ROWS_TOP + (16 if chart.marks else 0)
    each = _LABEL + chart.band + _GAP
    bottom = top + each * len(chart.rows)
    drawn = _tick_line(chart.axis, _ROWS_LEFT, WIDTH - _ROWS_RIGHT, top, bottom)
    for mark in chart.marks:
        x = _across(chart.axis, mark.value)
        side = "end" if x > WIDTH / 2 else "start"
        named = caption(x + (4 if side == "start" else -4), top - 4, mark.label, "ruled", side)
        drawn += [line(x, top - 4, x, bottom, "rule"), named]
    for at, row in enumerate(chart.rows):
        above = top + each * at
        drawn.append(caption(_ROWS_LEFT, above + _LABEL - 4, row.name, "rowname"))
        middle = above + _LABEL + chart.band / 2
        drawn += [_item(chart, item, middle, place) for place, item in enumerate(row.items)]
    return bottom + _BOTTOM, drawn


def _rows_legend(chart: RowChart) -> tuple[Entry, ...]:
    def swatch(sample: Bar | Dot) -> Markup:
        if isinstance(sample, Bar):
            return _box(sample.kind, 2)
        return _swatch(marker(sample.look, 14, 8, 4.5, _marker_class(sample.look, sample.hollow)))

    return tuple(Entry(one.name, "", swatch(one.sample)) for one in chart.legend)


def _across(axis: Axis, value: float) -> float:
    return _ROWS_LEFT + (WIDTH - _ROWS_LEFT - _ROWS_RIGHT) * axis.place(value)


def _item(chart: RowChart, item: Bar | Dot | Whisker, middle: float, at: int) -> Markup:
    if isinstance(item, Dot):
        shift = ((at * _GOLDEN) % 1 - 0.5) * (chart.band - 8) if item.spread else 0.0
        kind = _marker_class(item.look, item.hollow)
        dot = marker(item.look, _across(chart.axis, item.value), middle + shift, 5.0, kind)
        return group({"class": "point", "data-tip": item.tip or None}, dot)
    low, high = _across(chart.axis, item.low), _across(chart.axis, item.high)
    if isinstance(item, Whisker):
        return whisker((low, middle), (high, middle))
    y, wide = middle - chart.band / 2 + 3, max(high - low, 1.5)
    drawn = [rect(item.kind, low, y, wide, chart.band - 6, 2.0)]
    if item.label and high - low > 7.2 * len(item.label) + 8:
        drawn.append(caption((low + high) / 2, middle + 4, item.label, "inbar", "middle"))
    return group({"class": "point", "data-tip": item.tip or None}, *drawn)


def _marker_class(look: int, hollow: bool) -> str:
    return f"marker c{look % COLORS}" + (" hollow" if hollow else "")


def _box(kind: str, rounded: int | None = None) -> Markup:
    return _swatch(rect(kind, 1, 2, 26, 12, rounded))


def _swatch(*drawn: Markup) -> Markup:
    return element("svg", {"class": "swatch", "viewBox": "0 0 28 16", "aria-hidden": "true"}, *drawn)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("tacit.reports", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    named = (ceiling, floor, interval, name, number, percent, rounded_up, text, draw, cut)
    environment.filters |= {one.__name__: one for one in named}
    environment.filters |= {"whole": lambda count: f"{count:,}", "word": short, "clean": printable}
    return environment


def render(file: str, **values: object) -> str:
    """The page of a template.

    Pages with charts have one script, the same bytes on each; their policy is to run it and no other, to load nothing
    and to send nothing.
    """
    script = Markup(_environment().get_template("script.js.jinja").render())
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; base-uri 'none'; "
        "form-action 'none'"
    )
    return _environment().get_template(file).render(policy=policy, script=script, **values).lstrip()
