"""The policy `pii`: personal data in English text, recognized by shape and by the words around it.

Each finder takes time linear in the text: quantifiers are bounded, numbers are tried once where their digits begin,
and what is costly runs only where a cheap sign of it was seen.
"""

import hashlib
import ipaddress
import re
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from importlib.metadata import version
from typing import Any

import phonenumbers

from tacit.data.records import Range, Record, Span, iban_remainder, luhn_remainder, resolve_overlaps
from tacit.errors import ConfigError
from tacit.policies.normalize import normalization_digest, normalize
from tacit.policies.pii.addresses import ADDRESS_SIGNS, find_addresses
from tacit.policies.pii.blocks import HOME_SIGNS, find_blocks
from tacit.policies.pii.casing import recased
from tacit.policies.pii.codes import Announcements, find_codes
from tacit.policies.pii.cues import CUES, covers, fold, overlaps
from tacit.policies.pii.dates import AGE_STRINGS, find_ages, find_dates
from tacit.policies.pii.fields import ENTERING, FIELD_STRINGS, find_fields
from tacit.policies.pii.forms import LABEL_SIGNS, find_forms
from tacit.policies.pii.names import find_names
from tacit.policies.pii.numbers import (
    DEVICE_SIGNS,
    SPELLED_SIGNS,
    find_devices,
    find_groups,
    find_spelled,
    loose_numbers,
    with_figures,
)
from tacit.policies.pii.organizations import (
    NEAR_SIGNS,
    ORGANIZATION_SIGNS,
    find_organizations,
    find_places,
    known_places,
)
from tacit.policies.pii.outline import outline
from tacit.policies.pii.people import NAME_CUES, PEOPLE_STRINGS
from tacit.policies.pii.phrases import Phrases, Strings
from tacit.policies.pii.signatures import choose
from tacit.policies.pii.streets import STREET_SIGNS, find_streets, joined_places, whole_addresses
from tacit.policies.pii.times import TIMES, find_times
from tacit.policies.pii.units import UNIT_SIGNS, find_units
from tacit.policies.policy import Policy, melted

_EMAIL = re.compile(
    r"(?<![\w.+%-])(?:[\w+%][\w.+%'-]{0,127}|\x22[\w. -]{1,60}\x22)@(?:[\w-]{1,63}\.){1,8}[^\W\d_]{2,24}(?!\w)"
)
_AT_HOST = re.compile(r"(?<![\w.@+/:-])\w[\w.+-]{1,60}@[a-z][a-z0-9-]{1,40}(?![\w@:-]|\.\w)")
_SPELLED_EMAIL = re.compile(
    r"[\w+-]{1,40}(?:(?:\.|[ ]?[(\[]dot[)\]][ ]?)[\w-]{1,40}){0,3}[ ]?[(\[]at[)\]][ ]?"
    r"[\w-]{1,40}(?:(?:\.|[ ]?[(\[]dot[)\]][ ]?)[\w-]{2,30}){1,4}"
)
_DOMAINS = "local|internal|lan|com|org|net|edu|gov|mil|info|biz|io|app|dev|co|ly|me|tv|ai"
_COUNTRIES = (
    "de|fr|es|nl|pt|ca|ie|pl|us|ch|uk|au|za|br|mx|eu|se|dk|fi|jp|cz|hu|ro|gr|nz|kr|health|social|shop|online|cloud"
)
_WORDLIKE = "it|at|be|no|to|in|is"
_URL_STRINGS = ("://", "www.", *(f".{one[0]}" for one in f"{_DOMAINS}|{_COUNTRIES}|{_WORDLIKE}".split("|")))
_DOMAIN_SIGN = re.compile(rf"\.(?:{_DOMAINS}|{_COUNTRIES}|{_WORDLIKE})(?![\w-])")

_URL = re.compile(
    rf"""(?<![\w@.-])(?:(?:https?|ftp)://[^\s<>"']{{1,2000}}+|www\.[^\s<>"']{{1,2000}}+
    |(?:(?:[a-zA-Z0-9-]{{1,63}}\.){{1,5}}(?i:{_DOMAINS})(?![\w-])(?:\.[a-z]{{2}}\b)?|(?:[a-z0-9-]{{2,63}}\.){{1,5}}(?:{_COUNTRIES})(?![\w-])
    |(?:[a-z0-9-]{{2,63}}\.){{2,5}}(?:{_WORDLIKE})(?![\w-])|(?:[a-z0-9-]{{2,63}}\.){{1,5}}(?:{_WORDLIKE})(?=/))
    (?::(?=[a-z]))?(?:/?[^\s<>"',;)]{{0,2000}}+)?)""",
    re.VERBOSE,
)

_IPV6_SIGN = re.compile(r":[0-9A-Fa-f]{0,4}:")
_IPV6 = re.compile(r"(?<![\w:.])(?=[0-9A-Fa-f]{0,4}:[0-9A-Fa-f:])[0-9A-Fa-f:]{2,39}(?:\.\d{1,3}){0,3}(?![\w:])")
_PREFIX_LENGTH = re.compile(r"/\d{1,3}(?!\w)")
_IPV4 = re.compile(r"(?<![\w.])((?:\d{1,3}\.){3}\d{1,3})(?!\w|\.\d)(?::\d{1,5})?(?:/\d{1,2}(?!\w))?")
_LONGEST = 38
_FEWEST_IN_PHONE = 8
_IN_SSN = 9
_FIRST_GROUP = 3  # digits that a number of North America begins with
_MOST_REMEMBERED = 10_000
_FEWEST_IN_CARD = 12
_CARD = re.compile(r"(?<![\w.-])\d(?:[ -]?\d){11,18}(?!\w|-\d)")
_IBAN = re.compile(r"(?<!\w)[A-Za-z]{2}\d{2}(?:[ \n-]?[A-Za-z0-9]{4}){2,7}(?:[ \n-]?[A-Za-z0-9]{1,3})?(?!\w)")
_IBAN_LOOK = re.compile(r"[A-Z]{2}\d{2}(?:[ -][A-Z\d]{4}){3,7}(?:[ -][A-Z\d]{1,3})?")
_APART = str.maketrans("", "", " \n-")
_SSN = re.compile(r"(?<![\w-])\d{3}([- ])\d{2}\1\d{4}(?!\w|-\d)")
_EXTENSION = r"(?:[ ,]{0,2}(?:x|ext\.?|extension)[ .:]{0,2}\d{1,7})?"

_PHONE = re.compile(
    r"(?<![\w+])(?<!\w[.-])(?:(?:\+|00)?1[ .-]{0,2})?(?:\(\d{3}\)|\d{3})[ ./-]{0,3}\d{3}[ .-]{0,3}\d{4}"
    rf"{_EXTENSION}(?!\w|[-.]\d)",
    re.IGNORECASE,
)

_PHONE_ABROAD = re.compile(rf"(?<![\w+-])(?:\+|00)[1-9][\d ().-]{{6,20}}\d{_EXTENSION}(?!\w)", re.IGNORECASE)


def find_shapes(
    text: str, folded: str, look: bytes, chosen: Mapping[str, Sequence[Range]], seen: AbstractSet[str]
) -> Iterator[Span]:
    """E-mail and web addresses, and what begins with one of the numbers; `look` is the outline. They may overlap."""
    if "@" in text:
        yield from (Span(*match.span(), "EMAIL") for match in _EMAIL.finditer(text))
        yield from (Span(*match.span(), "EMAIL") for match in _AT_HOST.finditer(text))
    if "(at)" in folded or "[at]" in folded:
        yield from (Span(*match.span(), "EMAIL") for match in _SPELLED_EMAIL.finditer(folded))
    if seen and ("://" in seen or "www." in seen or _DOMAIN_SIGN.search(folded)):
        yield from _urls(text)
    if _IPV6_SIGN.search(text):
        yield from _ipv6(text)
    for start, end in chosen["phone"]:
        digits = look.count(b"0", start, start + _LONGEST)
        if digits >= _FEWEST_IN_PHONE:
            yield from _numbers_at(text, start, end, digits)
    for start, _ in chosen["ip"]:
        yield from _ipv4(text, start)
    for start, _ in chosen["iban"]:
        yield from _iban(text, start - 2)


def _numbers_at(text: str, start: int, end: int, digits: int) -> list[Span]:
    """What begins at the digits from `start` to `end`, or at the bracket, plus or country code before them."""
    found = []
    if card := _CARD.match(text, start) if digits >= _FEWEST_IN_CARD else None:
        if _is_card(card.group()):
            found.append(Span(*card.span(), "CARD"))
    elif ssn := _SSN.match(text, start) if digits >= _IN_SSN and end - start == _FIRST_GROUP else None:
        found.append(Span(*ssn.span(), "SSN"))
    opened = text[start - 1 : start] in ("(", "+")
    if opened or end - start >= _FIRST_GROUP or text[start] == "1":
        phone = _phone(text, start - opened)
        if phone:
            found.append(Span(*phone.span(), "PHONE"))
    return found


def _phone(text: str, start: int) -> re.Match[str] | None:
    """A telephone number: the North American shape, or a possible number of any country written with + or 00.

    Whether a number is in use is not asked: a typing error or an invented number may be as telling as a true one.
    """
    match = _PHONE.match(text, start)
    if match is None and text.startswith(("+", "00"), start):
        abroad = _PHONE_ABROAD.match(text, start)
        match = abroad if abroad and _possible_phone(abroad.group()) else None
    return match


def _possible_phone(candidate: str) -> bool:
    try:
        return phonenumbers.is_possible_number(phonenumbers.parse(re.sub("^00", "+", candidate), None))
    except phonenumbers.NumberParseException:
        return False


def _urls(text: str) -> Iterator[Span]:
    for match in _URL.finditer(text):
        end = match.start() + len(match.group().rstrip(".,;:!?)]}"))
        if end > match.start():
            yield Span(match.start(), end, "URL")


def _ipv4(text: str, start: int) -> Iterator[Span]:
    address = _IPV4.match(text, start)
    if address and all(int(part) < 256 for part in address[1].split(".")):
        yield Span(*address.span(), "IP")


def _ipv6(text: str) -> Iterator[Span]:
    for match in _IPV6.finditer(text):
        candidate = match.group() if match.group().endswith("::") else match.group().rstrip(":")
        with suppress(ValueError):
            ipaddress.IPv6Address(candidate)
            end = match.start() + len(candidate)
            length = _PREFIX_LENGTH.match(text, end)
            yield Span(match.start(), length.end() if length else end, "IP")


def _iban(text: str, start: int) -> Iterator[Span]:
    written = _IBAN.match(text, start)
    length = _length_of_iban(written.group()) if written else 0
    if length:
        yield Span(start, start + length, "IBAN")


@lru_cache(maxsize=_MOST_REMEMBERED)
def _is_card(written: str) -> bool:
    return luhn_remainder(written.translate(_APART)) == 0


@lru_cache(maxsize=_MOST_REMEMBERED)
def _length_of_iban(written: str) -> int:
    """How long an IBAN is, without a word of four letters that may follow it; one in groups may fail its checksum."""
    length = len(written)
    while length > 0 and not _valid_iban(written[:length]):
        length = max(written.rfind(separator, 0, length) for separator in " \n-")
    if length <= 0 and _IBAN_LOOK.fullmatch(written) and sum(map(str.isdigit, written)) >= 10:
        return len(written)
    return max(0, length)


def _valid_iban(written: str) -> bool:
    compact = written.translate(_APART)
    return len(compact) >= 15 and compact.isascii() and iban_remainder(compact) == 1


KINDS = (
    "ADDRESS", "AGE", "CARD", "DATE", "EMAIL", "GPE", "IBAN", "ID", "IP", "NAME", "ORDER", "ORG", "PASSWORD", "PHONE",
    "SSN", "TRACKING", "URL", "USERNAME",
)  # fmt: skip
"""Every kind of personal data this policy tells apart and looks for by default; `TIMES` are to be asked for."""

_NUMBER = re.compile(b"00*")  # begins with a literal, so that it is searched for as one
_NUMBERS = frozenset({"CARD", "PHONE", "SSN"})
_DECIDING = (
    "addresses", "blocks", "casing", "codes", "common_words", "cues", "dates", "fields", "forms", "lexicon", "names",
    "numbers", "organizations", "outline", "people", "phrases", "policy", "signatures", "streets", "times", "units",
)  # fmt: skip
"""The modules whose text decides what is found: a list of patterns would forget one."""


@cache
def _phrases() -> Phrases:
    """All phrases that are looked for, in one automaton: a text is read once for them."""
    return Phrases(
        {
            **CUES,
            "name": NAME_CUES,
            "spelled": SPELLED_SIGNS,
            "organization": ORGANIZATION_SIGNS,
            "home": HOME_SIGNS,
            "place": known_places(),
            "entering": ENTERING,
            "label": LABEL_SIGNS,
            "near": NEAR_SIGNS,
            "unit": UNIT_SIGNS,
            **STREET_SIGNS,
            **ADDRESS_SIGNS,
            **DEVICE_SIGNS,
        },
        longest=CUES,
    )


@cache
def _strings() -> Strings:
    """All rare strings without which something is not looked for."""
    return Strings((*_URL_STRINGS, *AGE_STRINGS, *FIELD_STRINGS, *PEOPLE_STRINGS))


@dataclass(frozen=True)
class Pii(Policy):
    """Personal data of the chosen kinds; years and clock times only if they are among them.

    All other kinds are always looked for, and the chosen ones returned, so that the kind of a finding does not depend
    on which others were asked for. A year or a time is found where nothing else is.

    G1. Time is linear in the length of the text, whatever the text.
    G2. `Pii(kinds)` finds exactly the spans of `Pii(KINDS + TIMES)` whose kind is among `kinds`.
    """

    kinds: tuple[str, ...] = KINDS
    public = True

    def __post_init__(self) -> None:
        for kind in self.kinds:
            if kind not in KINDS + TIMES:
                raise ConfigError.unknown_name("kind of personal data", kind, KINDS + TIMES)
        if not self.kinds:
            raise ConfigError(
                expected="at least one kind of personal data",
                found="none",
                way_out=f"choose among {', '.join(KINDS + TIMES)}",
            )
        object.__setattr__(self, "kinds", tuple(sorted(set(self.kinds))))

    @property
    def id(self) -> str:
        return "pii" if self.kinds == KINDS else f"pii:{'+'.join(self.kinds)}"

    def content(self) -> Any:  # noqa: ANN401
        return {
            "pii": self.kinds,
            "source": _source_digest(),
            "reading": normalization_digest(),
            "libraries": {name: version(name) for name in ("faker", "phonenumbers", "usaddress")},
        }

    def find(self, record: Record) -> tuple[Span, ...]:
        reading = normalize(record.text)
        found = _find_all(reading.text)
        if self.kinds == KINDS:
            return found if reading.begins is None else reading.back(found)
        times = [span for span in find_times(reading.text, self.kinds) if not overlaps(found, span.start, span.end)]
        return tuple(span for span in reading.back((*found, *times)) if span.kind in self.kinds)


@cache
def _source_digest() -> str:
    folder = resources.files("tacit.policies.pii")
    return hashlib.sha256(b"".join(folder.joinpath(f"{name}.py").read_bytes() for name in _DECIDING)).hexdigest()


def _find_all(text: str) -> tuple[Span, ...]:
    folded = fold(text)
    hits = _phrases().find(folded)
    seen = _strings().seen(folded)
    announcements = Announcements(text, folded, hits["code"])
    look = outline(text)
    numbers = _numbers(look)
    plain = chosen = choose(look, numbers)
    figures = with_figures(text, chosen["misread"])
    figured = look
    if figures is not text:
        figured = outline(figures)
        numbers = _numbers(figured)
        plain, chosen = choose(look, numbers), choose(figured, numbers)
    cased = recased(text, look)
    cased_figures = cased if figures is text else recased(figures, figured)
    cased_look = figured if cased_figures is figures else outline(cased_figures)
    cased_chosen = chosen if cased_look is figured else choose(cased_look, numbers)
    streets = find_streets(cased_figures, folded, hits, cased_look, cased_chosen)
    blocks = find_blocks(cased_figures, figured, hits["home"], chosen)
    units = find_units(cased, look, hits["unit"])
    parts = resolve_overlaps((*find_addresses(cased, folded, hits, look, plain), *streets, *blocks, *units))
    addresses = whole_addresses(cased, parts) if parts else ()
    dates = find_dates(figures, folded, hits["date"], chosen["date"])
    shaped = [
        *find_shapes(figures, folded, figured, chosen, seen),
        *dates,
        *find_devices(text, folded, hits, look, plain),
        *find_spelled(folded, hits["spelled"]),
    ]
    if addresses:
        shaped = [span for span in shaped if not covers(addresses, span.start, span.end)]
    shaped = [_announced(span, announcements) if span.kind in _NUMBERS else span for span in shaped]
    fields = find_fields(text, folded, look, hits["field"], hits["entering"], seen)
    found = resolve_overlaps((*shaped, *addresses, *fields, *find_ages(cased, folded, hits["age"], plain["age"], seen)))
    numbers = loose_numbers(figured, numbers, found)
    codes = find_codes(text, look, numbers, announcements, found)
    names = find_names(text, folded, look, hits["name"], hits["person"], addresses, seen)
    if cased is not text:
        names += find_names(cased, folded, outline(cased), hits["name"], hits["person"], addresses, seen)
    others = (*find_organizations(cased, hits["organization"]), *find_places(cased, hits["place"], hits["near"]))
    if "label" in hits:
        others += tuple(find_forms(cased, hits["label"]))
    found = resolve_overlaps((*found, *codes, *names, *others))
    if addresses:
        found = joined_places(cased, found)
    numbers = loose_numbers(figured, numbers, found)
    groups = tuple(find_groups(figures, folded, figured, numbers, announcements, found)) if numbers else ()
    return melted(groups, found) if groups else found


def _numbers(look: bytes) -> list[Range]:
    return [match.span() for match in _NUMBER.finditer(look)]


def _announced(span: Span, announcements: Announcements) -> Span:
    """The span with the kind that the words around a number tell, which is surer than its shape."""
    announced = announcements.after(span.end) or announcements.before(span.start)
    if announced and (announced[1] or span.kind != "PHONE"):
        return span._replace(kind=announced[0])
    return span
