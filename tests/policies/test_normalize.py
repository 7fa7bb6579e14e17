"""Texts as they are read: what is made one, and offsets that lead back to every character."""

import html
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.data.records import Record, Span
from tacit.policies.normalize import normalize
from tacit.policies.patterns import Capitals
from tacit.policies.pii.policy import Pii

PIECES = st.sampled_from(
    [
        *("a", "M", "é", "7", " ", "-", ".", "\n", "中", "\ud800", "\ue000", "<", "&", ">", "'", "ß", "\U0001d400"),
        *("\u00a0", "\u202f", "\u3000", "\u200b", "\u00ad", "\u2011", "\u2013", "\u2212", "\uff17", "\uff2d", "\ufb01"),
        *("e\u0301", "\u0301", "<b>", "</b>", "<br>", "<td>", '<span class="x">', "<a href='m'>", "<name>", "a<b"),
        *("&eacute;", "&nbsp;", "&#160;", "&#x2011;", "&amp;", "&shy;", "&nothing;", "&#55296;", "&lt;b&gt;"),
    ]
)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("<b>Maria</b> <b>Lopez</b>", "Maria Lopez"),
        ("Gus</i><i>tavo</i> Pe&ntilde;a", "Gustavo Peña"),
        ("<td>Ann</td><td>Lee</td>", "\nAnn\n\nLee\n"),
        ("Mar\u00adt\u00adin Sab\u200brina", "Martin Sabrina"),
        ("\uff14\uff11\u2011\uff17 555\u00a00100", "41-7 555 0100"),
        ("555\u20130100, a \u2013 b\u2014c", "555-0100, a \u2013 b\u2014c"),
        ("Jose\u0301", "José"),
        ("<ann@example.org> and <name>", "<ann@example.org> and <name>"),
        ('<a href="mailto:ann@example.org">Ann</a>', '<a href="mailto:ann@example.org">Ann'),
        ("a < b & c; x&y", "a < b & c; x&y"),
    ],
)
def test_what_looks_alike_is_read_alike(written: str, read: str) -> None:
    assert normalize(written).text == read


@given(st.lists(PIECES, max_size=30).map("".join), st.data())
def test_offsets_lead_back_to_what_was_read(text: str, data: st.DataObject) -> None:
    """A span of what was read comes back as exactly the text that reads like it, with all that was dropped inside."""
    reading = normalize(text)
    if not reading.text:
        return
    start = data.draw(st.integers(0, len(reading.text) - 1))
    end = data.draw(st.integers(start + 1, len(reading.text)))
    (back,) = reading.back([Span(start, end, "X")])
    assert 0 <= back.start < back.end <= len(text)
    if reading.begins is None or reading.ends is None:
        assert (reading.text, back[:2]) == (text, (start, end))
        return
    assert len(reading.begins) == len(reading.ends) == len(reading.text)
    for place, character in enumerate(reading.text[start:end], start):  # each comes from inside of the span
        source = text[reading.begins[place] : reading.ends[place]]
        assert back.start <= reading.begins[place] < reading.ends[place] <= back.end
        assert character in unicodedata.normalize("NFKC", html.unescape(source)) or character in "-\n "


@given(st.lists(PIECES, max_size=30).map("".join))
def test_places_only_move_forward(text: str) -> None:
    reading = normalize(text)
    if reading.begins is not None and reading.ends is not None:
        assert list(reading.begins) == sorted(reading.begins)
        assert list(reading.ends) == sorted(reading.ends)


@given(st.text(alphabet="aB1 ,.'-", max_size=50))
def test_plain_text_is_itself(text: str) -> None:
    assert normalize(text).text == text


@pytest.mark.parametrize("between", ["\u00a0", "\u202f", "&nbsp;", "</b> <b>", "\u2007"])
def test_a_name_is_found_whole_whatever_is_between_its_words(between: str) -> None:
    text = f"my name is <b>Mary{between}Ro\u00adwan</b>."
    spans = Pii().find(Record("r", text))
    assert [text[span.start : span.end] for span in spans] == [f"Mary{between}Ro\u00adwan"]


def test_words_with_a_capital_are_found_to_their_end() -> None:
    text = "see Sab\u200brina and Ib&aacute;&ntilde;ez"
    assert [text[start:end] for start, end, _ in Capitals().find(Record("r", text))] == [
        "Sab\u200brina",
        "Ib&aacute;&ntilde;ez",
    ]


WRAPPED = {
    "we will meet with Tobias\nEhrenfried on Monday": "we will meet with Tobias Ehrenfried on Monday",
    "my number is 0171 5550\n1234, call me": "my number is 0171 5550 1234, call me",
    "the heir is Wilhelmina Stau-\ndinger of Ulm": "the heir is Wilhelmina Staudinger of Ulm",
    "she married Jean Lefebvre-\nMoreau in June": "she married Jean Lefebvre-Moreau in June",
    "the code is 4471-\n9920, do not share": "the code is 4471-9920, do not share",
    "please write to 18 Alder\nLane, Whitby": "please write to 18 Alder Lane, Whitby",
    "> we spoke to Amaka\n> Eze about it": "> we spoke to Amaka Eze about it",
    "il a rencontré Solène\nGuivarch à Quimper": "il a rencontré Solène Guivarch à Quimper",
    "WE HAVE SEEN PATIENT OTTO\nKRANZ IN APRIL": "WE HAVE SEEN PATIENT OTTO KRANZ IN APRIL",
}
KEPT = (
    "Hello there, I am waiting.\nMaria Lopez",
    "USR: i want to return it\nSYS: what is your name",
    "Dear colleagues of the team:\nplease note",
    "Ingrid Solheim\nStorgata 5\n0155 Oslo",
    "name=Ann role=clerk in\nname=Bob",
    "the order is late again\nStatus: open",
    "a,b,c\n1,2,3",
    '{"first": "Ann",\n"last": "Lee"}',
    "eggs\nmilk\nbread",
)


@pytest.mark.parametrize("written", WRAPPED)
def test_a_line_break_inside_of_a_sentence_is_a_blank(written: str) -> None:
    reading = normalize(written)
    assert reading.text == WRAPPED[written]
    (whole,) = reading.back([Span(0, len(reading.text), "X")])
    assert (whole.start, whole.end) == (0, len(written))


@pytest.mark.parametrize("written", KEPT)
def test_other_line_breaks_stay(written: str) -> None:
    assert normalize(written).text == written


def test_a_name_on_two_lines_is_found_whole() -> None:
    text = "Signed in the presence of Dr Hildegard von\nBrauchitsch this morning"
    found = Pii().find(Record("r", text))
    assert [text[span.start : span.end] for span in found] == ["Dr Hildegard von\nBrauchitsch"]
