"""Further mentions of names that were found in a text."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from tacit.policy.pii.words import NAMESAKES, NEVER_A_NAME, PARTICLES

NAME_WORD = re.compile(r"[^\W\d_](?:[^\W\d_]|['’-](?=[^\W\d_])){0,40}+(?!-?[\d_])")
"""A word that can be part of a name: letters, with apostrophes and hyphens inside."""
_MENTION = re.compile(r"[^\W\d_a-z](?:[^\W\d_]|['’-](?=[^\W\d_]{2})){1,40}+(?!\w)")
_FEW = 16
_WIDEST_GAP = 8

Piece = tuple[int, int]


def find_mentions(text: str, folded: str, names: Sequence[Piece]) -> Iterator[Piece]:
    """Further mentions of the words of the names found, alone or together.

    A namesake, such as April, counts only beside another word of a name or when somebody is called by it.
    """
    found = Counter(word.group() for start, end in set(names) for word in NAME_WORD.finditer(folded, start, end))
    sought = found.keys() - (NEVER_A_NAME - NAMESAKES)
    if len(sought) <= _FEW and all(folded.count(word) <= found[word] for word in sought):
        return  # nothing left to find: most dialogs end here, and counting a few words is far quicker than looking
    begin, end, sure = 0, 0, False
    for word in _MENTION.finditer(text):
        small = word.group().lower()
        if small not in sought or text[word.start() - 1 : word.start()].isalnum():
            continue
        plain = small not in NAMESAKES or text[word.start() - 2 : word.start()] == ", "
        if end and word.start() - end <= _WIDEST_GAP and _joins(text[end : word.start()]):
            end, sure = word.end(), sure or plain
            continue
        if sure:
            yield begin, end
        begin, end, sure = *word.span(), plain
    if sure:
        yield begin, end


def _joins(gap: str) -> bool:
    """Whether what stands between two mentions makes them one name: a blank, a hyphen, an initial or a particle."""
    return gap == "-" or (
        gap.startswith(" ") and all(len(word.rstrip(".")) == 1 or word.lower() in PARTICLES for word in gap.split())
    )
