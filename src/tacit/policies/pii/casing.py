"""Capitals where a writer left them out or used nothing else: common words are small, others begin with a capital.

G1 (same offsets). `recased(text)` is as long as `text`, and differs from it in case alone.
G2 (ordinary text). A text with small letters and capitals in the usual proportion is itself.
"""

import re

from tacit.policies.pii.common_words import common_words
from tacit.policies.pii.cues import PARTICLES

_INITIAL = re.compile(
    r"(?<![\w@./#-])(?!(?:e\.g|i\.e|[ap]\.m|z\.b|d\.h|u\.a|p\.s)\b)[a-z]"
    r"(?=\.(?:[ ]?[a-z]\.)*[ ][^\W\d_]{3}|\.[^\W\d_]\.)"
)
_WORD = re.compile(r"(?<![\w@./#-])[^\W\d_](?:[^\W\d_]|['’-](?=[^\W\d_])){1,40}(?![\w@/]|[.]\w)")
_LOUD = 4
_SHORTEST = 3


def recased(text: str, look: bytes) -> str:
    """The text as it would be written with care; `look` is its outline."""
    capitals = look.count(b"A")
    if not capitals:
        return _INITIAL.sub(_capital, _WORD.sub(_raised, text)) if text.islower() else text
    if capitals > _LOUD * look.count(b"a", 0, capitals) and capitals > _LOUD * look.count(b"a") and capitals > _LOUD:
        return _WORD.sub(_lowered, text)
    return text


def _is_plain(small: str) -> bool:
    return len(small) < _SHORTEST or small in common_words() or small in PARTICLES


def _raised(match: re.Match[str]) -> str:
    word = match.group()
    return word if _is_plain(word) else _same_length(word, word[0].upper() + word[1:])


def _capital(match: re.Match[str]) -> str:
    return match.group().upper()


def _lowered(match: re.Match[str]) -> str:
    word = match.group()
    small = word.lower()
    return _same_length(word, small if _is_plain(small) else word[0] + small[1:])


def _same_length(word: str, other: str) -> str:
    return other if len(other) == len(word) else word
