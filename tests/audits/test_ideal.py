"""What an ideal attacker shows: without luck, more with more canaries, and never more than there is."""

import math

import pytest

from tacit.audits.ideal import epsilon_of, ideal_bound, least_shown, mu_of

DELTA = 5e-5


def test_a_thousand_canaries_show_a_third_of_epsilon_four() -> None:
    assert ideal_bound(mu_of(4.0, DELTA), 1000, DELTA, 0.95, False) == pytest.approx(1.40, abs=0.01)


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 8.0])
@pytest.mark.parametrize("pairs", [False, True])
def test_it_never_shows_more_than_there_is_and_grows_with_canaries(epsilon: float, pairs: bool) -> None:
    shown = [ideal_bound(mu_of(epsilon, DELTA), count, DELTA, 0.95, pairs) for count in (20, 200, 2000)]
    assert shown == sorted(shown)
    assert shown[-1] < epsilon


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 8.0])
def test_mu_and_epsilon_are_inverse(epsilon: float) -> None:
    assert epsilon_of(mu_of(epsilon, DELTA), DELTA) == pytest.approx(epsilon, rel=0.02)
    assert mu_of(0.0, DELTA) == epsilon_of(0.0, DELTA) == 0


@pytest.mark.parametrize("pairs", [False, True])
def test_the_least_that_is_shown(pairs: bool) -> None:
    """Just above it something is shown, just below nothing; three canaries never show anything."""
    least = least_shown(200, DELTA, 0.95, pairs)
    assert ideal_bound(mu_of(1.1 * least, DELTA), 200, DELTA, 0.95, pairs) > 0
    assert ideal_bound(mu_of(0.9 * least, DELTA), 200, DELTA, 0.95, pairs) == 0
    assert least > least_shown(2000, DELTA, 0.95, pairs)
    assert least_shown(3, DELTA, 0.95, pairs) == math.inf


def test_without_a_claim_every_guess_is_right() -> None:
    assert ideal_bound(math.inf, 1000, 1e-5, 0.95, False) > 4
