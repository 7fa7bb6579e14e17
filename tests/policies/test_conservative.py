"""The policy `conservative`: no case of letters hides a name from it, and what it finds is whole."""

from pathlib import Path

import pytest

from tacit.data.records import Record
from tacit.policies.conservative import Joined, conservative
from tacit.policies.patterns import Capitals
from tacit.policies.pii.common_words import common_words
from tacit.policies.registry import parse_policy
from tacit.policies.stability import PLACEHOLDER, redact, with_replaced

POLICY = parse_policy("conservative")


def marked(text: str) -> list[str]:
    return [text[start:end] for start, end, _ in POLICY.find(Record("r", text))]


@pytest.mark.parametrize("change", [str, str.lower, str.upper])
def test_a_name_is_found_in_any_case(change: "type[str]") -> None:
    text = change("please tell Rebecca Lindholm in Spokane that it is ready")
    found = " ".join(marked(text))
    assert change("Rebecca Lindholm") in found
    assert change("Spokane") in found


def test_common_words_are_left_alone() -> None:
    assert marked("can you tell me when the next delivery will come, please?") == []


def test_a_name_with_particles_and_a_line_break_is_one_mark() -> None:
    for name in (
        "Joost van der Merwe",
        "Marlies\nHagenbruch",
        "Ana de la Cruz",
        "M. T. O'Neil",
        "<b>Ann</b> <b>Lee</b>",
    ):
        assert any(name.strip("<b>/") in one for one in marked(f"it was {name} again")), name


def test_joining_loses_nothing() -> None:
    text = "Ann and Bob, of the Big House. then A. B."
    plain = {place for start, end, _ in Capitals().find(Record("r", text)) for place in range(start, end)}
    joined = {place for start, end, _ in Joined(Capitals()).find(Record("r", text)) for place in range(start, end)}
    assert plain <= joined


def test_a_list_of_ones_own_replaces_the_built_in_one(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("zwetschge\nis\nhere\n", encoding="utf-8")
    own = conservative(tmp_path / "words.txt")
    assert own.find(Record("r", "zwetschge is here")) == ()
    assert marked("zwetschge is here") == ["zwetschge"]
    assert own.hash != POLICY.hash
    assert POLICY.public
    assert not own.public


def test_the_mask_does_not_depend_on_the_secrets() -> None:
    record = Record("r", "tell rebecca lindholm that order 20931 is ready, says Dr. Ann Lee")
    found = POLICY.find(record)
    assert len(found) == 3
    for span in found:
        assert redact(POLICY, with_replaced(record, span, PLACEHOLDER)) == redact(POLICY, record)


def test_no_word_of_the_list_has_a_capital() -> None:
    assert all(word == word.lower() for word in common_words())


@pytest.mark.parametrize("time", ["5:30 pm", "11 am", "7 p.m.", "6 o'clock", "18 Uhr", "next monday", "le 3 jeudi"])
def test_times_and_weekdays_are_marked_whole(time: str) -> None:
    assert any(time.removeprefix("le ") in one for one in marked(f"come at {time} or not")), time


def test_a_verb_is_no_time() -> None:
    assert marked("i am here and they are there") == []
