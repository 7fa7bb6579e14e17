"""Where sentences and turns end. Both cover the whole text: every character is in exactly one piece."""

import re

_SENTENCE_END = re.compile(r"""[.!?…]["'”’)\]]{0,4}(?=\s)(?!\s{1,8}[a-z])|\n""")
_ABBREVIATION = re.compile(r"(?:\b(?:Mr|Mrs|Ms|Dr|Prof|St|Jr|Sr|Inc|Ltd|Co|No|vs|etc|e\.g|i\.e)|\b[A-Z])\.$")
_LOOK_BACK = 8


def sentences(text: str) -> list[tuple[int, int]]:
    """The sentences of `text` as half-open character ranges; the white space after one belongs to it."""
    pieces: list[tuple[int, int]] = []
    start = 0
    for match in _SENTENCE_END.finditer(text):
        if match.group()[0] == "." and _ABBREVIATION.search(text, max(start, match.end() - _LOOK_BACK), match.end()):
            continue
        if match.end() <= start:  # a line break that the sentence before has taken
            continue
        end = match.end()
        while end < len(text) and text[end].isspace():
            end += 1
        pieces.append((start, end))
        start = end
    if start < len(text):
        pieces.append((start, len(text)))
    return pieces


def turns(text: str) -> list[tuple[int, int]]:
    """The turns of a dialog (its lines) as half-open character ranges; the line break belongs to the turn it ends."""
    pieces = []
    start = 0
    for line in text.splitlines(keepends=True):
        pieces.append((start, start + len(line)))
        start += len(line)
    return pieces
