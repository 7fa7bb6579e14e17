"""Scores joined by id, and the figures made of them, against loops over pairs and thresholds."""

import math
from itertools import product
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tacit.audits.statistics import Judged, Scores, auc, grouped, half_cut, judged, rate_at, rates, roc
from tacit.common.formatting import exact_interval
from tacit.errors import AttackError

candidates = st.lists(st.tuples(st.integers(-4, 4), st.booleans()), min_size=2, max_size=40).filter(
    lambda some: len({inside for _, inside in some}) == 2
)


def joined(some: list[tuple[int, bool]]) -> Judged:
    names = [f"c{place}" for place in range(len(some))]
    scores = Scores.of(names, [float(score) for score, _ in some])
    return judged(scores, dict(zip(names, (inside for _, inside in some), strict=True)))


def normal(members: int, others: int, shift: float, generator: np.random.Generator) -> Judged:
    values = generator.normal(size=members + others)
    values[:members] += shift
    names = [str(place) for place in range(members + others)]
    return judged(Scores.of(names, values), {name: place < members for place, name in enumerate(names)})


@given(candidates, st.randoms())
def test_shuffling_changes_nothing(some: list[tuple[int, bool]], random: Random) -> None:
    """G1: joined by id, whatever order scores and truths come in."""
    names = [f"c{place}" for place in range(len(some))]
    values, truths = dict(zip(names, some, strict=True)), dict(zip(names, some, strict=True))
    one, two = random.sample(names, len(names)), random.sample(names, len(names))
    mixed = judged(Scores.of(one, [values[name][0] for name in one]), {name: truths[name][1] for name in two})
    assert rates(mixed) == rates(joined(some))


def test_ids_that_do_not_match_are_errors_that_name_them() -> None:
    """G1."""
    with pytest.raises(AttackError, match="b again"):
        Scores.of(["a", "b", "b"], [1, 2, 3])
    with pytest.raises(AttackError, match="2 scores for 1 ids"):
        Scores.of(["a"], [1, 2])
    with pytest.raises(AttackError, match="no number for b"):
        Scores.of(["a", "b"], [1.0, math.nan])
    with pytest.raises(AttackError, match="no score for c; no truth for b"):
        judged(Scores.of(["a", "b"], [1, 2]), {"a": True, "c": False})
    with pytest.raises(AttackError, match="no score for a, b, c and 2 more"):
        judged(Scores({}), dict.fromkeys("abcde", True))
    for truth in (True, False):
        with pytest.raises(AttackError, match="candidates inside and candidates outside"):
            judged(Scores.of(["a", "b"], [1, 2]), {"a": truth, "b": truth})
    with pytest.raises(AttackError, match="0 inside and 0 outside"):
        judged(Scores({}), {})


@given(candidates)
def test_roc_and_auc_by_loops(some: list[tuple[int, bool]]) -> None:
    members = [score for score, inside in some if inside]
    others = [score for score, inside in some if not inside]
    false_rates, true_rates = roc(joined(some))
    expected = [(0.0, 0.0)]
    for threshold in sorted({score for score, _ in some}, reverse=True):
        true = sum(score >= threshold for score in members) / len(members)
        expected.append((sum(score >= threshold for score in others) / len(others), true))
    assert np.array(expected) == pytest.approx(np.stack((false_rates, true_rates), axis=1))
    pairs = [1.0 if a > b else 0.5 if a == b else 0.0 for a, b in product(members, others)]
    assert auc(joined(some)).value == pytest.approx(np.mean(pairs))
    assert np.trapezoid(true_rates, false_rates) == pytest.approx(np.mean(pairs))


def test_delong_by_loops() -> None:
    """The variance of the two samples' mean comparisons, on the logit scale."""
    generator = np.random.default_rng(0)
    both = normal(30, 40, 0.7, generator)
    wins = np.array([[1.0 if a > b else 0.5 if a == b else 0.0 for b in both.others] for a in both.members])
    value = wins.mean()
    variance = wins.mean(axis=1).var(ddof=1) / 30 + wins.mean(axis=0).var(ddof=1) / 40
    half = 1.959964 * math.sqrt(variance) / (value * (1 - value))
    odds = math.log(value / (1 - value))
    measured = auc(both)
    assert measured.interval.low == pytest.approx(1 / (1 + math.exp(half - odds)), rel=1e-5)
    assert measured.interval.high == pytest.approx(1 / (1 + math.exp(-half - odds)), rel=1e-5)


@pytest.mark.statistical
@pytest.mark.parametrize("shift", [0.0, 1.0, 2.5])
def test_the_auc_interval_covers(shift: float) -> None:
    """DeLong is asymptotic: 90 % asked of a 95 % interval; false alarm: 1e-6. Control: a 50 % interval covers less."""
    generator, repetitions = np.random.default_rng(1), 400
    truth = stats.norm.cdf(shift / math.sqrt(2))
    missed = {0.95: 0, 0.5: 0}
    for _ in range(repetitions):
        both = normal(60, 60, shift, generator)
        for confidence in missed:
            low, high = auc(both, confidence).interval
            missed[confidence] += not low <= truth <= high
    allowed = stats.binom.isf(1e-6, repetitions, 0.1)
    assert missed[0.95] <= allowed < missed[0.5]


def test_perfect_separation_still_has_an_interval() -> None:
    both = joined([(place, place >= 10) for place in range(30)])
    assert auc(both).value == 1
    assert auc(both).interval == exact_interval(10, 10)
    backwards = joined([(-place, place >= 10) for place in range(30)])
    assert auc(backwards).interval == exact_interval(0, 10)
    single = joined([(1, True), (2, False), (0, False)])
    assert auc(single).interval == (0.0, 1.0)


@given(candidates)
def test_the_half_cut_by_loops(some: list[tuple[int, bool]]) -> None:
    """Ties as their expected share: the mean over every way to break them, here over many."""
    generator, taken = Random(0), len(some) // 2
    found = []
    for _ in range(300):
        order = sorted(some, key=lambda one: (-one[0], generator.random()))
        found.append(sum(inside for _, inside in order[:taken]) + sum(not inside for _, inside in order[taken:]))
    cut = half_cut(joined(some))
    tied = sum(score == sorted(some, reverse=True)[taken - 1][0] for score, _ in some)
    assert cut.accuracy.value * len(some) == pytest.approx(np.mean(found), abs=1e-9 if tied == 1 else 1.5)
    least = (min(found) - (len(some) - taken - sum(inside for _, inside in some))) // 2  # members above
    inside = sum(truth for _, truth in some)
    assert cut.chance >= stats.hypergeom.sf(least - 1, len(some), inside, taken) - 1e-12


@pytest.mark.parametrize("size", [50, 500, 1000])
def test_the_papers_cuts(size: int) -> None:
    """S-DP 500 and 500, CADP-LM 50 and 50, CRT 1,000 and 1,000: all right is 100 %, all wrong 0 %."""
    right = joined([(place, place >= size) for place in range(2 * size)])
    wrong = joined([(-place, place >= size) for place in range(2 * size)])
    assert half_cut(right).accuracy.value == 1
    assert half_cut(right).accuracy.interval == exact_interval(2 * size, 2 * size)
    assert half_cut(right).chance < 1e-20
    assert (half_cut(wrong).accuracy.value, half_cut(wrong).chance) == (0, 1)


@pytest.mark.statistical
def test_chance_is_not_found_in_noise() -> None:
    """Exact: at most 5 % below .05; false alarm: 1e-6. Control: a shift is found nearly always."""
    generator, repetitions = np.random.default_rng(2), 300
    noise = [half_cut(normal(50, 60, 0.0, generator)).chance for _ in range(repetitions)]
    shifted = [half_cut(normal(50, 60, 1.5, generator)).chance for _ in range(50)]
    assert sum(chance < 0.05 for chance in noise) <= stats.binom.isf(1e-6, repetitions, 0.05)
    assert sum(chance < 0.05 for chance in shifted) >= 48


def test_equal_scores_are_half_right_whatever_order_they_come_in() -> None:
    both = joined([(0, place < 20) for place in range(40)])
    assert half_cut(both).accuracy.value == 0.5
    assert half_cut(both).chance == 1
    assert rate_at(both, 0.01).found.value == 0


@given(candidates, st.sampled_from([0.0, 0.001, 0.01, 0.1, 0.5, 1.0]))
def test_rates_at_few_false_alarms_by_loops(some: list[tuple[int, bool]], allowed: float) -> None:
    members = [score for score, inside in some if inside]
    others = [score for score, inside in some if not inside]
    best = 0
    for threshold in (*{score for score, _ in some}, -math.inf):
        if sum(score > threshold for score in others) <= allowed * len(others):
            best = max(best, sum(score > threshold for score in members))
    measured = rate_at(joined(some), allowed)
    assert measured.found.value == pytest.approx(best / len(members))
    assert measured.found.interval == exact_interval(best, len(members))


def test_low_rates_and_sides_are_those_asked_for() -> None:
    measured = rates(normal(50, 50, 1.0, np.random.default_rng(3)))
    assert [low.false_rate for low in measured.low] == [0.01, 0.001]
    assert (measured.members, measured.others) == (50, 50)


@given(st.lists(st.booleans(), min_size=2, max_size=40), st.integers(1, 5), st.integers(0, 9))
def test_groups_are_sums_of_disjoint_candidates_of_one_side(truths: list[bool], size: int, seed: int) -> None:
    """Each candidate's score is a power of two of its own, so that a sum tells who is in it."""
    inside = {f"c{place}": truth for place, truth in enumerate(truths)}
    scores = Scores({f"c{place}": 2.0**place for place in range(len(truths))})
    groups = grouped(scores, inside, size, np.random.default_rng(seed))
    sides = [sum(truths) // size, (len(truths) - sum(truths)) // size]
    if groups is None:
        assert min(sides) == 0
        return
    assert [int(groups.inside.sum()), int((~groups.inside).sum())] == sides
    seen: list[int] = []
    for total, truth in zip(groups.values.tolist(), groups.inside.tolist(), strict=True):
        members = [place for place in range(len(truths)) if int(total) >> place & 1]
        assert len(members) == size
        assert {truths[place] for place in members} == {truth}
        seen += members
    assert len(set(seen)) == len(seen)


def test_groups_tell_more_than_their_members() -> None:
    """CRT's groups of 20: a shift that one candidate barely shows is plain in a sum."""
    generator = np.random.default_rng(4)
    both = normal(1000, 1000, 0.4, generator)
    inside = dict(zip(both.ids, (bool(one) for one in both.inside), strict=True))
    scores = Scores.of(both.ids, both.values)
    sums = grouped(scores, inside, 20, generator)
    assert sums is not None
    assert len(sums) == 100
    assert half_cut(both).accuracy.value < 0.65
    assert half_cut(sums).accuracy.value > 0.75
    with pytest.raises(AttackError, match="group size"):
        grouped(scores, inside, 0, generator)
