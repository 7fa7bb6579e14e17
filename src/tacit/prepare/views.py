"""A record as its public text and its secrets, and the two views made of them.

REDACTED is the public text with one placeholder for each secret. FULL is the text as written. Public segments and
secrets are encoded apart, so that both views share their public tokens; white space stays on the side of the border
where it stands. FULL is built from REDACTED and the secrets' tokens, never the other way round.

Formal guarantees, for valid spans (sorted, disjoint, non-empty, inside the text):

G1 (invariant). Texts that differ only inside their spans, in content or in length, give the same redacted tokens.
G2 (nothing survives). A redacted record holds one placeholder a span and no token of a secret.
G3 (public text unchanged). The public segments are in the redacted record, in order: without its placeholders it
   decodes to the text without its spans.
G4 (faithful). With a lossless tokenizer the full tokens decode to the text.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tacit.corpus.record import Span, spans_fault
from tacit.errors import PrepareError
from tacit.tokenizer import Tokenizer

Tokens = npt.NDArray[np.unsignedinteger]
Mask = npt.NDArray[np.bool_]


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
class PublicTokens:
    """A redacted record: its tokens, where its placeholders stand, and the kind of each."""

    tokens: list[int]
    positions: list[int]
    kinds: tuple[str, ...]


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


def join(public: PublicText, segments: Sequence[list[int]], tokenizer: Tokenizer) -> PublicTokens:
    """The redacted tokens, from the tokens of each segment."""
    tokens = list(segments[0])
    positions = []
    for segment in segments[1:]:
        positions.append(len(tokens))
        tokens.append(tokenizer.placeholder)
        tokens.extend(segment)
    return PublicTokens(tokens, positions, public.kinds)


def encode_all(texts: Sequence[str], tokenizer: Tokenizer) -> list[list[int]]:
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
