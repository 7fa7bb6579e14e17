"""Phrases as whole words in a text, found in one pass however many there are (Aho and Corasick 1975)."""

import re
import string
from collections.abc import Iterable

import ahocorasick_rs

_BREAKS = "".join(map(chr, range(128))).translate({ord(one): None for one in string.ascii_letters + string.digits})
_TO_BLANKS = bytes.maketrans(_BREAKS.encode(), b" " * len(_BREAKS))
_BREAK = re.compile(r"[\W_]")

Hit = tuple[int, int, str]
"""A phrase and its place: start, end, phrase."""


def _apart(folded: str) -> str:
    """The text with a blank for every character that is no letter or digit, and one more blank at either end."""
    if folded.isascii():
        return f" {folded.encode().translate(_TO_BLANKS).decode()} "
    return f" {_BREAK.sub(' ', folded)} "


class Phrases:
    """Phrases in lower case, to be found where no letter or digit is beside them."""

    def __init__(self, phrases: Iterable[str]) -> None:
        self._phrases = sorted(set(phrases), key=lambda phrase: (not phrase.isalnum(), phrase))
        self._plain = sum(map(str.isalnum, self._phrases))  # of others, what is between words must be the same too
        self._automaton = ahocorasick_rs.AhoCorasick([_apart(phrase) for phrase in self._phrases])

    def find(self, folded: str) -> list[Hit]:
        """Every phrase in `folded`, by where it ends, longer ones first."""
        phrases = self._phrases
        found = self._automaton.find_matches_as_indexes(_apart(folded), overlapping=True)
        return [
            (start, end - 2, phrases[index])
            for index, start, end in found
            if index < self._plain or folded.startswith(phrases[index], start)
        ]
