"""Canaries: drawing and planting them."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.common.formatting import exact_interval
from tacit.config.audit_schema import CanaryPlan
from tacit.data.marked import CANARY, Part, draw_canaries, plant
from tacit.data.records import Record
from tacit.errors import PrepareError
from tacit.policies.marking import Policies, Unmarked
from tacit.policies.patterns import Digits

WORDS = ("oak", "elm", "fir", "ash", "yew")
plans = st.builds(
    CanaryPlan,
    template=st.sampled_from(["My ID is {6 digits}", "{2 letters} is my code", "It is {3 words}.", "Say {2 words}"]),
    count=st.integers(1, 8),
    repetitions=st.integers(1, 4),
    known=st.booleans(),
    words=st.just(WORDS),
)
seeds = st.integers(0, 2**32)


@given(plan=plans, seed=seeds)
def test_g1_values_are_distinct_and_fit_the_template(plan: CanaryPlan, seed: int) -> None:
    canaries = draw_canaries(plan, np.random.default_rng(seed))
    values = [value for canary in canaries for value in (canary.value, canary.twin_value)]
    assert len(canaries) == plan.count
    assert len(set(values)) == 2 * plan.count
    before, after = plan.template[: plan.template.index("{")], plan.template[plan.template.index("}") + 1 :]
    for canary in canaries:
        assert canary.text == before + canary.value + after
        assert canary.twin_text == before + canary.twin_value + after
    assert json.loads(json.dumps([asdict(canary) for canary in canaries]))[0]["value"] == values[0]


@given(plan=plans, seed=seeds)
def test_g1_a_slot_can_be_used_up(plan: CanaryPlan, seed: int) -> None:
    full = replace(plan, template="{digit}", count=5)
    canaries = draw_canaries(full, np.random.default_rng(seed))
    assert sorted(value for c in canaries for value in (c.value, c.twin_value)) == list("0123456789")


@given(plan=plans, seed=seeds)
def test_g2_coins_do_not_move_values(plan: CanaryPlan, seed: int) -> None:
    def values(probability: float) -> list[tuple[str, str]]:
        canaries = draw_canaries(replace(plan, inside_probability=probability), np.random.default_rng(seed))
        assert all(canary.inside == (probability == 1) for canary in canaries)
        return [(canary.value, canary.twin_value) for canary in canaries]

    assert values(0) == values(1)


@pytest.mark.statistical
def test_g2_coins_are_fair_and_digits_uniform() -> None:
    """False-alarm rate below 1e-5: twelve exact 99.9999 % intervals; the biased coin is the negative control."""
    plan = CanaryPlan("{5 digits}", count=4000)
    canaries = draw_canaries(plan, np.random.default_rng(7))
    assert 0.5 in _Range(sum(canary.inside for canary in canaries), 4000)
    first_digits = Counter(value[0] for canary in canaries for value in (canary.value, canary.twin_value))
    assert all(0.1 in _Range(first_digits[digit], 8000) for digit in "0123456789")
    biased = draw_canaries(replace(plan, inside_probability=0.6), np.random.default_rng(7))
    assert 0.5 not in _Range(sum(canary.inside for canary in biased), 4000)


class _Range:
    def __init__(self, successes: int, trials: int) -> None:
        self._interval = exact_interval(successes, trials, 1 - 1e-6)

    def __contains__(self, share: float) -> bool:
        return self._interval.low <= share <= self._interval.high


@given(plan=plans, seed=seeds, size=st.integers(0, 20), said=st.integers(0, 30))
def test_g3_planting_adds_the_canaries_that_are_inside_and_changes_nothing(
    plan: CanaryPlan, seed: int, size: int, said: int
) -> None:
    corpus = [Record(f"r{number}", f"text {number}") for number in range(size)]
    generator = np.random.default_rng(seed)
    canaries = draw_canaries(plan, generator)
    planted = list(plant(iter(corpus), plan, canaries, said, generator))
    assert [record for record in planted if not record.id.startswith("canary-")] == corpus
    copies = [record for record in planted if record.id.startswith("canary-")]
    inside = {canary.text: plan.repetitions for canary in canaries if canary.inside}
    assert Counter(record.text for record in copies) == inside
    assert len({record.id for record in planted}) == len(planted)
    values = {canary.id: canary.value for canary in canaries}
    for record in copies:
        spans = Policies(Digits()).mark(Unmarked(Part.PLANTED, replace(record, text="x" * len(record.text)))).spans
        assert [record.text[span.start : span.end] for span in spans] == [values[record.user or ""]] * plan.known
        assert all(span.kind == CANARY for span in record.spans or ())


def test_planting_streams_and_is_spread_over_the_corpus() -> None:
    plan = CanaryPlan("{6 digits}", count=200, inside_probability=1)
    generator = np.random.default_rng(3)
    taken: list[int] = []

    def corpus() -> Iterator[Record]:
        for number in range(1000):
            taken.append(number)
            yield Record(str(number), "x")

    stream = plant(corpus(), plan, draw_canaries(plan, generator), 1000, generator)
    ids = [next(stream).id]
    assert len(taken) <= 1
    ids += [record.id for record in stream]
    places = [place for place, name in enumerate(ids) if name.startswith("canary")]
    assert min(places) < 100
    assert max(places) > 1000


@pytest.mark.parametrize(
    ("template", "count"),
    [
        ("no slot", 1),
        ("{6 digits} and {6 digits}", 1),
        ("{0 digits}", 1),
        ("{6 cats}", 1),
        ("{6 digits} {", 1),
        ("{3 digits}", 501),
        ("{word}", 3),
        ("{6 digits}", 0),
    ],
)
def test_plans_that_cannot_be_are_refused(template: str, count: int) -> None:
    with pytest.raises(PrepareError):
        CanaryPlan(template, count, words=WORDS)


def test_words_that_cannot_be_told_apart_are_refused() -> None:
    for words in [("oak", "oak"), ("oak elm", "oak"), ()]:
        with pytest.raises(PrepareError):
            CanaryPlan("{2 words}", 1, words=words)
