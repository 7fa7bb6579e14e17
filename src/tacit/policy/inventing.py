"""Invented secrets: what a secret of a kind may look like, made from the kind and public examples alone.

A model that reads invented secrets where the true ones stood learns their form, and what stands around them, for free:
nothing of a true secret decides what is invented.

G1. What is invented is a function of the kind, the examples and the random stream; no corpus is read.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from functools import cache

from faker import Factory, Generator

from tacit.policy.kinds import common_kind
from tacit.policy.surrogate import surrogate

Examples = Mapping[str, Sequence[str]]
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


def invent(kind: str, rng: random.Random, examples: Examples) -> str | None:
    """An invented secret of `kind`, by the examples of this kind where there are some; None: nobody knows its form."""
    given = examples.get(kind) or examples.get(common_kind(kind))
    if given:
        return surrogate(kind, rng.choice(given), rng)
    make = _MAKERS.get(common_kind(kind))
    return None if make is None else make(rng)


@cache
def _generator() -> Generator:
    return Factory.create("en_US")


def _fake(rng: random.Random) -> Generator:
    """Faker, drawing from this stream."""
    generator = _generator()
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


def _digits(rng: random.Random) -> str:
    """A token with a digit: mostly a number, sometimes an ordinal or a decade."""
    chance = rng.random()
    if chance < 0.04:
        return f"{rng.randint(4, 20)}th"
    return f"{_year(rng)[:3]}0s" if chance < 0.06 else _number(rng)


def _date(rng: random.Random) -> str:
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


def _phone(rng: random.Random) -> str:
    area, exchange, line = rng.randint(201, 989), rng.randint(200, 999), rng.randint(0, 9999)
    return rng.choice(_PHONE_FORMS).format(area, exchange, line)


def _address(rng: random.Random) -> str:
    """A street, or all that stands on a letter."""
    fake = _fake(rng)
    street = str(fake.format("street_address"))
    whole = f"{street}, {fake.format('city')}, {fake.format('state_abbr')} {fake.format('postcode')}"
    return street if rng.random() < 0.25 else whole


def _surname(rng: random.Random) -> str:
    return _faked("last_name")(rng)


_MAKERS: dict[str, Callable[[random.Random], str]] = {
    "ADDRESS": _address,
    "AGE": lambda rng: str(rng.randint(1, 99)),
    "CARD": _faked("credit_card_number"),
    "CARDINAL": lambda rng: rng.choice(_CARDINALS) if rng.random() < 0.5 else _number(rng),
    "DATE": _date,
    "DIGITS": _digits,
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
    "PERCENT": lambda rng: f"{rng.randint(1, 100)}{rng.choice(('%', ' percent', ' %'))}",
    "PERSON": lambda rng: _faked(rng.choice(("name", "last_name", "first_name")))(rng),
    "PHONE": _phone,
    "QUANTITY": lambda rng: f"{_number(rng)} {rng.choice(_UNITS)}",
    "SSN": _faked("ssn"),
    "TIME": _time,
    "TRACKING": _identifier,
    "URL": _faked("url"),
}
