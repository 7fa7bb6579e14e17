"""Exact (Clopper-Pearson) intervals for a share, and numbers and texts as claims and pages print them.

Numbers of a claim are never rounded down, shares never to all or nothing, and bounds always outwards.
"""

import math
import re
import unicodedata
from typing import NamedTuple

from tacit.errors import ConfigError

BLOCK = "█████"
"""Printed in place of a hidden secret, whatever its length."""


class Interval(NamedTuple):
    """A two-sided interval for a share."""

    low: float
    high: float


def exact_interval(successes: int, trials: int, confidence: float = 0.95) -> Interval:
    """The two-sided Clopper-Pearson interval for `successes` of `trials`; no trials know nothing: (0, 1)."""
    tail = (1 - confidence) / 2
    return Interval(lower_bound(successes, trials, 1 - tail), upper_bound(successes, trials, 1 - tail))


def upper_bound(successes: int, trials: int, confidence: float = 0.95) -> float:
    """One-sided upper bound: the true share is above it with probability at most 1 - confidence.

    BetaInv(confidence; m + 1, n - m): 0 of 200 gives .0149, 20 of 200 gives .142.
    """
    _check(successes, trials, confidence)
    return 1.0 if successes == trials else _beta_quantile(successes + 1, trials - successes, confidence)


def _beta_quantile(first: float, second: float, share: float) -> float:
    from scipy.special import betaincinv  # half a second, which the command line should not wait for

    return float(betaincinv(first, second, share))


def lower_bound(successes: int, trials: int, confidence: float = 0.95) -> float:
    """One-sided lower bound: the true share is below it with probability at most 1 - confidence."""
    _check(successes, trials, confidence)
    return 0.0 if successes == 0 else _beta_quantile(successes, trials - successes + 1, 1 - confidence)


def _check(successes: int, trials: int, confidence: float) -> None:
    if not 0 <= successes <= trials or not 0 < confidence < 1:
        raise ConfigError(
            expected="0 <= successes <= trials and a confidence between 0 and 1",
            found=f"{successes} of {trials} at confidence {confidence}",
            way_out="count again",
        )


def rounded_up(value: float, digits: int) -> str:
    """`value` to `digits` significant digits, never downwards: what is printed must be true."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    unit = 10.0 ** (math.floor(math.log10(abs(value))) - digits + 1)
    return f"{math.ceil(value / unit - 1e-9) * unit:.{digits}g}"


VISIBLE = 900
_LONGEST_KIND = 40
_JOINERS = "\u200c\u200d"


def printable(text: str) -> str:
    """`text` with line ends as \\n, other space as blanks, and all that a screen may obey or cannot show as U+FFFD."""
    if text.isprintable():
        return text
    return "".join(_printable(character) for character in re.sub(r"\r\n?", "\n", text))


def short(word: str) -> str:
    """A kind, reason or name on one line and of bounded length."""
    line = " ".join(printable(word).split())
    return line if len(line) <= _LONGEST_KIND else line[: _LONGEST_KIND - 1] + "…"


def _printable(character: str) -> str:
    if character.isprintable() or character == "\n" or character in _JOINERS:
        return character
    return " " if character == "\t" or unicodedata.category(character) == "Zs" else "\ufffd"


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
    line = " ".join(printable(value[: 4 * _LONGEST_NAME]).split())
    return shortened(line, _LONGEST_NAME)


def shortened(line: str, longest: int) -> str:
    """At most so many characters, and a sign where some are missing."""
    return line if len(line) <= longest else line[: longest - 1] + "…"


def abridged(line: str, longest: int) -> str:
    """The same, by leaving out the middle: the ends of names tell them apart."""
    half = longest // 2
    return line if len(line) <= longest else f"{line[: longest - half - 1]}…{line[-half:]}"


def about(seconds: float) -> str:
    """A duration as people say it: 40 seconds, 12 minutes, 3.5 hours."""
    for unit, factor in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        count = seconds / factor
        if count >= 1.95 or (unit == "minute" and count >= 0.95):
            rounded = f"{count:.0f}" if count >= 9.5 or unit == "minute" else f"{count:.1f}".removesuffix(".0")
            return f"about {rounded} {unit}{'' if rounded == '1' else 's'}"
    return f"about {max(1, round(seconds))} second{'' if round(seconds) <= 1 else 's'}"


def size_of(count: int) -> str:
    """A number of bytes in the largest unit of which there is at least one: 1.5 GB."""
    for unit, factor in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6)):
        if count >= factor:
            return f"{count / factor:.3g} {unit}"
    return f"{count:,} bytes"
