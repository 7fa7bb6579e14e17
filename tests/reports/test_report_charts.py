"""Axes, shapes, prices and what a claim allows: the numbers behind the pictures."""

import math
import re

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tacit.common.charts import Axis, Point, ScatterChart, Series, Table, axis_for
from tacit.common.formatting import number
from tacit.common.serialize import to_json
from tacit.mechanisms.build import plan
from tacit.privacy.account import account
from tacit.privacy.events import Relation, SampledGaussian
from tacit.privacy.guarantee import Figure, figure
from tacit.privacy.ledger_lines import Entries
from tacit.privacy.plan import Neighbors, Unit, cost
from tacit.privacy.tradeoff import allowed, best_guess, frontier, implied, spending
from tacit.reports.drawing import draw, element, marker, round_off

SIZES = st.floats(1e-6, 1e6)
TABLE = Table(("a", "b"), (("1", "2"),))


def claimed(noise: float, steps: int, rate: float = 0.02) -> Figure:
    events = ((SampledGaussian(noise, rate, 1, Relation.ZERO_OUT), steps),)
    return figure(events, Neighbors(Unit.RECORD), 1e-5, 5000)


@given(st.floats(0, 1e6), SIZES, st.booleans(), st.booleans(), st.booleans(), st.lists(SIZES, min_size=2))
def test_g1_places_keep_the_order(
    low: float, span: float, logarithmic: bool, zero: bool, infinite: bool, values: list[float]
) -> None:
    axis = Axis("x", low + 1e-6, low + 1e-6 + span, logarithmic, zero, infinite)
    assume(axis.high > axis.low * (1 + 1e-9))
    places = [axis.place(value) for value in sorted([0.0, *values, math.inf] if zero or infinite else values)]
    assert places == sorted(places)
    assert all(-1e-9 <= place <= 1 + 1e-9 for place in places)


@given(st.lists(st.just(0.0) | st.floats(1e-12, 1e9), min_size=1), st.sampled_from([None, True, False]))
def test_g2_ticks_lie_on_the_axis_and_increase(values: list[float], logarithmic: bool | None) -> None:
    axis = axis_for("x", values, logarithmic)
    ticks = axis.ticks()
    assert 1 <= len(ticks) <= 10
    assert list(ticks) == sorted(set(ticks))
    slack = 1e-3 * (axis.high - axis.low)
    assert all(axis.low - slack <= tick <= axis.high + slack for tick in ticks)
    assert all(axis.written(tick) for tick in ticks)
    assert all(len(axis.written(tick)) <= 8 for tick in ticks), "more would stand out of the picture"


def test_numbers_are_short_and_say_when_there_is_none() -> None:
    shown = [number(value) for value in (None, math.nan, math.inf, 0.0, 0.5, 9.996, 1234567.0, 2.5e9, 1e-5, -3.0)]
    assert shown == ["–", "–", "∞", "0", "0.500", "10.0", "1,234,567", "2.5e9", "1e−5", "−3.00"]
    assert [round_off(value) for value in (1.0, 1.255, -0.001, 10.5)] == ["1", "1.25", "0", "10.5"]


def test_elements_escape_what_they_are_given() -> None:
    assert element("text", {"x": 1.5, "data-tip": '"><b>'}, "<script>") == (
        '<text x="1.5" data-tip="&#34;&gt;&lt;b&gt;">&lt;script&gt;</text>'
    )
    shapes = {str(marker(shape, 0, 0, 5, "m")) for shape in range(8)}
    assert len(shapes) == 8


@pytest.mark.parametrize(("noise", "steps"), [(0.7, 50), (1.0, 300), (3.25, 1)])
def test_g1_the_allowed_rates_are_those_of_the_exact_profile_or_more(noise: float, steps: int) -> None:
    """Oracle: the exact law of the composition, as the envelope of its lines over a fine grid of epsilons."""
    one = claimed(noise, steps)
    law = account(((SampledGaussian(noise, 0.02, 1, Relation.ZERO_OUT), steps),))
    pairs = sorted(implied(one))
    grid = sorted([one.profile[-1][0] * at / 60 for at in range(61)] + [epsilon for epsilon, _ in pairs])
    exact = list(zip(grid, law.law.deltas(np.array(grid)).tolist(), strict=True))
    for rate in (0.001, 0.05, 0.3, 0.8):
        oracle = min(
            min(delta + math.exp(epsilon) * rate, 1 - math.exp(-epsilon) * (1 - delta - rate))
            for epsilon, delta in exact
        )
        most = allowed(one, [rate])[0]
        assert oracle - 1e-9 <= most <= 1
    spent = law.law.deltas(np.array([epsilon for epsilon, _ in pairs]))
    assert all(real <= delta * 1.0001 + 1e-9 for real, (_, delta) in zip(spent.tolist(), pairs, strict=True))


@pytest.mark.parametrize(
    ("noise", "steps", "rate"), [(0.7, 50, 0.02), (1.0, 300, 0.02), (3.25, 1, 0.02), (0.6, 60, 0.2)]
)
def test_g1_the_drawn_curve_never_understates_an_attacker_and_is_smooth(noise: float, steps: int, rate: float) -> None:
    """Oracle: the envelope over 2,000 epsilons of the exact law, and over those that the figure holds."""
    one = claimed(noise, steps, rate)
    law = account(((SampledGaussian(noise, rate, 1, Relation.ZERO_OUT), steps),)).law
    grid = np.union1d(np.linspace(0.0, one.profile[-1][0], 2000), [epsilon for epsilon, _ in implied(one)])
    deltas = law.deltas(grid)
    drawn = np.array(frontier(one))

    def exact(places: list[float]) -> np.ndarray:
        return np.array([min(1, *(deltas + np.exp(grid) * x), *(1 - np.exp(-grid) * (1 - deltas - x))) for x in places])

    places = np.linspace(0.0, 1.0, 101)
    over = np.interp(places, drawn[:, 0], drawn[:, 1]) - exact(places.tolist())
    assert over.min() >= -1e-9
    assert over.max() < 4e-3
    turns = np.diff(np.diff(drawn[:, 1]) / np.diff(drawn[:, 0]))
    assert turns.max() <= 1e-6  # it bends one way only
    assert np.all(np.diff(drawn[:, 0]) > 0)
    few = np.array(frontier(one, 1e-3))  # drawn on logarithmic axes: straight lines there lie above the claim's lines
    small = np.geomspace(1e-3, 1.0, 60)
    on_screen = np.exp(np.interp(np.log(small), np.log(few[:, 0]), np.log(few[:, 1])))
    assert (on_screen - exact(small.tolist())).min() >= -1e-9
    coarse = np.linspace(0.0, 1.0, 6)  # the negative control: lines between other places cut corners
    cut = np.interp(places, coarse, allowed(one, coarse.tolist())) - exact(places.tolist())
    assert cut.min() < -1e-4


def test_a_figure_with_its_curve_is_small_and_all_of_it_is_true() -> None:
    one = claimed(1.0, 300)
    law = account(((SampledGaussian(1.0, 0.02, 1, Relation.ZERO_OUT), 300),)).law
    epsilons, deltas = (np.array(column) for column in zip(*one.curve, strict=True))
    assert np.all(law.deltas(epsilons) <= deltas)
    assert np.all(law.deltas(epsilons) >= deltas * (1 - 1e-4))
    assert len(one.curve) <= 48
    assert len(to_json(one)) < 6000


def test_what_a_claim_means_for_a_guess() -> None:
    nothing = Figure(
        Neighbors(Unit.RECORD), 0.0, 0.0, 0.0, "closed form", tuple((0.0, 10.0**-at) for at in range(1, 11))
    )
    assert best_guess(nothing) == pytest.approx(0.5, abs=1e-9)
    pure = Figure(Neighbors(Unit.RECORD), math.log(3), 0.0, math.inf, "by hand", ((math.log(3), 0.0),))
    assert best_guess(pure) == pytest.approx(0.75, abs=2e-3)  # e^eps / (1 + e^eps)
    assert allowed(pure, [0.1])[0] == pytest.approx(0.3)
    assert best_guess(claimed(1.0, 200)) < best_guess(claimed(0.7, 200)) < 1


def test_g2_spending_ends_with_what_the_ledger_counted() -> None:
    planned = plan(
        {"mechanism": "selective", "noise_multiplier": 1.0, "steps": 30, "expected_batch_size": 32, "records": 1000}
    )
    headline = planned.guarantee.figures[0]
    steps = planned.plan.executions()
    prices = {step.name: {str(headline.neighbors): cost(step, headline.neighbors)} for step in steps}
    spent = spending(planned.plan, Entries(prices, {step.name: times for step, times in steps.items()}), headline)
    assert spent is not None
    assert spent.points[0] == (0, 0.0)
    assert spent.points[-1][0] == sum(steps.values())
    assert spent.points[-1][1] == pytest.approx(headline.epsilon, rel=0.01)
    epsilons = [epsilon for _, epsilon in spent.points]
    assert epsilons == sorted(epsilons)
    unspent = Entries(prices, dict.fromkeys(prices, 0))
    assert spending(planned.plan, unspent, headline) is None
    assert spending(planned.plan, Entries(), headline) is None


def test_a_chart_names_itself_and_its_points() -> None:
    points = (Point(1, 2, "run <a>\nfirst", "#run-1", "a"), Point(2, 4, "run b", "#run-2", "b"))
    sketch = ScatterChart(
        "key",
        "Title & more",
        "It shows <this>.",
        Axis("x", 0, 3),
        Axis("y", 0, 5),
        (Series("s", points, 1, "one"),),
        TABLE,
    )
    chart = draw(sketch)
    assert '<title id="key-title">Title &amp; more</title>' in chart.picture
    assert "It shows &lt;this&gt;." in chart.picture
    assert chart.picture.count('<a class="point"') == 2
    assert 'aria-label="run &lt;a&gt;, first"' in chart.picture
    assert [entry.key for entry in chart.legend] == ["one"]
    assert not re.search(r"nan|inf(?![a-z])", chart.picture)
