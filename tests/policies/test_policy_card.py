"""The policy card against a slow oracle that works with sets of characters; golden intervals; JSON; mask stability."""

import itertools
import json
import random
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scans import card_of, read_card
from tacit.common.formatting import exact_interval
from tacit.data.records import Record, Span, resolve_overlaps
from tacit.errors import PolicyError
from tacit.policies.card import CardCounts, KindCounts, PolicyCard, f2, quality
from tacit.policies.policy import Policy
from tacit.policies.stability import PLACEHOLDER, StabilityCounts, mask_stability, redact, with_replaced

TEXT = "xx x  xxxx\txx x xxx\nx xxx"
LENGTH = len(TEXT)
BLANKS = {at for at, character in enumerate(TEXT) if character.isspace()}
KINDS = ("PERSON", "PHONE", "ID")


class Pattern(Policy):
    """Marks what a regular expression matches."""

    def __init__(self, pattern: str, kind: str = "ID") -> None:
        self.pattern = pattern
        self.kind = kind

    @property
    def id(self) -> str:
        return "pattern"

    def content(self) -> Any:  # noqa: ANN401
        return [self.pattern, self.kind]

    def find(self, record: Record) -> tuple[Span, ...]:
        return tuple(Span(match.start(), match.end(), self.kind) for match in re.finditer(self.pattern, record.text))


@st.composite
def tidy_spans(draw: st.DrawFn) -> tuple[Span, ...]:
    cuts = sorted(draw(st.sets(st.integers(0, LENGTH), max_size=10)))
    return tuple(
        Span(start, end, draw(st.sampled_from(KINDS))) for start, end in itertools.pairwise(cuts) if draw(st.booleans())
    )


labelled = st.tuples(st.none() | tidy_spans(), tidy_spans())


def record_with(gold: tuple[Span, ...] | None) -> Record:
    return Record("r", TEXT, spans=gold)


def oracle(cases: list[tuple[tuple[Span, ...] | None, tuple[Span, ...]]]) -> CardCounts:
    """Everything by sets of characters, one kind at a time."""
    total = CardCounts()
    usable = [(gold, found) for gold, found in cases if gold is not None]
    total.records = len(usable)
    for gold, found in usable:
        found_characters = {at for span in found for at in range(span.start, span.end)}
        total.missed_records += any(not set(range(s.start, s.end)) <= found_characters | BLANKS for s in gold)
    for kind in KINDS:
        counts = KindCounts()
        for gold, found in usable:
            gold_characters = {at for span in gold for at in range(span.start, span.end)}
            found_characters = {at for span in found for at in range(span.start, span.end)}
            golds = [set(range(s.start, s.end)) for s in gold if s.kind == kind]
            founds = [set(range(s.start, s.end)) for s in found if s.kind == kind]
            counts = KindCounts(
                counts.gold + len(golds),
                counts.covered + sum(s <= found_characters | BLANKS for s in golds),
                counts.partly + sum(bool(s & found_characters) and not s <= found_characters | BLANKS for s in golds),
                counts.found + len(founds),
                counts.overlapping + sum(bool(s & gold_characters) for s in founds),
                counts.found_characters + sum(len(s) for s in founds),
                counts.right_characters + sum(len(s & gold_characters) for s in founds),
            )
        if counts != KindCounts():
            total.kinds[kind] = counts
    return total


@given(st.lists(labelled, max_size=6), st.integers(0, 6))
def test_g1_counts_agree_with_sets_of_characters_and_add_up(
    cases: list[tuple[tuple[Span, ...] | None, tuple[Span, ...]]], cut: int
) -> None:
    parts = []
    for part in (cases[:cut], cases[cut:]):
        counts = CardCounts()
        for gold, found in part:
            counts.add(record_with(gold), found)
        parts.append(counts)
    assert parts[0] + parts[1] == parts[1] + parts[0] == oracle(cases)


@pytest.mark.parametrize(("misses", "records", "golden"), [(0, 200, 0.0149), (20, 200, 0.142)])
def test_g2_bound_on_records_is_golden(misses: int, records: int, golden: float) -> None:
    card = PolicyCard("p", "h", CardCounts(records, misses))
    assert card.miss_bound == pytest.approx(golden, rel=0.01)
    assert f"{misses} of {records}" in card.sentence()


@given(st.lists(labelled, max_size=5))
def test_g3_json_both_ways(cases: list[tuple[tuple[Span, ...] | None, tuple[Span, ...]]]) -> None:
    card = PolicyCard("p", "h", oracle(cases))
    written = json.dumps(card.to_json(), allow_nan=False)
    again = read_card(json.loads(written))
    assert again == card
    assert json.dumps(again.to_json()) == written


def test_shares_and_f2_of_known_counts() -> None:
    measured = quality(
        KindCounts(gold=100, covered=90, partly=4, found=120, overlapping=96, found_characters=10, right_characters=7)
    )
    assert measured.recall.value == 0.9
    assert measured.recall.interval == exact_interval(90, 100)
    assert measured.recall.interval == pytest.approx((0.8238, 0.9510), abs=1e-4)  # textbook values
    assert measured.precision.value == 0.8
    assert measured.character_precision == 0.7
    assert measured.f2.value == pytest.approx(5 * 0.8 * 0.9 / (4 * 0.8 + 0.9))
    low, high = measured.f2.interval
    assert low < f2(measured.precision.interval.low, measured.recall.interval.low)  # wider: both must hold at once
    assert high > f2(measured.precision.interval.high, measured.recall.interval.high)


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_f2_grows_with_precision_and_recall(a: float, b: float, c: float, d: float) -> None:
    assert f2(min(a, b), min(c, d)) <= f2(max(a, b), max(c, d)) + 1e-12


def test_nothing_known_is_said_as_nothing() -> None:
    empty = quality(KindCounts())
    assert (empty.recall.value, empty.precision.value, empty.f2.value) == (None, None, None)
    assert empty.recall.interval == empty.f2.interval == (0.0, 1.0)
    assert quality(KindCounts(gold=5)).f2.value == 0.0


def test_untidy_spans_are_refused() -> None:
    with pytest.raises(PolicyError):
        CardCounts().add(record_with((Span(0, 5, "NAME"), Span(3, 6, "NAME"))), ())
    with pytest.raises(PolicyError):
        CardCounts().add(record_with(()), (Span(20, LENGTH + 1, "NAME"),))


def test_measure_leaves_unlabelled_records_out() -> None:
    records = [
        Record("1", "id 12345", spans=(Span(3, 8, "ORDER"),)),
        Record("2", "id 12345"),
        Record("3", "no id", spans=()),
    ]
    card = card_of(Pattern(r"\d+"), records)
    assert (card.counts.records, card.counts.missed_records) == (2, 0)
    assert card.kinds["ORDER"].recall.value == 1.0  # by the label's kind
    assert card.kinds["ID"].precision.value == 1.0  # by the policy's kind
    assert card.overall.f2.value == 1.0


def test_a_pattern_is_stable() -> None:
    record = Record("1", "order 12345 and order 67890, thanks")
    counts = mask_stability(Pattern(r"\d{5}"), record, random.Random(0))
    assert counts == StabilityCounts(spans=2, rest_changed=0, found_again=2, redaction_stable=2)


def test_a_mask_that_depends_on_a_secret_is_caught() -> None:
    """Negative control: this policy marks the second number only when the first is 12345."""
    record = Record("1", "order 12345 and order 67890")
    policy = Pattern(r"\d{5}(?! and)|12345|(?<=12345 and order )\d{5}")
    nosy = Pattern(r"12345|(?<=12345 and order )\d{5}")
    assert mask_stability(policy, record, random.Random(0)).rest_changed == 0
    counts = mask_stability(nosy, record, random.Random(0))
    assert counts == StabilityCounts(spans=2, rest_changed=1, found_again=1, redaction_stable=1)
    assert redact(nosy, with_replaced(record, Span(6, 11, "ID"), PLACEHOLDER)) != redact(nosy, record)
    assert redact(nosy, with_replaced(record, Span(22, 27, "ID"), PLACEHOLDER)) == redact(nosy, record)


def test_the_placeholder_is_opaque() -> None:
    record = Record("1", "my name is ANNA")
    assert redact(Pattern(r"[A-Z]{4}"), record) == "my name is \ue000"
    masked = with_replaced(record, Span(11, 15, "NAME"), PLACEHOLDER)
    assert redact(Pattern(r"[A-Z]{4}"), masked) == "my name is \ue000"
    assert not Pattern(r"\w").find(Record("1", "\ue000"))


def test_stability_looks_at_no_more_spans_than_asked_and_repeats() -> None:
    record = Record("1", " ".join(str(number) for number in range(10000, 10050)))
    counts = mask_stability(Pattern(r"\d{5}"), record, random.Random(3), most=7)
    assert counts.spans == 7
    assert counts == mask_stability(Pattern(r"\d{5}"), record, random.Random(3), most=7)


@given(tidy_spans(), tidy_spans().filter(bool), st.text(min_size=1, max_size=9))
def test_labels_move_along_with_a_replacement(gold: tuple[Span, ...], holes: tuple[Span, ...], text: str) -> None:
    hole = holes[0]
    changed = with_replaced(record_with(gold), hole, text)
    assert changed.text == TEXT[: hole.start] + text + TEXT[hole.end :]
    assert changed.spans is not None
    assert changed.spans == resolve_overlaps(changed.spans)
    untouched = [span for span in gold if span.end <= hole.start or span.start >= hole.end]
    shift = len(text) - (hole.end - hole.start)
    for span in untouched:
        by = 0 if span.end <= hole.start else shift
        assert Span(span.start + by, span.end + by, span.kind) in changed.spans


def test_kinds_of_one_vocabulary_are_counted_together() -> None:
    counts = CardCounts()
    counts.add(Record("r", "Ann Lee", spans=(Span(0, 7, "PER"),)), (Span(0, 3, "NAME"), Span(4, 7, "PERSON")))
    assert counts.kinds == {"PERSON": KindCounts(1, 1, 0, 2, 2, 6, 6)}
