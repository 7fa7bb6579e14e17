"""Accountants against slow oracles, and properties that hold for every composition."""

import itertools
import math
import time

import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.rdp.rdp_privacy_accountant import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from tacit.errors import ClaimRefused, ConfigError
from tacit.privacy.account import (
    account,
    calibrate_noise,
    check_delta,
    default_delta,
    library_pld,
    quick_account,
    without_library,
)
from tacit.privacy.dominating_pairs import directions
from tacit.privacy.events import Composition, ExposedGaussian, Free, Gaussian, Relation, SampledGaussian, Unbounded
from tacit.privacy.pld import PLD
from tacit.privacy.profile import CLOSED_FORM, Accountant, GaussianLaw, TwoHops
from tacit.privacy.renyi import ORDERS, RDP, RenyiLaw, log_moments

ZERO_OUT, REPLACE = Relation.ZERO_OUT, Relation.REPLACE
DELTA = 1e-6

noises = st.floats(0.4, 20.0)
rates = st.floats(1e-5, 0.5)
steps_taken = st.integers(1, 5_000)
numbers_of_copies = st.integers(1, 6)


def sampled(noise: float, rate: float, steps: int, copies: int = 1, relation: Relation = ZERO_OUT) -> Composition:
    """One kind of sampled step."""
    return ((SampledGaussian(noise, rate, copies, relation), steps),)


@pytest.mark.parametrize(
    ("composition", "interval"),
    [
        (sampled(0.5, 1e-3, 2_000), 1e-3),
        (sampled(1.0, 0.05, 300), 1e-3),
        (sampled(0.3, 1e-3, 1_000), 1e-3),
        (sampled(0.8, 0.01, 500, relation=REPLACE), 1e-3),
        (sampled(3.0, 0.9, 20), 1e-3),
        (sampled(1.5, 0.02, 400, copies=3), 4e-3),
        ((*sampled(1.0, 0.01, 400), *sampled(2.0, 0.1, 30, copies=2), (Gaussian(5.0, 1, ZERO_OUT), 3)), 4e-3),
    ],
)
def test_pld_agrees_with_dp_accounting(composition: Composition, interval: float) -> None:
    """Ours is finer than dp-accounting at these intervals and both round up: it is not above it, and close."""
    ours, theirs = PLD.profile(composition), library_pld(interval).profile(composition)
    for delta in (1e-3, 1e-6):
        assert ours.epsilon(delta) <= theirs.epsilon(delta) * 1.002 + 1e-4
        assert ours.epsilon(delta) == pytest.approx(theirs.epsilon(delta), rel=0.02, abs=5e-3)


@pytest.mark.parametrize(("noise", "rate"), [(0.5, 1e-4), (1.0, 0.02), (4.0, 0.3)])
def test_renyi_divergence_agrees_with_dp_accounting(noise: float, rate: float) -> None:
    """Quadrature against the exact sum at whole orders (Mironov, Talwar, Zhang 2019, section 3.3)."""
    orders = np.array([2.0, 3.0, 8.0, 16.0, 32.0])
    oracle = RdpAccountant(orders.tolist())
    oracle.compose(dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(noise)))
    pairs = directions(SampledGaussian(noise, rate, 1, ZERO_OUT))
    ours = np.max([log_moments(pair, orders) for pair in pairs], axis=0) / (orders - 1)
    assert ours == pytest.approx(oracle.rdp, rel=1e-7)


@pytest.mark.parametrize("order", [1.5, 3.7])
@pytest.mark.parametrize("event", [SampledGaussian(0.5, 1e-4, 1, ZERO_OUT), SampledGaussian(2.0, 0.1, 3, ZERO_OUT)])
def test_renyi_divergence_at_fractional_orders(event: SampledGaussian, order: float) -> None:
    """Against adaptive integration; dp-accounting's truncated series is 4 % high at noise .5, rate 1e-4, order 1.5."""
    counts = np.arange(event.copies + 1)
    weights = stats.binom.pmf(counts, event.copies, event.sampling_rate)

    def ratio(x: float) -> float:
        return float(weights @ np.exp((2 * counts * x - counts**2) / (2 * event.noise_multiplier**2)))

    def integrand(x: float) -> float:
        density = float(stats.norm.pdf(x, scale=event.noise_multiplier))
        return float(ratio(x) ** order - 1 - order * (ratio(x) - 1)) * density

    limit = event.copies * order + 12 * event.noise_multiplier
    surplus, _ = integrate.quad(integrand, -limit, limit, points=[0, 1, 2], limit=500, epsrel=1e-11)
    found = log_moments(directions(event)[0], np.array([order]))[0]
    assert found == pytest.approx(math.log1p(surplus), rel=1e-6)


def test_exposed_draws_agree_with_an_obvious_sum() -> None:
    """delta = sum over n of P(n) delta_Gaussian(epsilon; sqrt(n) / sigma), term by term."""
    noise, rate, steps, epsilon = 1.3, 0.1, 40, 2.0
    total = 0.0
    for n in range(1, steps + 1):
        mu = math.sqrt(n) / noise
        first = stats.norm.cdf(mu / 2 - epsilon / mu)
        second = math.exp(epsilon) * stats.norm.cdf(-mu / 2 - epsilon / mu)
        total += stats.binom.pmf(n, steps, rate) * (first - second)
    for relation, sigma in ((ZERO_OUT, noise), (REPLACE, 2 * noise)):
        event = ExposedGaussian(sigma, rate, relation)
        assert CLOSED_FORM.profile(((event, steps),)).delta(epsilon) == pytest.approx(total, rel=1e-9)


@settings(max_examples=15, deadline=None)
@given(noise=noises, steps=st.integers(1, 1000), delta=st.sampled_from([1e-2, 1e-5, 1e-8]))
def test_pld_is_pessimistic_and_tight_for_gaussians(noise: float, steps: int, delta: float) -> None:
    """G1 of the module `pld`: above the exact value, by less than half a percent."""
    composition: Composition = ((Gaussian(noise, 1, ZERO_OUT), steps),)
    exact, ours = CLOSED_FORM.profile(composition).epsilon(delta), PLD.profile(composition).epsilon(delta)
    assert exact <= ours + 1e-9
    assert ours <= exact * 1.005 + 1e-6


@settings(max_examples=8, deadline=None)
@given(noise=noises, rate=rates, steps=steps_taken)
def test_pld_is_pessimistic_and_tight_for_exposed_draws(noise: float, rate: float, steps: int) -> None:
    """Two independent ways to price one event."""
    composition: Composition = ((ExposedGaussian(noise, rate, ZERO_OUT), steps),)
    exact, ours = CLOSED_FORM.profile(composition).epsilon(DELTA), PLD.profile(composition).epsilon(DELTA)
    assert exact <= ours + 1e-6
    assert ours <= exact * 1.02 + 1e-3


@settings(max_examples=8, deadline=None)
@given(noise=noises, rate=rates, steps=steps_taken, copies=numbers_of_copies)
def test_monotone(noise: float, rate: float, steps: int, copies: int) -> None:
    """Less noise, a higher rate, more steps or more copies never cost less; PLD never exceeds RDP."""
    base = quick_account(sampled(noise, rate, steps, copies)).epsilon(DELTA)
    dearer = (
        sampled(noise / 1.3, rate, steps, copies),
        sampled(noise, min(1.0, rate * 1.3), steps, copies),
        sampled(noise, rate, 2 * steps, copies),
        sampled(noise, rate, steps, copies + 1),
    )
    for composition in dearer:
        assert quick_account(composition).epsilon(DELTA) >= base * (1 - 2e-3) - 1e-6
    assert base <= RDP.profile(sampled(noise, rate, steps, copies)).epsilon(DELTA) * 1.01 + 1e-4


def test_replacement_of_several_copies_goes_through_the_blanked_world() -> None:
    """The two-hop law against its definition on a fine grid, and between its two obvious bounds."""
    one_hop = GaussianLaw(0.5)
    epsilon = 3.0
    grid = np.linspace(0, epsilon, 20_001)
    delta = one_hop.deltas(grid)
    slow = float(np.min(delta + np.exp(grid) * delta[::-1]))
    fast = float(TwoHops(one_hop).deltas(np.array([epsilon]))[0])
    assert slow <= fast <= slow * 1.02
    true = float(GaussianLaw(1.0).deltas(np.array([epsilon]))[0])  # two hops of mu = 1/2 in one direction
    assert fast >= true
    blanked, replaced = (account(sampled(2.0, 0.01, 300, 3, relation)) for relation in (ZERO_OUT, REPLACE))
    assert 2 * blanked.epsilon(DELTA) < replaced.epsilon(DELTA) < 3 * blanked.epsilon(DELTA)


def test_exposed_and_sampled_steps_together() -> None:
    """No closed form: PLD prices the mixture, above each part and below their sum at half the delta."""
    sampled_part, exposed_part = sampled(1.0, 0.01, 300), ((ExposedGaussian(4.0, 0.1, ZERO_OUT), 30),)
    together = account(sampled_part + exposed_part)
    parts = [account(part) for part in (sampled_part, exposed_part)]
    assert together.accountant == PLD.name
    assert max(part.epsilon(DELTA) for part in parts) < together.epsilon(DELTA)
    assert together.epsilon(DELTA) < sum(part.epsilon(DELTA / 2) for part in parts)


def test_a_rate_that_is_next_to_nothing() -> None:
    """Components below every rounding are dropped into delta, not into an error."""
    profile = account(sampled(1.0, 1e-25, 1_000))
    assert profile.epsilon(1e-9) == 0.0
    assert profile.delta(0.0) < 1e-9


def test_more_epsilon_never_needs_more_delta() -> None:
    """G1 of the module `profile`, for each way to price."""
    for composition in (
        sampled(0.7, 0.01, 500),
        sampled(1.0, 1e-6, 10**7),
        sampled(2.0, 0.01, 300, 3, REPLACE),
        ((ExposedGaussian(1.0, 0.1, ZERO_OUT), 50),),
    ):
        profile = account(composition)
        deltas = [profile.delta(epsilon) for epsilon in np.linspace(0, 12, 60)]
        assert all(later <= earlier * (1 + 1e-12) for earlier, later in itertools.pairwise(deltas))
        epsilons = [epsilon for epsilon, _ in profile.curve()]
        assert epsilons == sorted(epsilons)


def test_the_profile_says_how_it_was_priced() -> None:
    """G1 of the module `product`, and the coarse grid of G2 of the module `pld`."""
    assert account(((Gaussian(1.0, 2, ZERO_OUT), 3),)).accountant == CLOSED_FORM.name
    assert account(sampled(1.0, 1.0, 3)).accountant == CLOSED_FORM.name
    assert account(sampled(1.0, 0.1, 3)).accountant == f"{PLD.name}, confirmed by {library_pld().name}"
    assert account(sampled(1.0, 0.1, 3, copies=2)).accountant == PLD.name
    with without_library():
        alone = account(sampled(1.0, 0.1, 3))
    assert alone.accountant == PLD.name
    assert alone.curve() == account(sampled(1.0, 0.1, 3)).curve()
    assert "hop" in account(sampled(2.0, 0.01, 300, 3, REPLACE)).accountant
    assert "coarse" in account(sampled(1.0, 1e-6, 10**7)).accountant


def test_profile_curve_and_mu() -> None:
    """G3 of the module `profile`: mu-GDP lies above the profile, and mu is exact for Gaussians."""
    assert account(((Gaussian(2.0, 1, ZERO_OUT), 100),)).mu() == pytest.approx(5.0)
    profile = account(sampled(1.0, 0.02, 500))
    dominating = GaussianLaw(profile.mu())
    for epsilon, delta in profile.curve():
        assert float(dominating.deltas(np.array([epsilon]))[0]) >= delta * (1 - 1e-6) or epsilon == 0.0
    smaller = GaussianLaw(profile.mu() * 0.97)
    assert any(float(smaller.deltas(np.array([e]))[0]) < d * (1 - 1e-6) for e, d in profile.curve() if e > 0)
    assert PLD.profile(((Gaussian(2.0, 1, ZERO_OUT), 100),)).mu() == pytest.approx(5.0, rel=0.01)


def test_a_best_order_at_the_edge_is_only_loose() -> None:
    """A grid that ends too early gives a larger epsilon, never a smaller one."""
    orders = ORDERS[ORDERS < 8]
    assert RenyiLaw(orders, orders * 1e-4).epsilon(1e-6) > 1.5
    assert RenyiLaw(ORDERS, ORDERS * 1e-4).epsilon(1e-6) < 0.1


def test_contradicting_accountants_give_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """G2 of the module `account`, with a negative control: an RDP that says far too little."""
    composition, little = sampled(1.0, 0.0213, 77), account(sampled(50.0, 0.001, 1))
    monkeypatch.setattr("tacit.privacy.account.RDP", Accountant("RDP", lambda spent: little.law))
    with pytest.raises(ClaimRefused, match="contradict"):
        account(composition)


@pytest.mark.parametrize(
    ("noise", "rate", "steps", "copies"),
    [*itertools.product((0.3, 50.0), (1e-6, 0.1), (1, 10**7), (1, 50)), (0.3, 1.0, 10**7, 50)],
)
def test_extremes(noise: float, rate: float, steps: int, copies: int) -> None:
    """No hang, no overflow, no NaN (warnings are errors here), from no cost to billions."""
    profile = account(sampled(noise, rate, steps, copies))
    loose, tight = profile.epsilon(1e-3), profile.epsilon(1e-6)
    assert 0 <= loose <= tight < math.inf
    assert 0 <= profile.delta(1.0) <= 1


def test_a_million_steps_in_seconds() -> None:
    """Pricing and calibrating a run of a million steps, in processor seconds."""
    start = time.process_time()
    noise = calibrate_noise(lambda found: sampled(found, 1e-3, 10**6), 3.0, 1e-6)
    assert account(sampled(noise, 1e-3, 10**6)).epsilon(1e-6) <= 3.0
    assert time.process_time() - start < 10.0


@settings(max_examples=6, deadline=None)
@given(epsilon=st.floats(0.3, 20.0), rate=st.floats(1e-3, 0.2), steps=st.integers(10, 2000))
def test_calibrated_noise_keeps_the_target_and_is_tight(epsilon: float, rate: float, steps: int) -> None:
    """G1 and G2 of the module `calibrate`."""
    noise = calibrate_noise(lambda found: sampled(found, rate, steps), epsilon, DELTA)
    assert account(sampled(noise, rate, steps)).epsilon(DELTA) <= epsilon
    assert account(sampled(noise * 0.99, rate, steps)).epsilon(DELTA) > epsilon


def test_calibration_refuses_what_cannot_be_met() -> None:
    """No noise brings an unbounded step down, and free steps need none."""
    with pytest.raises(ClaimRefused, match="noise that brings"):
        calibrate_noise(lambda noise: ((Unbounded("plain"), 1),), 3.0, DELTA)
    with pytest.raises(ClaimRefused, match="needs noise"):
        calibrate_noise(lambda noise: ((Free("public"), 1),), 3.0, DELTA)
    with pytest.raises(ConfigError):
        calibrate_noise(lambda noise: sampled(noise, 0.1, 1), math.inf, DELTA)


def test_delta_must_be_below_one_over_the_units() -> None:
    """Refuse delta >= 1/N; the default is a tenth of that."""
    check_delta(default_delta(5_000), 5_000)
    assert default_delta(5_000) == pytest.approx(2e-5)
    for delta in (1 / 5_000, 0.1, 0.0, -1e-6, math.nan):
        with pytest.raises(ClaimRefused):
            check_delta(delta, 5_000)


@pytest.mark.parametrize("delta", [1e-9, 1e-10, 1e-11, 1e-12, 1e-14, 1e-18])
def test_small_deltas_are_not_lost_in_rounding(delta: float) -> None:
    """A draw that takes nearly everybody costs what the Gaussian costs; the library's transform says less at 1e-11."""
    sampled = account(((SampledGaussian(300.0, 1 - 1e-9, 1, ZERO_OUT), 100_000),))
    exact = account(((Gaussian(300.0, 1, ZERO_OUT), 100_000),))
    assert sampled.accountant.startswith(f"{PLD.name}, confirmed by")
    assert exact.epsilon(delta) * (1 - 1e-7) <= sampled.epsilon(delta) <= 1.1 * exact.epsilon(delta)
    assert sampled.delta(exact.epsilon(delta)) >= delta * (1 - 1e-5)


def test_small_deltas_join_the_others_without_a_gap() -> None:
    profile = account(((SampledGaussian(1.1, 0.01, 1, ZERO_OUT), 1000),))
    deltas = np.logspace(-6, -11, 60)
    epsilons = [profile.epsilon(float(delta)) for delta in deltas]
    assert epsilons == sorted(epsilons)
    spent = [profile.delta(epsilon) for epsilon in epsilons]
    assert all(found <= asked * (1 + 1e-6) for found, asked in zip(spent, deltas, strict=True))
    assert spent == sorted(spent, reverse=True)


@pytest.mark.parametrize(
    "spent", [(SampledGaussian(1e-5, 0.064, 1, ZERO_OUT), 313), (SampledGaussian(1.0, 0.064, 1, ZERO_OUT), 10**300)]
)
def test_what_cannot_be_computed_is_refused(spent: tuple[SampledGaussian, int]) -> None:
    with pytest.raises(ClaimRefused, match="more noise or fewer steps"):
        account((spent,))


def test_profile_refuses_questions_without_meaning() -> None:
    """A delta outside (0, 1), a negative epsilon."""
    profile = account(sampled(1.0, 0.1, 5))
    for delta in (0.0, 1.0, -1.0, math.nan):
        with pytest.raises(ClaimRefused):
            profile.epsilon(delta)
    for epsilon in (-1.0, math.nan):
        with pytest.raises(ClaimRefused):
            profile.delta(epsilon)
    assert profile.delta(math.inf) == 0.0
