"""Cutting long records into pieces, by public length only.

The cutter is given the public text and never the secrets, so that no secret can move a cut. It cuts at sentence ends,
found in the text where each secret is one fixed character; a sentence that is too long by itself is halved at white
space, or between characters where there is none. A cut keeps a single space with the word that follows it, as
byte-level BPE does.

Formal guarantees:

G1 (public). The pieces are a function of the public text, the tokenizer and `max_tokens`.
G2 (short). No piece has more than `max_tokens` redacted tokens.
G3 (whole). The pieces in a row are the record: every character and every secret once, in order, no secret cut.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tacit.corpus.boundaries import sentences
from tacit.errors import PrepareError
from tacit.prepare.views import PublicText, PublicTokens, encode_all, join
from tacit.tokenizer import Tokenizer

STAND_IN = "\ufffc"  # the object replacement character: no letter, no space, no punctuation to the sentence finder
_SURELY_TOO_LONG = 32  # characters a token: longer stretches are cut without asking the tokenizer


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of a record that is not cut: its text and its tokens."""

    text: PublicText
    tokens: PublicTokens


def cut(public: PublicText, tokenizer: Tokenizer, max_tokens: int) -> list[Piece]:
    """The record in as few pieces of at most `max_tokens` redacted tokens as sentence ends allow, taken greedily."""
    shown = _Shown(public)
    units = [unit for stretch in _sentences(shown.text) for unit in _units(shown, stretch, tokenizer, max_tokens)]
    return [_melt(group) for group in _packed(units, max_tokens)]


def surely_too_long(public: PublicText, max_tokens: int) -> bool:
    """Whether the text is cut without asking the tokenizer how many tokens it has: a rule about public characters."""
    return sum(map(len, public.segments)) + len(public.kinds) > _SURELY_TOO_LONG * max_tokens


class _Shown:
    """The public text as one string, with a stand-in at each secret; stretches of it are public texts."""

    def __init__(self, public: PublicText) -> None:
        self.text = STAND_IN.join(public.segments)
        self._kinds = public.kinds
        self._positions: list[int] = []
        position = -1
        for segment in public.segments[:-1]:
            position += len(segment) + 1
            self._positions.append(position)

    def stretch(self, start: int, end: int) -> PublicText:
        first, last = bisect_left(self._positions, start), bisect_left(self._positions, end)
        inside = self._positions[first:last]
        borders = pairwise([start - 1, *inside, end])
        return PublicText(tuple(self.text[left + 1 : right] for left, right in borders), self._kinds[first:last])


def _sentences(text: str) -> list[tuple[int, int]]:
    """Sentences, each with the space before it instead of the one behind it."""
    ends = [end for _, end in sentences(text)]
    starts = [0, *(end - (text[end - 1] == " ") for end in ends[:-1])]
    borders = [*starts, len(text)]
    return [(start, end) for start, end in pairwise(borders) if start < end]


def _units(shown: _Shown, stretch: tuple[int, int], tokenizer: Tokenizer, max_tokens: int) -> Iterator[Piece]:
    """The stretch in units that fit, halved as often as needed."""
    pending = [stretch]
    while pending:
        start, end = pending.pop()
        if end - start <= _SURELY_TOO_LONG * max_tokens:
            text = shown.stretch(start, end)
            tokens = join(text, encode_all(text.segments, tokenizer), tokenizer)
            if len(tokens.tokens) <= max_tokens:
                yield Piece(text, tokens)
                continue
        middle = _middle(shown.text, start, end)
        pending += [(middle, end), (start, middle)]


def _middle(text: str, start: int, end: int) -> int:
    if end - start < 2:
        raise PrepareError(
            expected="a limit of tokens that any single character fits in",
            found="a character that needs more tokens than the limit",
            way_out="set `max_tokens` higher",
        )
    middle = (start + end) // 2
    space = text.rfind(" ", start + 1, middle + 1)
    if space < 0:
        space = text.find(" ", middle + 1, end)
    return middle if space < 0 else space


def _packed(units: Sequence[Piece], max_tokens: int) -> Iterator[list[Piece]]:
    group: list[Piece] = []
    length = 0
    for unit in units:
        width = len(unit.tokens.tokens)
        if group and length + width > max_tokens:
            yield group
            group, length = [], 0
        group.append(unit)
        length += width
    if group:
        yield group


def _melt(group: Sequence[Piece]) -> Piece:
    """One piece of several that stand in a row."""
    segments = list(group[0].text.segments)
    tokens: list[int] = []
    positions: list[int] = []
    for unit in group:
        positions += [len(tokens) + position for position in unit.tokens.positions]
        tokens += unit.tokens.tokens
        if unit is not group[0]:
            segments[-1] += unit.text.segments[0]
            segments += unit.text.segments[1:]
    kinds = tuple(kind for unit in group for kind in unit.text.kinds)
    return Piece(PublicText(tuple(segments), kinds), PublicTokens(tokens, positions, kinds))
