"""A record cut and cleaned for showing: which characters are secret, of which kind, and whether the policy knew.

G1. Unless secrets are asked for, an excerpt holds no character of a found span or of a gold span, nor of a place where
    the text of one (3 to 500 characters, whole words, in whatever case) stands again; nor the length of any of
    them, nor the record's id.
G2. Text holds no control characters, bidirectional overrides or lone surrogates: terminals and pages are safe from it.
G3. An excerpt is at most about `VISIBLE` characters long, however long the record.

Text that neither the policy nor a label calls secret is shown as it is.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, Self

from tacit.common.formatting import BLOCK, VISIBLE, printable, short
from tacit.data.records import Record, Span, resolve_overlaps

_LEAD = 120
_COST_OF_A_SECRET = 8
_LONGEST_SECRET_SHOWN = 200
_SHORTEST_REPEAT = 3
_LONGEST_REPEAT = 500


class ExcerptState(StrEnum):
    """What is known about a piece of text."""

    PLAIN = "plain"
    FOUND = "found"  # the policy marks it
    MISSED = "missed"  # a label marks it, the policy does not
    AGAIN = "again"  # the same text as a secret of this record, but not marked here


class ExcerptPart(NamedTuple):
    """A run of text of one state; the text of a secret is None unless secrets were asked for."""

    state: ExcerptState
    kind: str
    text: str | None

    @property
    def shown(self) -> str:
        """The text, or what stands for one that is hidden."""
        return BLOCK if self.text is None else self.text

    def label(self) -> str:
        """What is written beside a secret, so that colour alone never says it."""
        kind = self.kind or "secret"
        return {ExcerptState.MISSED: f"missed {kind}", ExcerptState.AGAIN: f"{kind} again, unmarked"}.get(
            self.state, kind
        )


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Part of a record; `number` is its place in the corpus, from 1."""

    number: int
    id: str | None
    pieces: tuple[ExcerptPart, ...]
    cut_before: bool
    cut_after: bool

    def to_json(self) -> dict[str, Any]:
        """The excerpt as JSON values."""
        return {
            "record": self.number,
            "id": self.id,
            "cut_before": self.cut_before,
            "cut_after": self.cut_after,
            "pieces": [{"state": piece.state.value, "kind": piece.kind, "text": piece.text} for piece in self.pieces],
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        """The excerpt that `to_json` wrote."""
        pieces = tuple(
            ExcerptPart(ExcerptState(piece["state"]), piece["kind"], piece["text"]) for piece in value["pieces"]
        )
        return cls(value["record"], value["id"], pieces, value["cut_before"], value["cut_after"])


def excerpt(record: Record, found: tuple[Span, ...], number: int, show_secrets: bool) -> Excerpt:
    """The part of `record` around its first secrets."""
    secrets = _secrets(record, found)
    first = secrets[0][0].start if secrets else 0
    start = 0 if first <= VISIBLE // 3 else first - _LEAD
    pieces: list[ExcerptPart] = []
    left = VISIBLE
    end = start
    for span, state in _pieces(record.text, secrets, start):
        if left <= 0:
            break
        end = min(span.end, span.start + left) if state is ExcerptState.PLAIN else span.end
        text = record.text[span.start : end]
        if state is ExcerptState.PLAIN:
            pieces.append(ExcerptPart(state, "", printable(text)))
        else:
            pieces.append(ExcerptPart(state, short(span.kind), _shown(text) if show_secrets else None))
        left -= len(text) if state is ExcerptState.PLAIN else _COST_OF_A_SECRET
    shown_id = printable(record.id)[:_LONGEST_SECRET_SHOWN] if show_secrets else None
    return Excerpt(number, shown_id, tuple(pieces), start > 0, end < len(record.text))


def _shown(secret: str) -> str:
    clipped = secret[:_LONGEST_SECRET_SHOWN]
    return printable(clipped) + ("…" if len(secret) > len(clipped) else "")


def _secrets(record: Record, found: tuple[Span, ...]) -> list[tuple[Span, ExcerptState]]:
    """What the policy found, and the parts of gold spans that it did not; sorted and disjoint."""
    secrets = [(span, ExcerptState.FOUND) for span in found]
    ends = [span.end for span in found]
    for start, end, kind in resolve_overlaps(record.spans or ()):
        for at in range(bisect_right(ends, start), len(found)):
            if found[at].start >= end:
                break
            if found[at].start > start:
                secrets.append((Span(start, found[at].start, kind), ExcerptState.MISSED))
            start = found[at].end
        if start < end:
            secrets.append((Span(start, end, kind), ExcerptState.MISSED))
    return sorted(secrets)


def _pieces(text: str, secrets: list[tuple[Span, ExcerptState]], start: int) -> Iterator[tuple[Span, ExcerptState]]:
    """Secrets, the text between them from `start` on, and in it the places where a secret's text stands again."""
    again = _Again(text, secrets, start)
    border = 0
    for span, state in secrets:
        yield from again.between(border, start, span.start)
        yield span, state
        border = start = span.end
    yield from again.between(border, start, len(text))


class _Again:
    """Finds the texts of secrets where they stand unmarked, as far as an excerpt from `start` on can reach."""

    def __init__(self, text: str, secrets: list[tuple[Span, ExcerptState]], start: int) -> None:
        self._text = text
        spans = [span for span, _ in reversed(secrets) if span.end - span.start <= _LONGEST_REPEAT]
        kinds = {text[span.start : span.end].strip().casefold(): span.kind for span in spans}
        self._longest = max(map(len, kinds), default=0)
        window = text[max(0, start - self._longest) : self._reach(secrets, start) + self._longest].casefold()
        self._kinds = {
            value: kind for value, kind in kinds.items() if len(value) >= _SHORTEST_REPEAT and value in window
        }
        longest_first = sorted(self._kinds, key=len, reverse=True)
        self._pattern = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, longest_first))})(?!\w)", re.IGNORECASE)

    def between(self, border: int, start: int, end: int) -> Iterator[tuple[Span, ExcerptState]]:
        """Text from `start` to `end`, or as far as can be shown; a repetition may begin as early as `border`."""
        end = min(end, start + VISIBLE + self._longest)
        border = max(border, start - self._longest)
        for match in self._pattern.finditer(self._text, border, end) if self._kinds else ():
            if match.end() > start:
                if match.start() > start:
                    yield Span(start, match.start(), ""), ExcerptState.PLAIN
                yield Span(*match.span(), self._kinds.get(match[0].casefold(), "")), ExcerptState.AGAIN
                start = match.end()
        if start < end:
            yield Span(start, end, ""), ExcerptState.PLAIN

    @staticmethod
    def _reach(secrets: list[tuple[Span, ExcerptState]], start: int) -> int:
        left = VISIBLE
        for span, _ in secrets:
            left -= max(0, span.start - start) + _COST_OF_A_SECRET
            start = span.end
            if left <= 0:
                break
        return start + max(0, left)
