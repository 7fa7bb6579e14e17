"""Texts made to be slow: every built-in policy and cutter reads them in time that grows with their length alone."""

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tacit.data.corpus import LONGEST_RECORD, read
from tacit.data.records import Record, sentences
from tacit.data.tokenizer import byte_tokenizer
from tacit.data.views import cut, divide
from tacit.policies.detectors.linear import masked
from tacit.policies.patterns import Dictionary, Regex
from tacit.policies.pii.policy import Pii
from tacit.policies.registry import parse_policy
from tacit.policies.stability import MOST_CHARACTERS, record_is_stable

UNITS = (
    *("My name is John Smith and Mary Jones called Ann Lee. ", "Dr ", "Ann Lee ", "A", "a", "1", "12-", "1.", "a@a."),
    *(
        " ",
        "\n",
        ":",
        "12 Main Street ",
        "May 5 ",
        "CA 90210 ",
        "(",
        "A'b-",
        "É",
        "😀",
        "http://a",
        "AB-123-",
        "\u0301",
    ),
    *("Mr. A", "order number ", "Dear Ann,\n", '"', "0MyName", ". ", "a. A", "x_", "\u00a0", "5 5"),
)
MORE_UNITS = (
    *("1 2 3 4 ", "123 456 7890 ", "11 1 ", "1234567 ", "12345678 ", "1,234,567.89 ", "12/12/", "1:a1:", "1O", "lI1"),
    *("-", "@", "@a ", ".", "_", "°", ">", "[", '{"a":', "--\n", "::", "2001:db8::", "+49 ", "+1(", "www.", "a.b."),
    *("e\u0301", "a\u200bb", "\u200b", "&amp;", "&#65;", "<b>a</b>", "<b>", "ﬁ", "ᾼ", "İ", "\ud800", "1\ufe0f"),
    *("Maria Lopez, ", "maria lopez ", "A. B. ", "J. ", "de la ", "named A ", "dr x ", "From: a <", "a <b@", "name "),
    *(
        "Hauptstr. 12, ",
        "straße 1 ",
        "12 rue ",
        "rue de la ",
        "Rua ",
        "PO Box ",
        "apt ",
        "CA ",
        "12. Mai ",
        "12 May 2020 ",
    ),
    *(
        "GB82 WEST ",
        "AB12 ",
        "A1B2C3 ",
        "0x",
        "eyJ",
        "sk-",
        "u/",
        "#aB ",
        "password is ",
        "user: a ",
        "x@1.1.",
        "lat=1.234 ",
    ),
    *(
        "age 5 ",
        "30 years old ",
        "I'm 5, ",
        "(5 and 6)",
        "Al 5, ",
        "zero ",
        "nine one ",
        "at a dot com ",
        "who is this ",
    ),
    *(
        "12-34 ",
        "1/2-3/4 ",
        "12 of the ",
        "12 Old Mill ",
        "DE89 3704 ",
        "p.o.box 1 ",
        "00AA00000",
        "1.000000, ",
        "J. R. R. ",
        "van der de la ",
        '"first_name": "',
        "one two three ",
        '<span class="',
        "a@b.c.d.e.f.",
        "\u202e12 \u202c",
        "A\u0301\u0301",
        "\U0001f468\u200d\U0001f469\u200d",
        "٣٤٥ ",
        "½ ",
        "word-\nword ",
    ),
)
READERS: dict[str, Callable[[str], object]] = {
    "pii": lambda text: Pii().find(Record("r", text)),
    "conservative_policy": lambda text: parse_policy("conservative").find(Record("r", text)),
    "dictionary": lambda text: Dictionary.of(["a", "ann", "ann lee", "é", "1"], "X").find(Record("r", text)),
    "regex": lambda text: Regex(r"\b[A-Z]\w+(?:\s[A-Z]\w+)*", "X").find(Record("r", text)),
    "sentences": lambda text: list(sentences(text)),
    "masked words": lambda text: masked([text]),
    "cut": lambda text: cut(divide(text, ())[0], byte_tokenizer(), 256),
}


FOUR_SECONDS = 700
"""Paces in four seconds, on the machine on which the policies were measured."""


def pace() -> float:
    """Processor time of a fixed piece of work that is like a policy's: a few thousandths of a second."""
    before = time.process_time()
    for _ in range(30):
        words = re.findall(r"[^\W\d_]\w*", "Ann Lee and 12 others " * 200)
        sum(len(word.lower()) for word in words if word.lower() not in {"and"})
    return time.process_time() - before


def assert_quick(read: Callable[[str], object], unit: str, characters: int, paces: float) -> None:
    """At most so many paces per million characters; measured again if need be, as others use the machine too."""
    text = unit * (characters // len(unit))
    for _ in range(3):
        before = time.process_time()
        read(text)
        spent = time.process_time() - before
        allowed = paces * pace() * characters / 1e6
        if spent <= allowed:
            return
    pytest.fail(f"{unit!r}: {spent:.2f} s where {allowed:.2f} s are allowed, three times")


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("characters", [10_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_time_grows_with_the_length_alone(reader: str, characters: int) -> None:
    """Catches a pattern or a search that looks at the rest of the text again and again."""
    for unit in UNITS:
        assert_quick(READERS[reader], unit, characters, 2 * FOUR_SECONDS)


@pytest.mark.parametrize("characters", [10_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_a_million_hostile_characters_take_some_four_seconds(characters: int) -> None:
    """Catches a finder that is tried at every place; half of the time again is for machines that differ from ours."""
    READERS["pii"]("Zoë Lee, 12")  # lists of names are read once
    for unit in (*UNITS, *MORE_UNITS):
        assert_quick(READERS["pii"], unit, characters, 1.5 * FOUR_SECONDS)


def test_a_slow_reader_is_noticed() -> None:
    """The control: work that grows with the square of the length, and work that is ten times too slow."""
    with pytest.raises(pytest.fail.Exception):
        assert_quick(lambda text: [at for at in range(len(text)) for _ in range(at)], "a", 3_000, FOUR_SECONDS)
    with pytest.raises(pytest.fail.Exception):
        assert_quick(lambda text: [pace() for _ in range(50)], "a", 10_000, FOUR_SECONDS)


def test_a_record_that_is_too_long_is_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "corpus.txt"
    path.write_text("x" * (LONGEST_RECORD + 1) + "\nshort\n", encoding="utf-8")
    reader = read(path)
    assert [record.text for record in reader] == ["short"]
    assert dict(reader.tally.reasons) == {"too-long": 1}


def test_a_record_that_takes_too_long_to_check_is_not_called_stable() -> None:
    """Catches a check of every span, each of which reads the whole record: hours for one record of names."""
    record = Record("r", "My name is Ann Lee. " * 20_000)
    found = Pii().find(record)
    assert MOST_CHARACTERS // len(record.text) < len(found)
    before = time.process_time()
    assert not record_is_stable(Pii(), record, found)
    assert time.process_time() - before < 60
    short = Record("r", "My name is Ann Lee. " * 20)
    assert record_is_stable(Pii(), short, Pii().find(short))
