"""Numbers in groups, addresses of devices, places on the globe: told by their look alone.

These are looked for last, in what no surer finder has taken.
"""

import re
from collections.abc import Iterator, Sequence

from tacit.data.records import Span
from tacit.policies.pii.codes import Announcements
from tacit.policies.pii.cues import overlaps

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
_STANDARDS = re.compile(r"(?:ISO|IEC|RFC|DIN|EN|BS|CVE|PSI|HTTP|USB|HDMI|IP|UTF|SHA|MD|AES)[ -]?\d")
_MELTS = frozenset({"CARD", "IBAN", "ID", "ORDER", "PHONE", "SSN", "TRACKING"})
_DIGIT_WORDS = "zero|oh|one|two|three|four|five|six|seven|eight|nine"
_SPELLED = re.compile(rf"(?<!\w)(?:(?:{_DIGIT_WORDS}|double|triple)(?:,?[ -])){{3,24}}(?:{_DIGIT_WORDS})(?!\w)")
_DOT = "(?:dot|punto|point|punkt|ponto|punt)"
_SPELLED_MAIL = re.compile(
    rf"(?<!\w)[\w-]{{1,30}}(?:[ ]{_DOT}[ ][\w-]{{1,30}}){{0,3}}[ ](?:at|arroba|chiocciola|arobase|bei)[ ][\w-]{{1,30}}"
    rf"(?:[ ]{_DOT}[ ][a-z]{{2,12}}){{1,3}}"
)
_MISREAD_SIGN = re.compile(r"\d[OlI]|[OlI]\d")
_MISREAD = re.compile(r"(?<![^\W\d_])[OlI\d]{0,20}\d[OlI\d]{0,20}(?![^\W\d_])")
_LOOKS_LIKE = str.maketrans("OlI", "011")
_MAC_SIGN = re.compile(r"[:.-][0-9A-Fa-f]{2,4}[:.-][0-9A-Fa-f]{2}")
_PLACE_SIGN = re.compile(r"°|\d\.\d{2}")
_LONG = re.compile(r"\w{23}")
_SERIAL = re.compile(r"\d{5}")
_LEAST = 8
_SURE = 9


def find_devices(text: str, folded: str) -> Iterator[Span]:
    """MAC addresses, coordinates, wallets and passports."""
    signs = ((_MAC, _MAC_SIGN), (_PLACE, _PLACE_SIGN), (_CRYPTO, _LONG), (_PASSPORT, _SERIAL))
    for pattern, sign in signs:
        if sign.search(text):
            yield from (Span(*match.span(), "ID") for match in pattern.finditer(text))
    if "bic" in folded or "swift" in folded:
        yield from (Span(*match.span(1), "ID") for match in _BIC.finditer(folded))
    if "lat" in folded or "lon" in folded or "lng" in folded:
        yield from (Span(*match.span(1), "ID") for match in _LATITUDE.finditer(folded))


def with_figures(text: str) -> str:
    """The text with figures for letters that were misread for them, such as 2O2 and l276; offsets stay true."""
    if not _MISREAD_SIGN.search(text):
        return text
    return _MISREAD.sub(lambda match: match.group().translate(_LOOKS_LIKE), text)


def find_spelled(folded: str) -> Iterator[Span]:
    """Numbers and addresses that are spelled out in words."""
    if sum(map(folded.count, _DIGIT_WORDS.split("|"))) > 3:
        yield from (Span(*match.span(), "ID") for match in _SPELLED.finditer(folded))
    if any(word in folded for word in (" dot ", " punto ", " point ", " punkt ", " ponto ", " punt ")):
        yield from (Span(*match.span(), "EMAIL") for match in _SPELLED_MAIL.finditer(folded))


def find_groups(
    text: str, folded: str, numbers: Sequence[int], announcements: Announcements, found: Sequence[Span]
) -> Iterator[Span]:
    """Numbers of many digits that are written in groups, and codes of digits and capitals in groups."""
    claimed = [span for span in found if span.kind not in _MELTS]
    done = 0
    for start in numbers:
        if start < done:
            continue
        begin = start - (text[max(0, start - 1) : start] in ("+", "(")) if start else 0
        begin -= text[max(0, begin - 1) : begin] == "+" if begin else 0
        match = _GROUPED.match(text, begin)
        if match and _is_number(match, folded):
            done = match.end()
            if not overlaps(claimed, *match.span()):
                announced = announcements.before(begin)
                look = "PHONE" if match.group()[0] in "+(0" else "ID"
                yield Span(*match.span(), announced[0] if announced else look)
    for match in _SPACED_CODE.finditer(text):
        code = match.group()
        digits = sum(map(str.isdigit, code))
        letters = sum(map(str.isalpha, code))
        if not letters or _STANDARDS.match(code) or overlaps(claimed, *match.span()):
            continue
        short = digits >= 2 and letters >= 2 and digits + letters >= 5
        if (short and announcements.before(match.start())) or (digits >= 5 and digits + letters >= _LEAST):
            yield Span(*match.span(), "ID")


def _is_number(match: re.Match[str], folded: str) -> bool:
    found = match.group()
    groups = re.findall(r"\d+", found)
    digits = sum(map(len, groups))
    if digits < _LEAST or digits > 30 or _YEARS.fullmatch(found):
        return False
    if _THOUSANDS.fullmatch(found) and (digits < _SURE or "." in found) and found[0] != "0":
        return False
    if _UNIT.match(folded, match.end()):
        return False
    return found[0] in "+(0" or max(map(len, groups)) >= 3
