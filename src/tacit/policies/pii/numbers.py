"""Numbers in groups, addresses of devices, places on the globe: told by their look alone.

These are looked for last, in what no surer finder has taken.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from tacit.data.records import Range, Span
from tacit.policies.pii.codes import Announcements
from tacit.policies.pii.cues import covers, overlaps, phrases
from tacit.policies.pii.outline import solid
from tacit.policies.pii.phrases import Grouped, Hit

_GROUPED = re.compile(
    r"(?<![\w.,$€£+-])[+(]?\(?\d{1,6}\)?(?:(?:[ ./-]{1,2}|(?<=[ ]\d{4})\n(?=\d{4}))\(?\d{1,10}\)?){1,8}"
    r"(?:,?[ ](?:x|ext\.?)[ ]?\d{1,6})?(?![\w%]|[.,]\d)|(?<![\w.,$€£+-])\+\d{1,3}(?:[ ./-]{1,2}\d{2,6}){1,6}"
)
_SPACED_CODE = re.compile(
    r"(?<![\w.,-])(?:[A-Z]{1,5}[ -]?)?\d[A-Z\d]{0,11}(?:[ ./-][A-Z\d]{0,6}\d[A-Z\d]{0,11}){0,8}(?:[ "
    r"-]?[A-Z]{1,3})?(?![\w])"
)
_YEARS = re.compile(r"(?:19|20)\d{2}[ ./-]{1,2}(?:19|20)\d{2}")
_THOUSANDS = re.compile(r"\d{1,3}(?:[. ]\d{3}){1,3}")
_UNIT = re.compile(r"[ ]?(?:€|\$|£|eur|euro|usd|gbp|km|kg|kwh|units|people|shares|miles|m\b|x\b)")
_MAC = re.compile(
    r"(?<![\w:-])(?:[0-9A-Fa-f]{2}([:-])(?:[0-9A-Fa-f]{2}\1){4}[0-9A-Fa-f]{2}|"
    r"[0-9A-Fa-f]{4}(?:\.[0-9A-Fa-f]{4}){2})(?![\w:-])"
)
_DEGREES = r"\d{1,3}(?:\.\d{2,8})?[ ]?°?[ ]?(?:\d{1,2}(?:\.\d{1,4})?['′][ ]?)?(?:\d{1,2}(?:\.\d{1,4})?[\"″][ ]?)?"
_PLACE = re.compile(
    r"(?<![\w.])-?\d{1,2}\.\d{3,8}°?[ ]?[NS]?,[ ]?-?\d{1,3}\.\d{3,8}°?(?:[ ]?[EWO](?!\w))?(?!\w|\.\d)"
    rf"|(?<![\w.]){_DEGREES}[NS][ ,]{{1,2}}{_DEGREES}[EWO](?!\w)|(?<!\w)[NS][ ]{_DEGREES}[ ,]{{0,2}}[EWO][ ]{_DEGREES}"
)
_LATITUDE = re.compile(r"(?<=[\"'_ ])(?:lat|lon|lng|latitude|longitude)[\"']?[ ]?[:=][ ]?[\"']?(-?\d{1,3}\.\d{3,8})")
_CRYPTO = re.compile(r"(?<!\w)(?:0x[0-9a-fA-F]{40}|bc1[a-z0-9]{20,70}|[13LDM][1-9A-HJ-NP-Za-km-z]{25,34})(?!\w)")
_PASSPORT = re.compile(r"(?<![\w-])(?:[A-Z]{1,3}\d{6,9}[A-Z]?|\d{2}[A-Z]{2}\d{5})(?![\w-])")
_BIC = re.compile(r"(?<!\w)(?:bic|swift)\W{1,3}([a-z]{6}[a-z0-9]{2,5})(?!\w)")
DEVICE_SIGNS = {"bank": phrases("bic|swift"), "degree": phrases("lat|lon|lng|latitude|longitude")}
"""Words without which there is no such number to be found."""

_STANDARDS = re.compile(r"(?:ISO|IEC|RFC|DIN|EN|BS|CVE|PSI|HTTP|USB|HDMI|IP|UTF|SHA|MD|AES)[ -]?\d")
_MELTS = frozenset({"CARD", "IBAN", "ID", "ORDER", "PHONE", "SSN", "TRACKING"})
_DIGIT_WORDS = (
    "zero|oh|one|two|three|four|five|six|seven|eight|nine|null|eins|zwei|zwo|drei|vier|fünf|sechs|sieben|acht|neun|zéro|un|"
    "deux|trois|quatre|cinq|sept|huit|neuf|cero|uno|dos|tres|cuatro|cinco|seis|siete|ocho|nueve|due|tre|quattro|cinque|"
    "sei|sette|otto|nove|um|dois|três|quatro|meia|sete|oito|nul|een|één|twee|drie|vijf|zes|zeven|negen|ten|eleven|"
    "twelve|thirteen|fourteen|fifteen|sixteen|seventeen|eighteen|nineteen|twenty|thirty|forty|fifty|sixty|seventy|"
    "eighty|ninety"
)
_TIMES = "double|triple|doppel|doble|triplo|doppio|duplo|dubbel|hundred|thousand"
FIGURES = phrases(f"{_DIGIT_WORDS}|{_TIMES}")
"""Words for figures, in seven languages."""

_SPELLED = re.compile(rf"(?<!\w)(?:(?:{_DIGIT_WORDS}|{_TIMES})(?:[,.]?[ -])){{3,24}}(?:{_DIGIT_WORDS})(?!\w)")
_FEWEST_WORDS = 4
_DOTS = phrases("dot|punto|point|punkt|ponto|punt")
_DOT = f"(?:{'|'.join(sorted(_DOTS, key=lambda dot: (-len(dot), dot)))})"
_SIGNS = "underscore|dash|hyphen|minus|unterstrich|bindestrich|tiret|guion|guión|guion bajo|trattino|hífen|streepje"
_SIGN = rf"(?:{_DOT}|{_SIGNS})"
SPELLED_SIGNS = FIGURES | _DOTS
"""Words without which nothing is spelled out."""

_AT = "(?:at|arroba|chiocciola|arobase|bei|klammeraffe|apenstaartje)(?:[ ]sign)?"
_SPELLED_MAIL = re.compile(
    rf"(?<!\w)[\w-]{{1,30}}(?:[ ]{_SIGN}[ ][\w-]{{1,30}}){{0,3}}[ ]{_AT}[ ][\w-]{{1,30}}"
    rf"(?:[ ]{_SIGN}[ ][\w-]{{1,30}}){{0,2}}(?:[ ]{_DOT}[ ][a-z]{{2,12}}){{1,3}}"
)
_MISREAD_FOR = frozenset("OlI")
_MISREAD = re.compile(r"(?<![^\W\d_])[OlI\d]{0,20}\d[OlI\d]{0,20}(?![^\W\d_])")
_LOOKS_LIKE = str.maketrans("OlI", "011")
_LONG = b"w" * 23
_CAPITALS_BEFORE = re.compile(r"[A-Z]{1,5}[ -]?\Z")
_LONGEST_PREFIX = 6
_CAPITAL_BEFORE = (b"A", b"A ", b"A-")
_GAPS_CAPITAL = (b" A", b"-A", b"/A", b".A")
_CLOSING = frozenset((b"", b" ", b"\n", b".", b",", b"!", b"?"))
_BLANKS = frozenset((b" ", b"\n"))
_BEFORE_GAP = frozenset((b"A", b"0"))
_WIDEST_GAP = 10
_GROUP_GAPS = (b" ", b".", b"/", b"-")
_SEPARATORS = frozenset(" ./-)\n")
_LEAST = 8
_SURE = 9


def may_be_serial(before: bytes, after: bytes, digits: int) -> bool:
    """Whether a number could be that of a passport, or its first part."""
    return (5 < digits < 10 and before.endswith(b"A")) or (digits == 2 and after.startswith(b"AA00000"))


def find_devices(
    text: str, folded: str, signs: Grouped, look: bytes, chosen: Mapping[str, Sequence[Range]]
) -> Iterator[Span]:
    """MAC addresses, coordinates, wallets and passports; `look` is the outline of the text."""
    unbroken = solid(look)
    if unbroken.find(b":ww:ww:ww") >= 0 or unbroken.find(b".wwww.wwww") >= 0:
        yield from (Span(*match.span(), "ID") for match in _MAC.finditer(text))
    if unbroken.find(_LONG) >= 0:
        yield from (Span(*match.span(), "ID") for match in _CRYPTO.finditer(text))
    yield from _serials(text, chosen["serial"])
    if (chosen["decimal"] and look.find(b"0.00") >= 0) or "°" in text:
        yield from _places(text, chosen["any"])
    for pattern, name in ((_BIC, "bank"), (_LATITUDE, "degree")):
        for start, _, _ in signs.get(name, ()):
            if match := pattern.match(folded, start):
                yield Span(*match.span(1), "ID")


def _serials(text: str, numbers: Sequence[Range]) -> Iterator[Span]:
    """Numbers of passports, which begin with two digits, or with letters before their digits."""
    for number, _ in numbers:
        for start in (number - 3, number - 2, number - 1, number):
            match = _PASSPORT.match(text, start) if start >= 0 else None
            if match:
                yield Span(*match.span(), "ID")
                break


def _places(text: str, numbers: Sequence[Range]) -> Iterator[Span]:
    """Coordinates, which begin with a number, or with its sign or the letter of a hemisphere."""
    done = 0
    for number, _ in numbers:
        for start in (number - 2, number - 1, number):
            match = _PLACE.match(text, start) if start >= done else None
            if match:
                done = match.end()
                yield Span(*match.span(), "ID")
                break


def may_be_decimal(_: bytes, after: bytes, __: int) -> bool:
    """Whether a coordinate could begin with a number."""
    return after.startswith(b".00")


def may_be_misread(before: bytes, after: bytes, _: int) -> bool:
    """Whether a letter beside a number could be a figure."""
    return before.endswith((b"A", b"a")) or after.startswith((b"A", b"a"))


def with_figures(text: str, beside_letters: Sequence[Range]) -> str:
    """The text with figures for letters that were misread for them, such as 2O2 and l276; offsets stay true."""
    if any(
        text[start - 1 : start] in _MISREAD_FOR or text[end : end + 1] in _MISREAD_FOR for start, end in beside_letters
    ):
        return _MISREAD.sub(lambda match: match.group().translate(_LOOKS_LIKE), text)
    return text


def find_spelled(folded: str, signs: Sequence[Hit]) -> Iterator[Span]:
    """Numbers and addresses that are spelled out in words."""
    if len(signs) >= _FEWEST_WORDS:
        yield from (Span(*match.span(), "ID") for match in _SPELLED.finditer(folded))
    if any(sign in _DOTS for _, _, sign in signs):
        yield from (Span(*match.span(), "EMAIL") for match in _SPELLED_MAIL.finditer(folded))


def loose_numbers(look: bytes, numbers: Sequence[Range], found: Sequence[Span]) -> list[Range]:
    """The numbers of which a code or groups may be part that are in no finding, or go beyond it.

    Codes and groups that begin inside of a finding end inside of it where blanks and punctuation are around it, and
    no digit is soon behind it; codes that have capitals before or behind them are beside these.
    """
    loose = []
    last, closed = -1, False
    for number in numbers:
        at = bisect_left(found, (number[0] + 1, 0, "")) - 1
        if at < 0 or found[at][1] <= number[0]:
            loose.append(number)
            continue
        if at != last:
            last, closed = at, _is_closed(look, found[at][0], found[at][1])
        if not closed:
            loose.append(number)
    return loose


def _is_closed(look: bytes, start: int, end: int) -> bool:
    return (
        look[end : end + 1] in _CLOSING
        and look[start - 1 : start] in _BLANKS
        and look[start - 2 : start - 1] not in _BEFORE_GAP
        and not look.startswith(b" A", end)
        and look.find(b"0", end, end + _WIDEST_GAP) < 0
    )


def find_groups(
    text: str, folded: str, look: bytes, numbers: Sequence[Range], announcements: Announcements, found: Sequence[Span]
) -> Iterator[Span]:
    """Numbers of many digits that are written in groups, and codes of digits and capitals in groups."""
    claimed = [span for span in found if span.kind not in _MELTS]
    done = 0
    for start, end in numbers:
        if start < done or text[end : end + 1] not in _SEPARATORS or b"0" not in look[end : end + 5]:
            continue
        begin = start - (text[max(0, start - 1) : start] in ("+", "(")) if start else 0
        begin -= text[max(0, begin - 1) : begin] == "+" if begin else 0
        match = _GROUPED.match(text, begin)
        if match and _is_number(match, folded):
            done = match.end()
            if not overlaps(claimed, *match.span()) and not covers(found, *match.span()):
                announced = announcements.before(begin)
                kind = "PHONE" if match.group()[0] in "+(0" else "ID"
                yield Span(*match.span(), announced[0] if announced else kind)
    for match in _spaced_codes(text, look, numbers):
        if covers(found, *match.span()) or overlaps(claimed, *match.span()) or _STANDARDS.match(match.group()):
            continue
        code = match.group()
        digits = sum(map(str.isdigit, code))
        letters = sum(map(str.isalpha, code))
        short = digits >= 2 and letters >= 2 and digits + letters >= 5
        if letters and (
            (short and announcements.before(match.start())) or (digits >= 5 and digits + letters >= _LEAST)
        ):
            yield Span(*match.span(), "ID")


def _spaced_codes(text: str, look: bytes, numbers: Sequence[Range]) -> Iterator[re.Match[str]]:
    """Codes that begin with a number, or with the capitals before it."""
    done = 0
    for number in _beside_capitals(look, numbers):
        starts = [number]
        if look.endswith(_CAPITAL_BEFORE, 0, number):
            capitals = _CAPITALS_BEFORE.search(text, max(done, number - _LONGEST_PREFIX), number)
            starts = [capitals.start(), number] if capitals else starts
        for start in starts:
            match = _SPACED_CODE.match(text, start) if start >= done else None
            if match:
                done = match.end()
                yield match
                break


def _beside_capitals(look: bytes, numbers: Sequence[Range]) -> list[int]:
    """Where the numbers begin that have capitals beside them, or beside the groups that follow them."""
    chosen = []
    following = -1
    for start, end in reversed(numbers):
        if (
            look.endswith(_CAPITAL_BEFORE, 0, start)
            or look.startswith(b"A", end)
            or (look.startswith(_GAPS_CAPITAL, end) and not look.startswith(b"a", end + 2))
            or (following == end + 1 and look.startswith(_GROUP_GAPS, end))
        ):
            chosen.append(start)
            following = start
    chosen.reverse()
    return chosen


def _is_number(match: re.Match[str], folded: str) -> bool:
    return _looks_like_number(match.group()) and not _UNIT.match(folded, match.end())


@lru_cache(maxsize=10_000)
def _looks_like_number(found: str) -> bool:
    groups = re.findall(r"\d+", found)
    digits = sum(map(len, groups))
    if digits < _LEAST or digits > 30 or _YEARS.fullmatch(found):
        return False
    if _THOUSANDS.fullmatch(found) and (digits < _SURE or "." in found) and found[0] != "0":
        return False
    return found[0] in "+(0" or max(map(len, groups)) >= 3
