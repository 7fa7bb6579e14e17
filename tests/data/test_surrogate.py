"""Stand-ins keep kind and shape, and are never the original."""

import random
import re
import unicodedata

import phonenumbers
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.data.inventions import surrogate

EXAMPLES = [
    ("NAME", "Maria del Carmen Lopez"),
    ("person", "DR. J. SMITH"),
    ("PERSON", "Иван"),
    ("ADDRESS", "1247 Maple Ridge Ave, Apt 4B, Dayton, OH 45402"),
    ("CREDIT_CARD", "4111-1111-1111-1111"),
    ("IBAN_CODE", "DE89 3704 0044 0532 0130 00"),
    ("IBAN", "gb82west12345698765432"),
    ("PHONE_NUMBER", "+1 (415) 555-2671"),
    ("EMAIL_ADDRESS", "ann.lee+x1@mail.example.com"),
    ("US_SSN", "536-22-8726"),
    ("IP_ADDRESS", "192.168.0.17"),
    ("IP_ADDRESS", "2001:db8::ff00:42:8329"),
    ("URL", "https://www.example.com/a/b?c=1"),
    ("DATE_OF_BIRTH", "1987-05-23"),
    ("ORDER", "A99-123"),
    ("TRACKING", "000000"),
    ("SECRET", "x"),
]


def shape(text: str) -> str:
    return "".join("9" if c.isdecimal() else unicodedata.category(c)[1] if c.isalpha() else c for c in text)


def luhn_is_valid(number: str) -> bool:
    """The textbook: double every second digit from the right, add the digits, expect a multiple of ten."""
    total = 0
    for position, digit in enumerate(reversed([int(c) for c in number if c.isdigit()])):
        value = digit * 2 if position % 2 else digit
        total += value - 9 if value > 9 else value
    return total % 10 == 0


def iban_is_valid(number: str) -> bool:
    compact = number.replace(" ", "").upper()
    moved = compact[4:] + compact[:4]
    return int("".join(str(ord(c) - 55) if c.isalpha() else c for c in moved)) % 97 == 1


@pytest.mark.parametrize(("kind", "original"), EXAMPLES)
def test_g1_never_the_original_and_g2_repeatable(kind: str, original: str) -> None:
    for seed in range(30):
        made = surrogate(kind, original, random.Random(seed))
        assert made != original
        assert made == surrogate(kind, original, random.Random(seed))


@given(st.text(max_size=30), st.sampled_from(sorted({kind for kind, _ in EXAMPLES} | {"anything"})), st.integers())
def test_any_text_of_any_kind_gets_a_stand_in(original: str, kind: str, seed: int) -> None:
    made = surrogate(kind, original, random.Random(seed))
    assert bool(made) == bool(original)
    if re.search(r"[a-zA-Z0-9]", original):
        assert made != original


@given(st.text(max_size=30), st.integers())
def test_unknown_kinds_keep_their_shape(original: str, seed: int) -> None:
    assert shape(surrogate("ORDER", original, random.Random(seed))) == shape(original)


def test_nothing_that_can_vary_stays() -> None:
    assert surrogate("SECRET", "!! - !!", random.Random(1)) == "!! - !!"


@pytest.mark.parametrize("seed", range(25))
def test_each_kind_keeps_what_makes_it_valid(seed: int) -> None:
    rng = random.Random(seed)
    card = surrogate("CREDIT_CARD", "4111-1111-1111-1111", rng)
    assert luhn_is_valid(card)
    assert re.fullmatch(r"4111(-\d{4}){3}", card)
    iban = surrogate("IBAN", "DE89 3704 0044 0532 0130 00", rng)
    assert iban_is_valid(iban)
    assert re.fullmatch(r"DE\d\d( \d{4}){4} \d\d", iban)
    assert iban_is_valid(surrogate("IBAN", "gb82west12345698765432", rng))
    phone = surrogate("PHONE", "+1 (415) 555-2671", rng)
    assert re.fullmatch(r"\+1 \(415\) 5\d\d-\d{4}", phone)
    assert phonenumbers.is_valid_number(phonenumbers.parse(phone))
    assert re.fullmatch(
        r"[a-z]{3}\.[a-z]{3}\+[a-z]\d@[a-z]{4}\.[a-z]{7}\.com", surrogate("EMAIL", "ann.lee+x1@mail.example.com", rng)
    )
    octets = surrogate("IP_ADDRESS", "192.168.0.17", rng).split(".")
    assert all(0 <= int(octet) <= 255 for octet in octets)
    assert [len(octet) for octet in octets] == [3, 3, 1, 2]
    year, month, day = surrogate("DATE", "1987-05-23", rng).split("-")
    assert (year[:2], 1 <= int(month) <= 12, 13 <= int(day) <= 28) == ("19", True, True)
    ssn = surrogate("SSN", "536-22-8726", rng)
    assert re.fullmatch(r"(?!000|666|9)\d{3}-(?!00)\d\d-(?!0000)\d{4}", ssn)


def test_names_and_streets_come_from_lists_in_the_case_of_the_original() -> None:
    rng = random.Random(5)
    assert re.fullmatch(r"Dr\. [A-Z]\. [A-Z][a-z]+", surrogate("NAME", "Dr. J. Smith", rng))
    assert surrogate("NAME", "MARIA LOPEZ", rng).isupper()
    assert surrogate("NAME", "maria lopez", rng).islower()
    assert re.fullmatch(
        r"\d{4} [A-Z]\w+ Ave, [A-Z]\w+, OH \d{5}", surrogate("ADDRESS", "1247 Maple Ave, Dayton, OH 45402", rng)
    )
