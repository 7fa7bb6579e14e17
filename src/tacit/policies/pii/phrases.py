"""Phrases as whole words in a text, found in one pass however many there are (Aho and Corasick 1975)."""

import re
import string
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

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
    """Groups of phrases in lower case, to be found where no letter or digit is beside them.

    Of all phrases in the groups `longest`, longer ones hide the ones inside them.
    """

    def __init__(self, groups: Mapping[str, Iterable[str]], longest: Collection[str] = ()) -> None:
        of = _groups_of(groups)
        phrases = sorted(of, key=lambda phrase: (not phrase.isalnum(), phrase))
        self._hiding = {phrase: tuple(name for name in names if name in longest) for phrase, names in of.items()}
        self._grouped = [
            (phrase, tuple(name for name in of[phrase] if name not in longest), self._hiding[phrase])
            for phrase in phrases
        ]
        self._plain = sum(map(str.isalnum, phrases))  # of others, what is between words must be the same too
        self._automaton = ahocorasick_rs.AhoCorasick([_apart(phrase) for phrase in phrases])

    def find(self, folded: str) -> Grouped:
        """Every phrase in `folded` that is not hidden, by where it ends, longer ones first."""
        found: Grouped = defaultdict(list)
        groups, plain = self._grouped, self._plain
        unhidden: list[Hit] = []
        last_end = 0
        for index, start, end in self._automaton.find_matches_as_indexes(_apart(folded), overlapping=True):
            phrase, names, hiding = groups[index]
            if index >= plain and not folded.startswith(phrase, start):
                continue
            end -= 2
            hit = start, end, phrase
            for name in names:
                found[name].append(hit)
            if not hiding or (start < last_end and self._is_hidden(hit, unhidden, found)):
                continue
            last_end = end
            unhidden.append(hit)
            for name in hiding:
                found[name].append(hit)
        return found

    def _is_hidden(self, hit: Hit, unhidden: list[Hit], found: Grouped) -> bool:
        """Whether a phrase before it hides this one; those that this one hides are taken out."""
        while unhidden and unhidden[-1][0] >= hit[0]:
            for name in self._hiding[unhidden.pop()[2]]:
                found[name].pop()
        return bool(unhidden) and unhidden[-1][1] >= hit[1]


class Strings:
    """Rare strings, to be found wherever they are."""

    def __init__(self, strings: Iterable[str]) -> None:
        self._strings = sorted(set(strings))
        self._hidden = {one: [other for other in self._strings if _hides(one, other)] for one in self._strings}
        self._automaton = ahocorasick_rs.AhoCorasick(self._strings, matchkind=ahocorasick_rs.MatchKind.LeftmostFirst)

    def seen(self, text: str) -> frozenset[str]:
        """Those that are in the text, in one pass that takes a fraction of a look for each."""
        hits = self._automaton.find_matches_as_indexes(text)
        if not hits:
            return frozenset()
        found = {self._strings[index] for index, _, _ in hits}
        hidden = {other for one in found for other in self._hidden[one]} - found
        return frozenset(found | {other for other in hidden if other in text})


def _hides(one: str, other: str) -> bool:
    """Whether `other` can begin inside of `one`, where it is not looked for."""
    begins = any(one.endswith(other[:length]) for length in range(1, len(other) + 1))
    return one != other and (begins or other in one)


def _groups_of(groups: Mapping[str, Iterable[str]]) -> dict[str, tuple[str, ...]]:
    """By phrase the groups that it is in."""
    names: defaultdict[str, tuple[str, ...]] = defaultdict(tuple)
    for name, phrases in groups.items():
        for phrase in set(phrases):
            names[phrase] += (name,)
    return dict(names)
