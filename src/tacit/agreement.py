"""Whether a guarantee that was written down is the one that follows.

G1 (numbers). Another machine's arithmetic differs in the last digits: numbers agree within `TOLERANCE` of their size.
G2 (words). A text agrees when it is equal, but for a number that rounds to another digit although the figures agree.
G3 (curves). The points of a curve may be others; each must be true.
"""

import json
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import version

import numpy as np

from tacit.accounting import account
from tacit.codec import to_json
from tacit.guarantee import Figure, Guarantee
from tacit.mechanisms.base import Spent
from tacit.rounding import rounded_up

TOLERANCE = 1e-6
_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?")
_DIGITS = (3, 4, 6)  # with which figures are printed
_FROM = "from plan.json and ledger.jsonl"
_Json = dict[str, "_Json"] | list["_Json"] | str | float | bool | None


def disagreement(written: Guarantee, follows: Guarantee) -> str | None:
    """What `written` has that does not follow, as the end of a sentence; curves are not compared."""
    figures = [number for one in follows.figures for number in (one.epsilon, one.delta, one.mu)]
    found = next(_differences(_without_curves(written), _without_curves(follows), figures, ""), None)
    if found is not None and written.code_version != version("tacit"):
        found += f" (it was written by tacit {written.code_version}; this is {version('tacit')})"
    return found


def untrue_curve(written: Guarantee, follows: Guarantee, spent: Spent) -> str | None:
    """Which curve has a point that is not true of what was spent; `follows` has as many figures, of the same units."""
    for place, (one, other) in enumerate(zip(written.figures, follows.figures, strict=True)):
        if one.curve and one.curve != other.curve and not _is_true(one, spent):
            return f"has a point in figures.{place}.curve that is not true of what ledger.jsonl counts"
    return None


def _is_true(figure: Figure, spent: Spent) -> bool:
    epsilons, deltas = np.array(figure.curve).T
    law = account(spent[figure.neighbours]).law
    return bool(np.all(epsilons >= 0) and np.all(deltas >= np.minimum(law.deltas(epsilons), 1) * (1 - TOLERANCE)))


def _without_curves(guarantee: Guarantee) -> _Json:
    figures = tuple(replace(one, curve=()) for one in guarantee.figures)
    plain: _Json = json.loads(to_json(replace(guarantee, figures=figures)))
    return plain


def _differences(written: _Json, follows: _Json, figures: list[float], where: str) -> Iterator[str]:
    if isinstance(written, dict) and isinstance(follows, dict):
        for key in follows:
            yield from _differences(written[key], follows[key], figures, f"{where}.{key}".lstrip("."))
    elif isinstance(written, list) and isinstance(follows, list):
        if len(written) != len(follows):
            yield f"has {len(written)} entries in {where} where {len(follows)} follow {_FROM}"
        for place, (one, other) in enumerate(zip(written, follows, strict=False)):
            yield from _differences(one, other, figures, f"{where}.{place}")
    elif isinstance(written, str) and isinstance(follows, str):
        yield from _in_words(written, follows, figures, where)
    elif not _is_same(written, follows):
        yield f"has {json.dumps(written)} as {where} where {json.dumps(follows)} follows {_FROM}"


def _is_same(written: _Json, follows: _Json) -> bool:
    if isinstance(written, float) and isinstance(follows, float):
        return math.isclose(written, follows, rel_tol=TOLERANCE)
    return type(written) is type(follows) and written == follows


def _in_words(written: str, follows: str, figures: list[float], where: str) -> Iterator[str]:
    numbers, expected = _NUMBER.findall(written), _NUMBER.findall(follows)
    if len(numbers) == len(expected):
        for number, other in zip(numbers, expected, strict=True):
            if number != other and not _is_rounding(number, other, figures):
                yield f"has {number} in its {where} where {other} follows {_FROM}"
    if _NUMBER.split(written) != _NUMBER.split(follows):
        yield f"has another {where} than follows {_FROM}"


def _is_rounding(number: str, follows: str, figures: list[float]) -> bool:
    """Whether the number that follows is a figure rounded up, which `number` is too by a hair."""
    rounded = (one for one in figures if any(rounded_up(one, digits) == follows for digits in _DIGITS))
    return any(math.isclose(float(number), one, rel_tol=TOLERANCE) for one in rounded)
