"""Streets and postal codes of seven languages: the street first, or its number first."""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tacit.data.records import Range, Span, resolve_overlaps
from tacit.policies.pii.addresses import NUMBERED
from tacit.policies.pii.blocks import CAPITAL
from tacit.policies.pii.cues import NAMESAKES, NEVER_A_NAME, name_start, phrases, words
from tacit.policies.pii.outline import is_followed
from tacit.policies.pii.phrases import Grouped, Hit

_HOUSE = r"\d{1,4}(?!\d)(?:[ ]?[a-zA-Z](?!\w))?(?:[-/ ]\d{1,4}(?!\d))?(?:[ ](?:bis|ter)(?!\w))?"
_FLOOR = (
    r"(?:,[ ]?(?:\d{1,2}\.?[oºa]?[ ]?(?:[A-Z](?!\w)|OG|Esq\.?|Dto\.?|dcha|izda|piso|étage|Stock)|ático|n\.o[ ]\d{1,4}"
    r"|\d{1,2}\.(?:[ ]OG|o[ ](?:Esq\.|[A-Z](?!\w)))))?"
)
_WORD = r"[^\W\d_][\w'’.-]{0,30}"

_GERMANIC = re.compile(
    r"(?<!\w)(?:(?-i:[A-ZÀ-Þ])[\w-]{1,30}[ -]){0,2}[^\W\d_][\w-]{0,30}?(?:stra(?:ß|ss)e|str\.|gasse|allee|platz|"
    r"weg|damm|ufer|ring|hof|dreef|baan|"
    rf"straat|laan|gracht|kade|plein|dijk|singel|steeg|5traße|wg)[ ](?:[lI]\d|{_HOUSE}){_FLOOR}",
    re.IGNORECASE,
)

_ROMANCE_TYPES = (
    r"rue|ru|avenue|av\.|avda\.|av|bd|boulevard|allée|impasse|place|quai|chemin|route|cours|square|calle|c/|paseo|"
    r"plaza|carrer|jirón|rambla|glorieta|urbanización|callejón|pasaje|borgo|contrada|cuesta|cañada|"
    r"pasadizo|vial|stretto|rotonda|canale|"
    r"carrera|ronda|camino|via|v1a|viale|vicolo|piazza|piazzale|largo|corso|strada|rua|avenida|travessa|praça|"
    r"alameda|estrada|ul\.|"
    r"laan van|oude|am|an der|auf der|zum|zur"
)
_LINK = r"(?:del?|des|du|las?|les?|della|delle|dei|degli|das?|dos?|d'|l'|el|los|san|santa|van|der|den|alten|neuen)"

_TYPE_FIRST = re.compile(
    rf"(?<!\w)(?:\d{{1,4}}[l\dO]?(?:[ ](?:bis|"
    rf"ter))?,?[ ])?(?:{_ROMANCE_TYPES})[ ](?:{_LINK}[ ']?){{0,3}}(?!(?:and|or|in|on|at|is|was|to|und|et)[ ])"
    rf"{_WORD}(?:[ -](?:{_LINK}[ "
    rf"]){{0,2}}[A-ZÀ-Þ][\w'’.-]{{1,30}}){{0,4}}"
    rf"(?:,?[ ](?:n\.o[ ])?(?:[lI]\d{{1,3}}|\d[\dlO]{{1,3}}(?!\d)|{_HOUSE}){_FLOOR})?",
    re.IGNORECASE,
)
_SURE = ("rue", "avenue", "allée", "impasse", "quai", "calle", "c/", "rua", "avda.", "jirón", "praça", "vicolo",
         "viale", "v1a", "ul.", "piazza")  # fmt: skip
_SURE_TYPES = re.compile(
    rf"(?:\d{{1,4}}[l\dO]?(?:[ ](?:bis|ter))?,?[ ])?(?:{'|'.join(map(re.escape, _SURE))})[ ]", re.IGNORECASE
)
_SURE_OPENINGS = tuple(f"{one} " for one in _SURE if one.isascii())
_CAPITAL = re.compile(r"[A-ZÀ-Þ]")

_POSTCODES = re.compile(
    r"(?<![\w.-])(?:[A-Z]{1,2}\d[A-Z\d]?[ ]\d[A-Z]{2}|[A-Z]\d[A-Z][ -]?\d[A-Z]\d|[A-Z]\d{2}[ ][A-Z\d]{4}|"
    r"\d{4}[ ]?[A-Z]{2}(?=[ ,]|$)|\d{4}[A-Z]{2}(?=[.;?!\n])|"
    r"\d{4}-\d{3})(?![\w-])"
)
_BEFORE_TOWN = re.compile(
    rf"(?<![\w.,/-])(?:[A-Z]{{1,2}}-)?(?:\d[\dOlI]{{3,4}}|l\d{{4}})"
    rf"(?=[ ]{CAPITAL}[^\W\d_][\w1'’-]{{1,30}}(?:[ ,.;?!\n]|$))"
)
_AFTER_TOWN = re.compile(r"(?<=, )\d{5}(?:-\d{4})?(?=[,.;]|$)")
_SUFFIXES_EN = (
    "Street|St|Road|R0ad|Rd|Avenue|Avenu|Ave|Lane|Crescent|Gardens|Terrace|Grove|Row|Close|Court|Ct|Plaza|Place|Boulevard|"
    "Blvd|Drive|Parkway|View|Mews|Square|Hill|Walk|Quay|Trail|Circle|Way|Parade|Esplanade|Highway|Hwy|Turnpike|"
    "Crossing|Ridge|Alley|Heights|Meadows|Manor|Park"
)
_STREETS_EN = re.compile(
    r"(?<![\w$.,])\d{1,5}[A-Za-z]?[ \n](?:[NSEW]\.?[ ])?(?:[^\W\d_][\w'’.-]{1,20}[ \n]){1,3}"
    rf"(?:{_SUFFIXES_EN})(?!\w)"
    r"(?:\.?,?[ ](?:Apt|Suite|Ste|Flat|Unit)\.?[ ]\w{1,6})?",
    re.IGNORECASE,
)
_BOX = re.compile(
    r"(?<!\w)(?:p\.?[ ]?o\.?[ ]?box|postfach|apartado|postbus|casella postale)[ ]#?\d[\d-]{0,10}", re.IGNORECASE
)


_SUFFIXES = (
    "straße", "strasse", "str.", "gasse", "allee", "platz", "weg", "damm", "ufer", "ring", "straat", "laan", "gracht",
    "kade", "plein", "dijk", "singel", "steeg", "traße", "wg", "hof", "dreef", "baan",
)  # fmt: skip
_AFTER_HOUSE = re.compile(rb"[Aa]?[ \n][Aa?]")
_INSIDE_NUMBER = (b"A", b"a", b"_", b"$", b".", b",")
_MOST_IN_HOUSE = 5
_SUFFIX_LAST = (b"a", b"A", b".", b"?")
_AFTER_FOUR = (b" A", b"A", b"-000")
_TOWNS = (b" A", b" ?")
_IN_CODE = frozenset({1, 2, 4, 5})  # digits; one or two only behind a capital
_BEHIND_CODE = (*_AFTER_FOUR, *_TOWNS)
_INSIDE_CODE = frozenset((b"0", b"A", b"a", b"_", b".", b"-"))
_LINKED = re.compile(rf"[ ]{_LINK}[ ']", re.IGNORECASE)
_WORDS = re.compile(r"[^\W\d_]+")
_SUFFIX_ENDS = frozenset(suffix[-2:] for suffix in _SUFFIXES)
_TYPE_SIGNS = frozenset(_ROMANCE_TYPES.replace("\\.", ".").split("|"))
_SUFFIX_SIGNS = frozenset(_SUFFIXES_EN.lower().split("|"))
_BOX_SIGNS = phrases("box|pobox|postfach|apartado|postbus|casella postale")
_SURE_SIGNS = phrases("rue|avenue|allée|impasse|calle|rua|vicolo|viale|piazza|praça|ul.")
STREET_SIGNS = {"type": _TYPE_SIGNS, "suffix": _SUFFIX_SIGNS, "sure type": _SURE_SIGNS, "box": _BOX_SIGNS}
"""Words without which there is no street or box to be found."""

_BACK = 70
_AHEAD = 60
_NEAR = 12
_FLOOR_REACH = 20
_AHEAD_EN = 75
_LONGEST_STREET = 300
_REACH_BARE = 60


def may_end_street(before: bytes, _: bytes, __: int) -> bool:
    """Whether a number could be behind a street's name that ends as `Hauptstr. 5` does."""
    return before[:-1].endswith(_SUFFIX_LAST)


def may_open_street(before: bytes, after: bytes, digits: int) -> bool:
    """Whether a number could be before a street's name."""
    inside = digits > _MOST_IN_HOUSE or before.endswith(_INSIDE_NUMBER)
    return not inside and _AFTER_HOUSE.match(after) is not None


def may_be_postal_code(before: bytes, after: bytes, digits: int) -> bool:
    """Whether a number could be of a postal code."""
    beside = before.endswith((b"A", b", ")) or after.startswith(_BEHIND_CODE) or after[1:].startswith(_TOWNS)
    return digits in _IN_CODE and beside


def find_streets(
    text: str, folded: str, signs: Grouped, look: bytes, chosen: Mapping[str, Sequence[Range]]
) -> Iterator[Span]:
    """Streets with their numbers, boxes and postal codes; `look` is the outline. Findings may overlap."""
    types = sorted([start for start, end, _ in signs["type"] if _opens_name(text, look, end)])
    suffixes = [start for start, _, _ in signs["suffix"]]
    last = 0
    for start, end in chosen["street's end"]:
        if folded[start - 3 : start - 1] in _SUFFIX_ENDS and folded.endswith(_SUFFIXES, 0, start - 1):
            matches = _GERMANIC.finditer(text, max(last, start - _BACK), start + _AHEAD)
            yield from (Span(*match.span(), "ADDRESS") for match in matches)
            last = end
    for start, end in chosen["street"] if suffixes else ():
        if _between(suffixes, end, end + _AHEAD_EN):
            street = _STREETS_EN.match(text, start)
            if street and _CAPITAL.search(street.group()):
                yield Span(*street.span(), "ADDRESS")
    for start, _ in chosen["postal code"]:
        yield from _postal_code(text, look, start)
    yield from _bare(text, signs["suffix"])
    for start in _beside_types(types, look, chosen["any"]) if types else ():
        yield from _beside_type(text, start, types)
    for window in _windows(start for start, _, _ in signs["sure type"]) if "sure type" in signs else ():
        if _has_sure_type(text[slice(*window)]):
            matches = _TYPE_FIRST.finditer(text, *window)
            yield from (Span(*match.span(), "ADDRESS") for match in matches if _SURE_TYPES.match(match.group()))
    if "box" in signs and is_followed(look, signs["box"] + signs["po box"], NUMBERED):
        yield from (Span(*match.span(), "ADDRESS") for match in _BOX.finditer(text))


_BARE = re.compile(rf"(?<![\w@#/-])(?:(?:{CAPITAL}[\w'’.-]{{0,25}}|\d{{1,3}}(?:st|nd|rd|th))[ ]){{1,3}}\Z")
_HOUSE_LAST = re.compile(r"\.?[ ]\d{1,4}[A-Za-z]?(?:[/-]\d{1,4})?(?![\w%$€]|[.,:/-]\d|[ ](?:%|days?|hours?|years?))")
_SURE_SUFFIXES = words("street road rd avenue ave lane blvd boulevard crescent terrace crossing turnpike parkway")
_MOST_BARE = 3
_DOTTED = words("st rd ave ct blvd hwy")


_CORNER = re.compile(r"(?:corner[ ]of[ ]|c/o[ ])(?:(?:\w[\w.'’]*[ ]){1,4}(?:and|&)[ ])?\Z", re.IGNORECASE)


def _corner(text: str, start: int) -> int:
    """Where the address of a corner begins, of which one street begins at `start`."""
    corner = _CORNER.search(text, max(0, start - _REACH_BARE), start)
    return corner.start() if corner else start


def _words_back(text: str, end: int, most: int, least: int) -> int:
    """Where the last `most` words before the blank before `end` begin, but no sooner than at `least`."""
    for _ in range(most + 1):
        end = text.rfind(" ", least, end)
        if end < 0:
            return least
    return end + 1


def _bare(text: str, suffixes: Sequence[Hit]) -> Iterator[Span]:
    """Streets without a number: capitalized words before a capitalized suffix."""
    for start, end, suffix in suffixes:
        if text[start - 1 : start] != " " or not (text[start].isupper() or suffix in _SURE_SUFFIXES):
            continue
        window = _words_back(text, start, _MOST_BARE, max(0, start - _REACH_BARE))
        name = _BARE.search(text[window:start])
        begin = name_start(text, window + name.start(), start) if name else start
        begin = _corner(text, begin) if begin < start else begin
        if begin < start:
            house = _HOUSE_LAST.match(text, end)
            yield Span(
                begin, house.end() if house else end + (suffix in _DOTTED and text.startswith(".", end)), "ADDRESS"
            )


_PLACE_WORD = rf"{CAPITAL}(?:[^\W\d_]|['’-]|\d(?=\d?[^\W\d_A-Z])){{1,25}}"
_SURE_CODE = (
    r"(?:\d{4,6}(?:-\d{3,4})?|\d{8}|(?:[A-Z]{1,2}-)?\d{3}[ ]\d{2,3}|\d{2}-\d{3}|[A-Z]{1,2}\d[A-Z\d]?[ ]?\d[A-Z]{2}|"
    r"[A-Z]\d[A-Z][ ]?\d[A-Z]\d|[A-Z]\d[\dW][ ][A-Z\d]{4})(?!\w)"
)
_CODE = rf"(?:{_SURE_CODE}|(?:[A-Z]{{1,3}}[- ]?)?\d[\dA-Z-]{{1,9}}(?:[ ]\d?[A-Z]{{2,3}}(?!\w))?)"
_PLACE_NAME = rf"{_PLACE_WORD}(?:[ -](?:(?:{_LINK}|am|im|bei|an[ ]der|sur|upon|sul|nel)[ -])?{_PLACE_WORD}){{0,3}}"
_UNIT_WORDS = (
    "apartment|apt|flat|studio|suite|ste|unit|level|room|floor|piso|puerta|portal|escalera|piano|interno|scala|appartamento|"
    "apartamento|apto|appartement|andar|étage|etage|bloque|rd|interior|int|depto|dpto|dto|departamento|edif|edificio|local|"
    "torre|oficina|casa|bloco|lote|quadra|sala|conjunto|bl|sc|ap|block|phase|building|bldg|lot|space|dept|tower|nr|n°|nº|no"
)
_UNIT_BEHIND = re.compile(
    rf"(?:[ ,\n]{{1,3}}(?:{_UNIT_WORDS})\.?[ ]\#?\w{{1,4}}(?!\w)|[ ,]{{0,2}}\#[ ]?\w{{1,5}}(?!\w)|,[ ]s/n(?!\w)"
    r"|[ ]\([A-Z]{2}\))",
    re.IGNORECASE,
)
_UNITS = phrases(_UNIT_WORDS)
_BEFORE_NUMBER = re.compile(r"([a-z]+)\.?[ ](?=[0-9])")
_UNIT_NUMBER = re.compile(rf"(?<!\w)(?:{_UNIT_WORDS})\.?[ ]\d\w{{0,3}}(?!\w)", re.IGNORECASE)
_UNIT_BEFORE = re.compile(
    rf"(?<!\w)(?:(?:{_UNIT_WORDS})\.?[ ](?:\#?\w{{1,6}}[ ,/\n]{{1,2}})?|h\.[ ]?no\.?[ ]|\d{{1,4}}/)$", re.IGNORECASE
)
_MORE = re.compile(
    rf"(?:[ ]?,[ ]{{0,2}}|,?[ ]?\n[ ]{{0,4}}|[ ](?={_SURE_CODE}|{_PLACE_NAME},?[ ]{_SURE_CODE})|(?<=\d)[ ])"
    rf"(?:{_CODE}[ ]{_PLACE_NAME}|{_PLACE_NAME}(?:[ ]{_CODE})?|{_CODE})"
    r"(?:[ ]\([A-Z]{2}\)|[ ]?/[ ]?[A-Z]{2}(?!\w))?(?=[,.;:!?)\n]|$|[ ][a-z(–-])"
)
_NO_PLACES = NEVER_A_NAME - NAMESAKES - words("usa uk us")
_HOUSE_BEFORE = re.compile(
    rf"(?<![\w@#/.'’-])(?:(?:{_UNIT_WORDS})\.?[ ])?(?P<word>{_PLACE_WORD}|\#?\d{{1,5}}[A-Za-z]?)"
    rf"(?:[ ](?:of[ ]|the[ ])?{_PLACE_WORD}){{0,3}},\s\Z"
)
_COMMAS = (", ", ",\n")
_PARTS = ("ADDRESS", "GPE")
_BETWEEN_PARTS = re.compile(r"[ ,.\n#-]{0,4}")
_MOST_PARTS = 8
_REACH = 24
_LONGEST_UNIT = 13
_AFTER_UNIT = (" ", ",", "/", "\n")
_SIGN = re.compile(r"[^\W\d_]{1,20}°?|/")
_UNIT_SIGNS = _UNITS | {"h", "/"}


def whole_addresses(text: str, parts: Sequence[Span]) -> tuple[Span, ...]:
    """The addresses whose parts were found; a part that belongs to the address before it is not looked at again."""
    found: list[Span] = []
    for part in parts:
        if not found or part.end > found[-1].end:
            found.append(_whole_address(text, part))
    return resolve_overlaps(found) if len(found) > 1 else tuple(found)


def _whole_address(text: str, span: Span) -> Span:
    """The address with its flat, and the postal code, town, region and country that follow it."""
    window = max(0, span.start - _REACH)
    near = text[window : span.start]
    told = near.endswith(_AFTER_UNIT) and not _UNIT_SIGNS.isdisjoint(_SIGN.findall(near.lower()))
    before = _UNIT_BEFORE.search(near) if told else None
    start, end = _house_start(text, window + before.start() if before else span.start), span.end
    if cut := _unit_number(text, max(start, end - _LONGEST_UNIT), end + _NEAR):
        end = max(end, cut.end()) if cut.start() < end else end
    for _ in range(_MOST_PARTS):
        part = _UNIT_BEHIND.match(text, end) or _MORE.match(text, end)
        names = _WORDS.findall(part.group()) if part else []
        if part is None or (names and names[0].lower() in _NO_PLACES):
            break
        end = part.end()
    return span._replace(start=start, end=end)


def _unit_number(text: str, start: int, end: int) -> re.Match[str] | None:
    """The first flat with its number in [start, end)."""
    near = text[start:end]
    if near.isascii() and _UNITS.isdisjoint(_BEFORE_NUMBER.findall(near.lower())):
        return None
    return _UNIT_NUMBER.search(text, start, end)


def joined_places(text: str, found: Sequence[Span]) -> tuple[Span, ...]:
    """The findings, with parts of one address that only punctuation keeps apart as one."""
    joined: list[Span] = []
    for span in found:
        last = joined[-1] if joined else None
        if (
            last
            and last.kind in _PARTS
            and span.kind in _PARTS
            and _BETWEEN_PARTS.fullmatch(text, last.end, span.start)
        ):
            joined[-1] = Span(last.start, span.end, "ADDRESS")
        else:
            joined.append(span)
    return tuple(joined)


def _house_start(text: str, start: int) -> int:
    """Where an address begins whose street begins at `start`, with the name or number of the house and a comma."""
    if text[start - 2 : start] not in _COMMAS:
        return start
    window = max(0, start - _REACH_BARE)
    house = _HOUSE_BEFORE.search(text[window:start])
    return window + house.start() if house and house["word"].lower() not in _NO_PLACES else start


def _opens_name(text: str, look: bytes, end: int) -> bool:
    """Whether a capital, a character that is not ASCII, or one of the little words of street names follows a type."""
    return look[end + 1 : end + 2] in (b"A", b"?") or _LINKED.match(text, end) is not None


def _beside_types(types: Sequence[int], look: bytes, numbers: Sequence[Range]) -> set[int]:
    """The numbers near a street type, with a capital (or what is not ASCII) where the street's name can be."""
    found = set()
    for place in types:
        first = bisect_left(numbers, (place - _NEAR + 1, 0))
        for start, end in numbers[first : bisect_left(numbers, (place + _BACK + 1, 0), first)]:
            where = look[min(place, start) : start + _AHEAD if place > start else end + _FLOOR_REACH]
            if b"A" in where or b"?" in where:
                found.add(start)
    return found


def _windows(places: Iterable[int]) -> list[Range]:
    """Disjoint windows around the places, wide enough for a street."""
    windows: list[Range] = []
    for place in places:
        begin, end = max(0, place - _NEAR), place + _LONGEST_STREET
        if windows and begin <= windows[-1][1]:
            begin = windows.pop()[0]
        windows.append((begin, end))
    return windows


def _has_sure_type(near: str) -> bool:
    """Whether a type that is sure has a blank behind it, as streets of that type have; what is not ASCII may have."""
    small = near.lower()
    return not small.isascii() or any(sign in small for sign in _SURE_OPENINGS)


def _between(places: Sequence[int], start: int, end: int) -> bool:
    """Whether one of the sorted places is in [start, end)."""
    at = bisect_left(places, start)
    return at < len(places) and places[at] < end


def _beside_type(text: str, start: int, types: Sequence[int]) -> Iterator[Span]:
    """The street whose type, one of the sorted places `types`, is written near the number at `start`."""
    first = bisect_left(types, start - _BACK)
    for place in types[first : bisect_left(types, start + _NEAR, first)]:
        match = _TYPE_FIRST.match(text, min(place, start), start + _AHEAD)
        if match and start < match.end() and _CAPITAL.search(match.group()):
            yield Span(*match.span(), "ADDRESS")


def _opens_code(look: bytes, start: int) -> bool:
    """Whether a capital is at `start`, and nothing before it that it would belong to."""
    return look[start : start + 1] == b"A" and look[max(0, start - 1) : start] not in _INSIDE_CODE


def _postal_code(text: str, look: bytes, start: int) -> Iterator[Span]:
    """The postal code that the number at `start` is part of: four digits or more, or few beside capitals."""
    before = look[max(0, start - 1) : start]
    offsets = [(_POSTCODES, 1 + two) for two in (0, 1) if _opens_code(look, start - 1 - two)] if before == b"A" else []
    if look.startswith(b"0000", start):
        if look.startswith(_AFTER_FOUR, start + 4):
            offsets.append((_POSTCODES, 0))
        if look.startswith(_TOWNS, start + 4) or look.startswith(_TOWNS, start + 5):
            offsets += [(_BEFORE_TOWN, 0), (_BEFORE_TOWN, 2), (_BEFORE_TOWN, 3)][: 3 if before == b"-" else 1]
        if look.endswith(b", ", 0, start) and look.startswith(b"0", start + 4):
            offsets.append((_AFTER_TOWN, 0))
    for pattern, offset in offsets:
        code = pattern.match(text, start - offset) if offset <= start else None
        if code:
            yield Span(*code.span(), "ADDRESS")
