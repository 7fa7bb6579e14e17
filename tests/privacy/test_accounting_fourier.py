"""The bound on the rounding of composed distributions holds against exact arithmetic, and is not far too large."""

import math
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import fft

from tacit.privacy import pld as pld_module
from tacit.privacy.account import account, library_pld
from tacit.privacy.dominating_pairs import Floats, put_in_order
from tacit.privacy.events import Composition, Relation, SampledGaussian
from tacit.privacy.pld import PLD, Composed, Real, composed, transform_error

BITS = 400  # of the fixed-point numbers that are taken as exact
Steps = list[tuple[Floats, int]]


def on_circle(values: NDArray[np.object_], size: int) -> NDArray[np.object_]:
    padded = np.zeros(-(-len(values) // size) * size, dtype=object)
    padded[: len(values)] = values
    return np.asarray(padded.reshape(-1, size).sum(axis=0))


def multiplied(one: NDArray[np.object_], other: NDArray[np.object_]) -> NDArray[np.object_]:
    return np.asarray(on_circle(np.convolve(one, other), len(one)) >> BITS)


def exact(steps: Steps, size: int) -> list[Fraction]:
    """The composition in integers of `BITS` binary places."""
    result = np.zeros(size, dtype=object)
    result[0] = 1 << BITS
    for masses, times in steps:
        power = on_circle(np.array([int(Fraction(float(mass)) * 2**BITS) for mass in masses], dtype=object), size)
        while times:
            if times & 1:
                result = multiplied(result, power)
            power, times = multiplied(power, power), times >> 1
    return [Fraction(int(value), 1 << BITS) for value in result]


def distance(found: NDArray[np.floating], wanted: list[Fraction]) -> float:
    """The sum of the absolute differences."""
    pairs = zip(found, wanted, strict=True)
    return float(sum(abs(Fraction(*value.as_integer_ratio()) - right) for value, right in pairs))


def of_mass_one(masses: Floats) -> Floats:
    return np.asarray(masses / masses.sum(), dtype=np.float64)


def cases() -> dict[str, tuple[Steps, int]]:
    """Random distributions, and those whose spectra are flat, narrow, real, or nearly nothing."""
    generator = np.random.default_rng(3)
    bell = of_mass_one(np.exp(-0.5 * np.square((np.arange(64) - 30) / 4)))
    rare = np.zeros(60)
    rare[[0, 1, 59]] = 1 - 2e-6, 1e-6, 1e-6
    point = np.zeros(7)
    point[6] = 1.0
    tiny = of_mass_one(10.0 ** -np.linspace(0, 300, 64))
    found: dict[str, tuple[Steps, int]] = {
        "a point": ([(point, 12_345)], 64),
        "a coin": ([(np.array([0.5, 0.5]), 1000)], 128),
        "an alternating one": ([(np.array([0.5, 0.0, 0.5]), 37)], 64),
        "uniform": ([(np.full(64, 1 / 64), 3)], 64),
        "a bell": ([(bell, 5000)], 256),
        "rare jumps": ([(rare, 10**6)], 64),
        "a long tail": ([(tiny, 20)], 128),
        "longer than the circle": ([(of_mass_one(generator.random(300)), 9)], 64),
        "two kinds": ([(bell, 17), (of_mass_one(generator.random(40)), 400)], 256),
    }
    for number in range(12):
        masses = of_mass_one(generator.random(generator.integers(1, 90)) ** generator.integers(1, 30))
        found[f"random {number}"] = ([(masses, int(10 ** generator.uniform(0, 5)))], 1 << int(generator.integers(4, 8)))
    return found


CASES = cases()


@pytest.mark.parametrize("name", CASES)
def test_composed_masses_are_within_the_bound_of_the_exact_ones(name: str) -> None:
    """Catches a bound on the rounding of the transform that does not hold."""
    steps, size = CASES[name]
    found = composed(steps, size)
    assert 0 < found.rounding < 1e-9
    assert distance(found.masses, exact(steps, size)) <= found.rounding


def test_a_smaller_bound_would_be_broken() -> None:
    """The negative control: with a thousandth of the bound some case is beyond it."""
    worst = max(
        distance(result.masses, exact(steps, size)) / result.rounding
        for steps, size in CASES.values()
        for result in [composed(steps, size)]
    )
    assert 1e-3 < worst <= 1


def test_negative_masses_do_not_show_the_rounding() -> None:
    """The rule before, 8 sqrt(n) times the most negative mass, is no bound: here none is negative, and 9e-11 is off."""
    ((masses, times),), size = CASES["rare jumps"]
    found = fft.irfft(fft.rfft(masses, size) ** times, size)
    rule = 8 * math.sqrt(size) * max(0.0, -float(found.min()))
    assert distance(found, exact([(masses, times)], size)) > rule


@pytest.mark.parametrize("place", [1, 3, 4_097, 21_845, 65_535])
@pytest.mark.parametrize("size", [1 << 10, 1 << 16])
def test_a_transform_is_as_exact_as_the_proof_asks(place: int, size: int) -> None:
    """One mass at one place gives powers of a root of unity. The control: a thousandth of the bound is broken."""
    masses = np.zeros(size, Real)
    masses[place % size] = 1
    eighths = (8 * place * np.arange(size // 2 + 1)) % (8 * size)  # angles within an eighth of a turn keep their digits
    nearest = (eighths + size // 2) // size
    rest = (eighths - nearest * size).astype(Real) * (np.arctan(Real(1)) / Real(size))
    root = np.sqrt(Real(0.5))
    turns = np.array([1, root - 1j * root, -1j, -root - 1j * root, -1, -root + 1j * root, 1j, root + 1j * root])
    wanted = turns[nearest % 8] * (np.cos(rest) - 1j * np.sin(rest))
    worst = float(np.abs(fft.rfft(masses) - wanted).max())
    assert worst <= transform_error(size)
    assert worst > transform_error(size) / 1000 or place == 1


COMPOSITION: Composition = ((SampledGaussian(0.8, 0.01, 1, Relation.ZERO_OUT), 2_000),)


def test_the_bound_is_part_of_every_delta(monkeypatch: pytest.MonkeyPatch) -> None:
    """A transform that may be off by more costs that much more."""
    law = PLD.law(put_in_order(COMPOSITION))
    epsilons = np.linspace(0, 10, 50)
    monkeypatch.setattr(
        pld_module, "composed", lambda *words: Composed(composed(*words).masses, composed(*words).rounding + 1e-7)
    )
    worse = PLD.law(put_in_order(COMPOSITION))
    np.testing.assert_allclose(worse.deltas(epsilons) - law.deltas(epsilons), 1e-7, rtol=1e-3)


def test_the_library_is_not_quoted_and_confirms() -> None:
    """Catches a certificate whose number comes from a transform without a bound."""
    profile = account(COMPOSITION)
    assert profile.accountant == f"{PLD.name}, confirmed by {library_pld().name}"
    quick = PLD.profile(COMPOSITION)
    assert profile.epsilon(1e-5) == quick.epsilon(1e-5)
    assert library_pld(1e-4).profile(COMPOSITION).epsilon(1e-5) == pytest.approx(quick.epsilon(1e-5), rel=0.003)


@pytest.mark.parametrize("length", [1, 2, 255, 256, 257, 1000])
def test_discounted_sums_are_within_their_roundings(length: int) -> None:
    """Against fractions; the bound that `_law` adds is 8 roundings per value."""
    values = np.exp(-60 * np.random.default_rng(length).random(length)).astype(Real)
    decay = np.exp(-Real(1e-3))
    exact, exact_decay = Fraction(0), _fraction(decay)
    for value, found in zip(values, pld_module._discounted(values.copy(), decay), strict=True):
        exact = _fraction(value) + exact_decay * exact
        assert abs(_fraction(found) - exact) <= 8 * length * Fraction(pld_module.UNIT) * exact


def _fraction(value: np.floating) -> Fraction:
    return Fraction(*value.as_integer_ratio())
