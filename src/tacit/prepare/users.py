"""Invented users for a corpus that names none, as UeDP does for AG News: N(15, 2^2) records each (appendix I).

They measure what user-level privacy costs; they are nobody. The deal looks at the records' ids and at how many there
are, never at their text: deal once, before anything is left out.

G1 (dealt). Every record has one user; a user has round(N(`mean`, `deviation`^2)) records, at least one, and the last
   user what is left.
G2 (at random). Which records meet in a user, and how many, is decided by SHA-256 of the salt: the order of the corpus
   does not matter, and no version of any library does.
"""

import hashlib
import math
from collections.abc import Iterator, Sequence
from statistics import NormalDist

from tacit.errors import PrepareError
from tacit.prepare.caps import salted_order

_BITS = 52  # with a half added they are a float exactly, above 0 and below 1


def dealt_users(record_ids: Sequence[str], mean: float, deviation: float, salt: str) -> list[str]:
    """The user of each record."""
    if not (math.isfinite(mean) and mean >= 1 and math.isfinite(deviation) and deviation >= 0):
        raise PrepareError(
            expected="a mean of at least one record a user, and a deviation of at least 0",
            found=f"{mean} and {deviation}",
            way_out="correct the numbers; UeDP's are 15 and 2",
        )
    users = [""] * len(record_ids)
    names = _repeated_names(mean, deviation, salt)
    for record in salted_order(record_ids, salt):
        users[record] = next(names)
    return users


def _repeated_names(mean: float, deviation: float, salt: str) -> Iterator[str]:
    """One invented user after the other, each as often as it has records."""
    number = 0
    while True:
        number += 1
        size = round(mean + deviation * NormalDist().inv_cdf(_uniform(salt, number)))
        for _ in range(max(1, size)):
            yield f"dealt-{number}"


def _uniform(salt: str, number: int) -> float:
    content = f"{len(salt)}:{salt}/size of user {number}"
    digest = hashlib.sha256(content.encode("utf-8", "surrogatepass")).digest()
    return ((int.from_bytes(digest[:8]) >> (64 - _BITS)) + 0.5) / (1 << _BITS)
