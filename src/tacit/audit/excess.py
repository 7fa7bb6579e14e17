"""Whether values that were planted stand above values that were not, by exact tests.

Both were drawn alike, and coins decided which were planted. So if the model says nothing of them, every way to deal the
observed exposures out to both sides is equally probable: no model of the exposures is needed.

Formal guarantees:

G1 (valid). If the model's training did not see the planted values, each p-value is at most p with probability at most
   p. Equal exposures count against the attack. (The sum of ranks of more than 600 values is taken as normal.)
G2 (one look). Each p-value stands for itself: who takes the smallest of three multiplies it by three.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

from tacit.errors import AttackError

Counts = npt.NDArray[np.signedinteger]

_EXACT_UP_TO = 600


@dataclass(frozen=True, slots=True)
class Excess:
    """Exposures in bits, and the probability that chance alone puts the planted values as high.

    p_best: the most exposed planted value, never below inside / (inside + held_out); p_median: the upper median of
    them; p_all: all, by the sum of ranks (Mann and Whitney). area: the share of pairs in which the planted value stands
    higher, equal ones counted half.
    """

    inside: int
    held_out: int
    best_inside: float
    best_held_out: float
    median_inside: float
    median_held_out: float
    area: float
    p_best: float
    p_median: float
    p_all: float


def excess_over_chance(inside: Sequence[float], held_out: Sequence[float]) -> Excess:
    """Of exposures of planted values over those of values that were held out."""
    if not inside or not held_out:
        raise AttackError(
            expected="exposures on both sides",
            found=f"{len(inside)} inside and {len(held_out)} held out",
            way_out="plant more canaries, so that some are inside",
        )
    if np.isnan([*inside, *held_out]).any():
        raise AttackError("exposures that are numbers", "NaN", "measure them again")
    own, others = np.sort(np.array(inside))[::-1], np.sort(np.array(held_out))
    as_high = len(others) - np.searchsorted(others, own, side="left")  # held-out values that each one does not beat
    equal = np.searchsorted(others, own, side="right") - np.searchsorted(others, own, side="left")
    beaten = len(others) - as_high
    return Excess(
        inside=len(own),
        held_out=len(others),
        best_inside=float(own[0]),
        best_held_out=float(others[-1]),
        median_inside=float(np.median(own)),
        median_held_out=float(np.median(others)),
        area=float((beaten + equal / 2).mean() / len(others)),
        p_best=_p_of_place(1, as_high, len(own), len(others)),
        p_median=_p_of_place((len(own) + 1) // 2, as_high, len(own), len(others)),
        p_all=_p_of_sum(as_high, len(own), len(others)),
    )


def _p_of_place(place: int, as_high: Counts, inside: int, held_out: int) -> float:
    """The probability that the `place`-th highest planted value has so few held-out ones above it.

    That is: of the highest `place` + so many of all, at least `place` are planted; a hypergeometric tail.
    """
    highest = place + int(as_high[place - 1])
    return float(stats.hypergeom.sf(place - 1, inside + held_out, inside, highest))


def _p_of_sum(as_high: Counts, inside: int, held_out: int) -> float:
    """Mann and Whitney's exact test, equal values placed as if the held-out ones were higher."""
    places = as_high + np.arange(inside)  # of the planted values among all, from the highest
    others = np.setdiff1d(np.arange(inside + held_out), places)
    method = "exact" if inside + held_out <= _EXACT_UP_TO else "asymptotic"
    return float(stats.mannwhitneyu(places, others, alternative="less", method=method).pvalue)
