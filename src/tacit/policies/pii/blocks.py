"""Addresses that are told by their postal code, in whatever language the street is: `Storgatan 5, 114 55 Stockholm`.

A street with its number is before the code and a town behind it, or a number, a street and a town are before it.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence

from tacit.data.records import Range, Span
from tacit.policies.pii.cues import phrases
from tacit.policies.pii.phrases import Hit

CAPITAL = r"[^\W\d_a-zß-öø-ÿ]"
"""A letter that is no small one; what is small beyond Latin-1 is among them."""

_WORD = rf"{CAPITAL}[\w.'’-]{{1,30}}"
_LINKS = (
    "de|del|della|delle|dei|di|da|do|dos|das|du|des|la|le|les|las|los|el|van|der|den|of|the|upon|on|in|am|an|im|bei|sur|"
    "sous|nad|pod|na|y|e|et|und|and|utca|út|útja|tér|köz|ulica|ulice|ul.|cesta|trg|náměstí|třída|iela|gatvė|tee|tn|"
    "katu|tie|gate|gata|vei|vej|allé|sok.|cad.|mah.|jalan|nr|no|št."
)
_LINK = rf"(?![A-Z])(?:{_LINKS.replace('.', chr(92) + '.')})"  # few are tried, as most words begin with a capital
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
_SAID = re.compile(r"[^.;\n]{0,20}[\s:]")
_CODE_AND_TOWN = re.compile(
    rf"(?:[A-Z]{{1,3}}-[ ]?)?(?:\d{{4,6}}|\d{{3}}[ ]\d{{2}}|\d{{2}}-\d{{3}}|\d{{5}}-\d{{3}})[ ]{_NAME}(?!\w)"
)
_CODES = (
    r"[A-Z]{1,2}\d[A-Z\d]?[ ]?\d[A-Z]{2}|[A-Z]\d[A-Z][ ]?\d[A-Z]\d|[A-Z]\d[\dW][ ]?[A-Z\d]{4}|\d{3}[ ]\d{3}|\d{5,6}"
    r"|\d{5}-\d{3,4}|(?<=[A-Z],[ ])\d{4}|(?<=[A-Z][ ])\d{4}|(?!19|20)\d{4}"
)
_NUMBER_FIRST = re.compile(
    rf"{_HOUSE}(?:,[ ]?|[ ]|\n)(?={CAPITAL}[\w'’-]{{0,30}}[^\W\d_A-Z])(?:{_NAME})"
    rf"(?:(?:{_GAP}|[ ]?[-–][ ])(?:{_NAME})){{0,4}}"
    rf"(?:{_GAP}|[ ]?[-–][ ]?|[ ])(?:{_CODES})(?![\w-])"
)
_TOWNS = (b" A", b" ?")
_STREETS = (b" A", b" ?", b", A", b", ?", b"\nA", b"\n?", b"/", b"A", b"a", b"-")
_MOST_IN_HOUSE = 4
_BEFORE_HOUSE = frozenset(b"A0?a-/.,$#:")
_NO_HOUSE = re.compile(rb"[-/](?:0{5}|0{1,4}[^0Aa ,\n])|[Aa][^ ,\n/-]")
_WINDOW = 90
_WIDEST_GAP = 16  # more than there can be between the last digit of a house and a postal code
HOME_SIGNS = phrases(
    "address|live|lives|lived|living|moved|moving|located|ship|deliver|send|sent|stay|stays|staying|stayed|resides|residing|"
    "resident|house|home|wohnt|wohne|wohnhaft|wohnen|adresse|habite|vive|vivo|dirección|indirizzo|abita|abito|moro|mora|"
    "endereço|woont|woon|adres"
)
"""Words that say where somebody lives."""

_FIRST_GROUPS = {2: (b"000 ",), 3: (b"00000-", b"00-")}
_COUNTRIES = (b"AAA-", b"AA-", b"A-")


def may_be_block(before: bytes, after: bytes, digits: int) -> bool:
    """Whether a number could be a postal code before a town, or the house number that opens an address."""
    if 1 < digits < 7 and after.startswith(_TOWNS):
        return True
    first = digits <= _MOST_IN_HOUSE and (not before or before[-1] not in _BEFORE_HOUSE)
    return first and after.startswith(_STREETS) and not _NO_HOUSE.match(after)


def may_be_at_home(before: bytes, after: bytes, digits: int) -> bool:
    """The same where somebody lives: there, a house may also be at the end."""
    return (digits <= _MOST_IN_HOUSE and before.endswith(b" ")) or may_be_block(before, after, digits)


def find_blocks(text: str, look: bytes, signs: Sequence[Hit], chosen: Mapping[str, Sequence[Range]]) -> Iterator[Span]:
    """Addresses with a postal code, or where somebody lives; `look` is the outline. Findings may overlap."""
    done = 0
    homes = [end for _, end, _ in signs]
    for start, end in chosen["at home" if homes else "block"]:
        if start < done:
            continue
        if look.startswith(_TOWNS, end) and 1 < end - start < 7:
            yield from _town_behind(text, look, start, end)
        if homes and end - start <= _MOST_IN_HOUSE and look[start - 1 : start] == b" ":
            near = bisect_left(homes, start) - 1
            if near >= 0 and start - homes[near] <= _WINDOW:
                yield from _at_home(text, homes[near], start)
        if end - start <= _MOST_IN_HOUSE and look.startswith(_STREETS, end):
            first = start == 0 or look[start - 1] not in _BEFORE_HOUSE
            block = _NUMBER_FIRST.match(text, start) if first else None
            if block:
                done = block.end()
                yield Span(*block.span(), "ADDRESS")


def _town_behind(text: str, look: bytes, start: int, end: int) -> Iterator[Span]:
    """The address whose code ends at `end`, where a town follows."""
    begin = _code_start(look, start, end)
    if b"0" not in look[max(0, begin - _WIDEST_GAP) : begin]:
        return
    code = _CODE_AND_TOWN.match(text, begin)
    window = max(0, begin - _WINDOW)
    street = _STREET_BEFORE.search(text[window:begin]) if code else None
    if code and street:
        yield Span(window + street.start(), code.end(), "ADDRESS")


def _at_home(text: str, home: int, start: int) -> Iterator[Span]:
    """A street and its number at `start`, behind a word that says where somebody lives and ends at `home`."""
    word = text.rfind(" ", home, start - 1) + 1
    street = _NUMBER_LAST.search(text, home, start + 8) if text[word : word + 1].isupper() else None
    if street and street.end() > start and _SAID.fullmatch(text, home, street.start()):
        yield Span(*street.span(), "ADDRESS")


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
