"""Clopper-Pearson against the golden values, and against scipy's own exact test as an oracle."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from tacit.common.formatting import exact_interval, lower_bound, upper_bound
from tacit.errors import ConfigError


@pytest.mark.parametrize(("misses", "trials", "golden"), [(0, 200, 0.0149), (20, 200, 0.142), (0, 2995, 1e-3)])
def test_golden_upper_bounds(misses: int, trials: int, golden: float) -> None:
    assert upper_bound(misses, trials) == pytest.approx(golden, rel=0.01)


def test_2995_clean_units_are_the_fewest_that_show_one_in_a_thousand() -> None:
    assert upper_bound(0, 2995) <= 1e-3 < upper_bound(0, 2994)


@given(st.integers(1, 3000), st.data())
def test_interval_agrees_with_scipy(trials: int, data: st.DataObject) -> None:
    successes = data.draw(st.integers(0, trials))
    oracle = binomtest(successes, trials).proportion_ci(0.95, method="exact")
    ours = exact_interval(successes, trials)
    assert ours.low == pytest.approx(oracle.low, abs=1e-9)
    assert ours.high == pytest.approx(oracle.high, abs=1e-9)


def test_no_trials_know_nothing() -> None:
    assert exact_interval(0, 0) == (0.0, 1.0)


def test_impossible_counts_are_refused() -> None:
    for call in (upper_bound, lower_bound):
        with pytest.raises(ConfigError):
            call(3, 2)
