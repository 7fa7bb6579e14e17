"""Postal addresses in running text: a house number, a street, and what follows it as far as it goes.

A small grammar is read token by token from every number that could open an address. Street suffixes are those of the
United States Postal Service as `usaddress` lists them; the ends that make a finding sure are a suffix, a state with
its ZIP code, or a British or Canadian postcode.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import usaddress

from tacit.data.records import US_STATES, Range, Span
from tacit.policies.pii.cues import NEVER_A_NAME, words
from tacit.policies.pii.outline import is_followed
from tacit.policies.pii.phrases import Grouped

_STATE_CODES = US_STATES | words("AS GU MP VI FM MH PW AA AE AP")

_STATE_LAST_WORDS = words(
    "alabama alaska arizona arkansas california colorado connecticut delaware florida georgia hawaii idaho illinois "
    "indiana iowa kansas kentucky louisiana maine maryland massachusetts michigan minnesota mississippi missouri "
    "montana nebraska nevada hampshire jersey mexico york carolina dakota ohio oklahoma oregon pennsylvania island "
    "tennessee texas utah vermont virginia washington wisconsin wyoming columbia rico guam"
)

_STATES = frozenset(code.lower() for code in _STATE_CODES) | _STATE_LAST_WORDS

_PLAIN_SUFFIXES = words(
    "street st avenue ave av road rd boulevard blvd lane ln drive dr highway hwy parkway pkwy terrace crescent "
    "turnpike expressway freeway alley"
)

_ELSEWHERE = words(  # in Australia, New Zealand and Britain
    "alleyway amble arcade circuit concourse crossway esplanade foreshore gardens laneway mews nook outlook parade "
    "promenade quadrant quay rise siding strand subway wharf"
)
_SUFFIXES = frozenset(usaddress.STREET_NAMES) - words("is la un te ex mi it est pr un uns in") | _ELSEWHERE
_DIRECTIONS = frozenset(usaddress.DIRECTIONS)
_UNITS = words("apt apartment suite ste unit room rm floor fl bldg building lot box dept flat space no number trlr")
_CONNECTORS = words("of the de la del el los las du des le new old little long great good")
_DOTTED = _PLAIN_SUFFIXES | _SUFFIXES | _UNITS | _DIRECTIONS | words("ft mt sta")

_OPENING = re.compile(
    r"(?<![\w$€£./:-])\d{1,6}[A-Za-z]?(?:-\d{1,5})?(?:\ 1/2)?(?=[ \t]{1,3}(?:[^\W\d_]|\d{1,3}(?:st|nd|rd|th)\b))"
)

_TOKEN = re.compile(
    r"[ \t]{0,3}(?:(?P<word>[^\W\d_][\w'’-]{0,40}\.?)|(?P<comma>,[ \t]{0,3}\n?)|(?P<line>\n)|"
    r"(?P<number>\#?[ ]?\d[\w-]{0,12}|\#[ ]?[A-Za-z][\w-]{0,5}))"
)

_POSTCODE = re.compile(r"[ \t]{0,3}(?:[A-Z]{1,2}\d[A-Z\d]?[ ]?\d[A-Z]{2}|[A-Z]\d[A-Z][ ]?\d[A-Z]\d)\b")
_ZIP = re.compile(r"\d{5}(?:-\d{4})?")

_LAST_LINE = re.compile(
    r"[ \t]{0,8}(?:[^\W\d_][\w.'’-]{0,30}[ ]){1,4}?,?[ ]?[A-Z]{2}[ ]\d{5}\b|"
    r"[ \t]{0,8}[^\W\d_][\w.'’ -]{0,40},[ ]?[A-Z]{2}[ ]\d{5}\b"
)

_UNIT_BEFORE = re.compile(r"\b(?:apt|apartment|suite|ste|unit|flat|room)\.? #?\w{1,6},? $")
_UNIT_ALONE = re.compile(r"(?<!\w)(?:apt|apartment|suite)\.?[ ]#?[ ]?\d[\w-]{0,6}(?!\w)")

_HOME = re.compile(
    r"\b(?:address|live|lives|living|located|ship|deliver|send|sent|moved|stay|staying)\b[^.\n]{0,20}\s$"
)

ADDRESS_SIGNS = {
    "military": words("apo fpo dpo"),
    "apartment": words("apt apartment suite"),
    "po box": words("box obox pobox"),
}
"""Words without which there is no such address to be found."""

NUMBERED = (b" 0", b" #0")
"""What is behind the word for a box that has a number."""

_BOX = re.compile(r"(?<!\w)p\.?[ ]?o\.?[ ]?box[ ]#?\d{1,7}(?!\w)")

_MILITARY = re.compile(
    r"(?<!\w)(?:psc|cmr|unit|uss|usns|usnv|uscgc)[ ][\w .,#'’-]{1,60}?[,\s]{1,3}"
    r"(?:apo|fpo|dpo)[ ,]{1,2}(?:aa|ae|ap)[ ,]{1,2}\d{5}"
    r"(?:-\d{4})?(?!\w)"
)

_STATE_ZIP = re.compile(r"[A-Z]{2},?[ ]\d{5}(?:-\d{4})?(?![\w-])")
_PLACE_BEFORE = re.compile(r"(?:(?<!\w)[^\W\d_a-z][\w.'’-]{0,30}(?:,[ ]?|[ ])){1,5}$")
_PLACE = re.compile(r"[ ,]{0,3}\n?(?:[^\W\d_][\w.'’-]{0,30},?[ ]){1,5}?[A-Z]{2},?[ ]\d{5}(?:-\d{4})?(?!\w)")
_AFTER_HOUSE = re.compile(rb"[Aa]?(?:-|[ \t]{1,3}[Aa?0])")
_INSIDE_NUMBER = (b"A", b"a", b"_", b"$", b".", b"/", b":", b"-")
_STATE_BEFORE = (b"AA ", b"AA, ")
_IN_ZIP = 5
_MOST_IN_HOUSE = 7  # a letter that was misread is among them
_LOOK_BACK = 80
_MOST_TOKENS = 20


def may_be_zip(before: bytes, _: bytes, digits: int) -> bool:
    """Whether a number could be a ZIP code with a state before it."""
    return digits == _IN_ZIP and before.endswith(_STATE_BEFORE)


def may_open(before: bytes, after: bytes, digits: int) -> bool:
    """Whether an address could begin with a number."""
    inside = digits > _MOST_IN_HOUSE or before.endswith(_INSIDE_NUMBER)
    return not inside and _AFTER_HOUSE.match(after) is not None


def find_addresses(
    text: str, folded: str, signs: Grouped, look: bytes, chosen: Mapping[str, Sequence[Range]]
) -> Iterator[Span]:
    """Addresses and parts of addresses; `look` is the outline of the text. Findings may overlap."""
    done = 0
    coded = look.find(b"A0") >= 0
    for start, _ in chosen["zip"]:
        yield from _state(text, start)
    for start, _ in chosen["house"]:
        opening = _OPENING.match(text, start) if start >= done else None
        if opening is None:
            continue
        seen = _read_address(text, opening.end(), coded)
        end = seen.suffix_end
        if not end and seen.capitals_end and _HOME.search(folded[max(0, start - 40) : start]):
            end = seen.capitals_end
        if end:
            before = max(done, start - 20)
            unit = _UNIT_BEFORE.search(folded[before:start])
            yield Span(before + unit.start() if unit else start, end, "ADDRESS")
            done = end
    if "military" in signs:
        yield from (Span(*match.span(), "ADDRESS") for match in _MILITARY.finditer(folded))
    for start, _, _ in signs.get("apartment", ()):
        if unit := _UNIT_ALONE.match(folded, start):
            yield Span(*unit.span(), "ADDRESS")
    if "po box" in signs and is_followed(look, signs["po box"], NUMBERED):
        for match in _BOX.finditer(folded):
            yield Span(match.start(), (_PLACE.match(text, match.end()) or match).end(), "ADDRESS")


def _state(text: str, number: int) -> Iterator[Span]:
    """The town and the state before the ZIP code at `number`."""
    start = number - 3 - text.startswith(",", number - 2)
    match = _STATE_ZIP.match(text, start) if start >= 0 and text[start : start + 2] in _STATE_CODES else None
    if match and not text[start - 1 : start].isalnum():
        line = max(text.rfind("\n", 0, start) + 1, start - _LOOK_BACK)
        place = _PLACE_BEFORE.search(text[line:start])
        yield Span(line + place.start() if place else start, match.end(), "ADDRESS")


@dataclass(slots=True)
class _Reading:
    """How far an address has been read, and what has been seen of it."""

    end: int
    words: int = 0
    capitals: int = 0
    capitals_end: int = 0
    doubtful: bool = False
    suffix_end: int = 0


def _read_address(text: str, start: int, coded: bool) -> _Reading:
    """What follows a house number that ends at `start`: an address if it has a suffix, or if it is announced.

    The street of an announced address is the capitalized words after the number. Postcodes are looked for in a text
    that is `coded`: a digit follows a capital somewhere.
    """
    seen = _Reading(start)
    previous = ""
    for _ in range(_MOST_TOKENS):
        token = _TOKEN.match(text, seen.end)
        if token is None:
            break
        what = token.lastgroup
        if what in ("comma", "line"):
            if token.group().endswith("\n") and not _LAST_LINE.match(text, token.end()):
                break
            seen.end = token.end()
            previous = ","
            continue
        postcode = _POSTCODE.match(text, seen.end) if coded else None
        if postcode and seen.words:
            seen.suffix_end = postcode.end()
            break
        if what == "number":
            number = token["number"].strip("# ")
            if _ZIP.fullmatch(number) and (previous in _STATES or seen.suffix_end):
                seen.suffix_end = token.end()
                break
            if previous not in _UNITS and not token["number"].startswith("#") and not _ordinal(number):
                break
            seen.end = token.end()
            seen.words += _ordinal(number)
            seen.capitals += _ordinal(number)
            if seen.suffix_end and not seen.doubtful:
                seen.suffix_end = seen.end
            previous = "0"
            continue
        word = token["word"].rstrip(".")
        small = word.lower()
        ends_sentence = token["word"].endswith(".") and small not in _DOTTED and len(small) > 1
        if not _read_word(seen, word, small, token.end() - ends_sentence) or ends_sentence:
            break
        previous = small
    return seen


def _read_word(seen: "_Reading", word: str, small: str, end: int) -> bool:
    """Takes one word into the reading; False when the address cannot go on with it."""
    capital = not word[0].islower()
    if not capital and small in NEVER_A_NAME and not (small in _CONNECTORS or small in _STATES or small in _UNITS):
        seen.doubtful = True
        if not seen.suffix_end:
            return False
    is_suffix = small in _SUFFIXES if capital else small in _PLAIN_SUFFIXES
    if seen.words and not seen.suffix_end and is_suffix and (seen.capitals or small in _PLAIN_SUFFIXES):
        seen.suffix_end = end
    elif seen.suffix_end and capital and small not in _UNITS:
        seen.doubtful |= small in NEVER_A_NAME and small not in _STATES
        if not seen.doubtful:
            seen.suffix_end = end
    if capital and not seen.doubtful and small not in NEVER_A_NAME:
        seen.capitals_end = end
    seen.words += 1
    seen.capitals += capital
    seen.end = end
    return True


def _ordinal(number: str) -> bool:
    return number[-2:].lower() in {"st", "nd", "rd", "th"} and number[:-2].isdigit()
