"""The two nouns everything before training is made of: a record and a span of its text."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple


class Span(NamedTuple):
    """Characters [start, end) of a record's text, and the kind of secret that stands there."""

    start: int
    end: int
    kind: str


@dataclass(frozen=True, slots=True)
class Record:
    """One text. `spans` are annotations that came with it: None when nobody annotated it."""

    id: str
    text: str
    user: str | None = None
    label: str | None = None
    spans: tuple[Span, ...] | None = None


def spans_fault(spans: Iterable[Span], text_length: int) -> str | None:
    """Why `spans` are not sorted, disjoint, non-empty and inside the text; None when they are."""
    last_end = 0
    for span in spans:
        if span.start < 0 or span.end > text_length:
            return f"span [{span.start}, {span.end}) outside the text of {text_length} characters"
        if span.start >= span.end:
            return f"empty span [{span.start}, {span.end})"
        if span.start < last_end:
            return f"span [{span.start}, {span.end}) overlaps or precedes the one before it, which ends at {last_end}"
        last_end = span.end
    return None


def resolve_overlaps(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Sorted, disjoint spans that cover every character of `spans`.

    Overlapping spans melt into one that carries the kind of the longest (the earlier one when equal), so that
    no character a policy found is ever lost. Spans that only touch stay apart.
    """
    melted: list[Span] = []
    longest = 0
    for span in sorted(spans):
        if melted and span.start < melted[-1].end:
            last = melted[-1]
            kind = span.kind if span.end - span.start > longest else last.kind
            longest = max(longest, span.end - span.start)
            melted[-1] = Span(last.start, max(last.end, span.end), kind)
        else:
            melted.append(span)
            longest = span.end - span.start
    return tuple(melted)
