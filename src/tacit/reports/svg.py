"""Elements of an SVG picture as safe text: values are cleaned and escaped, numbers have at most two decimals."""

from collections.abc import Mapping

from markupsafe import Markup, escape

from tacit.common.formatting import printable

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
