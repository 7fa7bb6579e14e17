"""Sentences and turns cover the text, and end where a reader would end them."""

from hypothesis import given
from hypothesis import strategies as st

from tacit.data.records import sentences, turns


@given(st.text(alphabet=st.sampled_from("aB.!? \n\r\u2028'\"…") | st.characters()))
def test_pieces_cover_every_character_once(text: str) -> None:
    for pieces in (sentences(text), turns(text)):
        assert "".join(text[start:end] for start, end in pieces) == text
        assert all(start < end for start, end in pieces)


def test_sentences_end_where_a_reader_ends_them() -> None:
    text = 'Dr. Smith called. He said "Hi!" and left.\nNo. 5 is free? Yes'
    assert [text[start:end] for start, end in sentences(text)] == [
        "Dr. Smith called. ",
        'He said "Hi!" and left.\n',
        "No. 5 is free? ",
        "Yes",
    ]


def test_turns_are_lines() -> None:
    assert turns("SYS: hi\nUSR: yo") == [(0, 8), (8, 15)]
