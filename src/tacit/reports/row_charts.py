"""Pictures of rows over one axis: bars, intervals and dots, one row below the other."""

import math
from dataclasses import dataclass

from markupsafe import Markup

from tacit.reports.charts import COLOURS, WIDTH, Chart, Entry, Table, frame, tick_line
from tacit.reports.scales import Axis, element, group, line, marker, whisker, words

_LEFT, _RIGHT, _TOP, _BOTTOM = 10.0, 18.0, 8.0, 46.0
_LABEL, _BAND, _GAP = 18.0, 26.0, 12.0
_GOLDEN = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True, slots=True)
class Bar:
    """From one value to another."""

    low: float
    high: float
    kind: str
    tip: str = ""
    label: str = ""


@dataclass(frozen=True, slots=True)
class Dot:
    """One value; `spread`: moved up or down a little, so that equal ones can be told apart."""

    value: float
    look: int
    tip: str = ""
    hollow: bool = False
    spread: bool = False


@dataclass(frozen=True, slots=True)
class Whisker:
    """An interval around something."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class ChartRow:
    """A name and what stands in its row."""

    name: str
    items: tuple[Bar | Dot | Whisker, ...]


@dataclass(frozen=True, slots=True)
class Mark:
    """A line through all rows."""

    value: float
    label: str


@dataclass(frozen=True, slots=True)
class RowSketch:
    """All that is drawn over one axis."""

    key: str
    title: str
    description: str
    axis: Axis
    rows: tuple[ChartRow, ...]
    table: Table
    marks: tuple[Mark, ...] = ()
    legend: tuple[Entry, ...] = ()
    note: str = ""
    band: float = _BAND


def draw_rows(sketch: RowSketch) -> Chart:
    """The picture of a sketch."""
    top = _TOP + (16 if sketch.marks else 0)
    each = _LABEL + sketch.band + _GAP
    bottom = top + each * len(sketch.rows)
    drawn = tick_line(sketch.axis, _LEFT, WIDTH - _RIGHT, top, bottom)
    for mark in sketch.marks:
        x = _across(sketch.axis, mark.value)
        side = "end" if x > WIDTH / 2 else "start"
        drawn += [
            line(x, top - 4, x, bottom, "rule"),
            words(x + (4 if side == "start" else -4), top - 4, mark.label, "ruled", side),
        ]
    for number, row in enumerate(sketch.rows):
        above = top + each * number
        drawn.append(words(_LEFT, above + _LABEL - 4, row.name, "rowname"))
        middle = above + _LABEL + sketch.band / 2
        drawn += [_item(sketch, item, middle, at) for at, item in enumerate(row.items)]
    picture = frame(sketch.key, sketch.title, sketch.description, WIDTH, bottom + _BOTTOM, drawn)
    return Chart(sketch.key, sketch.title, sketch.description, picture, sketch.legend, sketch.table, sketch.note)


def dot_swatch(look: int, hollow: bool) -> Markup:
    """The look of a dot, for a legend."""
    drawn = marker(look, 14, 8, 4.5, _dot_class(look, hollow))
    return element("svg", {"class": "swatch", "viewBox": "0 0 28 16", "aria-hidden": "true"}, drawn)


def bar_swatch(kind: str) -> Markup:
    """The look of a bar, for a legend."""
    drawn = element("rect", {"class": kind, "x": 1, "y": 2, "width": 26, "height": 12, "rx": 2})
    return element("svg", {"class": "swatch", "viewBox": "0 0 28 16", "aria-hidden": "true"}, drawn)


def _across(axis: Axis, value: float) -> float:
    return _LEFT + (WIDTH - _LEFT - _RIGHT) * axis.place(value)


def _item(sketch: RowSketch, item: Bar | Dot | Whisker, middle: float, at: int) -> Markup:
    if isinstance(item, Whisker):
        low, high = _across(sketch.axis, item.low), _across(sketch.axis, item.high)
        return whisker((low, middle), (high, middle))
    if isinstance(item, Dot):
        shift = ((at * _GOLDEN) % 1 - 0.5) * (sketch.band - 8) if item.spread else 0.0
        kind = _dot_class(item.look, item.hollow)
        dot = marker(item.look, _across(sketch.axis, item.value), middle + shift, 5.0, kind)
        return group({"class": "point", "data-tip": item.tip or None}, dot)
    low, high = _across(sketch.axis, item.low), _across(sketch.axis, item.high)
    shape: dict[str, str | float | None] = {
        "class": item.kind,
        "x": low,
        "y": middle - sketch.band / 2 + 3,
        "width": max(high - low, 1.5),
        "height": sketch.band - 6,
        "rx": 2.0,
    }
    drawn = [element("rect", shape)]
    if item.label and high - low > 7.2 * len(item.label) + 8:
        drawn.append(words((low + high) / 2, middle + 4, item.label, "inbar", "middle"))
    return group({"class": "point", "data-tip": item.tip or None}, *drawn)


def _dot_class(look: int, hollow: bool) -> str:
    return f"marker c{look % COLOURS}" + (" hollow" if hollow else "")
