"""Texts as they are read: characters that look alike are made one, with offsets back to the text as it is.

Unseen characters are dropped, spaces and hyphens of every kind are plain, full-width letters and ligatures are
spelled out (NFKC), entities are what they stand for. Tags of HTML that only dress up text are dropped, others end a
line. A line break inside of a sentence is a blank, and a word divided by it is whole; breaks after a sentence, between
turns, fields, rows and the lines of a list or an address stay.

G1 (exact). Of a finding in the text as read, `back` gives the characters it was read from, and all between them.
G2 (same). A text with nothing to normalize is itself.
G3 (linear). Time is linear in the length of the text.
"""

import hashlib
import html
import re
import string
import unicodedata
from array import array
from collections.abc import Iterable
from functools import cache
from importlib import resources
from typing import NamedTuple

from tacit.data.records import Span, resolve_overlaps

_DRESSING = "a|abbr|b|big|code|del|em|font|i|ins|kbd|label|mark|q|s|samp|small|span|strike|strong|sub|sup|tt|u|var|wbr"

_BLOCKS = (
    "address|article|aside|blockquote|body|br|button|caption|cite|dd|div|dl|dt|fieldset|figcaption|figure|footer|form|h1|h2|"
    "h3|h4|h5|h6|head|header|hr|html|legend|li|main|nav|ol|option|p|pre|section|select|table|tbody|td|textarea|tfoot|"
    "th|thead|time|title|tr|ul"
)

_ATTRIBUTE = r"\s{1,9}(?:class|style|dir|lang|align|valign|width|height|border|color|face|size|role|colspan|rowspan)"
_ATTRIBUTES = rf"(?:{_ATTRIBUTE}=(?:\"[^\"<>]{{0,200}}\"|'[^'<>]{{0,200}}')){{0,6}}\s{{0,9}}/?"

_MARKUP = re.compile(
    rf"<(?:/?(?P<dressing>{_DRESSING})|/?(?P<block>{_BLOCKS}))(?:{_ATTRIBUTES})>"
    r"|(?P<entity>&(?:[A-Za-z][A-Za-z0-9]{1,9}|\#[0-9]{1,6}|\#[xX][0-9A-Fa-f]{1,5});)",
    re.IGNORECASE,
)

_UNSEEN = "\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufe00-\ufe0f\ufeff"
_HYPHENS = "\u2010\u2011\u2012\u2212\ufe58\ufe63\uff0d"
_DASHES = "\u2013\u2014\u2015"  # a hyphen only beside a digit: between words they are punctuation
_KEPT = "\u00b4\u00a8\u00af\u00b8\u2026\u203c\u2047-\u2049"  # spelled out they would tear words apart
_UNSEEN_ONE = re.compile(f"[{_UNSEEN}]")
_MARK = re.compile("[\u0300-\u036f]")
_OTHER = re.compile("[^\x00-\x7f]")
_MARKED_OR_OTHER = re.compile(rf"[^\W\d_]{_MARK.pattern}{{1,8}}|{_OTHER.pattern}")


_BREAK = re.compile(r"\n(?:(?<=[\w,-]\n)|(?<=[\w,-][ ]\n))(?:>[ ]?){0,3}(?=[^\W_])")
_FIELD = re.compile(r"[\w .'’()/-]{1,30}[:=|\t]")
_OF_MACHINES = re.compile(r"[^\W\d_],\S|[=;|{}\[\]\"<>\t\\]")
_SMALL_WORD = re.compile(r"(?<![\w.@/-])[^\W\d_A-Z][^\W\d_A-Z]{0,30}(?![\w@/-])")
_ANY_WORD = re.compile(r"[^\W_]+")
_GOING_ON = (string.ascii_letters + string.digits + ",-").encode()
_TO_GOING_ON = bytes.maketrans(_GOING_ON, b"w" * len(_GOING_ON))
_FEWEST_WORDS = 3
_WIDEST_LINE = 200
Change = tuple[int, int, str]
"""Characters [start, end) of a text, and what is read in their place."""


class Reading(NamedTuple):
    """A text as it is read. `begins` and `ends` are None when it is the text itself."""

    text: str
    begins: "array[int] | None" = None
    ends: "array[int] | None" = None

    def back(self, spans: Iterable[Span]) -> tuple[Span, ...]:
        """Sorted, disjoint spans of the text as it is, for spans of the text as it was read."""
        if self.begins is None or self.ends is None:
            return resolve_overlaps(spans)
        begins, ends = self.begins, self.ends
        return resolve_overlaps(Span(begins[span.start], ends[span.end - 1], span.kind) for span in spans)


def normalize(text: str) -> Reading:
    """The text as it is read."""
    markup = "<" in text or "&" in text
    wrapped = _wraps(text) if "\n" in text and _may_wrap(text) else []
    if text.isascii() and not markup and not wrapped:
        return Reading(text)
    changes = _changes(text, markup, wrapped)
    if not changes:
        return Reading(text)
    parts: list[str] = []
    begins, ends = array("q"), array("q")
    last = 0
    for start, end, made in [*changes, (len(text), len(text), "")]:
        if start < last:
            continue  # inside of a tag that is gone
        parts += [text[last:start], made]
        begins.extend(range(last, start))
        ends.extend(range(last + 1, start + 1))
        begins.extend([start] * len(made))
        ends.extend([end] * len(made))
        last = end
    return Reading("".join(parts), begins, ends)


@cache
def normalization_digest() -> str:
    """SHA-256 of what decides how texts are read: this module and the version of Unicode."""
    source = resources.files("tacit.policies").joinpath("normalize.py").read_bytes()
    return hashlib.sha256(source + unicodedata.unidata_version.encode()).hexdigest()


def _changes(text: str, markup: bool, wrapped: list[Change]) -> list[Change]:
    """What is read otherwise: its place, and what is read there."""
    changes = [*wrapped]
    if markup:
        changes += [(*match.span(), _read_markup(match)) for match in _MARKUP.finditer(text)]
    if not text.isascii():
        found = _unusual(text).finditer(text)
        changes += [(*match.span(), _read_characters(match)) for match in found if _is_changed(match.group())]
    changes.sort()
    return [(start, end, made) for start, end, made in changes if text[start:end] != made]


def _may_wrap(text: str) -> bool:
    """Whether a line of an ASCII text ends with a letter, a digit, a comma or a hyphen; others are looked at anyway."""
    if not text.isascii():
        return True
    outlined = text.encode().translate(_TO_GOING_ON)
    return outlined.find(b"w\n") >= 0 or outlined.find(b"w \n") >= 0


def _wraps(text: str) -> list[Change]:
    """Line breaks inside of a sentence: a blank is read, or nothing after a hyphen."""
    found = []
    for match in _BREAK.finditer(text):
        start, end = match.span()
        start -= text.startswith(" ", start - 1) if start > 1 else 0
        before, after = text[start - 1 : start], text[end]
        if not (before.isalnum() or before in ("-", ",")) or not _goes_on(text, start, end):
            continue
        if before != "-" or not text[start - 2 : start - 1].isalnum():
            found.append((start, end, " "))
        else:  # a word that was divided, or a number or a double name at its hyphen
            divided = text[start - 2].islower() and after.islower()
            found.append((start - divided, end, ""))
    return found


def _goes_on(text: str, start: int, end: int) -> bool:
    """Whether the line that ends at `start` is prose, and the one that begins at `end` is no field or turn."""
    if _FIELD.match(text, end):
        return False
    begin = max(text.rfind("\n", 0, start) + 1, start - _WIDEST_LINE)
    line = text[begin:start].lstrip("> ")
    if len(_ANY_WORD.findall(line)) < _FEWEST_WORDS or _OF_MACHINES.search(line):
        return False
    return bool(_SMALL_WORD.search(line)) or line.isupper()


def _read_markup(match: re.Match[str]) -> str:
    if match["entity"]:
        meant = html.unescape(match.group())
        return meant if meant == match.group() else _unusual(meant).sub(_read_characters, meant)
    beside = match["dressing"] == "span" and match.string.endswith("</span>", 0, match.start())
    return "\n" if match["block"] else " " if beside and match.group()[1] != "/" else ""


def _read_characters(match: re.Match[str]) -> str:
    found = match.group()
    if not _is_changed(found):
        return found
    if found in _DASHES:
        around = match.string[max(0, match.start() - 1) : match.start()] + match.string[match.end() : match.end() + 1]
        return "-" if any(map(str.isdigit, around)) else found
    return _meaning(found)


@cache
def _meaning(found: str) -> str:
    if found in _HYPHENS:
        return "-"
    if len(found) == 1 and unicodedata.category(found) == "Zs":
        return " "
    return "" if _UNSEEN_ONE.fullmatch(found) else unicodedata.normalize("NFKC", found)


def _unusual(text: str) -> re.Pattern[str]:
    """Matches at least what is read otherwise than it is written, as far as it can occur in `text`."""
    return _MARKED_OR_OTHER if _MARK.search(text) else _OTHER


def _is_changed(found: str) -> bool:
    """Whether a character is read otherwise than it is written; a letter with marks is."""
    return len(found) > 1 or found in _changed()


@cache
def _changed() -> frozenset[str]:
    """Characters that are read otherwise than they are written; found out when a text is not all ASCII."""
    codes = [*range(0x80, 0xD800), *range(0xE000, 0x10000), *range(0x1D400, 0x1D800), *range(0x1F100, 0x1F200)]
    kept = re.compile(f"[{_KEPT}]")
    seen = re.compile(f"[^{_UNSEEN}{_HYPHENS}{_DASHES}]")
    return frozenset(
        character
        for character in map(chr, codes)
        if not seen.match(character)
        or (
            (unicodedata.normalize("NFKC", character) != character or unicodedata.category(character) == "Zs")
            and not kept.match(character)
        )
    )
