"""Pictures of points and lines over two axes, drawn as SVG, each with a title, a description and a table behind it.

Lines differ by dash and markers by shape, never by colour alone. A series can be switched off by its key.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from tacit.reports.scales import Attribute, Axis, element, group, line, marker, path, whisker, words

WIDTH, HEIGHT = 480.0, 330.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 56.0, 14.0, 34.0, 46.0
_LETTER, _LINE = 7.8, 15.0
COLOURS = 8
PAGE_LABELS = 14  # more points than this are named by hovering alone


@dataclass(frozen=True, slots=True)
class Table:
    """The numbers behind a picture; `more` says what was left out."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    more: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of a legend: what a look stands for, and the key that switches it."""

    name: str
    key: str
    swatch: Markup


@dataclass(frozen=True, slots=True)
class Chart:
    """A finished picture."""

    key: str
    title: str
    description: str
    picture: Markup
    legend: tuple[Entry, ...]
    table: Table
    note: str = ""


@dataclass(frozen=True, slots=True)
class Point:
    """A place; `tip` is shown when the mouse or the keyboard stands on it, its first line as a heading.

    x_ends, y_ends: from where to where it may be off.
    """

    x: float
    y: float
    tip: str = ""
    link: str | None = None
    label: str = ""
    x_ends: tuple[float, float] | None = None
    y_ends: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Series:
    """Points with one look. `tip` belongs to the whole line; hollow: markers are outlines."""

    name: str
    points: tuple[Point, ...]
    look: int
    key: str
    lines: bool = True
    markers: bool = True
    tip: str = ""
    hollow: bool = False

    @property
    def marked(self) -> str:
        """The class of its markers."""
        return f"marker c{self.look % COLOURS}" + (" hollow" if self.hollow else "")

    def swatch(self) -> Markup:
        """Its look, small."""
        drawn = [line(1, 8, 27, 8, f"series c{self.look % COLOURS} d{self.look % COLOURS}")] if self.lines else []
        if self.markers:
            drawn.append(marker(self.look, 14, 8, 4.5, self.marked))
        return _swatch(*drawn)


@dataclass(frozen=True, slots=True)
class Region:
    """A filled part of the picture."""

    name: str
    key: str
    points: tuple[tuple[float, float], ...]
    kind: str = "allowed"

    def swatch(self) -> Markup:
        """Its look, small."""
        return _swatch(element("rect", {"class": self.kind, "x": 1, "y": 2, "width": 26, "height": 12}))


@dataclass(frozen=True, slots=True)
class ChartRule:
    """A dotted reference line."""

    start: tuple[float, float]
    end: tuple[float, float]
    label: str


@dataclass(frozen=True, slots=True)
class Sketch:
    """All that is drawn over two axes."""

    key: str
    title: str
    description: str
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    table: Table
    regions: tuple[Region, ...] = ()
    rules: tuple[ChartRule, ...] = ()
    note: str = ""
    legend: bool = True

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Where a point stands on the picture."""
        across = _LEFT + (WIDTH - _LEFT - _RIGHT) * self.x.place(x)
        return across, HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * self.y.place(y)


def draw(sketch: Sketch) -> Chart:
    """The picture of a sketch."""
    labels = _Labels([sketch.at(point.x, point.y) for series in sketch.series for point in series.points])
    drawn = [
        *_axes(sketch),
        *(_region(sketch, region) for region in sketch.regions),
        *(_rule(sketch, rule) for rule in sketch.rules),
        *(_series(sketch, series, labels) for series in sketch.series),
    ]
    entries = {region.key: Entry(region.name, region.key, region.swatch()) for region in sketch.regions}
    for series in sketch.series:
        entries.setdefault(series.key, Entry(series.name, series.key, series.swatch()))
    return Chart(
        sketch.key,
        sketch.title,
        sketch.description,
        frame(sketch.key, sketch.title, sketch.description, WIDTH, HEIGHT, drawn),
        tuple(entries.values()) if sketch.legend else (),
        sketch.table,
        sketch.note,
    )


def frame(key: str, title: str, description: str, width: float, height: float, drawn: Sequence[Markup]) -> Markup:
    """The SVG element around a picture, with what a screen reader says of it."""
    attributes = {
        "class": "picture",
        "viewBox": f"0 0 {width:g} {height:g}",
        "role": "group",
        "aria-labelledby": f"{key}-title {key}-description",
    }
    said = (
        element("title", {"id": f"{key}-title"}, title),
        element("desc", {"id": f"{key}-description"}, description),
    )
    return element("svg", attributes, *said, *drawn)


def tick_line(axis: Axis, left: float, right: float, top: float, bottom: float, wanted: int = 5) -> list[Markup]:
    """The numbers and grid lines of a horizontal axis, and its name below."""
    drawn = []
    for share_from, share_to, word in axis.bands:
        start, end = left + (right - left) * share_from, left + (right - left) * share_to
        box: dict[str, Attribute] = {
            "class": "band",
            "x": start,
            "y": top,
            "width": end - start,
            "height": bottom - top,
        }
        drawn += [element("rect", box), words((start + end) / 2, bottom + 17, word, "tick", "middle")]
    for tick in axis.ticks(wanted):
        x = left + (right - left) * axis.place(tick)
        drawn += [line(x, top, x, bottom, "grid"), words(x, bottom + 17, axis.written(tick), "tick", "middle")]
    drawn += [
        line(left, bottom, right, bottom, "axis"),
        words((left + right) / 2, bottom + 37, axis.label, "name", "middle"),
    ]
    return drawn


def _axes(sketch: Sketch) -> list[Markup]:
    right, bottom = WIDTH - _RIGHT, HEIGHT - _BOTTOM
    drawn = tick_line(sketch.x, _LEFT, right, _TOP, bottom)
    for tick in sketch.y.ticks():
        y = bottom - (bottom - _TOP) * sketch.y.place(tick)
        drawn += [
            line(_LEFT, y, right, y, "grid"),
            words(_LEFT - 8, y + 4, sketch.y.written(tick), "tick", "end"),
        ]
    return [*drawn, words(4, 16, sketch.y.label, "name")]


def _region(sketch: Sketch, region: Region) -> Markup:
    outline = [sketch.at(x, y) for x, y in region.points]
    return group({"data-series": region.key}, path(outline, region.kind, closed=True))


def _rule(sketch: Sketch, rule: ChartRule) -> Markup:
    start, end = sketch.at(*rule.start), sketch.at(*rule.end)
    said = words(
        start[0] + 0.72 * (end[0] - start[0]) + 8, start[1] + 0.72 * (end[1] - start[1]) + 14, rule.label, "ruled"
    )
    return group({}, path([start, end], "rule"), said)


def _series(sketch: Sketch, series: Series, labels: "_Labels") -> Markup:
    colour = series.look % COLOURS
    places = [sketch.at(point.x, point.y) for point in series.points]
    drawn: list[Markup] = []
    if series.lines and len(places) > 1:
        drawn.append(path(places, f"series c{colour} d{colour}"))
        if series.tip:
            drawn.append(group({"class": "near", "data-tip": series.tip}, path(places, "hit")))
    if series.markers:
        drawn += [_whiskers(sketch, point, f"whisker c{colour}") for point in series.points]
        drawn += [_point(point, place, series, labels) for point, place in zip(series.points, places, strict=True)]
    return group({"data-series": series.key}, *drawn)


def _whiskers(sketch: Sketch, point: Point, kind: str) -> Markup:
    drawn = []
    if point.x_ends is not None:
        low, high = (sketch.at(x, point.y) for x in point.x_ends)
        drawn.append(whisker(low, high, kind))
    if point.y_ends is not None:
        low, high = (sketch.at(point.x, y) for y in point.y_ends)
        drawn.append(whisker(low, high, kind))
    return Markup("").join(drawn)


def _point(point: Point, place: tuple[float, float], series: Series, labels: "_Labels") -> Markup:
    drawn = [marker(series.look, *place, 5.5, series.marked)]
    if point.label:
        drawn.append(labels.beside(place, point.label, f"label t{series.look % COLOURS}"))
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
                return words({"start": left, "end": left + wide, "middle": x}[anchor], base, label, kind, anchor)
        return Markup("")

    def _free(self, box: tuple[float, float, float, float], own: tuple[float, float]) -> bool:
        left, top, right, bottom = box
        inside = left >= _LEFT and right <= WIDTH - 4 and top >= _TOP - 8 and bottom <= HEIGHT - _BOTTOM
        covers = any(left - 7 < x < right + 7 and top - 7 < y < bottom + 7 for x, y in self.taken if (x, y) != own)
        overlaps = any(left < r and right > a and top < b and bottom > t for a, t, r, b in self.boxes)
        return inside and not covers and not overlaps


def _swatch(*drawn: Markup) -> Markup:
    return element("svg", {"class": "swatch", "viewBox": "0 0 28 16", "aria-hidden": "true"}, *drawn)
