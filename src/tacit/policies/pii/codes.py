"""Order, tracking and identity numbers: codes told by the word before them or by their look.

A code's kind comes from the nearest cue before it: in the same turn, or in the turn before when that one asked.
A cue is strong when it names a number ("order number", "ID:", "tracking #"); a weak cue asks more of the code.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import pairwise

from tacit.data.records import Range, Span
from tacit.policies.pii.cues import CODE_CUES, COMMON_PAIRS, Cue, covers, phrases, words

_CODE = re.compile(
    r"(?<![$€£@.])(?<!\d,)[-_/]{0,2}[A-Za-z0-9]{1,200}+(?:[-_/][A-Za-z0-9]{1,200}+){0,12}+(?![@%]|[.:]\d|,\d{3}(?!\d))"
)
_SPACED = re.compile(r"(?:[A-Z]{0,4}\d[A-Z\d]{0,11})(?:[ -][A-Z\d]{0,6}\d[A-Z\d]{0,11}){1,8}(?!\w)")
_LOOSE_PHONE = re.compile(r"\d(?:[ ().-]{0,2}\d){6,14}(?!\w)")
_LETTERS_SIGN = b"A" * 7
_CAPITALS = re.compile(_LETTERS_SIGN + b"A*")
_LETTERS = re.compile(r"\b[A-Z]{7,24}\b")
_STRONG = re.compile(r"\s{0,2}(?:'s\s)?(?:number|numbers|num|no\b\.?|nr\b|id\b|code|reference|ref\b|#|:|=)")
_NAMED_AFTER = re.compile(r"\s(?:is|was|are|will be|would be)\s(?:the|your|my|our|its|his|her)?\s?(?:new\s)?")

_AMOUNT = re.compile(
    r"\d{1,4}(?:st|nd|rd|th|am|pm|s|x|k|m|gb|mb|tb|mg|ml|kg|lb|lbs|oz|cm|mm|km|ft|in|min|mins|hrs?|days?|usd|eur)",
    re.IGNORECASE,
)

_ALWAYS_STRONG = phrases(
    "id|pin|ssn|social security|zip|zip code|zipcode|postal code|postcode|passcode|tracking|passport|pnr|vin|phone|"
    "telephone|mobile|cell|cellphone|fax|tel|whatsapp|landline|uid|mrn|nhc|nass|historia clínica"
)

_GENERIC = words("id code codes reference ref record file pin")
_PERSONS = words("customer employee member patient student")
_CODE_CHARACTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_/"
_OF_CODES = frozenset((b"0", b"A", b"a", b"-", b"_", b"/", b"#"))
_MOST_COMMON_PAIRS = 0.55
_MOST_BEFORE_DIGIT = 60
_STRONG_REACH = 70
_WEAK_REACH = 30
_REPLY_REACH = 200
Announcement = tuple[str, bool]
"""The kind a cue announces, and whether the cue is strong."""


_CodeCue = tuple[int, int, str, bool]
"""Where a cue is, what it announces, and whether it is strong."""


class Announcements:
    """The code cues of one text, to be asked for the nearest one before a place."""

    def __init__(self, text: str, folded: str, cues: Sequence[Cue]) -> None:
        self._text = text
        self.cues: list[_CodeCue] = []
        last, kind = 0, ""
        for start, end, cue in cues:
            strong = cue in _ALWAYS_STRONG
            if cue in _GENERIC and self.cues and 0 < start - last <= 2:
                strong = True
            else:
                kind = CODE_CUES[cue]
            if not strong and _STRONG.match(folded, end):
                strong = cue not in _PERSONS or not folded.startswith(":", end)
            self.cues.append((start, end, kind, strong))
            last = end

    def before(self, place: int) -> Announcement | None:
        """What announces `place`: the nearest strong cue of its turn, else a weak one, else a strong one before it."""
        weak: Announcement | None = None
        for at in range(bisect_left(self.cues, (place, 0, "", False)) - 1, -1, -1):
            _, end, kind, strong = self.cues[at]
            distance = place - end
            lines = self._text.count("\n", end, place) if distance <= _REPLY_REACH else 2
            if lines > 1 or (lines and weak):
                break
            if strong and (lines or distance <= _STRONG_REACH):
                return kind, True
            if weak is None and not lines and distance <= _WEAK_REACH:
                weak = (kind, False)
        return weak

    def after(self, place: int) -> Announcement | None:
        """Kind of the cue that says afterwards what ends at `place`: `X is your tracking number`."""
        named = _NAMED_AFTER.match(self._text, place)
        at = bisect_left(self.cues, (named.end(), 0, "", False)) if named else len(self.cues)
        if named and at < len(self.cues) and self.cues[at][0] == named.end():
            return self.cues[at][2:]
        return None


def find_codes(
    text: str, look: bytes, numbers: Sequence[Range], announcements: Announcements, claimed: Sequence[Span]
) -> Iterator[Span]:
    """Codes that are not part of a surer finding; `look` is the outline of the text."""
    done = 0
    phones = any(kind == "PHONE" for _, _, kind, _ in announcements.cues)
    for number, end in numbers:
        if number < done or (end - number < 3 and not phones and _is_short(look, number, end)):
            continue
        first = max(done, number - _MOST_BEFORE_DIGIT)
        start = first + len(text[first:number].rstrip(_CODE_CHARACTERS))
        match = _CODE.match(text, start)
        if match is None or covers(claimed, start, match.end()):
            continue
        done = match.end()
        kind = _kind(match.group(), text, start, announcements)
        if kind:
            start -= text[start - 1 : start] == "#"
            yield Span(start, _spaced_end(text, start, match.end(), kind), kind)
        elif (phone := _LOOSE_PHONE.match(text, start)) and announcements.before(start) == ("PHONE", True):
            yield Span(*phone.span(), "PHONE")
    if look.find(_LETTERS_SIGN) >= 0:
        for _, end, announced, strong in announcements.cues:
            if strong and announced in ("ORDER", "TRACKING", "ID"):
                yield from _letters_after(text, end, announced)
        yield from _letter_codes(text, look, announcements)


def _is_short(look: bytes, start: int, end: int) -> bool:
    """Whether one or two digits are all that a code could be made of."""
    return look[start - 1 : start] not in _OF_CODES and look[end : end + 1] not in _OF_CODES


def _kind(code: str, text: str, start: int, announcements: Announcements) -> str | None:
    digits = sum(map(str.isdigit, code))
    letters = sum(map(str.isalpha, code))
    short = digits < 3 and len(code) < 5 and not (digits == 2 and len(code) == 4 and code.isupper())
    if short or (letters and _AMOUNT.fullmatch(code)):
        return None
    announced = announcements.after(start + len(code)) or announcements.before(start)
    if announced:
        kind, strong = announced
        if kind == "PHONE":
            return "PHONE" if digits >= 7 and letters < 2 else _kind_by_look(code, digits, letters)
        if kind in ("CARD", "SSN") and digits < 4:
            return None
        if strong or digits >= 5 or (letters and digits and (len(code) >= 6 or digits >= 3)):
            return kind
    if start and text[start - 1] == "#" and digits >= 3:
        return "ID"
    return _kind_by_look(code, digits, letters)


def _kind_by_look(code: str, digits: int, letters: int) -> str | None:
    """The kind of a code that nothing announces: only long and odd ones are taken for secrets."""
    if not letters:
        if digits >= 9 and not code.isdigit():
            return "ORDER"
        return None if digits < 8 else "ID" if digits < 12 else "TRACKING"
    length = digits + letters
    if length < 8:
        return None
    if code.upper() == code or digits >= 4:
        return "TRACKING"
    switches = sum(before.isdigit() != after.isdigit() for before, after in pairwise(code))
    return "TRACKING" if digits >= 2 and switches >= 3 else None


def _spaced_end(text: str, start: int, end: int, kind: str) -> int:
    """Where a code ends that is written in groups with spaces between them."""
    if kind == "PHONE" or text[end : end + 1] != " ":
        return end
    spaced = _SPACED.match(text, start)
    return max(end, spaced.end()) if spaced else end


def _letters_after(text: str, end: int, kind: str) -> Iterator[Span]:
    """Codes that happen to hold no digit, such as AGZIMWTUKL: after a strong cue, or in the reply to it."""
    turn_and_reply = text[end : end + _REPLY_REACH].split("\n", 2)[:2]
    stop = end + len("\n".join(turn_and_reply))
    match = _LETTERS.search(text, end, stop)
    if match and not text[end:stop].isupper():
        yield Span(*match.span(), kind)


def _letter_codes(text: str, look: bytes, announcements: Announcements) -> Iterator[Span]:
    """Codes of letters alone, among words in lower case: named by a cue after them, or unlike any word."""
    for capitals in _CAPITALS.finditer(look):
        match = _LETTERS.match(text, capitals.start())
        if match is None:
            continue
        named = announcements.after(match.end())
        code = match.group().lower()
        common = sum(first + second in COMMON_PAIRS for first, second in pairwise(code))
        odd = len(code) > 7 and common <= _MOST_COMMON_PAIRS * (len(code) - 1)
        around = text[max(0, match.start() - 40) : match.start()] + text[match.end() : match.end() + 40]
        if (named or odd) and not around.isupper():
            yield Span(*match.span(), named[0] if named else "TRACKING")
