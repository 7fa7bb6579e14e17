"""Which finders a number could concern: told once for each number, by the few characters around it.

A finder is not tried at a number whose signature none of its patterns has. Signatures recur, and are remembered.
"""

import re
from collections import defaultdict
from collections.abc import Callable
from functools import lru_cache

from tacit.data.records import Range
from tacit.policies.pii.addresses import may_be_zip, may_open
from tacit.policies.pii.blocks import may_be_at_home, may_be_block
from tacit.policies.pii.dates import may_be_age, may_be_date
from tacit.policies.pii.numbers import may_be_decimal, may_be_misread, may_be_serial
from tacit.policies.pii.streets import may_be_postal_code, may_end_street, may_open_street

Chosen = defaultdict[str, list[Range]]
"""By the name of a finder the numbers that could concern it; "any" has all."""

_IN_GROUPS = re.compile(rb"[-./ )]{1,3}[(]?0")
_LONG = 6
_COUNTRY = (b"AA", b"aa", b"Aa", b"aA")


def _may_be_phone(_: bytes, after: bytes, digits: int) -> bool:
    """Or another number of many digits."""
    return digits > _LONG or _IN_GROUPS.match(after) is not None


def _may_be_ip(_: bytes, after: bytes, digits: int) -> bool:
    return after.startswith(b".0")


def _may_be_iban(before: bytes, _: bytes, digits: int) -> bool:
    return digits > 1 and before.endswith(_COUNTRY)


_CONCERNS: dict[str, Callable[[bytes, bytes, int], bool]] = {
    "age": may_be_age,
    "at home": may_be_at_home,
    "block": may_be_block,
    "date": may_be_date,
    "decimal": may_be_decimal,
    "house": may_open,
    "iban": _may_be_iban,
    "ip": _may_be_ip,
    "misread": may_be_misread,
    "phone": _may_be_phone,
    "postal code": may_be_postal_code,
    "serial": may_be_serial,
    "street": may_open_street,
    "street's end": may_end_street,
    "zip": may_be_zip,
}
"""By the name of a finder whether it could find something, by the outline before and behind a number and its length."""

BEFORE, AFTER = 4, 8
"""Characters of a signature before a number and behind it."""


@lru_cache(maxsize=10_000)
def _concerned(before: bytes, after: bytes, digits: int) -> tuple[str, ...]:
    return tuple(name for name, concerns in _CONCERNS.items() if concerns(before, after, digits))


def choose(look: bytes, numbers: list[Range]) -> Chosen:
    """The numbers by the finders they could concern; `look` is the outline of the text."""
    chosen: Chosen = defaultdict(list, {"any": numbers})
    for number in numbers:
        start, end = number
        before = look[start - BEFORE if start > BEFORE else 0 : start]
        for name in _concerned(before, look[end : end + AFTER], end - start):
            chosen[name].append(number)
    return chosen
