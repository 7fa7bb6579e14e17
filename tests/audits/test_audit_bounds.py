"""Lower bounds on epsilon: exact tails of worst-case mechanisms, a linear programme as oracle, simulated audits."""

import math
from collections.abc import Sequence
from functools import cache
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, special, stats

from many_runs import many_run_bound
from tacit.audits.epsilon_bounds import (
    Guesses,
    GuessPlan,
    Points,
    count,
    default_plans,
    one_run_bound,
    one_run_pairs_bound,
)
from tacit.audits.statistics import Booleans, Floats, Judged, Scores
from tacit.errors import AttackError
from tacit.privacy.account import account
from tacit.privacy.events import Gaussian, Relation
from tacit.privacy.profile import GaussianLaw

DELTA = 1e-5


def known(values: Floats, inside: Booleans) -> Judged:
    return Judged(tuple(f"canary-{place}" for place in range(len(values))), values, inside)


def gaussian_run(canaries: int, mu: float, generator: np.random.Generator) -> Judged:
    """Canaries that move a score of deviation 1 by mu: the run is mu-GDP for each of them."""
    inside = generator.random(canaries) < 0.5
    return known(generator.normal(size=canaries) + mu * inside, inside)


def randomised_response(canaries: int, epsilon: float, generator: np.random.Generator) -> Judged:
    inside = generator.random(canaries) < 0.5
    told = inside ^ (generator.random(canaries) > special.expit(epsilon))
    return known(told + generator.random(canaries) / 2, inside)


def false_alarms(repetitions: int, doubt: float, alarm: float) -> int:
    """So many or fewer, but for a chance of `alarm`, when each has a chance of at most `doubt`."""
    return int(stats.binom.isf(alarm, repetitions, doubt))


deltas = st.just(0.0) | st.floats(1e-9, 0.3)

# Tails of mechanisms that are exactly (epsilon, delta)-DP: what the theorems must allow.


def told_with_chance_delta(canaries: int, made: int, epsilon: float, delta: float) -> Floats:
    """P(W = w): each coin is shown with probability delta, else told by randomised response; shown ones go first."""
    law = np.zeros(made + 1)
    for shown, chance in enumerate(stats.binom.pmf(np.arange(canaries + 1), canaries, delta)):
        sure = min(shown, made)
        law[sure:] += chance * stats.binom.pmf(np.arange(made - sure + 1), made - sure, special.expit(epsilon))
    return law


def told_in_blocks(canaries: int, made: int, epsilon: float, delta: float, block: int) -> Floats:
    """One block of coins is shown, each block with probability delta; the others by randomised response."""
    rate, some = special.expit(epsilon), min(1.0, delta * (canaries // block))
    law = np.asarray((1 - some) * stats.binom.pmf(np.arange(made + 1), made, rate), dtype=np.float64)
    sure = min(block, made)
    law[sure:] += some * stats.binom.pmf(np.arange(made - sure + 1), made - sure, rate)
    return law


def announced_mixture(made: int, epsilons: Sequence[float], weights: Sequence[float]) -> Floats:
    """Randomised response whose epsilon is drawn once for all coins, and told."""
    laws = [stats.binom.pmf(np.arange(made + 1), made, special.expit(epsilon)) for epsilon in epsilons]
    return np.asarray(np.average(laws, axis=0, weights=weights), dtype=np.float64)


def tails(law: Floats) -> Floats:
    return np.asarray(np.cumsum(law[::-1])[::-1], dtype=np.float64)


def assert_never_refuted(law: Floats, canaries: int, curve: Points, point: tuple[float, float] | None = None) -> None:
    """No count that is as likely as `doubt` under `law` is called less likely."""
    made = len(law) - 1
    for correct, tail in enumerate(tails(law)):
        for doubt in (0.2, 0.05, 1e-3, 1e-6):
            guesses = Guesses(canaries, made, correct, doubt)
            assert tail < doubt or not guesses.refute(curve)
        if point is not None:
            assert tail <= Guesses(canaries, made, correct, 0.05).chance(*point) + 1e-12


@given(st.integers(1, 60), st.floats(0.02, 1.0), st.floats(0, 4), deltas, st.integers(1, 60))
def test_worst_cases_are_never_refuted(
    canaries: int, share: float, epsilon: float, delta: float, block_size: int
) -> None:
    """Exact, no chance involved: both theorems hold for mechanisms that use epsilon and delta up."""
    made, point = max(1, int(share * canaries)), (epsilon, delta)
    curve = (point,)
    assert_never_refuted(told_with_chance_delta(canaries, made, epsilon, delta), canaries, curve, point)
    block = min(block_size, canaries)
    if delta * (canaries // block) <= 1:
        assert_never_refuted(told_in_blocks(canaries, made, epsilon, delta, block), canaries, curve, point)


@given(st.integers(1, 80), st.lists(st.tuples(st.floats(0, 5), st.floats(0.01, 1)), min_size=1, max_size=3))
def test_a_true_profile_is_never_refuted(made: int, parts: list[tuple[float, float]]) -> None:
    """Correlated coins: the profile of an announced mixture is known at every epsilon."""
    epsilons = [epsilon for epsilon, _ in parts]
    weights = np.array([weight for _, weight in parts])
    weights /= weights.sum()

    def delta(at: float) -> float:
        return math.fsum(
            weight * max(0.0, (math.exp(epsilon) - math.exp(at)) / (1 + math.exp(epsilon)))
            for epsilon, weight in zip(epsilons, weights, strict=True)
        )

    points = tuple((at, delta(at)) for at in (*epsilons, *np.linspace(0, 5, 12)))
    assert_never_refuted(announced_mixture(made, epsilons, weights.tolist()), made, points)


def test_normalising_by_the_guessed_ones_alone_would_be_false() -> None:
    """Control: a mechanism that shows each coin with probability delta is (0, delta)-DP, and refuted by the mistake."""
    canaries, made, delta = 400, 10, 0.05
    tail = tails(told_with_chance_delta(canaries, made, 0.0, delta))[made]
    assert tail > 0.9
    curve = ((0.0, delta),)
    assert not Guesses(canaries, made, made, 0.5).refute(curve)
    assert Guesses(made, made, made, 0.5).refute(curve), "the mistake: as if there were no other canaries"


def most_likely(canaries: int, made: int, correct: int, points: Sequence[tuple[float, float]]) -> float:
    """The largest P(W >= correct) that the theorem's constraints allow, as a linear programme."""
    numbers = np.arange(made + 1)
    rows, sides = [], []
    for j in range(1, correct + 1):
        right = np.where(numbers >= j, numbers, 0) / canaries
        wrong = np.where(numbers >= j - 1, made - numbers, 0) / canaries
        for epsilon, delta in points:
            rows += [right - math.exp(epsilon) * wrong, right - math.exp(-epsilon) * wrong]
            sides += [delta, 1 - math.exp(-epsilon) * (1 - delta)]
    target = -(numbers >= correct).astype(float)
    answer = optimize.linprog(target, rows or None, sides or None, [np.ones(made + 1)], [1.0], method="highs")
    assert answer.status == 0
    return float(-answer.fun)


@settings(max_examples=60)
@given(
    st.integers(1, 14),
    st.integers(0, 20),
    st.lists(st.tuples(st.floats(0, 3), st.floats(0, 0.2)), min_size=1, max_size=3),
    st.data(),
)
def test_the_recursion_is_the_linear_programme(
    made: int, passed: int, points: list[tuple[float, float]], data: st.DataObject
) -> None:
    correct = data.draw(st.integers(0, made))
    largest = most_likely(made + passed, made, correct, points)
    curve = tuple(points)
    if largest < 0.98:
        assert Guesses(made + passed, made, correct, min(1.0, largest * 1.01 + 1e-6)).refute(curve)
    assert not Guesses(made + passed, made, correct, largest * 0.99 - 1e-6).refute(curve)


def test_theorem_5_2_by_loops() -> None:
    def slow(canaries: int, made: int, correct: int, epsilon: float, delta: float) -> float:
        rate = 1 / (1 + math.exp(-epsilon))
        law = [math.comb(made, k) * rate**k * (1 - rate) ** (made - k) for k in range(made + 1)]
        lifted = max(sum(law[max(0, correct - i) : correct]) / i for i in range(1, canaries + 1))
        return min(1.0, sum(law[correct:]) + 2 * canaries * delta * lifted)

    for case in [(40, 40, 30, 0.5, 1e-3), (40, 12, 12, 2.0, 1e-5), (100, 20, 3, 0.0, 1e-2), (5, 5, 1, 3.0, 0.0)]:
        assert Guesses(case[0], case[1], case[2], 0.05).chance(case[3], case[4]) == pytest.approx(slow(*case))


# Whole audits.


@cache
def _bound_on_response(made: int, correct: int) -> float:
    inside = np.arange(made) % 2 == 0
    values = np.where(np.arange(made) < correct, inside, ~inside).astype(np.float64)
    plan = GuessPlan(int((values > 0.5).sum()), int((values < 0.5).sum()))
    judged = known(values, inside)
    assert count(judged, plan, 1.0).correct == correct
    return one_run_bound(judged, 0.0, plans=[plan]).epsilon


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_randomised_response_uses_the_doubt_up(epsilon: float) -> None:
    """G1 where it is tight: the exact chance of a false bound is at most 5 %, and not much less."""
    made = 300
    law = stats.binom.pmf(np.arange(made + 1), made, special.expit(epsilon))
    false = sum(float(law[correct]) for correct in range(made + 1) if _bound_on_response(made, correct) > epsilon)
    assert 0.02 < false <= 0.05


@pytest.mark.statistical
@pytest.mark.parametrize("epsilon", [1.0, 2.5])
def test_randomised_response_is_bounded_from_below_and_nearly_reached(epsilon: float) -> None:
    """G1 with abstentions and several plans; false alarm: 1e-6. Control: half the epsilon is refuted every time."""
    generator, repetitions = np.random.default_rng(1), 40
    bounds = [one_run_bound(randomised_response(1000, epsilon, generator), 1e-6).epsilon for _ in range(repetitions)]
    assert sum(bound > epsilon for bound in bounds) <= false_alarms(repetitions, 0.05, 1e-6)
    assert np.mean(bounds) > 0.75 * epsilon
    assert min(bounds) > epsilon / 2


@pytest.mark.statistical
@pytest.mark.parametrize(("mu", "share"), [(0.5, 0.2), (1.0, 0.3), (2.0, 0.25)])
def test_gaussian_mechanisms_are_bounded_from_below(mu: float, share: float) -> None:
    """G1; false alarm: 1e-6. A bound that sees nothing would pass, so a share must be reached.

    One run reaches a part of the truth: a mechanism with the same curve may be right about all coins at once, rarely.
    """
    generator, repetitions = np.random.default_rng(2), 20
    truth = GaussianLaw(mu).epsilon(DELTA)
    runs = [gaussian_run(2000, mu, generator) for _ in range(repetitions)]
    plain = [one_run_bound(run, DELTA).epsilon for run in runs]
    allowed = false_alarms(repetitions, 0.05, 1e-6)
    assert sum(bound > truth for bound in plain) <= allowed
    assert np.mean(plain) > share * truth


@pytest.mark.statistical
def test_one_run_contradicts_broken_mechanisms() -> None:
    """Controls: noise off; sensitivity doubled. What was claimed is refuted in every repetition."""
    generator, claimed = np.random.default_rng(3), 0.5
    epsilon = GaussianLaw(claimed).epsilon(DELTA)
    for _ in range(5):
        inside = generator.random(500) < 0.5
        assert one_run_bound(known(inside.astype(np.float64), inside), DELTA).epsilon > epsilon
        doubled = gaussian_run(10_000, 2 * claimed, generator)
        profile = account(((Gaussian(1 / claimed, 1, Relation.ZERO_OUT), 1),)).curve()
        assert one_run_bound(doubled, DELTA).refutes(profile)


@pytest.mark.statistical
def test_the_whole_profile_refutes_more_than_one_point_of_it() -> None:
    """What an epsilon at one delta cannot show; and a true profile is not refuted (false alarm: 1e-6)."""
    generator = np.random.default_rng(4)
    profile = account(((Gaussian(1.0, 1, Relation.ZERO_OUT), 1),)).curve()
    doubled = [one_run_bound(gaussian_run(5000, 2.0, generator), DELTA) for _ in range(5)]
    assert all(bound.refutes(profile) for bound in doubled)
    assert any(bound.epsilon < GaussianLaw(1.0).epsilon(DELTA) for bound in doubled)
    true = [one_run_bound(gaussian_run(2000, 1.0, generator), DELTA) for _ in range(20)]
    assert sum(bound.refutes(profile) for bound in true) <= false_alarms(20, 0.05, 1e-6)


@pytest.mark.statistical
@pytest.mark.parametrize("delta", [DELTA, 1e-2, 1e-1])
@pytest.mark.parametrize("mu", [0.5, 2.0])
def test_many_runs_are_bounded_from_below(mu: float, delta: float) -> None:
    """G1; false alarm: 1e-6. Control: twice as many steps as the ledger says, and doubled sensitivity, are refuted."""
    generator, truth = np.random.default_rng(5), GaussianLaw(mu).epsilon(delta)
    repetitions = 60
    bounds = []
    for _ in range(repetitions):
        present, absent = generator.normal(mu, 1, 2000), generator.normal(0, 1, 2000)
        bounds.append(many_run_bound(present, absent, delta))
    assert sum(bound > truth for bound in bounds) <= false_alarms(repetitions, 0.05, 1e-6)
    if delta == 1e-1:
        assert mu < 2 or np.mean(bounds) > 0.6 * truth
        for factor in (math.sqrt(2), 2.0):
            present, absent = generator.normal(factor * mu, 1, 200_000), generator.normal(0, 1, 200_000)
            assert many_run_bound(present, absent, delta, 1 - 1e-6) > truth


def test_many_runs_by_loops() -> None:
    """The same halves, every threshold of the first, rates from scipy's exact intervals."""
    generator = np.random.default_rng(6)
    present, absent = generator.normal(3, 1, 60), generator.normal(0, 1, 70)
    confidence, delta = 0.9, 0.01

    def halves(scores: Floats) -> tuple[Floats, Floats]:
        mixed = np.random.default_rng(len(scores)).permutation(scores)
        return mixed[::2], mixed[1::2]

    def value(present: Floats, absent: Floats, threshold: float) -> float:
        level = 1 - (1 - confidence) / 2  # two-sided, so that each end has a quarter of the doubt
        caught = stats.binomtest(int((present > threshold).sum()), len(present)).proportion_ci(level, "exact").low
        alarms = stats.binomtest(int((absent > threshold).sum()), len(absent)).proportion_ci(level, "exact").high
        return math.log(max(1.0, (caught - delta) / alarms))

    def direction(present: tuple[Floats, Floats], absent: tuple[Floats, Floats]) -> float:
        thresholds = sorted({*present[0], *absent[0]})
        best = max(thresholds, key=lambda threshold: (value(present[0], absent[0], threshold), -threshold))
        return value(present[1], absent[1], best)

    first, second = halves(present), halves(absent)
    negated = (tuple(-half for half in second), tuple(-half for half in first))
    expected = max(direction(first, second), direction(*negated))  # type: ignore[arg-type]
    assert many_run_bound(present, absent, delta, confidence) == pytest.approx(expected)
    assert expected > 0


def test_a_rehearsal_chooses_the_threshold_and_all_real_repetitions_judge() -> None:
    generator = np.random.default_rng(6)
    present, absent = generator.normal(3, 1, 60), generator.normal(0, 1, 70)
    first, second = (np.random.default_rng(len(one)).permutation(one) for one in (present, absent))
    apart = many_run_bound(first[1::2], second[1::2], 0.01, rehearsal=(first[::2], second[::2]))
    assert apart == many_run_bound(present, absent, 0.01)
    halved, rehearsed = [], []
    for _ in range(20):
        present, other = generator.normal(2, 1, (2, 400))
        absent, another = generator.normal(0, 1, (2, 400))
        halved.append(many_run_bound(present, absent, 0.01))
        rehearsed.append(many_run_bound(present, absent, 0.01, rehearsal=(other, another)))
    assert np.mean(rehearsed) > np.mean(halved) + 0.1


@pytest.mark.statistical
def test_sorted_repetitions_do_no_harm() -> None:
    """Halves are not every second of what came; false alarm: 1e-6."""
    generator = np.random.default_rng(7)
    bounds = [
        many_run_bound(np.sort(generator.normal(size=300)), np.sort(generator.normal(size=300)), 0.0)
        for _ in range(100)
    ]
    assert sum(bound > 0 for bound in bounds) <= false_alarms(100, 0.05, 1e-6)


def test_more_right_more_doubt_and_smaller_delta_give_more() -> None:
    inside = np.arange(200) % 2 == 0
    previous = -1.0
    for wrong in (60, 40, 20, 10, 2, 0):
        values = np.where(np.arange(200) < wrong, ~inside, inside) + 0.0
        judged = known(values + np.linspace(0, 0.1, 200), inside)
        by_confidence = [one_run_bound(judged, DELTA, confidence).epsilon for confidence in (0.8, 0.95, 0.999)]
        by_delta = [one_run_bound(judged, delta).epsilon for delta in (1e-6, 1e-3, 1e-1)]
        assert np.all(np.diff(by_confidence) <= 2e-6)
        assert np.all(np.diff(by_delta) <= 2e-6)
        assert by_confidence[1] >= previous - 2e-6
        previous = by_confidence[1]
    assert previous > 1


@given(st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=4, max_size=60), st.randoms())
def test_order_changes_nothing_and_ties_count_against_us(candidates: list[tuple[int, bool]], random: Random) -> None:
    """G3. However ties are broken, the guesser is right at least as often as is counted."""
    shuffled = random.sample(candidates, len(candidates))
    for plan in default_plans(len(candidates)):
        counts = {
            count(known(np.array([float(one) for one, _ in some]), np.array([two for _, two in some])), plan, 0.05)
            for some in (candidates, shuffled)
        }
        assert len(counts) == 1
        order = sorted(range(len(shuffled)), key=lambda place: (-shuffled[place][0], random.random()))
        lowest = order[len(order) - plan.lowest :]
        right = sum(shuffled[place][1] for place in order[: plan.highest])
        right += sum(not shuffled[place][1] for place in lowest)
        assert counts.pop().correct <= right


def test_scores_that_are_all_equal_show_nothing() -> None:
    """Control for ties: candidates that come sorted by the truth."""
    inside = np.arange(100) < 50
    assert one_run_bound(known(np.zeros(100), inside), DELTA).epsilon == 0


def test_the_doubt_is_shared_among_the_plans() -> None:
    """G2."""
    judged = gaussian_run(300, 1.0, np.random.default_rng(8))
    bound = one_run_bound(judged, DELTA, 0.9)
    assert len(bound.guesses) == len(default_plans(300)) == 11
    assert math.fsum(guesses.doubt for guesses in bound.guesses) == pytest.approx(0.1)
    assert all(plan.made <= 300 for plan in default_plans(300))


def test_what_cannot_be_audited_is_refused() -> None:
    generator = np.random.default_rng(9)
    judged = gaussian_run(100, 1.0, generator)
    everyone = known(generator.normal(size=100), np.ones(100, dtype=np.bool_))
    with pytest.raises(AttackError, match="fair coins; found 100 of 100 inside"):
        one_run_bound(everyone, DELTA)
    with pytest.raises(AttackError, match="at least one plan"):
        one_run_bound(judged, DELTA, plans=[])
    with pytest.raises(AttackError, match="between 1 and 100 guesses"):
        one_run_bound(judged, DELTA, plans=[GuessPlan(60, 60)])
    for delta, confidence in ((-0.1, 0.95), (1.0, 0.95), (DELTA, 1.0), (DELTA, 0.0)):
        with pytest.raises(AttackError, match="delta"):
            one_run_bound(judged, delta, confidence)


# Pairs of which a coin chose one


def told_pairs(pairs: int, epsilon: float, generator: np.random.Generator) -> Scores:
    """Randomised response: the planted one of each pair is told with odds e^epsilon."""
    right = generator.random(pairs) < special.expit(epsilon)
    sizes = 1 + generator.random(pairs)
    return Scores({f"pair-{place}": float(one) for place, one in enumerate(np.where(right, sizes, -sizes))})


@pytest.mark.statistical
def test_pairs_stay_below_the_truth_and_come_near_it() -> None:
    """G1 for pairs: false alarm 1e-4. Control: the mean reaches more than half of the truth."""
    generator, repetitions = np.random.default_rng(8), 60
    found = [one_run_pairs_bound(told_pairs(400, 1.0, generator), 0.0).epsilon for _ in range(repetitions)]
    assert sum(epsilon > 1.0 for epsilon in found) <= false_alarms(repetitions, 0.05, 1e-4)
    assert np.mean(found) > 0.5


def test_the_order_of_pairs_changes_nothing_and_ties_count_against() -> None:
    """G3 for pairs."""
    margins = told_pairs(50, 3.0, np.random.default_rng(3))
    backwards = Scores(dict(list(margins.by_id.items())[::-1]))
    assert one_run_pairs_bound(margins, DELTA) == one_run_pairs_bound(backwards, DELTA)
    assert one_run_pairs_bound(margins, DELTA).epsilon > 1
    equal = Scores({f"pair-{place}": 1.0 if place % 2 else -1.0 for place in range(64)})
    assert [one.correct for one in one_run_pairs_bound(equal, DELTA).guesses] == [32, 0, 0, 0]
    assert one_run_pairs_bound(Scores(dict.fromkeys(margins.by_id, 0.0)), DELTA).epsilon == 0
    with pytest.raises(AttackError, match="at least one pair"):
        one_run_pairs_bound(Scores({}), DELTA)
