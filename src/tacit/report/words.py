"""Numbers and texts as pages print them. Shares are never rounded to all or nothing; bounds are rounded outwards."""

import math

from tacit.intervals import Interval
from tacit.scan.excerpt import printable

_LONGEST_TEXT = 4000
_LONGEST_NAME = 60


def percent(share: float | None) -> str:
    """A share in per cent; neither all nor none unless it is so."""
    if share is None or math.isnan(share):
        return "–"
    text = f"{100 * share:.1f}"
    if text == "100.0" and share < 1:
        return "> 99.9 %"
    return "< 0.1 %" if text == "0.0" and share > 0 else f"{text} %"


def floor(share: float | None) -> str:
    """A share in per cent, rounded down: of what is good, never more than there is."""
    return "–" if share is None else f"{math.floor(1000 * share + 1e-9) / 10:.1f} %"


def interval(ends: Interval) -> str:
    """Both ends in per cent, rounded outwards."""
    low, high = math.floor(1000 * ends.low) / 10, math.ceil(1000 * ends.high) / 10
    return f"{low:.1f} to {high:.1f} %"


def ceiling(bound: float) -> str:
    """An upper bound in per cent, rounded up."""
    return f"{math.ceil(1e4 * bound) / 100:.2f} %"


def number(value: float | None, digits: int = 3, commas_up_to: int = 6) -> str:
    """`value` to so many significant digits, thousands with commas, very large or small ones as powers of ten."""
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value == 0:
        return "0"
    power = math.floor(math.log10(abs(float(f"{value:.{digits - 1}e}"))))
    if power < -3 or power > commas_up_to:
        mantissa, _, exponent = f"{value:.{digits - 1}e}".partition("e")
        mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
        return f"{mantissa}e{int(exponent)}".replace("-", "−")
    return f"{value:,.{max(0, digits - 1 - power)}f}".replace("-", "−")


def chance(value: float | None) -> str:
    """A p-value, from its sign of equality on."""
    if value is None:
        return "unknown"
    return "< 0.0001" if value < 1e-4 else f"= {number(value, 2)}"


def text(value: object) -> str:
    """Whatever a file says, without what a screen may obey, and of bounded length."""
    whole = str(value)
    return printable(whole[:_LONGEST_TEXT]) + ("…" if len(whole) > _LONGEST_TEXT else "")


def name(value: str) -> str:
    """A name on one line."""
    line = " ".join(printable(value[: 4 * _LONGEST_NAME]).split())
    return shortened(line, _LONGEST_NAME)


def shortened(line: str, longest: int) -> str:
    """At most so many characters, and a sign where some are missing."""
    return line if len(line) <= longest else line[: longest - 1] + "…"


def abridged(line: str, longest: int) -> str:
    """The same, by leaving out the middle: the ends of names tell them apart."""
    half = longest // 2
    return line if len(line) <= longest else f"{line[: longest - half - 1]}…{line[-half:]}"
