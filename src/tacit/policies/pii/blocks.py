"""Addresses that are told by their postal code, in whatever language the street is: `Storgatan 5, 114 55 Stockholm`.

A street with its number is before the code and a town behind it, or a number, a street and a town are before it.
"""

import re
from collections.abc import Iterator, Sequence

from tacit.data.records import Range, Span

CAPITAL = r"[^\W\d_a-zß-öø-ÿ]"
"""A letter that is no small one; what is small beyond Latin-1 is among them."""

_WORD = rf"{CAPITAL}[\w.'’-]{{1,30}}"
_LINKS = (
    "de|del|della|delle|dei|di|da|do|dos|das|du|des|la|le|les|las|los|el|van|der|den|of|the|upon|on|in|am|an|im|bei|sur|"
    "sous|nad|pod|na|y|e|et|und|and|utca|út|útja|tér|köz|ulica|ulice|ul.|cesta|trg|náměstí|třída|iela|gatvė|tee|tn|"
    "katu|tie|gate|gata|vei|vej|allé|sok.|cad.|mah.|jalan|nr|no|št."
)
_LINK = rf"(?:{_LINKS.replace('.', chr(92) + '.')})"
_TYPES = r"(?:ul\.|ulica|al\.|aleja|aleea|os\.|plac|pl\.|strada|str\.|bd\.|bulevardul|calea|via|rua|calle|rue|trg|jl\.)"
_NAME = rf"{_WORD}(?:[ -](?:{_LINK}[ ]){{0,2}}{_WORD}){{0,3}}"
_HOUSE = r"\d{1,4}[A-Za-z]?(?:[ ]?[-/][ ]?\d{1,4}[A-Za-z]?)?(?:[ ][A-Za-z](?!\w))?"
_GAP = r"(?:[ ]?,[ ]?\n?|[ ]?\n|[ ])[ ]{0,4}"  # a line break inside of a sentence was read as a blank

_STREET_BEFORE = re.compile(
    rf"(?<![\w-])(?:{_TYPES}[ ])?{_WORD}(?:[ -](?:{_WORD}|{_LINK})){{0,4}},?[ ](?:n[rº°o]\.?[ ]?)?{_HOUSE}\.?{_GAP}$"
)
_NUMBER_LAST = re.compile(
    rf"(?<![\w-])(?:{_TYPES}[ ])?{_WORD}(?:[ -](?:{_WORD}|{_LINK})){{0,3}}[ ]{_HOUSE}(?![\w%€$]|[.,:]\d|-\d)"
)
_HOME = re.compile(
    r"\b(?:address|lives?|lived|living|moved|moving|located|ship|deliver|sent?|stays?|staying|stayed|resid\w{2,4}|house|home|"
    r"wohn\w{1,3}|adresse|habite|vive|vivo|dirección|indirizzo|abit\w{1,3}|moro|mora|endereço|woon\w?|adres)\b"
    r"[^.;\n]{0,20}[\s:]\Z",
    re.IGNORECASE,
)
_CODE_AND_TOWN = re.compile(
    rf"(?:[A-Z]{{1,3}}-[ ]?)?(?:\d{{4,6}}|\d{{3}}[ ]\d{{2}}|\d{{2}}-\d{{3}}|\d{{5}}-\d{{3}})[ ]{_NAME}(?!\w)"
)
_CODES = (
    r"[A-Z]{1,2}\d[A-Z\d]?[ ]?\d[A-Z]{2}|[A-Z]\d[A-Z][ ]?\d[A-Z]\d|[A-Z]\d[\dW][ ]?[A-Z\d]{4}|\d{3}[ ]\d{3}|\d{5,6}"
    r"|\d{5}-\d{3,4}|(?<=[A-Z],[ ])\d{4}|(?<=[A-Z][ ])\d{4}|(?!19|20)\d{4}"
)
_NUMBER_FIRST = re.compile(
    rf"{_HOUSE}(?:,[ ]?|[ ]|\n)(?:{_NAME})(?:(?:{_GAP}|[ ]?[-–][ ])(?:{_NAME})){{0,4}}"
    rf"(?:{_GAP}|[ ]?[-–][ ]?|[ ])(?:{_CODES})(?![\w-])"
)
_TOWNS = (b" A", b" ?")
_STREETS = (b" A", b" ?", b", A", b", ?", b"\nA", b"\n?")
_BEFORE_HOUSE = frozenset(b"A0?a-/.,$#:")
_WINDOW = 90
_FIRST_GROUPS = {2: (b"000 ",), 3: (b"00000-", b"00-")}
_COUNTRIES = (b"AAA-", b"AA-", b"A-")


def find_blocks(text: str, look: bytes, numbers: Sequence[Range]) -> Iterator[Span]:
    """Addresses with a postal code; `look` is the outline of the text. Findings may overlap."""
    done = 0
    for start, end in numbers:
        if look.startswith(_TOWNS, end) and start >= done:
            yield from _town_behind(text, look, start, end)
        if end - start <= 4 and look[start - 1 : start] == b" " and start >= done:
            yield from _at_home(text, start)
        if look.startswith(_STREETS, end) or look[end : end + 1] in (b"/", b"A", b"a", b"-"):
            first = start == 0 or look[start - 1] not in _BEFORE_HOUSE
            block = _NUMBER_FIRST.match(text, start) if first and start >= done else None
            if block:
                done = block.end()
                yield Span(*block.span(), "ADDRESS")


def _town_behind(text: str, look: bytes, start: int, end: int) -> Iterator[Span]:
    """The address whose code ends at `end`, where a town follows."""
    begin = _code_start(look, start, end)
    code = _CODE_AND_TOWN.match(text, begin)
    window = max(0, begin - _WINDOW)
    street = _STREET_BEFORE.search(text[window:begin]) if code else None
    if code and street:
        yield Span(window + street.start(), code.end(), "ADDRESS")


def _at_home(text: str, start: int) -> Iterator[Span]:
    """A street and its number at `start`, where the sentence says that somebody lives there."""
    word = text.rfind(" ", max(0, start - 32), start - 1) + 1
    if not text[word : word + 1].isupper():
        return
    window = max(0, start - _WINDOW)
    street = _NUMBER_LAST.search(text[window : start + 8])
    if street and _HOME.search(text[max(0, window + street.start() - 40) : window + street.start()]):
        yield Span(window + street.start(), window + street.end(), "ADDRESS")


def _code_start(look: bytes, start: int, end: int) -> int:
    """Where a code begins whose last digits are [start, end): with its first group, and the letters of a country."""
    for group in _FIRST_GROUPS.get(end - start, ()):
        if look.endswith(group, 0, start):
            start -= len(group)
            break
    for country in _COUNTRIES:
        if look.endswith(country, 0, start):
            return start - len(country)
    return start
