"""Digits, capitals, expressions, gold spans, everything and word lists, against slow twins."""

import pickle
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.data.records import Record, Span
from tacit.errors import PolicyError
from tacit.policies.patterns import Capitals, Dictionary, Digits, Everything, Gold, RareWords, Regex

# Characters whose case folding changes length, besides plain ones.
TRICKY = st.text(alphabet="aAbBsSiIıİßẞŉﬁΣςσ _-.1\n", max_size=40)


def found(text: str, spans: tuple[Span, ...]) -> list[str]:
    return [text[span.start : span.end] for span in spans]


@given(st.text(max_size=100) | st.text(alphabet="a1 \n\t²٣-", max_size=60))
def test_digits_are_the_tokens_with_a_decimal_digit(text: str) -> None:
    tokens = [token for token in text.split() if any(character.isdecimal() for character in token)]
    assert found(text, Digits().find(Record("r", text))) == tokens


@given(st.text(alphabet="abAB1 -'éÉ名я", max_size=60))
def test_capitals_cover_every_letter_that_is_not_small(text: str) -> None:
    covered = {place for span in Capitals().find(Record("r", text)) for place in range(span.start, span.end)}
    assert {place for place, letter in enumerate(text) if letter.isalpha() and not letter.islower()} <= covered
    for word in re.finditer(r"[\w'’-]+", text):
        if all(letter.islower() for letter in word.group() if letter.isalpha()):
            assert not covered & set(range(*word.span()))


def test_capitals_and_hyphens() -> None:
    text = "we met Jean-Luc O'Neil, iPhone in hand, at noon"
    assert found(text, Capitals().find(Record("r", text))) == ["Jean-Luc", "O'Neil", "iPhone"]


def test_regex_skips_empty_matches() -> None:
    assert Regex("x*", "X").find(Record("r", "axxb")) == (Span(1, 3, "X"),)


def test_regex_says_where_the_pattern_is_wrong() -> None:
    with pytest.raises(PolicyError, match="at character 3"):
        Regex("abc(", "X")


def test_gold_repeats_the_spans_and_melts_overlaps() -> None:
    record = Record("r", "abcdef", spans=(Span(2, 4, "B"), Span(0, 3, "A")))
    assert Gold().find(record) == (Span(0, 4, "A"),)
    assert Gold().find(Record("r", "abc", spans=())) == ()


@pytest.mark.parametrize("spans", [None, (Span(0, 9, "A"),), (Span(1, 1, "A"),)])
def test_gold_refuses_records_without_usable_spans(spans: tuple[Span, ...] | None) -> None:
    with pytest.raises(PolicyError, match="spans") as caught:
        Gold().find(Record("ann@x.org", "abc", spans=spans))
    assert "ann@x.org" not in str(caught.value)  # an id may be a secret


def test_everything() -> None:
    assert Everything().find(Record("r", "abc")) == (Span(0, 3, "TEXT"),)
    assert Everything().find(Record("r", "")) == ()


def _in_word(character: str) -> bool:
    return character.isalnum() or character == "_"


def occurrences(text: str, entries: list[str], ignore_case: bool) -> set[int]:
    """Every character of every whole-word occurrence, by trying all slices."""
    wanted = {entry.casefold() if ignore_case else entry for entry in entries}
    covered: set[int] = set()
    for start in range(len(text)):
        for end in range(start + 1, len(text) + 1):
            piece = text[start:end].casefold() if ignore_case else text[start:end]
            begins_inside = start > 0 and _in_word(text[start - 1]) and _in_word(text[start])
            ends_inside = end < len(text) and _in_word(text[end - 1]) and _in_word(text[end])
            if piece in wanted and not begins_inside and not ends_inside:
                covered.update(range(start, end))
    return covered


ENTRIES = st.lists(TRICKY.map(str.strip).filter(bool), min_size=1, max_size=5)


@given(TRICKY, ENTRIES, st.booleans(), st.data())
def test_dictionary_g1_g2_against_all_slices(
    text: str, entries: list[str], ignore_case: bool, data: st.DataObject
) -> None:
    text += data.draw(st.sampled_from(["", " ", "-"])) + data.draw(st.sampled_from([entries[0], entries[-1].upper()]))
    spans = Dictionary.of(entries, "X", ignore_case=ignore_case).find(Record("r", text))
    covered = {place for span in spans for place in range(span.start, span.end)}
    assert covered == occurrences(text, entries, ignore_case)


def test_dictionary_finds_the_shorter_entry_where_the_longer_ends_inside_a_word() -> None:
    policy = Dictionary.of(["mary", "mary ann"], "NAME")
    assert found("Mary Anne", policy.find(Record("r", "Mary Anne"))) == ["Mary"]
    assert found("Mary Ann", policy.find(Record("r", "Mary Ann"))) == ["Mary Ann"]


def test_dictionary_offsets_after_letters_that_grow() -> None:
    text = "İİ ßß Straße and STRASSE 😀 İstanbul"
    assert found(text, Dictionary.of(["strasse", "İstanbul"], "X").find(Record("r", text))) == [
        "Straße",
        "STRASSE",
        "İstanbul",
    ]


def test_dictionary_survives_lone_surrogates() -> None:
    text = "\ud800 Maria \udfff"
    assert found(text, Dictionary.of(["maria"], "X").find(Record("r", text))) == ["Maria"]


def test_dictionary_of_a_hundred_thousand_entries_pickles_small_and_finds_the_same() -> None:
    policy = Dictionary.of((f"name{number:06d}" for number in range(100_000)), "NAME")
    record = Record("r", "we know name000007, name099999 and name100000")
    spans = policy.find(record)
    assert found(record.text, spans) == ["name000007", "name099999"]
    again = pickle.loads(pickle.dumps(policy))
    assert "_automaton" not in vars(again)
    assert again == policy
    assert again.find(record) == spans


def test_dictionary_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "names.txt"
    path.write_text("\ufeffAnn Lee\r\n\n  Bo  \n", encoding="utf-8")
    policy = Dictionary.from_file(path, "NAME")
    assert policy.entries == ("Ann Lee", "Bo")
    assert policy.id == "dictionary:names"


def test_word_files_that_cannot_be_used(tmp_path: Path) -> None:
    empty, binary = tmp_path / "empty.txt", tmp_path / "binary.txt"
    empty.write_text(" \n")
    binary.write_bytes(b"\xff\xfe\x00")
    for path in (empty, binary, tmp_path / "missing.txt", tmp_path):
        with pytest.raises(PolicyError):
            Dictionary.from_file(path, "NAME")
        with pytest.raises(PolicyError):
            RareWords.from_file(path)
    with pytest.raises(PolicyError):
        Dictionary((), "NAME", "none")


def test_dictionary_hash_follows_entries_kind_and_case() -> None:
    policies = [Dictionary.of(["a", "b"], "X"), Dictionary.of(["a"], "X"), Dictionary.of(["a", "b"], "Y")]
    policies.append(Dictionary.of(["a", "b"], "X", ignore_case=False))
    assert len({policy.hash for policy in policies}) == 4
    assert Dictionary.of(["b", "a", " a"], "X", name="other").hash == policies[0].hash


def test_rare_words(tmp_path: Path) -> None:
    path = tmp_path / "common.txt"
    path.write_text("my\nname\nis\n")
    text = "My name is mary rowan-smith, 12."
    assert found(text, RareWords.from_file(path).find(Record("r", text))) == ["mary", "rowan-smith"]
