"""Texts made to be slow: every built-in policy and cutter reads them in time that grows with their length alone."""

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
READERS: dict[str, Callable[[str], object]] = {
    "pii": lambda text: Pii().find(Record("r", text)),
    "conservative_policy": lambda text: parse_policy("conservative").find(Record("r", text)),
    "dictionary": lambda text: Dictionary.of(["a", "ann", "ann lee", "é", "1"], "X").find(Record("r", text)),
    "regex": lambda text: Regex(r"\b[A-Z]\w+(?:\s[A-Z]\w+)*", "X").find(Record("r", text)),
    "sentences": lambda text: list(sentences(text)),
    "masked words": lambda text: masked([text]),
    "cut": lambda text: cut(divide(text, ())[0], byte_tokenizer(), 256),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("characters", [60_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_time_grows_with_the_length_alone(reader: str, characters: int) -> None:
    """Catches a pattern or a search that looks at the rest of the text again and again."""
    for unit in UNITS:
        text = unit * (characters // len(unit))
        before = time.process_time()
        READERS[reader](text)
        assert time.process_time() - before < 1 + 40e-6 * characters, unit  # some 7 microseconds per character


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
