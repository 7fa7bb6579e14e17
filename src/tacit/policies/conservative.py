"""The policy `conservative`: nearly everything that could be a secret, for CRT's second policy.

Each word is judged by itself, so that the mask of one place does not depend on what another place says: a word with a
capital, a token with a digit, personal data, and every word that is not among the most common. On text without capitals
the last rule finds names, so there is no text on which this policy is blind; there, common words that are also names,
and those beside a mark or after a preposition, are marked too, as names are made of common words ("lake murtagh", "red
cross"). Marks that only little words or punctuation keep apart are one.
"""

import hashlib
import re
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from string import ascii_lowercase
from typing import Any

from tacit.data.records import Record, Span, resolve_overlaps
from tacit.policies.normalize import normalization_digest, normalize
from tacit.policies.patterns import Capitals, Digits, RareWords, Regex
from tacit.policies.pii.common_words import common_words, function_words
from tacit.policies.pii.cues import NAMESAKES, words
from tacit.policies.pii.lexicon import family_names, given_names
from tacit.policies.pii.numbers import FIGURES
from tacit.policies.pii.policy import Pii
from tacit.policies.policy import Policy

_PARTICLES = (
    "de|da|do|dos|das|del|della|delle|dei|degli|di|du|des|la|le|les|el|al|van|von|den|der|ter|bis|of|the|and|y|e|et|"
    "en|und|a|à|at|for|in|on|to|with|without|für|zum|zur|am|an|im|auf|aus|bei|mit|pour|sans|sur|au|aux|para|por|con|com|"
    "sin|sem|em|no|na|nos|nas|per|sul|sulla|nel|nella|voor|op|aan|het|te|ten|met|zonder|bij"
)
_BLANKS = r"[^\w\n]{0,4}\n?[^\w\n]{0,4}"
_GAP = re.compile(rf"{_BLANKS}(?:(?:{_PARTICLES})(?!\w){_BLANKS}){{0,3}}", re.IGNORECASE)
_WIDEST = 80
_HEADS = (
    "airport|bank|bay|beach|bridge|building|cafe|center|centre|church|city|clinic|club|college|company|council|"
    "county|court|"
    "creek|district|farm|foundation|group|hall|health|heart|heights|high|hill|hospital|hotel|house|institute|"
    "insurance|island|"
    "lake|lane|library|market|medical|middle|mountain|museum|office|park|pharmacy|place|port|practice|primary|region|"
    "restaurant|river|road|school|services|shop|society|square|state|station|store|street|surgery|town|trust|"
    "university|"
    "valley|village|family|general"
)
_AFTER = re.compile(rf"(?:[ ](?:{_HEADS})(?!\w)){{1,3}}", re.IGNORECASE)
_ABBREVIATED = re.compile(r"(?:^|\W)[^\W\d_]{1,4}$")
_BESIDE = r"(?:[^\S\n]|[^\S\n]?&[^\S\n]|[^\S\n]?\n|-)"
_WORD_BEFORE = re.compile(rf"(?<![\w@.'’-])([^\W\d_][\w'’]{{0,30}}){_BESIDE}\Z")
_WORD_AFTER = re.compile(rf"{_BESIDE}([^\W\d_][\w'’]{{0,30}})(?![\w@])")
_MOST_BESIDE = 3
_PREPOSITIONS = "at|from|for|by|near|with|of|in|bei|von|aus|chez|à|de|du|au|del|en|di|da|do|no|na|bij|te|van|op"
_ARTICLES = "the|my|der|die|den|le|la|el|il|het|de"
_TOO_COMMON = words("will may first early day little long")
_BEFORE = re.compile(
    r"(?<!\w)(?:(?:van|von|de|der|den|del|al|el|bin|ibn|da|di|du|le|la|ter|the|old|new)[ ]){1,3}$", re.IGNORECASE
)


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
        return {
            "joined": self.policy.content(),
            "gap": _GAP.pattern,
            "beside": [_BEFORE.pattern, _AFTER.pattern],
            "reading": normalization_digest(),
        }

    def find(self, record: Record) -> tuple[Span, ...]:
        joined: list[Span] = []
        longest = 0
        small = record.text.islower()
        for span in self.policy.find(record):
            if small:
                span = _with_neighbors(record.text, span)
            if joined and _closes(record.text, joined[-1].end, span.start):
                kind = span.kind if span.end - span.start > longest else joined[-1].kind
                joined[-1] = Span(joined[-1].start, span.end, kind)
            else:
                joined.append(span)
                longest = 0
            longest = max(longest, span.end - span.start)
        return resolve_overlaps(_extended(record.text, span) for span in joined)


def _extended(text: str, span: Span) -> Span:
    """The mark with particles before it, and after it the dot of an abbreviation, or what the named thing is."""
    window = max(0, span.start - 16)
    before = _BEFORE.search(text[window : span.start])
    after = _AFTER.match(text, span.end)
    end = after.end() if after else span.end
    if text.startswith(".", end) and _ABBREVIATED.search(text[max(span.start, end - 6) : end]):
        end += 1
    return Span(window + before.start() if before else span.start, end, span.kind)


def _with_neighbors(text: str, span: Span) -> Span:
    """The mark with the words right beside it that a name can be made of."""
    start, end = span.start, span.end
    for _ in range(_MOST_BESIDE):
        before = _WORD_BEFORE.search(text, max(0, start - _WIDEST), start)
        if before is None or before[1] in function_words():
            break
        start = before.start(1)
    for _ in range(_MOST_BESIDE):
        after = _WORD_AFTER.match(text, end)
        if after is None or after[1] in function_words():
            break
        end = after.end(1)
    return Span(start, end, span.kind)


def _closes(text: str, start: int, end: int) -> bool:
    return end - start <= _WIDEST and _is_gap(text[start:end])


@lru_cache(maxsize=10_000)
def _is_gap(between: str) -> bool:
    return _GAP.fullmatch(normalize(between).text) is not None


def conservative(common: Path | None) -> Policy:
    """Nearly everything that could be a secret; `common` is a list of common words in place of the built-in one."""
    rare = _builtin() | _Small() if common is None else RareWords.from_file(common)
    return Joined(rare | Capitals() | Digits() | _spelled() | _hours() | Pii())


class _BuiltIn(Regex):
    """A pattern that comes with tacit."""

    public = True


@cache
def _spelled() -> Regex:
    """Two words for figures in a row, words with a word for a dot between them, and letters one by one."""
    figures = "|".join(sorted(FIGURES, key=lambda word: (-len(word), word)))
    dots = "dot|punto|point|punkt|ponto|punt"
    signs = f"{dots}|at|arroba|arobase|chiocciola|underscore|dash|slash"
    return _BuiltIn(
        rf"(?i)\b(?:{figures})(?:[ ,.-]{{1,3}}(?:{figures}))+\b|\b\w+(?: (?:{signs}) \w+)* (?:{dots}) \w+\b"
        r"|\b[^\W\d_](?:[ -][^\W\d_]){2,}\b",
        "ID",
    )


@cache
def _hours() -> Regex:
    """What belongs to the figures of a time, and weekdays; each by itself, so that masks do not depend on figures."""
    days = (
        "(?:mon|tues|wednes|thurs|fri|satur|sun)days?|(?:mon|diens|donners|frei|sams|sonn)tags?|mittwochs?|lundis?|mardis?|"
        "mercredis?|jeudis?|vendredis?|samedis?|dimanches?|lunes|martes|miércoles|jueves|viernes|sábados?|domingos?|"
        "(?:lune|marte|mercole|giove|vener)dì|sabato|domenica|(?:segunda|terça|quarta|quinta|sexta)-feira|"
        "(?:maan|dins|woens|donder|vrij|zater|zon)dag"
    )
    return _BuiltIn(
        rf"(?i)\b(?:(?:(?:next|last|this|coming) )?(?:{days})|pm|o['’]clock|uhr)\b|\b[ap]\.m\.|\d ?am\b", "TIME"
    )


class _Uncommon(RareWords):
    """Rare words by the list that comes with tacit."""

    public = True


@dataclass(frozen=True)
class _Small(Policy):
    """In text without capitals: common words that are also names or initials, and what follows a preposition."""

    @property
    def id(self) -> str:
        return "small-names"

    @property
    def public(self) -> bool:
        return True

    def content(self) -> Any:  # noqa: ANN401
        return {"small-names": [_digest(_namesakes()), _digest(function_words()), _AFTER_PREPOSITION.pattern]}

    def find(self, record: Record) -> tuple[Span, ...]:
        if not record.text.islower():
            return ()
        reading = normalize(record.text)
        found = [Span(*word.span(), "NAME") for word in _SMALL.finditer(reading.text) if word.group() in _namesakes()]
        for match in _AFTER_PREPOSITION.finditer(reading.text):
            if match[1] not in function_words():
                found.append(Span(*match.span(1), "NAME"))
        return reading.back(resolve_overlaps(found))


_SMALL = re.compile(r"(?<![\w'’])[^\W\d_]{2,30}(?!\w)|(?<![\w'’.])[^\W\d_]\.(?=[ ]?[^\W\d_])")
_AFTER_PREPOSITION = re.compile(rf"(?<!\w)(?:{_PREPOSITIONS})[ ](?:(?:{_ARTICLES})[ ])?([^\W\d_]{{2,30}})(?!\w)")


def _digest(listed: frozenset[str]) -> str:
    return hashlib.sha256("\n".join(sorted(listed)).encode()).hexdigest()


@cache
def _namesakes() -> frozenset[str]:
    """Common words that are also names of persons, without the little ones; and initials."""
    initials = {f"{letter}." for letter in ascii_lowercase}
    return ((common_words() & (given_names() | family_names())) | NAMESAKES) - function_words() - _TOO_COMMON | initials


@cache
def _builtin() -> RareWords:
    return _Uncommon(common_words(), "common")
