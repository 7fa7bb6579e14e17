"""A person's regular expression: linear time, and the matches of Python's `re`."""

import pickle
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.data.records import Record, Span, resolve_overlaps
from tacit.errors import PolicyError
from tacit.policies.expressions import SEEN, Expression
from tacit.policies.patterns import Regex

LETTERS = "abA1 _-\n.éßÄ中٣😀\u0301\u00a0"
PIECES = (
    *(r"\w", r"\d", r"\s", r"\W", r"\D", r"\S", r"\b", ".", "a", "b", "é", "中", "1", " ", r"\.", r"\u00e9", r"\x41"),
    *(
        "[ab]",
        "[^a]",
        r"[\w-]",
        r"[^\W\d_]",
        r"[\s\S]",
        "[^é]",
        r"[\d.]",
        "[]a]",
        "[^]a]",
        "[^a-]",
        "^",
        "$",
        r"\A",
        r"\Z",
    ),
)
ATOM = st.sampled_from(PIECES)
REPEATED = st.builds(lambda atom, times: f"(?:{atom}){times}", ATOM, st.sampled_from(["*", "+", "?", "{1,3}", "+?"]))
EXPRESSIONS = st.recursive(
    ATOM | REPEATED,
    lambda inner: (
        st.lists(inner, min_size=1, max_size=4).map("".join)
        | st.builds("(?:{}|{})".format, inner, inner)
        | st.builds("({})".format, inner)
    ),
    max_leaves=6,
)


def python_places(pattern: str, text: str) -> set[int]:
    """The characters that Python's `re` finds."""
    return {at for match in re.finditer(pattern, text) for at in range(*match.span())}


def places(pattern: str, text: str) -> set[int]:
    return {at for start, end in Expression(pattern).places(text) for at in range(start, end)}


@given(EXPRESSIONS, st.sampled_from(["", "(?i)", "(?m)"]), st.text(LETTERS, max_size=12))
def test_matches_are_those_of_python(pattern: str, flags: str, text: str) -> None:
    """Catches RE2's alphabet of ASCII (`\\w` and `\\b` would cut José short), and offsets in bytes."""
    found, expected = places(flags + pattern, text), python_places(flags + pattern, text)
    if text.endswith("\n") and "$" in pattern:
        expected |= python_places(flags + pattern, text[:-1])
    if "?" in pattern.replace("(?:", "") or "|" in pattern:  # an empty match first: ours is the longest there
        assert found >= expected
    else:
        assert found == expected


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        (r"\b\w+é\b", "né José, éa", [(0, 2), (3, 7)]),
        (r"\d+", "😀😀 12 e\u0301 ٣٤", [(3, 5), (9, 11)]),
        (r"[A-Z]\w+", "\ud800 Ölk Ann\ud800", [(6, 9)]),
        (r"(?i)é\w", "Éa éb", [(0, 2), (3, 5)]),
        (r"\d+$", "call 555\n", [(5, 8)]),
        (r"(?P<name>x)|(?P<other>y)", "xy", [(0, 1), (1, 2)]),
        (r"(?s)a.b", "a\nb", [(0, 3)]),
        (r"x*", "axxa", [(1, 3)]),
        (r"|a", "aa", [(0, 1), (1, 2)]),
    ],
)
def test_offsets_count_characters(pattern: str, text: str, expected: list[tuple[int, int]]) -> None:
    spans = resolve_overlaps(Span(start, end, "X") for start, end in expected)
    assert Regex(pattern, "X").find(Record("r", text)) == spans


@pytest.mark.parametrize(
    "pattern",
    [
        *(r"(a)\1", r"(?=a)b", r"(?!a)b", r"(?<=a)b", r"(?<!a)b", r"(?P<x>a)(?P=x)", r"(?>a)", "a*+", r"a\B"),
        *("a{2000}", "(((a{100}){100}){100})", "(?x) a", "(?s)a\\b.", "(" * 5000, "a{99999999999999}", "\ud800", "("),
        *("(a)(?(1)b|c)", "[", "a**", "(?z)", r"\N{DIGIT ONE}", "(?:" * 2000 + ")" * 2000),
    ],
)
def test_what_is_not_linear_is_refused_in_one_sentence(pattern: str) -> None:
    with pytest.raises(PolicyError) as caught:
        Regex(pattern, "X")
    assert len(caught.value.found) < 300


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*b", "(?s)a.*b|a", r"(\w+\s?)+:", "(a*)*c", r"^(\w+\W?)*\Z"])
def test_hostile_expressions_take_linear_time(pattern: str) -> None:
    """Catches an engine that tries out alternatives: (a+)+$ took forever on thirty characters."""
    expression = Expression(pattern)
    for text in ("a" * 40_000 + "!", "é" * 40_000 + "!", "a " * 20_000):
        before = time.process_time()
        sum(1 for _ in expression.places(text))
        assert time.process_time() - before < 20, pattern


def test_brackets_in_classes_are_those_of_python() -> None:
    assert places("[[:alpha:]x]", "b]x :x] bx]") == {4, 5, 6}  # in POSIX: any letter or x


def test_a_long_text_has_every_match_that_is_not_too_long() -> None:
    text = ("x" * 7_777 + " AB1234 é ") * 20
    assert list(Expression(r"\b[A-Z]{2}\d{4}\b").places(text)) == [
        match.span() for match in re.finditer(r"\b[A-Z]{2}\d{4}\b", text)
    ]
    assert list(Expression("x" * 900).places("x" * 2 * SEEN)) == [
        match.span() for match in re.finditer("x" * 900, "x" * 2 * SEEN)
    ]


def test_it_can_be_sent_to_another_process() -> None:
    policy = Regex("a+", "X")
    policy.find(Record("r", "aa"))
    assert pickle.loads(pickle.dumps(policy)).find(Record("r", "baa")) == (Span(1, 3, "X"),)
