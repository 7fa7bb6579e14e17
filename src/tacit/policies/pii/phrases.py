"""Phrases as whole words in a text, found in one pass however many there are (Aho and Corasick 1975)."""

import re
import string
from collections import defaultdict
from collections.abc import Iterable, Mapping

import ahocorasick_rs

_BREAKS = "".join(map(chr, range(128))).translate({ord(one): None for one in string.ascii_letters + string.digits})
_TO_BLANKS = bytes.maketrans(_BREAKS.encode(), b" " * len(_BREAKS))
_BREAK = re.compile(r"[\W_]")

Hit = tuple[int, int, str]
"""A phrase and its place: start, end, phrase."""

Grouped = defaultdict[str, list[Hit]]
"""By the name of a group the hits that are in it."""


def _apart(folded: str) -> str:
    """The text with a blank for every character that is no letter or digit, and one more blank at either end."""
    if folded.isascii():
        return f" {folded.encode().translate(_TO_BLANKS).decode()} "
    return f" {_BREAK.sub(' ', folded)} "


class Phrases:
    """Groups of phrases in lower case, to be found where no letter or digit is beside them."""

    def __init__(self, groups: Mapping[str, Iterable[str]]) -> None:
        of = groups_of(groups)
        phrases = sorted(of, key=lambda phrase: (not phrase.isalnum(), phrase))
        self._grouped = [(phrase, of[phrase]) for phrase in phrases]
        self._plain = sum(map(str.isalnum, phrases))  # of others, what is between words must be the same too
        self._automaton = ahocorasick_rs.AhoCorasick([_apart(phrase) for phrase in phrases])

    def find(self, folded: str) -> Grouped:
        """Every phrase in `folded`, by where it ends, longer ones first."""
        found: Grouped = defaultdict(list)
        groups, plain = self._grouped, self._plain
        for index, start, end in self._automaton.find_matches_as_indexes(_apart(folded), overlapping=True):
            phrase, names = groups[index]
            if index < plain or folded.startswith(phrase, start):
                hit = start, end - 2, phrase
                for name in names:
                    found[name].append(hit)
        return found


def groups_of(groups: Mapping[str, Iterable[str]]) -> dict[str, tuple[str, ...]]:
    """By phrase the groups that it is in."""
    names: defaultdict[str, tuple[str, ...]] = defaultdict(tuple)
    for name, phrases in groups.items():
        for phrase in set(phrases):
            names[phrase] += (name,)
    return dict(names)


def grouped(hits: Iterable[Hit], groups: Mapping[str, tuple[str, ...]]) -> Grouped:
    """The hits of each group, in order."""
    found: Grouped = defaultdict(list)
    for hit in hits:
        for name in groups[hit[2]]:
            found[name].append(hit)
    return found
