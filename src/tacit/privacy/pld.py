"""Accounting by privacy loss distributions, for units that own several records and for searches.

Each direction of each event becomes a distribution over a grid of losses by connecting the dots (Doroshenko, Ghazi,
Kamath, Kumar, Manurangsi 2022): the mass between two grid losses is split between them so that both the upper and the
lower probability are kept. Steps are then composed by one Fourier transform (`composed`), with a proved bound on all
its rounding (docs/theory.md, section 8). The proof asks of scipy's transform (pocketfft) that lengths of a power of two
are transformed by butterflies of two, four or eight, and that its roots of unity are off by at most `_ROOTS` units of
rounding; it allows for real transforms that go through a complex one of half the length. dp-accounting has no such
bound, and takes seconds to minutes for units of several records; it is the oracle of the tests.

G1 (pessimistic). Mass above the line's end and mass that leaves the window is lost (infinite loss), mass below wraps to
   the top, misplaced edges shift the whole distribution by what they could hide, a proved bound on the rounding of the
   transform is lost too, and sums are rounded up. What is not bounded: the rounding of scipy's normal distribution
   function, of which one step's masses are differences (about 1e-16 each, and those of adjacent ones cancel).
G2 (bounded). At most `_MOST_POINTS` losses, whatever the events; a grid too coarse to be tight is marked (`coarse`).
G3 (bound). The masses that `composed` returns and the exact ones of the steps given differ by at most `rounding`, over
   the whole grid.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from scipy import fft, special

from tacit.privacy.dominating_pairs import Floats, Pair, PricedEvents, directions
from tacit.privacy.profile import Accountant, Envelope, Law, bisect
from tacit.privacy.renyi import log_moments

_LOST = 1e-15  # mass that may leave the window
_MOST_POINTS = 1 << 21  # of the composed distribution
_MOST_STEP_POINTS = 1 << 19  # of one step's distribution, times components
_WINDOW_ORDERS: Floats = np.logspace(-4, 6, 61)
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


@dataclass(frozen=True)
class GridLaw(Law):
    """delta at each loss of a grid that starts at `start`; exactly linear in e^epsilon between the points."""

    start: float
    interval: float
    at_grid: Floats = field(repr=False)
    coarse: bool

    @property
    def lost(self) -> float:
        """The smallest delta, whatever the epsilon: mass without a finite loss, and all rounding."""
        return float(self.at_grid[-1])

    def deltas(self, epsilons: Floats) -> Floats:
        """Interpolated between the two adjacent losses; 1 below a start above 0."""
        position = (epsilons - self.start) / self.interval
        index = np.clip(np.floor(position).astype(np.int64), 0, len(self.at_grid) - 2)
        inner = np.clip((position - index) * self.interval, 0.0, self.interval)
        part = np.expm1(inner) / math.expm1(self.interval)
        low, high = self.at_grid[index], self.at_grid[index + 1]
        inside = low + (high - low) * part
        return np.where(position < 0, 1.0, inside)

    def epsilon(self, delta: float) -> float:
        if self.at_grid[0] <= delta:
            return max(0.0, self.start)
        if self.at_grid[-1] > delta:
            return math.inf
        index = int(np.searchsorted(-self.at_grid, -delta)) - 1
        low, high = float(self.at_grid[index]), float(self.at_grid[index + 1])
        part = (low - delta) / (low - high)
        return max(0.0, self.start + self.interval * index + math.log1p(part * math.expm1(self.interval)))


def privacy_loss_laws(spent: PricedEvents) -> tuple[GridLaw, ...]:
    """The laws of the composed privacy loss: one, or one for each direction where they differ."""
    pairs = [(directions(event), count) for event, count in spent.events]
    ends = (0,) if all(len(found) == 1 for found, _ in pairs) else (0, -1)
    return tuple(_compose([(found[end], count) for found, count in pairs]) for end in ends)


PLD = Accountant("PLD (connect the dots)", lambda spent: Envelope(privacy_loss_laws(spent), worst=True))


@dataclass(frozen=True)
class _Step:
    """One step's losses: `masses[i]` at (`offset` + i) x interval; `lost` has none, `slack` is to be added to all."""

    offset: int
    masses: Floats
    lost: float
    slack: float


@dataclass(frozen=True, slots=True)
class _Line:
    """The part of the line that matters for one pair, with the losses at its ends and the spread of the loss."""

    low: float
    high: float
    low_loss: float
    high_loss: float
    deviation: float


def _compose(whole: list[tuple[Pair, int]]) -> GridLaw:
    tail = _LOST / sum(count for _, count in whole)
    pairs = [(pair.trimmed(tail), count) for pair, count in whole]
    lines = [_line(pair, tail) for pair, _ in pairs]
    low, high, order = _window(whole)
    finest = min(line.deviation for line in lines)
    total = math.sqrt(sum(count * line.deviation**2 for line, (_, count) in zip(lines, pairs, strict=True)))
    components = max(len(pair.upper.centers) + len(pair.lower.centers) for pair, _ in pairs)
    step_points = max(_MOST_STEP_POINTS // components, 1 << 14)
    interval = max(
        min(finest / 30, total / 1000),
        max(line.high_loss - line.low_loss for line in lines) / step_points,
        (high - low) / (_MOST_POINTS - 16),
    )
    size = 1 << (math.ceil((high - low) / interval) + 7).bit_length()
    steps, start, lost, slack, moment = [], 0, 0.0, 0.0, 0.0
    for (pair, count), line in zip(pairs, lines, strict=True):
        step = _discretize(pair, line, interval)
        steps.append((step.masses, count))
        start += count * step.offset
        lost += -math.expm1(count * math.log1p(-step.lost)) if step.lost < 1 else 1.0
        slack += count * step.slack
        losses = (np.arange(len(step.masses)) + step.offset) * interval
        moment += count * float(special.logsumexp(order * losses, b=step.masses))  # log E[e^(order x loss)]
    lowest = math.floor(low / interval) - 2
    lost += math.exp(min(0.0, moment - order * (lowest + size) * interval))  # what wrapped around from above
    found = composed(steps, size)
    lost = min(lost + found.rounding, 1.0)
    return _law(found, start, lowest, interval, lost, slack, coarse=interval > finest / 2 or lost > 1e-9)


def _law(found: Composed, start: int, lowest: int, interval: float, lost: float, slack: float, coarse: bool) -> GridLaw:
    masses = np.roll(np.maximum(found.masses, 0.0), start - lowest)
    first = min(max(lowest, math.floor(-slack / interval)), lowest + len(masses) - 2)  # epsilon >= 0 is all we need
    kept = masses[first - lowest :]
    above = np.append(np.cumsum(kept[:0:-1])[::-1], 0.0)
    # delta_i = (1 - e^-h) above_i + e^-h delta_(i+1): no difference of large numbers
    decay = np.exp(-Real(interval))
    finite = _discounted(-np.expm1(-Real(interval)) * above[::-1], decay)[::-1]
    # of positive terms: no part is lost in rounding
    finite = (finite * (1 + 8 * len(masses) * UNIT)).astype(np.float64)
    at_grid = np.maximum.accumulate(np.clip(finite * (1 + 1e-15) + lost, lost, 1.0)[::-1])[::-1]
    return GridLaw(first * interval + slack, interval, at_grid, coarse)


def _discounted(values: npt.NDArray[np.floating], decay: np.floating) -> npt.NDArray[np.floating]:
    """y_i = values_i + decay y_(i-1), blocks side by side; each y has at most 3 len(values) + 4 width roundings."""
    width = min(256, len(values))
    blocks = np.zeros((-(-len(values) // width), width), Real)
    blocks.ravel()[: len(values)] = values
    powers = np.full(width, decay).cumprod()
    for place in range(1, width):
        blocks[:, place] += decay * blocks[:, place - 1]
    for block in range(1, len(blocks)):
        blocks[block] += powers * blocks[block - 1, -1]
    return blocks.ravel()[: len(values)]


def _line(pair: Pair, tail: float) -> _Line:
    low, most = min(pair.upper.centers) - 10.5, max(pair.upper.centers) + 10.5  # beyond it a Gaussian leaves 4e-26
    high = bisect(lambda x: pair.upper.above(x) <= tail, low, most)[1]
    x = np.linspace(low, high, 4001)
    loss = pair.loss(x)
    weights = np.exp(pair.upper.log_density(x))
    weights /= weights.sum()
    mean = float(np.dot(weights, loss))
    deviation = math.sqrt(float(np.dot(weights, np.square(loss - mean))))
    if pair.participation < 1:
        square = pair.participation * (deviation**2 + mean**2) - (pair.participation * mean) ** 2
        deviation = math.sqrt(max(square, 0.0))
    return _Line(low, high, float(loss[0]), float(loss[-1]), max(deviation, 1e-12))


def _window(pairs: list[tuple[Pair, int]]) -> tuple[float, float, float]:
    """The range of the composed loss, up to a mass of `_LOST` on each side, by Chernoff's bound; and its best order."""
    surplus = math.log(1 / _LOST)
    orders = np.concatenate([1 + _WINDOW_ORDERS, 1 - _WINDOW_ORDERS])
    moments = np.sum([count * log_moments(pair, orders, 1 << 13) for pair, count in pairs], axis=0)
    up, down = np.split(moments, 2)
    highs = (up + surplus) / _WINDOW_ORDERS
    best = int(np.argmin(highs))
    low, high = float(np.max(-(down + surplus) / _WINDOW_ORDERS)), float(highs[best])
    margin = 0.1 * (high - low)  # the discretized losses spread slightly more than the true ones
    return low - margin, high + margin, float(_WINDOW_ORDERS[best])


def _discretize(pair: Pair, line: _Line, interval: float) -> _Step:
    first, last = math.floor(line.low_loss / interval), math.ceil(line.high_loss / interval)
    last = max(last, first + 2)
    inner: Floats = np.arange(first + 1, last, dtype=np.float64) * interval
    edges, slack = _edges(pair, line, inner)
    upper, lower = pair.upper.mass_between(edges), pair.lower.mass_between(edges)
    left = np.arange(first, last) * interval
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        share = (1 - np.exp(left) * lower / upper) / -math.expm1(-interval)
    share = np.where(np.isfinite(share) & (lower > 1e-280), np.clip(share, 0.0, 1.0), 1.0)
    masses = np.zeros(last - first + 1)
    masses[:-1] += upper * (1 - share)
    masses[1:] += upper * share
    masses[1] += pair.upper.below(line.low)
    lost = pair.upper.above(line.high) + pair.dropped
    if pair.participation < 1:
        return _participating(_Step(first, masses, lost, slack), pair.participation)
    return _Step(first, masses, lost, slack)


def _participating(step: _Step, probability: float) -> _Step:
    low, high = min(step.offset, 0), max(step.offset + len(step.masses) - 1, 0)
    masses = np.zeros(high - low + 1)
    masses[step.offset - low : step.offset - low + len(step.masses)] = probability * step.masses
    masses[-low] += 1 - probability
    return _Step(low, masses, probability * step.lost, step.slack)


def _edges(pair: Pair, line: _Line, losses: Floats) -> tuple[Floats, float]:
    """Where the loss takes the given values, and by how much it may differ from them there."""
    x = np.linspace(line.low, line.high, 1 << 14)
    table = np.maximum.accumulate(pair.loss(x))
    cell = np.clip(np.searchsorted(table, losses) - 1, 0, len(x) - 2)
    low, high = x[cell], x[cell + 1]
    low_value, high_value = table[cell], table[cell + 1]
    found = low
    for _ in range(4):
        with np.errstate(invalid="ignore", divide="ignore"):
            part = (losses - low_value) / (high_value - low_value)
        found = low + (high - low) * np.clip(np.where(np.isfinite(part), part, 0.5), 0.0, 1.0)
        value = pair.loss(found)
        below = value <= losses
        low, low_value = np.where(below, found, low), np.where(below, value, low_value)
        high, high_value = np.where(below, high, found), np.where(below, high_value, value)
    inside = (losses > line.low_loss) & (losses < line.high_loss)
    slack = float(np.max(np.abs(value - losses), initial=0.0, where=inside))
    return np.concatenate([[line.low], np.maximum.accumulate(found), [line.high]]), slack
