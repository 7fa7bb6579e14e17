"""The policy `conservative`: nearly everything that could be a secret, for CRT's second policy.

Each word is judged by itself, so that the mask of one place does not depend on what another place says: a word with a
capital, a token with a digit, personal data, and every word that is not among the most common. On text without capitals
the last rule finds names, so there is no text on which this policy is blind. Marks that only little words or
punctuation keep apart are one.
"""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tacit.data.records import Record, Span
from tacit.policies.common_words import common_words
from tacit.policies.normalize import normalization_digest, normalize
from tacit.policies.patterns import Capitals, Digits, RareWords
from tacit.policies.pii.policy import Pii
from tacit.policies.policy import Policy

_PARTICLES = (
    "de|da|do|dos|das|del|della|dei|di|du|des|la|le|les|el|al|van|von|den|der|ter|bis|of|the|and|y|e|et|en|und|a|à|at"
)
_BLANKS = r"[^\w\n]{0,4}\n?[^\w\n]{0,4}"
_GAP = re.compile(rf"{_BLANKS}(?:(?:{_PARTICLES})(?!\w){_BLANKS}){{0,3}}", re.IGNORECASE)
_WIDEST = 80


@dataclass(frozen=True)
class Joined(Policy):
    """What `policy` finds, with gaps between marks closed that hold punctuation, blanks, a line break and particles.

    G1. Every character that `policy` finds is found. The kind is that of the longest mark.
    """

    policy: Policy

    @property
    def id(self) -> str:
        return f"joined({self.policy.id})"

    @property
    def public(self) -> bool:
        return self.policy.public

    def content(self) -> Any:  # noqa: ANN401
        return {"joined": self.policy.content(), "gap": _GAP.pattern, "reading": normalization_digest()}

    def find(self, record: Record) -> tuple[Span, ...]:
        joined: list[Span] = []
        longest = 0
        for span in self.policy.find(record):
            if joined and _closes(record.text, joined[-1].end, span.start):
                kind = span.kind if span.end - span.start > longest else joined[-1].kind
                joined[-1] = Span(joined[-1].start, span.end, kind)
            else:
                joined.append(span)
                longest = 0
            longest = max(longest, span.end - span.start)
        return tuple(joined)


def _closes(text: str, start: int, end: int) -> bool:
    return end - start <= _WIDEST and _GAP.fullmatch(normalize(text[start:end]).text) is not None


def conservative(words: Path | None) -> Policy:
    """Nearly everything that could be a secret; `words` is a list of common words in place of the built-in one."""
    rare = _builtin() if words is None else RareWords.from_file(words)
    return Joined(rare | Capitals() | Digits() | Pii())


class _Uncommon(RareWords):
    """Rare words by the list that comes with tacit."""

    public = True


@cache
def _builtin() -> RareWords:
    return _Uncommon(common_words(), "common")
