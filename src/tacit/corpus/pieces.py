"""Records cut into turns or sentences, each a record of its own: what one claim, one draw and one step are about."""

from collections.abc import Callable, Iterable, Iterator
from typing import Literal

from tacit.corpus.boundaries import sentences, turns
from tacit.corpus.record import Record, Span

Pieces = Literal["record", "turn", "sentence"]
_BOUNDARIES: dict[str, Callable[[str], list[tuple[int, int]]]] = {"turn": turns, "sentence": sentences}


def in_pieces(records: Iterable[Record], pieces: Pieces) -> Iterator[Record]:
    """The records, or their turns or sentences; pieces of white space alone are left out.

    A piece belongs to the user of its record; without one, the record is the user, so that a split by users keeps its
    pieces together. Its id is that of the record and its number. A span that crosses a boundary is cut there too.
    """
    if pieces == "record":
        yield from records
        return
    for record in records:
        for number, (start, end) in enumerate(_BOUNDARIES[pieces](record.text)):
            if not record.text[start:end].isspace():
                yield _piece(record, number, start, end)


def _piece(record: Record, number: int, start: int, end: int) -> Record:
    spans = None
    if record.spans is not None:
        inside = (span for span in record.spans if span.start < end and span.end > start)
        spans = tuple(Span(max(s.start, start) - start, min(s.end, end) - start, s.kind) for s in inside)
    return Record(f"{record.id}/{number}", record.text[start:end], record.user or record.id, record.label, spans)
