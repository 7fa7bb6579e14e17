"""Results, tables and charts as data: nothing is drawn here (`tacit.reports.drawing` does).

Axes go from a quantity to a place on a picture, with round numbers along them:

G1. `place` never decreases with the value, and values outside the axis are at its ends.
G2. Ticks lie on the axis, increase, and are at most ten.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from tacit.common.formatting import number

_MOST_TICKS = 10
_MOST_POWERS = 7
_BAND = 0.16
_ROOM = 0.04
_GAP = 2  # between columns


@dataclass(frozen=True, slots=True)
class Table:
    """Words and numbers in rows; `more` counts what was left out. Without a head, its rows are names and values."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    more: str = ""
    title: str = ""

    def cut(self, most: int, noun: str) -> "Table":
        """Its first `most` rows, and how many more there are."""
        more = f"and {len(self.rows) - most:,} more {noun}" if len(self.rows) > most else ""
        return replace(self, rows=self.rows[:most], more=more)

    def within(self, width: int, repeated: int) -> "Iterator[Table]":
        """Tables of at most `width` characters with some of its columns each, after its first `repeated` ones."""
        cells = (self.head, *self.rows)
        widths = [
            max(len(line) for row in cells for line in row[at].split("\n")) + _GAP for at in range(len(self.head))
        ]
        room = width + _GAP - sum(widths[:repeated])
        parts: list[list[int]] = [[]]
        for at in range(repeated, len(widths)):
            if parts[-1] and sum(widths[other] for other in parts[-1]) + widths[at] > room:
                parts.append([])
            parts[-1].append(at)
        for place, part in enumerate(parts):
            chosen = [*range(repeated), *part]
            rows = tuple(tuple(row[at] for at in chosen) for row in self.rows)
            last = place == len(parts) - 1
            head = tuple(self.head[at] for at in chosen)
            yield Table(head, rows, self.more if last else "", "" if place else self.title)


@dataclass(frozen=True, slots=True)
class Note:
    """A sentence of a result, between its tables."""

    text: str
    tone: Literal["plain", "strong", "dim", "good", "warning", "bad"] = "plain"


class Result:
    """What a function of `tacit.api` gives: the command line prints its tables, or with `--json` its JSON values."""

    __slots__ = ()

    def to_json(self) -> dict[str, Any]:
        from tacit.common.serialize import json_values  # pydantic, which `import tacit.api` should not wait for

        values: dict[str, Any] = json_values(self)
        return values

    def tables(self) -> Iterable[Table | Note]:
        """The result for people, as data; its names and values, unless it has a better way."""
        return [Table((), tuple((name, str(value)) for name, value in self.to_json().items()))]


@dataclass(frozen=True, slots=True)
class Axis:
    """What is measured, from `low` to `high`; on a logarithmic axis both are above 0.

    zero: a place of its own for 0, before the axis begins. infinite: one for what has no bound, after it ends.
    words: labels at 0, 1, 2 and so on, instead of numbers.
    """

    label: str
    low: float
    high: float
    logarithmic: bool = False
    zero: bool = False
    infinite: bool = False
    words: tuple[str, ...] = ()

    def place(self, value: float) -> float:
        """Where `value` is, from 0 to 1."""
        begin, end = (_BAND if self.zero else 0.0), (1 - _BAND if self.infinite else 1.0)
        if self.zero and value <= 0:
            return _BAND / 2
        if self.infinite and math.isinf(value):
            return 1 - _BAND / 2
        return begin + (end - begin) * self._share(min(max(value, self.low), self.high))

    def _share(self, value: float) -> float:
        if self.logarithmic:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    @property
    def bands(self) -> tuple[tuple[float, float, str], ...]:
        """The places of their own: from, to (both from 0 to 1) and their labels."""
        before = ((0.0, _BAND, "0"),) if self.zero else ()
        return (*before, (1 - _BAND, 1.0, "no claim")) if self.infinite else before

    def ticks(self, wanted: int = 5) -> tuple[float, ...]:
        """Round numbers along the axis, about as many as wanted, and none that would touch a place of its own."""
        if self.words:
            return tuple(float(at) for at in range(len(self.words)))
        found = _powers(self.low, self.high, wanted) if self.logarithmic else _steps(self.low, self.high, wanted)
        first = _BAND + _ROOM if self.zero else 0.0
        last = 1 - _BAND - _ROOM if self.infinite else 1.0
        return tuple(tick for tick in found if first <= self.place(tick) <= last)

    def written(self, value: float) -> str:
        """A tick's number, as short as it is exact, or its word."""
        if self.words:
            return self.words[round(value)]
        shown = number(value, 3, commas_up_to=5)  # a million would stand out of the picture
        return shown.rstrip("0").rstrip(".") if "." in shown and "e" not in shown else shown


def axis_for(label: str, values: Iterable[float], logarithmic: bool | None = None, least: float = math.nan) -> Axis:
    """An axis with room for all finite values; logarithmic, unless given, where they span more than a factor 20.

    `least`: where the axis begins, if it is not to be chosen.
    """
    finite = sorted(value for value in values if math.isfinite(value))
    low, high = (finite[0], finite[-1]) if finite else (0.0, 1.0)
    if logarithmic is None:
        logarithmic = low > 0 and high / low > 20
    if logarithmic:
        low = max(low, high * 1e-15) if high > 0 else 1e-3
        high = max(high, low * 1.0001)
        room = max((high / low) ** 0.08, 1.25)
        return Axis(label, low / room if math.isnan(least) else least, high * room, True)
    room = max((high - low) * 0.12, abs(high) * 0.02, 1e-9)
    begin = least if not math.isnan(least) else (max(0.0, low - room) if low >= 0 else low - room)
    return Axis(label, begin, high + room)


def epsilon_axis(label: str, values: Iterable[float]) -> Axis:
    """Logarithmic, with a place for 0 (unused under conditions) and one for no guarantee at all."""
    known = list(values)
    plain = axis_for(label, [value for value in known if 0 < value < math.inf] or [1.0], logarithmic=True)
    return replace(plain, zero=0.0 in known, infinite=math.inf in known)


def word_axis(label: str, words: Iterable[str]) -> Axis:
    known = tuple(words)
    return Axis(label, -0.5, len(known) - 0.5, words=known)


def _steps(low: float, high: float, wanted: int) -> tuple[float, ...]:
    rough = (high - low) / max(wanted, 1)
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    count = math.floor(high / step + 1e-9) - first + 1
    return tuple((first + at) * step for at in range(min(count, _MOST_TICKS)))


def _powers(low: float, high: float, wanted: int) -> tuple[float, ...]:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for digits in ((1, 2, 5), (1, 3), (1,)):
        if (last - first) * len(digits) <= 2 * wanted or digits == (1,):
            stride = max(1, math.ceil((last - first) / (_MOST_POWERS - 1))) if digits == (1,) else 1
            powers = range(first, last + 1, stride)
            found = [digit * 10.0**power for power in powers for digit in digits]
            inside = tuple(value for value in found if low * 0.9999 <= value <= high * 1.0001)
            if 2 <= len(inside) <= _MOST_POWERS:
                return inside
    return _steps(low, high, wanted)


@dataclass(frozen=True, slots=True)
class Point:
    """A place; `tip` is shown when the mouse or the keyboard points at it, its first line as a heading.

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


@dataclass(frozen=True, slots=True)
class Region:
    """A filled part of the picture."""

    name: str
    key: str
    points: tuple[tuple[float, float], ...]
    kind: str = "allowed"


@dataclass(frozen=True, slots=True)
class ChartRule:
    """A dotted reference line."""

    start: tuple[float, float]
    end: tuple[float, float]
    label: str


@dataclass(frozen=True, slots=True)
class ScatterChart:
    """Points and lines over two axes."""

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
    """A name and what is in its row."""

    name: str
    items: tuple[Bar | Dot | Whisker, ...]


@dataclass(frozen=True, slots=True)
class Mark:
    """A line through all rows."""

    value: float
    label: str


@dataclass(frozen=True, slots=True)
class LegendItem:
    """What the look of a dot or a bar means."""

    name: str
    sample: Bar | Dot


@dataclass(frozen=True, slots=True)
class RowChart:
    """Bars, intervals and dots over one axis, one row below the other; band: how high a row is."""

    key: str
    title: str
    description: str
    axis: Axis
    rows: tuple[ChartRow, ...]
    table: Table
    marks: tuple[Mark, ...] = ()
    legend: tuple[LegendItem, ...] = ()
    note: str = ""
    band: float = 26.0


Chart = ScatterChart | RowChart
