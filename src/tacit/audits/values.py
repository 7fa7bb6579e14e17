"""Values of secrets to attack: each of one user alone, beside a value of the same kind and form from the other side.

G1 (exchangeable). A value that only one user of the whole corpus has is on either side by that user's coin and nothing
   else. Values that several users have are left out: those of the larger side would be the more common ones.
G2 (once). Each value is in one pair.
G3 (not from context). The text before a place has no secret that shares three characters in a row with its value: a
   model that read no value can copy a name, or the address made of it, from a few lines above.
"""

import random
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from tacit.audits.target import CandidateRows

_RUN = re.compile(r"[^\W_]+")
_SHARED = 3


@dataclass(frozen=True, slots=True)
class Place:
    """A secret where it is first: what comes before and after it, and how many records contain it.

    after: up to the end of the row, or up to a later secret that resembles this one.
    """

    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    text: str
    kind: str
    records: int
    after: tuple[int, ...] = ()

    @property
    def look(self) -> tuple[str, str]:
        """Its kind and its form."""
        return self.kind, form(self.text)


@dataclass(frozen=True, slots=True)
class ValuePair:
    """A place, and the value of another place of the same kind and form."""

    place: Place
    other: Place


@dataclass(slots=True)
class _Seen:
    """What is known of a value on one side. place: a row and the number of the secret in it; several: it has users."""

    owner: tuple[str, int]
    record: int
    place: tuple[int, int] | None
    records: int = 1
    several: bool = False


_Value = tuple[str, tuple[int, ...]]


def form(text: str) -> str:
    """What a value looks like: words alike, numbers by their length, codes of both by their length."""

    def shape(run: re.Match[str]) -> str:
        letters = run[0].isalpha()
        return "a" if letters else ("9" if run[0].isdecimal() else "x") * len(run[0])

    return _RUN.sub(shape, text)


def value_pairs(trained: CandidateRows, held_out: CandidateRows, most: int, seed: int) -> list[ValuePair]:
    """At most so many places of the training side, each with a value that only the held-out side has."""
    rng = random.Random(seed)
    own, other = single_owner_places(trained, held_out)
    pairs: list[ValuePair] = []
    waiting = alike(other)
    for key, places in sorted(alike(own).items()):
        others = waiting.get(key, [])
        rng.shuffle(places)
        rng.shuffle(others)
        pairs += [ValuePair(*pair) for pair in zip(places, others, strict=False)]
    rng.shuffle(pairs)
    return pairs[:most]


def held_out_pairs(trained: CandidateRows, held_out: CandidateRows, most: int, seed: int) -> list[ValuePair]:
    """The same with places of the held-out side: what context gives away, as no model has read them."""
    rng = random.Random(seed)
    _, places = single_owner_places(trained, held_out)
    pairs: list[ValuePair] = []
    for _, some in sorted(alike(places).items()):
        rng.shuffle(some)
        pairs += [ValuePair(*pair) for pair in zip(some[::2], some[1::2], strict=False)]
    rng.shuffle(pairs)
    return pairs[:most]


def alike(places: Iterable[Place]) -> dict[tuple[str, str], list[Place]]:
    """The places by kind and form."""
    found: dict[tuple[str, str], list[Place]] = {}
    for place in places:
        found.setdefault(place.look, []).append(place)
    return found


@lru_cache(maxsize=1)
def single_owner_places(trained: CandidateRows, held_out: CandidateRows) -> tuple[tuple[Place, ...], tuple[Place, ...]]:
    """Of both sides, the places of values that one user alone has; kept for the next attack on the same run."""
    sides = (trained, held_out)
    seen = [_seen(side) for side in sides]
    shared = seen[0].keys() & seen[1].keys()
    first, second = (
        tuple(
            place
            for value, one in found.items()
            if not one.several and value not in shared and (place := _place(side, value, one)) is not None
        )
        for side, found in zip(sides, seen, strict=True)
    )
    return first, second


def _seen(side: CandidateRows) -> dict[_Value, _Seen]:
    store, found = side.store, dict[_Value, _Seen]()
    for row in np.flatnonzero(store.span_counts()).tolist():
        if side.is_planted(row):
            continue
        record, user = int(store.records[row]), int(store.users[row])
        owner = ("user", user) if user else ("record", record)
        for number, value in enumerate(zip(store.kinds(row), map(tuple, side.secrets(row)), strict=True)):
            one = found.get(value)
            if one is None:
                found[value] = _Seen(owner, record, (row, number) if store.pieces[row] == 0 else None)
                continue
            one.several |= one.owner != owner
            one.records += one.record != record
            one.record = record
    return found


def _place(side: CandidateRows, value: _Value, one: _Seen) -> Place | None:
    """None where the value is blank, is too far down its row, or could be copied from what precedes it."""
    if one.place is None:
        return None
    row, number = one.place
    hidden = side.hidden_at(f"{row}/{number}", row, number)
    if hidden is None:
        return None
    earlier = [side.tokenizer.decode(tokens) for tokens in side.secrets(row)[:number]]
    if _shares(hidden.text, earlier):
        return None
    after = _after(side, row, number, hidden.text)
    return Place(tuple(hidden.prompt), tuple(hidden.tokens), hidden.text, value[0], one.records, after)


def _after(side: CandidateRows, row: int, number: int, text: str) -> tuple[int, ...]:
    """What follows a secret in the part of its row that training read, up to a later secret that resembles it."""
    tokens, _, starts, ends = side.store.full(row)
    later = list(zip(starts.tolist(), ends.tolist(), strict=True))[number + 1 :]
    alike_at = (at for at, end in later if _shares(text, [side.tokenizer.decode(tokens[at:end].tolist())]))
    return tuple(tokens[int(ends[number]) : min(next(alike_at, side.longest), side.longest)].tolist())


def _shares(text: str, earlier: Sequence[str]) -> bool:
    known = {part for other in earlier for part in _parts(other)}
    return any(part in known for part in _parts(text))


def _parts(text: str) -> Iterator[str]:
    plain = "".join(_RUN.findall(text)).casefold()
    return (plain[start : start + _SHARED] for start in range(max(1, len(plain) - _SHARED + 1)))
