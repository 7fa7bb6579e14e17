"""The labeled set of `labeled_pii` is what its guideline promises. No policy is run here."""

import html
import re
import unicodedata
from collections import Counter
from collections.abc import Callable
from importlib import import_module

import phonenumbers
import pytest

from labeled_pii import CASES, FOLDER, GROUPS, IGNORED, KINDS, LANGUAGES, Example, Half, Mark, examples, parse
from tacit.data.records import (
    ONTONOTES,
    PERSONAL,
    common_kind,
    iban_remainder,
    luhn_remainder,
    spans_fault,
    stands_alone,
)

HALVES: tuple[Half, ...] = ("dev", "held_out")
SHARED = ("AGE", *IGNORED)
"""Labels with too few possible values to differ between the halves."""

UNREADABLE = ("ocr", "spelled_out")

half_by_half = pytest.mark.parametrize("half", HALVES)


def secret(example: Example, mark: Mark) -> str:
    return example.text[mark.start : mark.end]


def plain(text: str) -> str:
    """As a reader sees it: no tags, entities, unseen characters or differences of width."""
    text = unicodedata.normalize("NFKC", html.unescape(re.sub(r"<[^>]*>", "", text)))
    return " ".join("".join(c for c in text if unicodedata.category(c) != "Cf").split())


def compact(text: str) -> str:
    return "".join(character for character in plain(text) if character.isalnum()).upper()


def marks_of(half: Half, *labels: str) -> list[tuple[Example, Mark]]:
    return [(example, mark) for example in examples(half) for mark in example.marks if mark.label in labels]


def outside(example: Example) -> str:
    """The text with its labels for its secrets: what a template would be."""
    pieces, last = [], 0
    for mark in example.marks:
        pieces += [example.text[last : mark.start].casefold(), f" {mark.label} "]
        last = mark.end
    return " ".join(re.findall(r"\w+", "".join((*pieces, example.text[last:].casefold()))))


@half_by_half
def test_files_follow_the_format(half: Half) -> None:
    for example in examples(half):
        assert example.language in LANGUAGES, example.id
        assert set(example.cases) <= set(CASES), example.id
        assert {mark.label for mark in example.marks} <= set(KINDS), example.id
        assert not re.search(r"\[\[|\]\]|\{U\+|^==", example.text, flags=re.MULTILINE), example.id
        assert example.text == example.text.strip() != "", example.id


@half_by_half
def test_spans_are_whole_words_without_blanks_around(half: Half) -> None:
    for example in examples(half):
        assert spans_fault(example.record.spans or (), len(example.text)) is None, example.id
        for mark in example.marks:
            text = secret(example, mark)
            assert text == text.strip(), (example.id, text)
            assert stands_alone(example.text, mark.start, mark.end) or "typo" in example.cases, (example.id, text)


def test_a_file_is_read_as_it_is_written() -> None:
    source = "Note.\n\n== en caps log\nA [[CARD!|1{U+00A0}2]] at [[TIME|9:30]]\nB\n== de\nC [[PHONE:DE|030 1]]\n"
    first, second = parse("x", source)
    assert (first.id, first.language, first.cases, first.text) == (
        "x/1",
        "en",
        ("caps", "log"),
        "A 1\u00a02 at 9:30\nB",
    )
    assert first.record.spans == ((2, 5, "CARD"),)
    assert first.ignored == ((9, 13, "TIME"),)
    assert first.marks[0].fails
    assert second.text == "C 030 1"
    assert second.marks == ((2, 7, "PHONE", "DE", False),)


def test_kinds_are_those_of_records() -> None:
    new = {"PASSWORD", "USERNAME", "YEAR", "MAYBE"}
    assert set(KINDS.values()) - {*ONTONOTES, *PERSONAL} - new == set()
    assert {common_kind(kind) for kind in KINDS.values()} == set(KINDS.values())


@half_by_half
def test_every_group_has_fifty_spans(half: Half) -> None:
    found = Counter(mark.label for example in examples(half) for mark in example.marks)
    assert {group: n for group, labels in GROUPS.items() if (n := sum(found[label] for label in labels)) < 50} == {}


@half_by_half
def test_size_languages_cases_and_regions(half: Half) -> None:
    all_of_half = examples(half)
    assert len(all_of_half) >= 450
    assert sum(not example.record.spans for example in all_of_half) >= 75
    spoken = Counter(example.language for example in all_of_half)
    assert 0.6 <= spoken["en"] / len(all_of_half) <= 0.7
    assert min(spoken[language] for language in LANGUAGES) >= 25
    hard = Counter(case for example in all_of_half for case in example.cases)
    assert {case: hard[case] for case in CASES if hard[case] < 5} == {}
    assert len({mark.scheme for _, mark in marks_of(half, "PHONE")}) >= 30


@half_by_half
def test_no_template_is_repeated_often(half: Half) -> None:
    [(template, count)] = Counter(outside(example) for example in examples(half)).most_common(1)
    assert count <= 3, template


def test_halves_share_no_secret() -> None:
    def values(half: Half) -> set[str]:
        labels = set(KINDS) - set(SHARED)
        return {plain(secret(*found)).casefold() for found in marks_of(half, *labels)}

    assert values("dev") & values("held_out") == set()


def test_halves_share_no_sentence_and_no_template() -> None:
    """No example of one half has more than 40 % of its triples of words and labels in an example of the other.

    Triples of labels alone do not count: addresses look alike wherever they are written.
    """

    def triples(example: Example) -> set[tuple[str, str, str]]:
        words = outside(example).split()
        return {one for one in zip(words, words[1:], words[2:], strict=False) if not all(map(str.isupper, one))}

    def long_enough(half: Half) -> dict[str, set[tuple[str, str, str]]]:
        return {example.id: some for example in examples(half) if len(some := triples(example)) > 3}

    held_out = long_enough("held_out")
    for name, ours in long_enough("dev").items():
        near = [other for other, theirs in held_out.items() if len(ours & theirs) > 0.4 * min(len(ours), len(theirs))]
        assert near == [], name


@half_by_half
def test_regions_of_phone_numbers_are_right(half: Half) -> None:
    for example, mark in marks_of(half, "PHONE"):
        text = plain(secret(example, mark))
        if set(UNREADABLE) & set(example.cases):
            continue
        number = phonenumbers.parse(text, mark.scheme)
        assert phonenumbers.is_possible_number(number), (example.id, text)
        code = phonenumbers.country_code_for_region(mark.scheme)
        assert number.country_code == code, (example.id, text)


def _vin(number: str) -> bool:
    """ISO 3779 with the check digit of North America, which all of ours have."""
    values = dict(zip("ABCDEFGHJKLMNPRSTUVWXYZ", (*range(1, 9), *range(1, 6), 7, 9, *range(2, 10)), strict=True))
    weights = (8, 7, 6, 5, 4, 3, 2, 10, 0, 9, 8, 7, 6, 5, 4, 3, 2)
    if len(number) != len(weights):
        return False
    total = sum(weight * (values.get(c) or int(c)) for weight, c in zip(weights, number, strict=True))
    return "0123456789X"[total % 11] == number[8]


def _s10(number: str) -> bool:
    """Parcels of the Universal Postal Union: AA123456785BB."""
    check = 11 - sum(int(d) * w for d, w in zip(number[2:10], (8, 6, 4, 2, 3, 5, 9, 7), strict=True)) % 11
    return {10: 0, 11: 5}.get(check, check) == int(number[10])


def _ups(number: str) -> bool:
    values = [int(c) if c.isdigit() else (ord(c) - 63) % 10 for c in number[2:-1]]
    return -(sum(values[::2]) + 2 * sum(values[1::2])) % 10 == int(number[-1])


CHECKS: dict[str, Callable[[str], bool]] = {
    "CARD": lambda number: number.isdigit() and luhn_remainder(number) == 0,
    "IBAN": lambda number: number[2:4].isdigit() and iban_remainder(number) == 1,
    "VIN": _vin,
    "s10": _s10,
    "ups": _ups,
}


@half_by_half
@pytest.mark.parametrize("label", ["CARD", "IBAN", "VIN", "TRACKING"])
def test_checksums_are_right_or_deliberately_wrong(half: Half, label: str) -> None:
    checked = [(example, mark) for example, mark in marks_of(half, label) if {label, mark.scheme} & set(CHECKS)]
    assert len(checked) >= 9
    for example, mark in checked:
        check = CHECKS.get(label) or CHECKS[mark.scheme]
        assert check(compact(secret(example, mark))) != mark.fails, (example.id, secret(example, mark))
    if label in ("CARD", "IBAN"):
        assert sum(mark.fails for _, mark in checked) >= 3


@half_by_half
def test_national_numbers_are_right(half: Half) -> None:
    checked = [(example, mark) for example, mark in marks_of(half, "NATIONAL") if mark.scheme]
    assert len({mark.scheme for _, mark in checked}) >= 20
    for example, mark in checked:
        module = import_module(f"stdnum.{mark.scheme}")
        assert module.is_valid(plain(secret(example, mark))), (example.id, secret(example, mark))


@half_by_half
def test_social_security_numbers_have_nine_digits(half: Half) -> None:
    for example, mark in marks_of(half, "SSN"):
        if not set(UNREADABLE) & set(example.cases):
            assert re.fullmatch(r"\d{9}", compact(secret(example, mark))), (example.id, secret(example, mark))


@half_by_half
def test_cases_are_what_they_are_called(half: Half) -> None:
    seen: dict[str, Callable[[str], bool]] = {
        "lower": lambda text: text == text.lower(),
        "caps": lambda text: sum(map(str.isupper, text)) > 3 * sum(map(str.islower, text)),
        "breaks": lambda text: "\n" in text,
        "spaces": lambda text: bool(re.search("[\u00a0\u2000-\u200a\u202f\u3000]", text)),
        "zero_width": lambda text: bool(re.search("[\u200b-\u200f\u2060\ufeff]", text)),
        "full_width": lambda text: bool(re.search("[\uff01-\uff5e]", text)),
        "soft_hyphen": lambda text: "\u00ad" in text,
        "hyphens": lambda text: bool(re.search("[\u2010-\u2013\u2212]", text)),
        "entities": lambda text: html.unescape(text) != text,
        "tags": lambda text: bool(re.search("<[^>]+>", text)),
    }
    for example in examples(half):
        for case in set(example.cases) & set(seen):
            assert seen[case](example.text), (example.id, case)


def test_the_guideline_has_its_rules() -> None:
    rules = re.findall(r"^(\d+)\. ", (FOLDER / "README.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert [int(rule) for rule in rules] == list(range(1, len(rules) + 1))
    assert 10 <= len(rules) <= 15
