"""Records in pieces: nothing is lost, spans stay on their characters, users stay together."""

from hypothesis import given
from hypothesis import strategies as st

from tacit.config.setting import SegmentBy
from tacit.data.records import Record, Span, segment_records, spans_fault

DIALOG = "SYS: Your name?\nUSR: Ann Lee. Thanks.\n\nSYS: Bye."


def test_a_turn_keeps_its_text_its_spans_and_its_dialog() -> None:
    record = Record("d", DIALOG, spans=(Span(21, 28, "NAME"),))
    cut = list(segment_records([record], "turn"))
    assert [piece.text for piece in cut] == ["SYS: Your name?\n", "USR: Ann Lee. Thanks.\n", "SYS: Bye."]
    assert [piece.id for piece in cut] == ["d/0", "d/1", "d/3"]  # the empty turn is left out
    assert {piece.user for piece in cut} == {"d"}
    assert [piece.spans for piece in cut] == [(), (Span(5, 12, "NAME"),), ()]


def test_a_user_is_kept_and_records_stay_records() -> None:
    record = Record("d", DIALOG, user="u", label="x")
    assert {(piece.user, piece.label, piece.spans) for piece in segment_records([record], "sentence")} == {
        ("u", "x", None)
    }
    assert list(segment_records([record], "record")) == [record]


@given(
    st.text(alphabet="ab.\n !", max_size=60),
    st.sets(st.integers(0, 60), max_size=8),
    st.sampled_from(["turn", "sentence"]),
)
def test_every_secret_character_is_still_a_secret(text: str, ends: set[int], pieces: SegmentBy) -> None:
    places = sorted(end for end in ends if end <= len(text))
    spans = tuple(Span(a, b, "X") for a, b in zip(places[::2], places[1::2], strict=False))
    cut = list(segment_records([Record("r", text, spans=spans)], pieces))
    assert all(spans_fault(piece.spans or (), len(piece.text)) is None for piece in cut)
    secret = "".join(text[s.start : s.end] for s in spans)
    found = "".join(piece.text[s.start : s.end] for piece in cut for s in piece.spans or ())
    assert "".join(found.split()) == "".join(secret.split())
