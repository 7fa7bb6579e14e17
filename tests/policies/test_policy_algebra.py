"""Policies made of policies, against sets of characters."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.data.records import Record, Span, sentences, spans_fault, turns
from tacit.errors import ConfigError, PolicyError
from tacit.policies.patterns import Digits, Regex
from tacit.policies.policy import Both, Either, Forgetful, Policy, Widened, Without


@dataclass(frozen=True)
class Listed(Policy):
    """Finds the same spans in every text that is long enough."""

    spans: tuple[Span, ...]

    @property
    def id(self) -> str:
        return "listed"

    def content(self) -> Any:  # noqa: ANN401
        return {"listed": self.spans}

    def find(self, record: Record) -> tuple[Span, ...]:
        return tuple(span for span in self.spans if span.end <= len(record.text))


@st.composite
def listed(draw: st.DrawFn) -> Listed:
    cuts = sorted(draw(st.sets(st.integers(0, 40), max_size=12)))
    pairs = pairwise(cuts)
    return Listed(tuple(Span(start, end, draw(st.sampled_from("AB"))) for start, end in pairs if draw(st.booleans())))


def characters(spans: tuple[Span, ...]) -> set[int]:
    return {place for span in spans for place in range(span.start, span.end)}


def kind_at(spans: tuple[Span, ...], place: int) -> str:
    return next(span.kind for span in spans if span.start <= place < span.end)


TEXT = Record("r", "x" * 40)


@given(listed(), listed())
def test_either_g1_union(left: Listed, right: Listed) -> None:
    found = (left | right).find(TEXT)
    assert characters(found) == characters(left.find(TEXT)) | characters(right.find(TEXT))
    assert spans_fault(found, 40) is None


@given(listed(), listed())
def test_either_g2_the_right_tells_the_kind(left: Listed, right: Listed) -> None:
    for span in (left | right).find(TEXT):
        told = [one for one in right.spans if one.start < span.end and span.start < one.end]
        if told:
            longest = max(one.end - one.start for one in told)
            assert span.kind == next(one.kind for one in told if one.end - one.start == longest)
        else:
            assert span in left.spans


def test_the_policy_named_last_tells_the_kind_though_its_span_is_shorter() -> None:
    organisation, code = Listed((Span(0, 20, "ORG"),)), Listed((Span(6, 20, "TRACKING"), Span(30, 40, "PHONE")))
    assert (organisation | code).find(TEXT) == (Span(0, 20, "TRACKING"), Span(30, 40, "PHONE"))
    assert (code | organisation).find(TEXT) == (Span(0, 20, "ORG"), Span(30, 40, "PHONE"))


@given(listed(), listed())
def test_both_g1_intersection_with_the_kinds_of_the_left(left: Listed, right: Listed) -> None:
    found = (left & right).find(TEXT)
    assert characters(found) == characters(left.find(TEXT)) & characters(right.find(TEXT))
    assert spans_fault(found, 40) is None
    assert all(kind_at(left.spans, place) == span.kind for span in found for place in range(span.start, span.end))


@given(listed(), listed())
def test_without_g1_difference_with_the_kinds_of_the_left(left: Listed, right: Listed) -> None:
    found = (left - right).find(TEXT)
    assert characters(found) == characters(left.find(TEXT)) - characters(right.find(TEXT))
    assert spans_fault(found, 40) is None
    assert all(kind_at(left.spans, place) == span.kind for span in found for place in range(span.start, span.end))


def test_one_span_of_the_left_stays_whole_where_the_right_touches_itself() -> None:
    left, right = Listed((Span(0, 10, "A"),)), Listed((Span(0, 5, "B"), Span(5, 10, "B")))
    assert Both(left, right).find(TEXT) == (Span(0, 10, "A"),)


PROSE = st.text(alphabet="ab1. \n?", max_size=80)
PIECES: dict[str, Callable[[str], list[tuple[int, int]]]] = {
    "sentence": sentences,
    "turn": turns,
    "record": lambda text: [(0, len(text))] if text else [],
}


@pytest.mark.parametrize("to", sorted(PIECES))
@given(PROSE)
def test_widened_g1_g2_g3_against_a_loop_over_pieces(to: str, text: str) -> None:
    record = Record("r", text)
    policy = Regex("1", "ONE")  # findings of one character never cross pieces
    found = Widened(policy, to).find(record)
    expected = [
        (start + len(text[start:end]) - len(text[start:end].lstrip()), start + len(text[start:end].rstrip()))
        for start, end in PIECES[to](text)
        if "1" in text[start:end]
    ]
    assert [(span.start, span.end) for span in found] == expected
    assert characters(policy.find(record)) <= characters(found)
    assert all(span.kind == "ONE" for span in found)


def test_widened_joins_the_pieces_a_finding_crosses_and_takes_the_first_kind() -> None:
    text = "One two. Three four. Five six."
    policy = Listed((Span(4, 12, "A"), Span(15, 16, "B")))
    assert Widened(policy, "sentence").find(Record("r", text)) == (Span(0, 20, "A"),)


def test_widened_keeps_a_finding_of_white_space() -> None:
    found = Widened(Listed((Span(4, 6, "A"),)), "sentence").find(Record("r", "One.  Two."))
    assert characters(found) >= {4, 5}


def test_widened_refuses_an_unknown_piece() -> None:
    with pytest.raises(ConfigError, match="sentence"):
        Widened(Digits(), "sentense")


NUMBERS = Record("r", " ".join(str(number) for number in range(2000)))


@given(st.integers(0, 10), st.floats(0, 1), st.floats(0, 1))
def test_forgetful_g1_g3_misses_grow_with_the_miss_rate(seed: int, one: float, other: float) -> None:
    low, high = sorted((one, other))
    record = Record("r", " ".join(str(number) for number in range(50)))
    more, fewer = (set(Forgetful(Digits(), rate, seed).find(record)) for rate in (low, high))
    assert fewer <= more <= set(Digits().find(record))


def test_forgetful_g2_misses_a_value_everywhere_or_nowhere() -> None:
    words = Regex(r"[A-Za-z]+(?: +[A-Za-z]+)?", "WORD")
    values = [f"{first}{second}" for first in "abcdef" for second in "ghijkl"]
    policy = Forgetful(words, 0.5, 3)
    outcomes = set()
    for value in values:
        one = policy.find(Record("1", f"{value} {value};"))
        other = policy.find(Record("2", f"1.{value.upper()}   {value};"))
        assert len(one) == len(other)
        outcomes.add(len(one))
    assert outcomes == {0, 1}


def test_forgetful_ends_of_the_range() -> None:
    assert Forgetful(Digits(), 0.0, 1).find(NUMBERS) == Digits().find(NUMBERS)
    assert Forgetful(Digits(), 1.0, 1).find(NUMBERS) == ()


@pytest.mark.statistical
def test_forgetful_misses_the_share_it_was_told() -> None:
    """2,000 distinct values at miss rate .1, five seeds: 5.5 standard deviations, false alarm below 1e-6."""
    for seed in range(5):
        missed = 2000 - len(Forgetful(Digits(), 0.1, seed).find(NUMBERS))
        assert abs(missed - 200) < 5.5 * (2000 * 0.1 * 0.9) ** 0.5
    control = 2000 - len(Forgetful(Digits(), 0.2, 0).find(NUMBERS))
    assert abs(control - 200) > 5.5 * (2000 * 0.1 * 0.9) ** 0.5


def test_forgetful_depends_on_the_seed() -> None:
    assert Forgetful(Digits(), 0.5, 0).find(NUMBERS) != Forgetful(Digits(), 0.5, 1).find(NUMBERS)


@pytest.mark.parametrize("rate", [-0.1, 1.1, float("nan")])
def test_forgetful_refuses_a_rate_outside_0_to_1(rate: float) -> None:
    with pytest.raises(PolicyError):
        Forgetful(Digits(), rate, 0)


def test_ids_read_like_the_algebra() -> None:
    a, b = Digits(), Regex("x", "X")
    assert (a | b).id == "(digits | regex:X)"
    assert (a & b).id == "(digits & regex:X)"
    assert (a - b).id == "(digits - regex:X)"
    assert Widened(a, "turn").id == "widened(digits, turn)"
    assert len({policy.hash for policy in (a | b, b | a, a & b, a - b, Widened(a, "turn"), Widened(a, "record"))}) == 6
    assert isinstance(a | b, Either)
    assert isinstance(a - b, Without)
