"""Axes: from a quantity to a place on a picture, and the round numbers that are written along it.

G1. `place` never decreases with the value, and values outside the axis stand at its ends.
G2. Ticks lie on the axis, increase, and are at most ten, words apart.

Elements of an SVG picture as safe text: values are cleaned and escaped, numbers have at most two decimals.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from markupsafe import Markup, escape

from tacit.common.formatting import number, printable

_MOST_TICKS = 10
_MOST_POWERS = 7
_BAND = 0.16
_ROOM = 0.04


@dataclass(frozen=True, slots=True)
class Axis:
    """What is measured, from `low` to `high`; on a logarithmic axis both are above 0.

    zero: a place of its own for 0, before the axis begins. infinite: one for what has no bound, after it ends.
    words: what stands at 0, 1, 2 and so on, instead of numbers.
    """

    label: str
    low: float
    high: float
    logarithmic: bool = False
    zero: bool = False
    infinite: bool = False
    words: tuple[str, ...] = ()

    def place(self, value: float) -> float:
        """Where `value` stands, from 0 to 1."""
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
        """The places of their own: from, to (both from 0 to 1) and what stands there."""
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
    """An axis with room for all finite values; logarithmic, unless said, where they span more than a factor 20.

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
    """A place for each word."""
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


Attribute = str | int | float | None


def element(tag: str, attributes: Mapping[str, Attribute], *children: str | Markup) -> Markup:
    """One element; an attribute that is None is left out, and children that are no markup are escaped."""
    written = "".join(
        Markup(' {}="{}"').format(name, _word(value)) for name, value in attributes.items() if value is not None
    )
    inside = Markup("").join(child if isinstance(child, Markup) else escape(printable(child)) for child in children)
    return Markup("<") + tag + Markup(written) + (Markup(">") + inside + Markup("</{}>").format(tag))


def group(attributes: Mapping[str, Attribute], *children: str | Markup) -> Markup:
    """Several elements as one."""
    return element("g", attributes, *children)


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    """A straight line of a class."""
    return element("line", {"class": kind, "x1": x1, "y1": y1, "x2": x2, "y2": y2})


def words(x: float, y: float, content: str, kind: str, anchor: str = "start") -> Markup:
    """A line of text of a class; anchor: start, middle or end."""
    return element("text", {"class": kind, "x": x, "y": y, "text-anchor": anchor}, content)


def path(points: list[tuple[float, float]], kind: str, closed: bool = False) -> Markup:
    """Straight lines through the points."""
    moves = "M" + "L".join(f"{round_off(x)} {round_off(y)}" for x, y in points) + ("Z" if closed else "")
    return element("path", {"class": kind, "d": moves})


def whisker(start: tuple[float, float], end: tuple[float, float], kind: str = "whisker", half: float = 5.0) -> Markup:
    """A level or upright line between two places, with a short line across each end."""
    (x1, y1), (x2, y2) = start, end
    across, up = (0.0, half) if y1 == y2 else (half, 0.0)
    ends = [line(x - across, y - up, x + across, y + up, kind) for x, y in (start, end)]
    return group({}, line(x1, y1, x2, y2, kind), *ends)


_SHAPES = 8


def marker(shape: int, x: float, y: float, size: float, kind: str) -> Markup:
    """One of eight shapes that differ in black and white, of about equal area."""
    shape %= _SHAPES
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


def round_off(value: float) -> str:
    """At most two decimals, and no zeros at the end."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _word(value: Attribute) -> str:
    return round_off(value) if isinstance(value, float) else printable(str(value))
