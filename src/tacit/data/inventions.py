"""Random stand-ins for secrets: same kind, same shape, other content.

Used to ask whether a mask depends on what a secret says, so a stand-in must look like its kind to any sensible
detector: card numbers keep their issuer and a valid Luhn digit, IBANs their country and valid check digits, telephone
numbers their prefix, names and streets come from lists. Every other kind keeps its shape character by character.

G1. The stand-in differs from the original, unless the original holds nothing that can vary (no letter, no digit).
G2. The stand-in is a function of kind, original and the random stream alone.

Invented secrets are made from the kind and public examples alone. A model that reads them where the true ones were
learns their form, and what is around them, for free: nothing of a true secret decides what is invented.

G3. What is invented is a function of the kind, the examples and the random stream; no corpus is read.
"""

import random
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from functools import cache

from faker import Factory, Generator
from faker.providers.person.en_US import Provider as _People

from tacit.data.records import US_STATES, common_kind, iban_remainder, luhn_remainder

Maker = Callable[[str, random.Random], str]
_DRAWS = 64  # chance to draw the original each time out of two or more candidates: at most 2^-64
_WORD = re.compile(r"[^\W\d_]+")

_KEPT_IN_NAMES = re.compile(
    r"mr|mrs|ms|miss|mx|dr|prof|sir|st|jr|sr|ii|iii|iv|md|phd|de|da|del|della|di|van|von|der|den|la|le", re.IGNORECASE
)

_KEPT_IN_ADDRESSES = re.compile(
    r"street|st|avenue|ave|road|rd|boulevard|blvd|lane|ln|drive|dr|court|ct|circle|cir|place|pl|square|sq"
    r"|terrace|ter|parkway|pkwy|highway|hwy|way|trail|trl|suite|ste|apartment|apt|unit|floor|fl|box|po|p|o|n|s"
    r"|e|w|ne|nw|se|sw|north|south|east|west|room|rm|building|bldg",
    re.IGNORECASE,
)

_FIRST_NAMES = tuple(sorted(name for name in _People.first_names if name.isalpha()))
_LAST_NAMES = tuple(sorted(name for name in _People.last_names if name.isalpha()))
_KEPT_CODES = US_STATES | {"USA", "US", "UK"}


def surrogate(kind: str, original: str, rng: random.Random) -> str:
    """A random stand-in for `original`, a secret of `kind` (its name in any case, such as NAME or credit_card)."""
    for make in (_maker(kind), _same_shape):
        for _ in range(_DRAWS):
            made = make(original, rng)
            if made != original:
                return made
    return original


def _same_shape(original: str, rng: random.Random) -> str:
    """A letter for a letter of the same script and case, a digit for a digit; the rest stays."""
    made = "".join(_same_class(character, rng) for character in original)
    if original[:1].isdecimal() and unicodedata.decimal(original[0]) > 0 == unicodedata.decimal(made[0]):
        return _same_shape(original, rng)  # a number that did not start with 0 does not start with 0
    return made


def _same_class(character: str, rng: random.Random) -> str:
    category = unicodedata.category(character)
    varies = category[0] == "L" or category == "Nd"
    return rng.choice(_class_of(ord(character) // 64, category)) if varies else character


@cache
def _class_of(block: int, category: str) -> str:
    """The characters of one category among 64 neighbors in Unicode: a script's letters of one case, or its digits."""
    characters = (chr(code) for code in range(block * 64, block * 64 + 64))
    return "".join(character for character in characters if unicodedata.category(character) == category)


def _name(original: str, rng: random.Random) -> str:
    words = [word for word in _WORD.findall(original) if not _KEPT_IN_NAMES.fullmatch(word)]
    last = len(words) - 1
    made = iter([_like(word, rng, _LAST_NAMES if at == last > 0 else _FIRST_NAMES) for at, word in enumerate(words)])
    return _WORD.sub(lambda match: match[0] if _KEPT_IN_NAMES.fullmatch(match[0]) else next(made), original)


def _address(original: str, rng: random.Random) -> str:
    def word(match: re.Match[str]) -> str:
        kept = _KEPT_IN_ADDRESSES.fullmatch(match[0]) or match[0] in _KEPT_CODES
        return match[0] if kept else _like(match[0], rng, _LAST_NAMES)

    return _WORD.sub(word, re.sub(r"\d+", lambda match: _same_shape(match[0], rng), original))


def _like(word: str, rng: random.Random, names: tuple[str, ...]) -> str:
    """A name in the case of `word`; a letter for an initial; another script keeps its script."""
    if len(word) == 1 or not word.isascii():
        return _same_shape(word, rng)
    name = rng.choice(names)
    if word.isupper():
        return name.upper()
    return name.lower() if word.islower() else name


def _card(original: str, rng: random.Random) -> str:
    digits = _digits(original)
    issuer = digits[:4]
    body = issuer + "".join(rng.choices("0123456789", k=max(0, len(digits) - 5)))
    check = str(-luhn_remainder(f"{body}0") % 10)
    return _pour(original, body + check if len(digits) > 5 else _same_shape(digits, rng))


def _iban(original: str, rng: random.Random) -> str:
    compact = "".join(character for character in original if character.isalnum())
    if not re.fullmatch(r"[A-Za-z]{2}\d{2}[A-Za-z0-9]{10,30}", compact, re.ASCII):
        return _same_shape(original, rng)
    country, account = compact[:2], "".join(_same_class(character, rng) for character in compact[4:])
    made = iter(f"{country}{98 - iban_remainder(f'{country}00{account}'):02}{account}")
    return "".join(next(made) if character.isalnum() else character for character in original)


def _phone(original: str, rng: random.Random) -> str:
    digits = _digits(original)
    kept = max(0, len(digits) - 6)  # country and area code, and the digit that decides whether an exchange may exist
    return _pour(original, digits[:kept] + "".join(rng.choices("0123456789", k=len(digits) - kept)))


def _email(original: str, rng: random.Random) -> str:
    start, dot, top = original.rpartition(".")
    letters = "abcdefghijklmnopqrstuvwxyz"
    made = (_same_class(one, rng) if one.isascii() else rng.choice(letters) for one in start)
    return "".join(made) + dot + top


def _url(original: str, rng: random.Random) -> str:
    scheme, colon, rest = original.rpartition("://")
    host, slash, path = rest.partition("/")
    name, dot, top = host.rpartition(".")
    www = "www." if name.startswith("www.") else ""
    return scheme + colon + www + _same_shape(name[len(www) :], rng) + dot + top + slash + _same_shape(path, rng)


def _social_security(original: str, rng: random.Random) -> str:
    digits = _digits(original)
    if len(digits) != 9:
        return _same_shape(original, rng)
    area = rng.choice([number for number in range(1, 900) if number != 666])
    return _pour(original, f"{area:03}{rng.randint(1, 99):02}{rng.randint(1, 9999):04}")


def _network_address(original: str, rng: random.Random) -> str:
    if ":" in original or "-" in original:
        return re.sub(r"[0-9a-fA-F]", lambda match: _hexadecimal(match[0], rng), original)
    largest = {1: 9, 2: 99, 3: 255}
    return re.sub(
        r"\d{1,3}", lambda match: str(rng.randint(10 ** (len(match[0]) - 1), largest[len(match[0])])), original
    )


def _hexadecimal(digit: str, rng: random.Random) -> str:
    made = rng.choice("0123456789abcdef")
    return made.upper() if digit.isupper() else made


def _date(original: str, rng: random.Random) -> str:
    """Years keep their century; other numbers stay possible months or days."""

    def number(match: re.Match[str]) -> str:
        value, width = int(match[0]), len(match[0])
        if width == 4:
            return f"{match[0][:2]}{rng.randint(0, 99):02}"
        if width > 2:
            return _same_shape(match[0], rng)
        low, high = (1, 9) if width == 1 else (10, 12) if value <= 12 else (13, 28) if value <= 31 else (32, 99)
        return str(rng.randint(low, high)).zfill(width)

    return re.sub(r"\d+", number, original, flags=re.ASCII)


def _digits(text: str) -> str:
    return "".join(character for character in text if character.isdecimal())


def _pour(shape: str, digits: str) -> str:
    """`shape` with its digits replaced, in order, by `digits`."""
    left = iter(digits)
    return "".join(next(left) if character.isdecimal() else character for character in shape)


_MAKERS: tuple[tuple[frozenset[str], Maker], ...] = (
    (frozenset({"email", "mail"}), _email),
    (frozenset({"ip", "ipv4", "ipv6", "mac", "uuid"}), _network_address),
    (frozenset({"url", "website", "link"}), _url),
    (frozenset({"iban"}), _iban),
    (frozenset({"card"}), _card),
    (frozenset({"ssn"}), _social_security),
    (frozenset({"phone", "telephone", "fax"}), _phone),
    (frozenset({"date", "birth", "birthday"}), _date),
    (frozenset({"name", "person"}), _name),
    (frozenset({"address", "street", "location", "city"}), _address),
)


@cache
def _maker(kind: str) -> Maker:
    """The first maker that knows a word of `kind`: EMAIL_ADDRESS is an e-mail, STREET_ADDRESS an address."""
    words = set(re.split(r"[^a-z0-9]+", kind.lower()))
    return next((make for known, make in _MAKERS if known & words), _same_shape)


KindExamples = Mapping[str, Sequence[str]]
"""Public examples of the form of a kind: of each, `surrogate` keeps what the kind keeps (an area code, a country)."""

_SCALES = (1, 2, 3, 4, 5, 6)
_HOW_OFTEN_SO_LONG = (30, 30, 14, 6, 3, 1)
_UNITS = ("miles", "km", "feet", "metres", "acres", "pounds", "kg", "tons", "square miles", "inches")
_SPANS_OF_TIME = ("days", "weeks", "months", "years", "hours", "minutes")
_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
_CARDINALS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "a dozen", "hundreds")
_BUILDINGS = ("Bridge", "Airport", "Hall", "Stadium", "Park", "Hospital", "Tower", "Station")
_PHONE_FORMS = ("{}-{}-{:04}", "({}) {}-{:04}", "{}.{}.{:04}", "{}{}{:04}", "+1 {} {} {:04}")
_PLACES = ("River", "Valley", "Mountains", "Lake", "Bay", "Island", "Coast", "Hills")


def invent(kind: str, rng: random.Random, examples: KindExamples) -> str | None:
    """An invented secret of `kind`, by the examples of this kind where there are some; None: nobody knows its form."""
    given = examples.get(kind) or examples.get(common_kind(kind))
    if given:
        return surrogate(kind, rng.choice(given), rng)
    make = _INVENTORS.get(common_kind(kind))
    return None if make is None else make(rng)


_generator = cache(Factory.create)


def _fake(rng: random.Random) -> Generator:
    generator: Generator = _generator("en_US")
    generator.random = rng
    return generator


def _faked(what: str) -> Callable[[random.Random], str]:
    return lambda rng: str(_fake(rng).format(what))


def _number(rng: random.Random) -> str:
    """A number of prose: a year, or one whose length is seldom great and whose first digit is seldom high."""
    if rng.random() < 0.35:
        return _year(rng)
    length = rng.choices(_SCALES, _HOW_OFTEN_SO_LONG)[0]
    return str(int(10 ** (length - 1 + rng.random())))  # Benford's law


def _year(rng: random.Random) -> str:
    return str(2026 - min(int(rng.expovariate(1 / 40)), 500))


def _invented_digits(rng: random.Random) -> str:
    """A token with a digit: mostly a number, sometimes an ordinal or a decade."""
    chance = rng.random()
    if chance < 0.04:
        return f"{rng.randint(4, 20)}th"
    return f"{_year(rng)[:3]}0s" if chance < 0.06 else _number(rng)


def _invented_date(rng: random.Random) -> str:
    pattern = rng.choice(("%d %B %Y", "%B %d, %Y", "%B %Y", "%Y", "%Y", "%A", "%d/%m/%Y", "%B %d"))
    if rng.random() < 0.1:
        return f"{_number(rng)} {rng.choice(_SPANS_OF_TIME)}"
    return str(_fake(rng).format("date", pattern=pattern))


def _time(rng: random.Random) -> str:
    clock = f"{rng.randint(1, 12)}:{rng.randint(0, 59):02}"
    return rng.choice((clock, f"{clock} pm", f"{clock} am", "the morning", "the evening", "night"))


def _identifier(rng: random.Random) -> str:
    """Letters and digits as parcels and orders have them."""
    example = rng.choice(("1234567", "AB-123456", "A1B2C3D4E5", "123-4567890-1234567", "1A2B3C4D5E6F"))
    return surrogate("ID", example, rng)


def _invented_password(rng: random.Random) -> str:
    """Words with digits and signs, or letters and digits as keys have them."""
    example = rng.choice(("Abcdef12!", "abcdefg-12", "1234", "AB12CD34EF56GH78", "a1b2c3d4e5f6a7b8", "Abcd_efgh#1"))
    return surrogate("PASSWORD", example, rng)


def _invented_phone(rng: random.Random) -> str:
    area, exchange, line = rng.randint(201, 989), rng.randint(200, 999), rng.randint(0, 9999)
    return rng.choice(_PHONE_FORMS).format(area, exchange, line)


def _invented_address(rng: random.Random) -> str:
    """A street, or all that stands on a letter."""
    fake = _fake(rng)
    street = str(fake.format("street_address"))
    whole = f"{street}, {fake.format('city')}, {fake.format('state_abbr')} {fake.format('postcode')}"
    return street if rng.random() < 0.25 else whole


_surname = _faked("last_name")
_INVENTORS: dict[str, Callable[[random.Random], str]] = {
    "ADDRESS": _invented_address,
    "AGE": lambda rng: str(rng.randint(1, 99)),
    "CARD": _faked("credit_card_number"),
    "CARDINAL": lambda rng: rng.choice(_CARDINALS) if rng.random() < 0.5 else _number(rng),
    "DATE": _invented_date,
    "DIGITS": _invented_digits,
    "EMAIL": _faked("email"),
    "FAC": lambda rng: f"{_surname(rng)} {rng.choice(_BUILDINGS)}",
    "GPE": lambda rng: _faked(rng.choice(("city", "state", "country")))(rng),
    "IBAN": _faked("iban"),
    "ID": _identifier,
    "IP": _faked("ipv4"),
    "LANGUAGE": _faked("language_name"),
    "LOC": lambda rng: f"{_surname(rng)} {rng.choice(_PLACES)}",
    "MONEY": lambda rng: rng.choice(("${}", "£{}", "${} million", "{} dollars")).format(_number(rng)),
    "NORP": lambda rng: rng.choice(("American", "British", "French", "German", "Chinese", "Jewish", "Christian")),
    "ORDER": _identifier,
    "ORDINAL": lambda rng: rng.choice(_ORDINALS),
    "ORG": _faked("company"),
    "PASSWORD": _invented_password,
    "PERCENT": lambda rng: f"{rng.randint(1, 100)}{rng.choice(('%', ' percent', ' %'))}",
    "PERSON": lambda rng: _faked(rng.choice(("name", "last_name", "first_name")))(rng),
    "PHONE": _invented_phone,
    "QUANTITY": lambda rng: f"{_number(rng)} {rng.choice(_UNITS)}",
    "SSN": _faked("ssn"),
    "TIME": _time,
    "TRACKING": _identifier,
    "URL": _faked("url"),
    "USERNAME": _faked("user_name"),
}
