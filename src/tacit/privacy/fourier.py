"""Sums of many independent losses on a grid, by Fourier transforms, with a proved bound on all their rounding.

The proof is in docs/theory.md, section 8. It asks of scipy's transform (pocketfft) that
lengths of a power of two are transformed by butterflies of two, four or eight, and that its roots of unity are off by
at most `_ROOTS` units of rounding; it allows for real transforms that go through a complex one of half the length.

G1 (bound). The masses returned and the exact ones of the steps given differ by at most `rounding`, over the whole grid.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from scipy import fft

from tacit.privacy.dominating_pairs import Floats

_BINARY = np.finfo(np.longdouble).nmant in (52, 63, 112)  # else two doubles: another arithmetic than the proof's
Real: type[np.floating] = np.longdouble if _BINARY else np.float64
UNIT = float(np.finfo(Real).eps) / 2  # relative rounding of one operation
_ROOTS = 8.0
_PRODUCT = math.sqrt(5)  # units of rounding of a complex product (Brent, Percival, Zimmermann 2007)
_VANISHES = -80.0  # frequencies below e^-80 are left out, and counted
_SLOP = 1.01  # the bound is itself computed with rounding


@dataclass(frozen=True, slots=True)
class Composed:
    """Masses on a circle of grid points, and a bound on the sum of their absolute errors."""

    masses: npt.NDArray[np.floating] = field(repr=False)
    rounding: float


def transform_error(size: int) -> float:
    """How far off a transform of this length may be.

    As a part of the sum of absolute inputs, for each number of it; and of its own length, for all numbers together.
    """
    return 2 * math.expm1(math.log2(size) * (1 + _PRODUCT + _ROOTS) * UNIT * (1 + 1e-9))


def composed(steps: Sequence[tuple[Floats, int]], size: int) -> Composed:
    """The distribution of a sum of losses, modulo `size`, a power of two.

    steps: for each kind of step the masses of the losses 0, 1, ..., none negative, and how often it takes place.
    """
    error = transform_error(size)
    spectra, log_sizes, relative = [], np.zeros(size // 2 + 1), np.zeros(size // 2 + 1)
    for masses, times in steps:
        wrapped = _wrapped(masses, size)
        spectrum = fft.rfft(wrapped)
        off = (error + len(masses) / size * UNIT) * float(wrapped.sum())
        largest = np.abs(spectrum).astype(np.float64) + off
        spectra.append(spectrum)
        log_sizes += times * np.log(largest)
        relative += times * off / largest
    relative += math.expm1(_PRODUCT * UNIT * sum(times for _, times in steps))
    sizes = np.exp(np.minimum(log_sizes, 600.0))  # there the bound is past 1 anyway
    kept = np.flatnonzero(log_sizes > _VANISHES)
    product = np.zeros_like(spectra[0])
    product[kept] = math.prod(
        _power(spectrum[kept], times) for spectrum, (_, times) in zip(spectra, steps, strict=True)
    )
    parts = sizes[kept] * relative[kept], np.delete(sizes, kept), sizes * error
    rounding = _SLOP * math.sqrt(2) * math.fsum(float(np.linalg.norm(part)) for part in parts)
    return Composed(fft.irfft(product, size), rounding)


def _wrapped(masses: Floats, size: int) -> npt.NDArray[np.floating]:
    turns = -(-len(masses) // size)
    circle = np.zeros((turns, size), Real)
    circle.reshape(-1)[: len(masses)] = masses
    return np.asarray(circle.sum(axis=0))


def _power(values: npt.NDArray[np.complexfloating], times: int) -> npt.NDArray[np.complexfloating]:
    """By products alone, `times` - 1 of them below each other at most: the library's power has no stated error."""
    result = np.ones_like(values)
    while times:
        if times & 1:
            result = result * values
        values, times = values * values, times >> 1
    return result
