"""Which parts of a tagger's entities are names, and the text as a tagger should read it.

A tagger's findings depend on all words around them. Here they are made to depend less on those that are secrets
themselves: figures and addresses look all the same to it, and what it takes into an entity beside the name is left
out.

G1 (same offsets). `shown(text)` is as long as `text`, and its white space is where that of `text` is.
G2 (less). `named_parts` yields disjoint parts of the span.
G3 (nothing lost). A word outside of every excerpt is in no span that `named_parts` would yield alone, and is further
   than `reach` words from one that is.
"""

import hashlib
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib import resources

from tacit.data.records import Range, Span
from tacit.policies.pii.casing import recased
from tacit.policies.pii.common_words import LABELS, plain_words
from tacit.policies.pii.cues import PARTICLES
from tacit.policies.pii.lexicon import family_names, given_names
from tacit.policies.pii.outline import outline

_ADDRESS = re.compile(r"\S{0,80}(?:@|://|www\.)\S{1,200}")
_LETTER = re.compile(r"[^\W\d_]")
_FIGURE = re.compile(r"\d")
_PART = re.compile(r"[^,;:()\[\]{}<>\"“”„«»=|/\n\t]+")
_WORD = re.compile(r"[^\W_](?:[\w'’.&-]{0,60}[^\W_])?")
_UNBROKEN = re.compile(r"\S+")
_HOUSE_BEFORE = re.compile(r"(?<![\w.,$€£/:-])(?!(?:19|20)\d\d\b)\d{2,5}[A-Za-z]?[ ]\Z")
_JOINT = re.compile(r",?[ ]|,|,?[ ]?\n|[ ](?:and|&)[ ]|[&/-]")
_JOINABLE = ("FAC", "GPE", "LOC", "ORG")


def shown(text: str) -> str:
    """The text with every figure as 0, every letter as x in addresses of mail and the web, and the usual capitals."""
    text = recased(text, outline(text))
    if "@" in text or "://" in text or "www." in text:
        text = _ADDRESS.sub(lambda match: _LETTER.sub("x", match.group()), text)
    return _FIGURE.sub("0", text)


def excerpts(text: str, reach: int) -> list[Range]:
    """The places in which there can be a name, with `reach` words around it; what is between them names nothing."""
    found: list[Range] = []
    words = [match.span() for match in _UNBROKEN.finditer(text)]
    cased = not text.islower()
    covered = 0
    for at, (start, end) in enumerate(words):
        if any(_can_name(word, cased) for word in _WORD.findall(text, start, end)):
            first, last = max(0, at - reach), min(len(words), at + reach + 1)
            begin = found.pop()[0] if found and first <= covered else words[first][0]
            found.append((begin, words[last - 1][1]))
            covered = last
    return found


def _can_name(word: str, cased: bool) -> bool:
    small = _simple(word)
    return small not in plain_words() and not (cased and word.islower() and small not in _known())


def back_from(excerpted: Sequence[Range], spans: Iterable[Span]) -> Iterator[Span]:
    """Spans of the text, for spans of its excerpts, which were read with one character between them."""
    starts = [0]
    for start, end in excerpted:
        starts.append(starts[-1] + end - start + 1)
    for span in spans:
        for at in range(bisect_right(starts, span.start) - 1, bisect_left(starts, span.end)):
            start, end = excerpted[at]
            shift = start - starts[at]
            if (begin := max(start, span.start + shift)) < (stop := min(end, span.end + shift)):
                yield Span(begin, stop, span.kind)


def named_parts(text: str, span: Span) -> Iterator[Span]:
    """The parts of an entity that can be names."""
    cased = not text.islower()
    for part in _PART.finditer(text, span.start, span.end):
        words = [(*word.span(), word.group()) for word in _WORD.finditer(text, *part.span())]
        while words and _is_no_name(words[0][2], span.kind, cased, first=True):
            del words[0]
        while words and _is_no_name(words[-1][2], span.kind, cased, first=False):
            del words[-1]
        if words and not (plain_words().issuperset(_simple(word) for _, _, word in words)):
            end = words[-1][1]
            yield Span(words[0][0], end + (text[end : min(end + 1, span.end)] == "."), span.kind)


def whole_names(text: str, parts: Iterable[Span]) -> list[Span]:
    """The parts with commas between places, or between those who gave a firm its name, and with a house's number."""
    whole: list[Span] = []
    for part in sorted(parts):
        if house := _HOUSE_BEFORE.search(text, max(0, part.start - 8), part.start):
            part = part._replace(start=house.start())
        last = whole[-1] if whole else None
        if last and part.kind in _JOINABLE and last.kind in _JOINABLE and _JOINT.fullmatch(text, last.end, part.start):
            whole[-1] = Span(last.start, part.end, last.kind)
        else:
            whole.append(part)
    return whole


def _is_no_name(word: str, kind: str, cased: bool, first: bool) -> bool:
    """Whether a word at the end of an entity is left out: a label, or in text with capitals a small word."""
    small = _simple(word)
    if small in PARTICLES and first and kind == "PERSON":
        return False
    if small in LABELS:
        return True
    if cased and word.islower():
        return small not in _known()
    return first and kind == "PERSON" and small in plain_words()


def _simple(word: str) -> str:
    small = word.lower().replace("’", "'")
    return small.removesuffix("'s") if len(small) > 3 else small


@cache
def _known() -> frozenset[str]:
    return (given_names() | family_names()) - plain_words()


@cache
def naming_digest() -> str:
    """SHA-256 of what decides which parts are names."""
    source = resources.files("tacit.policies").joinpath("naming.py").read_bytes()
    words = "\n".join(sorted(plain_words() | LABELS))
    return hashlib.sha256(source + words.encode()).hexdigest()
