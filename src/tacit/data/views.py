"""A record as its public text and its secrets, and the two views made of them.

REDACTED is the public text with one placeholder for each secret. FULL is the text as written. Public segments and
secrets are encoded apart, so that both views share their public tokens; white space stays on the side of the border
where it is. FULL is built from REDACTED and the secrets' tokens, never the other way round.

For valid spans (sorted, disjoint, non-empty, inside the text):

G1 (invariant). Texts that differ only inside their spans, in content or in length, give the same redacted tokens.
G2 (nothing survives). A redacted record contains one placeholder per span and no token of a secret.
G3 (public text unchanged). The public segments are in the redacted record, in order: without its placeholders it
   decodes to the text without its spans.
G4 (faithful). With a lossless tokenizer the full tokens decode to the text.

Long records are cut into pieces by public length only: the cutter never sees the secrets. It cuts at sentence ends,
found in the text where each secret is one fixed character; a sentence that is too long by itself is halved at white
space, or between characters where there is none. A space stays with the word that follows, as in byte-level BPE.

G5 (public). The pieces are a function of the public text, the tokenizer and `max_tokens`.
G6 (short). No piece has more than `max_tokens` redacted tokens.
G7 (whole). The pieces in a row are the record: every character and every secret once, in order, no secret cut.
"""

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from tacit.data.records import Message, Span, inside, sentences, spans_fault
from tacit.errors import PrepareError

if TYPE_CHECKING:
    from tacit.data.tokenizer import Tokenizer  # whose library is an extra

Tokens = npt.NDArray[np.unsignedinteger]
Mask = npt.NDArray[np.bool_]
Unit = TypeVar("Unit")


@dataclass(frozen=True, slots=True)
class PublicText:
    """What is public of a text: the segments before, between and after its secrets, and the kind of each secret."""

    segments: tuple[str, ...]  # one more than kinds; some may be empty
    kinds: tuple[str, ...]

    @property
    def digest(self) -> bytes:
        """SHA-256 of the segments: one placeholder for all kinds, and no text can spell it."""
        state = hashlib.sha256()
        for segment in self.segments:
            content = segment.encode("utf-8", "surrogatepass")
            state.update(len(content).to_bytes(8, "little"))
            state.update(content)
        return state.digest()


@dataclass(frozen=True, slots=True)
class PublicChat:
    """What is public of a chat: the role of each message, and what is public of its content."""

    roles: tuple[str, ...]
    contents: tuple[PublicText, ...]

    @property
    def segments(self) -> tuple[str, ...]:
        return tuple(segment for content in self.contents for segment in content.segments)

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(kind for content in self.contents for kind in content.kinds)

    @property
    def digest(self) -> bytes:
        """SHA-256 of roles and contents; no text has the same."""
        contents = b"".join(content.digest for content in self.contents)
        return hashlib.sha256(repr(("chat", self.roles)).encode() + contents).digest()


@dataclass(frozen=True, slots=True)
class PublicTokens:
    """A redacted record: its tokens, where its placeholders stand, and the kind of each.

    learned: ranges [start, end) of a chat's tokens that are targets, where not all of them are.
    """

    tokens: list[int]
    positions: list[int]
    kinds: tuple[str, ...]
    learned: list[tuple[int, int]] = field(default_factory=list)


class FullTokens(NamedTuple):
    """A full record: its tokens, which of them are secret, and the ranges [start, end) of its secrets."""

    tokens: Tokens
    private: Mask
    starts: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]


def divide(text: str, spans: Sequence[Span]) -> tuple[PublicText, tuple[str, ...]]:
    """The public part of `text`, and its secrets."""
    fault = spans_fault(spans, len(text))
    if fault:
        raise PrepareError("spans that are sorted, disjoint, non-empty and inside the text", fault, "mend the policy")
    starts = [span.start for span in spans] + [len(text)]
    ends = [0] + [span.end for span in spans]
    segments = tuple(text[end:start] for end, start in zip(ends, starts, strict=True))
    return PublicText(segments, tuple(span.kind for span in spans)), tuple(text[s.start : s.end] for s in spans)


def divide_chat(text: str, messages: Sequence[Message], spans: Sequence[Span]) -> tuple[PublicChat, tuple[str, ...]]:
    """The public part of a chat, and its secrets; what is outside of messages is no part of either."""
    divided = [divide(text[start:end], inside(spans, start, end)) for _, start, end in messages]
    roles = tuple(message.role for message in messages)
    return PublicChat(roles, tuple(public for public, _ in divided)), tuple(
        secret for _, secrets in divided for secret in secrets
    )


def join(public: PublicText, segments: Sequence[list[int]], tokenizer: "Tokenizer") -> PublicTokens:
    """The redacted tokens, from the tokens of each segment."""
    tokens = list(segments[0])
    positions = []
    for segment in segments[1:]:
        positions.append(len(tokens))
        tokens.append(tokenizer.placeholder)
        tokens.extend(segment)
    return PublicTokens(tokens, positions, public.kinds)


def encode_all(texts: Sequence[str], tokenizer: "Tokenizer") -> list[list[int]]:
    """The ids of each text; an empty text has none, whatever prefix the tokenizer would add."""
    encoded: Iterator[list[int]] = iter(tokenizer.encode_batch([text for text in texts if text]))
    return [next(encoded) if text else [] for text in texts]


def fill_in(
    redacted: Tokens, positions: npt.NDArray[np.integer], contents: Tokens, lengths: npt.NDArray[np.int64]
) -> FullTokens:
    """The full record: at each position, the next `lengths` tokens of `contents` instead of the placeholder."""
    widths = np.ones(len(redacted), dtype=np.int64)
    widths[positions] = lengths
    secret = np.zeros(len(redacted), dtype=np.bool_)
    secret[positions] = True
    tokens = np.repeat(redacted, widths)
    private = np.repeat(secret, widths)
    tokens[private] = contents
    ends = np.cumsum(widths)[positions]
    return FullTokens(tokens, private, ends - lengths, ends)


def widened(mask: Mask, positions: npt.NDArray[np.integer], lengths: npt.NDArray[np.int64]) -> Mask:
    """A mask of redacted tokens as one of the tokens that `fill_in` gives."""
    widths = np.ones(len(mask), dtype=np.int64)
    widths[positions] = lengths
    return np.repeat(mask, widths)


STAND_IN = "\ufffc"  # the object replacement character: no letter, no space, no punctuation to the sentence finder
_SURELY_TOO_LONG = 32  # characters a token: longer stretches are cut without asking the tokenizer


@dataclass(frozen=True, slots=True)
class Chunk:
    """A stretch of a record that is not cut: its text and its tokens."""

    text: PublicText
    tokens: PublicTokens


def cut(public: PublicText, tokenizer: "Tokenizer", max_tokens: int) -> list[Chunk]:
    """The record in as few pieces of at most `max_tokens` redacted tokens as sentence ends allow, taken greedily."""
    shown = _Shown(public)
    units = [unit for stretch in _sentences(shown.text) for unit in _units(shown, stretch, tokenizer, max_tokens)]
    return [_melt(group) for group in packed(units, lambda unit: len(unit.tokens.tokens), max_tokens)]


def surely_too_long(public: PublicText | PublicChat, max_tokens: int) -> bool:
    """Whether the text is cut without asking the tokenizer how many tokens it has: a rule about public characters."""
    return sum(map(len, public.segments)) + len(public.kinds) > _SURELY_TOO_LONG * max_tokens


class _Shown:
    """The public text as one string, with a stand-in at each secret; stretches of it are public texts."""

    def __init__(self, public: PublicText) -> None:
        self.text = STAND_IN.join(public.segments)
        self._kinds = public.kinds
        self._positions = list(accumulate((len(segment) + 1 for segment in public.segments[:-1]), initial=-1))[1:]

    def stretch(self, start: int, end: int) -> PublicText:
        first, last = bisect_left(self._positions, start), bisect_left(self._positions, end)
        borders = pairwise([start - 1, *self._positions[first:last], end])
        return PublicText(tuple(self.text[left + 1 : right] for left, right in borders), self._kinds[first:last])


def _sentences(text: str) -> list[tuple[int, int]]:
    """Sentences, each with the space before it instead of the one behind it."""
    ends = [end for _, end in sentences(text)]
    borders = [0, *(end - (text[end - 1] == " ") for end in ends[:-1]), len(text)]
    return [(start, end) for start, end in pairwise(borders) if start < end]


def _units(shown: _Shown, stretch: tuple[int, int], tokenizer: "Tokenizer", max_tokens: int) -> Iterator[Chunk]:
    """The stretch in units that fit, halved as often as needed."""
    pending = [stretch]
    while pending:
        start, end = pending.pop()
        if end - start <= _SURELY_TOO_LONG * max_tokens:
            text = shown.stretch(start, end)
            tokens = join(text, encode_all(text.segments, tokenizer), tokenizer)
            if len(tokens.tokens) <= max_tokens:
                yield Chunk(text, tokens)
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


def packed(units: Sequence[Unit], width_of: Callable[[Unit], int], max_tokens: int) -> Iterator[list[Unit]]:
    """The units in as few groups of at most `max_tokens` as their order allows, taken greedily."""
    group: list[Unit] = []
    length = 0
    for unit in units:
        width = width_of(unit)
        if group and length + width > max_tokens:
            yield group
            group, length = [], 0
        group.append(unit)
        length += width
    if group:
        yield group


def _melt(group: Sequence[Chunk]) -> Chunk:
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
    return Chunk(PublicText(tuple(segments), kinds), PublicTokens(tokens, positions, kinds))
