"""How a text is handed to a tagger that cannot read it whole, and how its findings are tidied.

G1. `pieces` covers the text: every character is in exactly one piece, none longer than asked for.
G2. A cut stands after a line break, else between sentences, else after white space; inside a word only where a word
    alone is too long.
G3. `tidied` never adds a character, and takes away only white space at the ends of a finding's lines, line breaks,
    and labels that say in what role somebody speaks.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator

from tacit.corpus.boundaries import sentences
from tacit.corpus.record import Span

Piece = tuple[int, int]

_ROLES = (
    "sys|system|usr|user|customer|client|caller|agent|assistant|bot|chatbot|ai|human|operator|representative|rep|"
    "support|advisor|adviser|speaker|interviewer|interviewee|moderator|host|guest|patient|doctor|nurse|student|"
    "teacher|tutor|buyer|seller|q|a"
)
_LABEL = re.compile(
    rf"^[ \t]{{0,4}}[\[<(*]{{0,2}}(?:{_ROLES})(?:[ _]?\d{{1,3}})?[\])>*]{{0,2}}[ ]?[:\t]", re.IGNORECASE | re.MULTILINE
)
_LINE = re.compile(r"[^\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]+")
_SURROGATE = re.compile("[\ud800-\udfff]")
_SPACE_BEFORE_END = re.compile(r"\s\S*\Z")


def readable(text: str) -> str:
    """The text with a `?` for each half of a broken pair of surrogates, which no tagger reads; offsets stay true."""
    return text if text.isascii() else _SURROGATE.sub("?", text)


def pieces(text: str, longest: int) -> Iterator[Piece]:
    """`text` in pieces of at most `longest` characters."""
    start = 0
    while len(text) - start > longest:
        end = start + _cut(text[start : start + longest])
        yield start, end
        start = end
    if start < len(text):
        yield start, len(text)


def _cut(window: str) -> int:
    """Where a window that is full is best cut."""
    line = window.rfind("\n") + 1
    if line:
        return line
    last = sentences(window)[-1][0]
    if last:
        return last
    space = _SPACE_BEFORE_END.search(window)
    return space.start() + 1 if space else len(window)


def tidied(text: str, spans: Iterable[Span]) -> list[Span]:
    """Each finding line by line, without white space at the ends and without labels of roles, such as `USR:`.

    A turn's label is structure, not speech. Only role words count as labels: a name before a colon stays found.
    """
    found = list(spans)
    if not found:
        return []
    labels = [match.span() for match in _LABEL.finditer(text)]
    tidy = []
    for span in found:
        for line in _LINE.finditer(text, span.start, span.end):
            start = max(line.start(), _label_end(labels, line.end()))
            inside = text[start : line.end()]
            begin, end = start + len(inside) - len(inside.lstrip()), start + len(inside.rstrip())
            if begin < end:
                tidy.append(Span(begin, end, span.kind))
    return tidy


def _label_end(labels: list[Piece], end: int) -> int:
    """Where the last label that begins before `end` ends; 0 when there is none."""
    before = bisect_left(labels, (end, 0))
    return labels[before - 1][1] if before else 0
