"""What secrets look like, learned from noisy counts: one release, from which any number of secrets can be invented.

A secret is read as a row of symbols: runs of digits, capitals or small letters with their length, and single other
characters (`2009` is one run of four digits, `10th` a run of two and one of two small letters). Counted are the symbols
after each other, and the characters inside of runs after the two before them. All of it is counted twice: for the kind,
and for the kind behind one of its commonest public words (`in`, `January`), which are a function of the public part.

A record is one vector, over a domain that the public part decides: of each of its secrets the counts, divided by their
Euclidean norm; the sum over the record, whatever kinds it has, is cut to a norm of 1. The sum over all records plus
N(0, noise_multiplier^2) in each coordinate is what is released (theory, section 12).

G1 (bound). A record's vector has a norm of at most 1, and does not depend on other records' secrets.
G2 (grid). Vectors and noise are multiples of 2^-30, so that last digits of floating-point sums reveal nothing.
G3 (once). A coordinate's noise is drawn when it is first looked at, and kept; noisy coordinates alone decide which
   are looked at next. This is the law of a vector whose noise was drawn in all coordinates beforehand.
G4 (post-processing). Tables, and all that is invented from them, are functions of the noisy coordinates, of public
   contexts and of the random stream.
"""

import math
import random
import re
import string
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

LONGEST_RUN = 12
MOST_SYMBOLS = 16
MOST_CONTEXTS = 64
FEWEST = 40.0  # spans of a kind, and of a context, for which its forms are counted, in deviations of the noise
KEPT = 3.0  # deviations of the noise from which on a count is kept: it is 3 by chance once in 740 times
DISCOUNT = 2.0  # deviations that are taken off what was kept, as it stood out by luck too
END, OTHER = "end", "other"
_CLASSES = {"d": string.digits, "u": string.ascii_uppercase, "l": string.ascii_lowercase}
_SIGNS = frozenset(string.punctuation + " ")
_SYMBOLS = (*(f"{kind}{n}" for kind in _CLASSES for n in range(1, LONGEST_RUN + 1)), *sorted(_SIGNS), OTHER, END)
_PARTS = re.compile(rf"[0-9]{{1,{LONGEST_RUN}}}|[A-Z]{{1,{LONGEST_RUN}}}|[a-z]{{1,{LONGEST_RUN}}}|[\s\S]")
_GRID = 2.0**-30
_MARGIN = 1 - 1e-9  # for the rounding of norms

Cell = tuple[str, str]
"""A place in a secret, and the symbol or character there."""


class Secret(NamedTuple):
    """A secret of a record; its kind and context are public."""

    kind: str
    context: str
    text: str


def symbols_of(text: str) -> list[tuple[str, str]]:
    """The symbols of a text, each with its characters."""
    found = []
    for part in _PARTS.findall(text)[:MOST_SYMBOLS]:
        kind = next((name for name, characters in _CLASSES.items() if part[0] in characters), None)
        found.append((f"{kind}{len(part)}" if kind else part if part in _SIGNS else OTHER, part))
    return found


def _places(root: str, text: str) -> Iterator[Cell]:
    """The cells of a text under one root: a kind, or a kind behind a context."""
    parts = symbols_of(text)
    before = ("", "")
    for number, symbol in enumerate([*(symbol for symbol, _ in parts), END]):
        yield _symbol_place(root, number, before), symbol
        before = (before[1], symbol)
    for symbol, characters in parts:
        for at, character in enumerate(characters if _is_run(symbol) else ""):
            yield _character_place(root, symbol, at, characters[max(0, at - 2) : at]), character


def _symbol_place(root: str, number: int, before: tuple[str, str]) -> str:
    return "\n".join((root, str(number), *before))


def _character_place(root: str, symbol: str, at: int, before: str) -> str:
    """A digit is counted by its place in a number of that length, a letter only by the letters before it."""
    run = f"{symbol} {at}" if symbol[0] == "d" else symbol[0]
    return f"{root}\n{run}\n{before}"


def vector(secrets: Iterable[Secret], contexts: Mapping[str, Sequence[str]]) -> dict[Cell, int]:
    """The vector of a record with these secrets, in multiples of the grid; its norm is at most 1.

    contexts: of each kind that is counted, those that are counted apart.
    """
    total: dict[Cell, float] = {}
    for secret in secrets:
        if secret.kind not in contexts:
            continue
        roots = [secret.kind]
        if secret.context in contexts[secret.kind]:
            roots.append(_behind(secret.kind, secret.context))
        counts = Counter(cell for root in roots for cell in _places(root, secret.text))
        norm = math.sqrt(sum(count**2 for count in counts.values()))
        for cell, count in counts.items():
            total[cell] = total.get(cell, 0.0) + count / norm
    norm = math.sqrt(math.fsum(value**2 for value in total.values()))
    scale = _MARGIN / max(1.0, norm)
    return {cell: math.floor(value * scale / _GRID) for cell, value in total.items()}


def _behind(kind: str, context: str) -> str:
    return f"{kind}\t{context}"


def usual_contexts(spans: Iterable[tuple[str, str]], noise_multiplier: float) -> dict[str, list[str]]:
    """For each kind with enough spans, the contexts with enough of them; spans are (kind, context), all public."""
    counts: dict[str, Counter[str]] = {}
    for kind, context in spans:
        counts.setdefault(kind, Counter())[context] += 1
    least = FEWEST * noise_multiplier
    return {
        kind: [
            context for context, count in sorted(found.items(), key=lambda one: (-one[1], one[0])) if count >= least
        ][:MOST_CONTEXTS]
        for kind, found in counts.items()
        if found.total() >= least
    }


@dataclass(frozen=True, slots=True)
class Table:
    """Counts that were kept at a place, and the share of what was not: it is left to places that know less."""

    counts: dict[str, float]
    rest: float


@dataclass(frozen=True, slots=True)
class Forms:
    """What was learned: tables by place."""

    contexts: dict[str, list[str]]
    tables: dict[str, Table]


class Inventor:
    """Invents secrets of the forms that were learned. A kind without tables is not known."""

    def __init__(self, forms: Forms) -> None:
        self._contexts, self._tables = forms.contexts, forms.tables
        self._mixed: dict[tuple[str, ...], dict[str, float]] = {}

    def knows(self, kind: str) -> bool:
        return _symbol_place(kind, 0, ("", "")) in self._tables

    def draw(self, kind: str, context: str, rng: random.Random) -> str:
        """A made-up secret. Rare characters, which were not counted one by one, become an x."""
        roots, made, before = self._roots(kind, context), list[str](), ("", "")
        for number in range(MOST_SYMBOLS):
            symbol = _drawn(self._symbols(roots, number, before), rng)
            if symbol == END:
                break
            made.append(self._characters(roots, symbol, rng))
            before = (before[1], symbol)
        return "".join(made)

    def probability(self, kind: str, context: str, text: str) -> float:
        """How likely `draw` is to give symbols and characters of `text`."""
        roots, before, found = self._roots(kind, context), ("", ""), 1.0
        parts = symbols_of(text)
        for number, (symbol, characters) in enumerate([*parts, (END, "")]):
            found *= self._symbols(roots, number, before).get(symbol, 0.0)
            before = (before[1], symbol)
            if _is_run(symbol):
                for at, character in enumerate(characters):
                    found *= self._character(roots, symbol, at, characters[:at])[character]
        return found

    def _roots(self, kind: str, context: str) -> tuple[str, ...]:
        apart = context in self._contexts.get(kind, ())
        return (_behind(kind, context), kind) if apart else (kind,)

    def _symbols(self, roots: tuple[str, ...], number: int, before: tuple[str, str]) -> dict[str, float]:
        """A secret ends where nothing is known of what may follow."""
        return self._mixture(tuple(_symbol_place(root, number, before) for root in roots), {}) or {END: 1.0}

    def _characters(self, roots: tuple[str, ...], symbol: str, rng: random.Random) -> str:
        if not _is_run(symbol):
            return "x" if symbol == OTHER else symbol
        made = ""
        for at in range(int(symbol[1:])):
            made += _drawn(self._character(roots, symbol, at, made), rng)
        return made

    def _character(self, roots: tuple[str, ...], symbol: str, at: int, before: str) -> dict[str, float]:
        places = [_character_place(root, symbol, at, before[-2:]) for root in roots]
        places += [_character_place(roots[-1], symbol, at, known) for known in _less_known(before[-2:])]
        characters = _CLASSES[symbol[0]]
        return self._mixture(tuple(places), dict.fromkeys(characters, 1 / len(characters)))

    def _mixture(self, places: tuple[str, ...], otherwise: dict[str, float]) -> dict[str, float]:
        """What the first place knows, with its rest from the second, and so on."""
        if not places:
            return otherwise
        if places not in self._mixed:
            table, lower = self._tables.get(places[0]), self._mixture(places[1:], otherwise)
            self._mixed[places] = lower if table is None else _with_rest(table, lower)
        return self._mixed[places]


def _with_rest(table: Table, lower: dict[str, float]) -> dict[str, float]:
    total, rest = sum(table.counts.values()), table.rest if lower else 0.0
    own = {symbol: (1 - rest) * count / total for symbol, count in table.counts.items()}
    return {symbol: own.get(symbol, 0.0) + rest * lower.get(symbol, 0.0) for symbol in own | lower}


def _drawn(shares: dict[str, float], rng: random.Random) -> str:
    return rng.choices(list(shares), list(shares.values()))[0]


def _is_run(symbol: str) -> bool:
    return symbol[0] in _CLASSES and symbol[1:].isdecimal()


def _less_known(before: str) -> list[str]:
    """Names of places that know less of the characters before."""
    return [f"?{before[-1]}", "?"] if len(before) == 2 else ["?"] if before else []


class _Release:
    """The noisy sum, a coordinate at a time."""

    def __init__(self, sums: Mapping[Cell, int], noise_multiplier: float, rng: random.Random) -> None:
        self._sums, self._rng, self.deviation = sums, rng, noise_multiplier
        self._drawn: dict[Cell, float] = {}

    def __getitem__(self, cell: Cell) -> float:
        if cell not in self._drawn:
            noise = round(self._rng.gauss(0.0, self.deviation) / _GRID)
            self._drawn[cell] = (self._sums.get(cell, 0) + noise) * _GRID
        return self._drawn[cell]

    def table(self, places: Sequence[str], symbols: Sequence[str]) -> Table | None:
        """What is kept of the sum of some places; None: nothing is."""
        counts = {symbol: sum(self[place, symbol] for place in places) for symbol in symbols}
        least = KEPT * self.deviation * math.sqrt(len(places))
        kept = {symbol: count for symbol, count in counts.items() if count >= least}
        if not kept:
            return None
        less = DISCOUNT * self.deviation * math.sqrt(len(places))
        total = max(sum(counts.values()), sum(kept.values()))
        kept = {symbol: count - less for symbol, count in kept.items()}
        return Table(kept, min(max(1 - sum(kept.values()) / total, 0.01), 0.95))


def learn(
    sums: Mapping[Cell, int], contexts: Mapping[str, Sequence[str]], noise_multiplier: float, rng: random.Random
) -> Forms:
    """Add noise to the sum of all vectors, and make tables of what stands out from it."""
    release = _Release(sums, noise_multiplier, rng)
    tables: dict[str, Table] = {}
    for kind, listed in contexts.items():
        for root in (kind, *(_behind(kind, context) for context in listed)):
            for symbol in _grow(release, root, tables):
                _grow_characters(release, root, symbol, tables, with_sums=root == kind)
    return Forms({kind: list(listed) for kind, listed in contexts.items()}, tables)


def _grow(release: _Release, root: str, tables: dict[str, Table]) -> list[str]:
    """Tables of symbols, from the first on, along all that is kept; and the runs among them."""
    level, runs = {("", "")}, set[str]()
    for number in range(MOST_SYMBOLS):
        after = set[tuple[str, str]]()
        for before in sorted(level):
            place = _symbol_place(root, number, before)
            table = release.table([place], _SYMBOLS)
            if table is not None:
                tables[place] = table
                after |= {(before[1], symbol) for symbol in table.counts if symbol != END}
        runs |= {symbol for _, symbol in after if _is_run(symbol)}
        level = after
    return sorted(runs)


def _grow_characters(release: _Release, root: str, symbol: str, tables: dict[str, Table], with_sums: bool) -> None:
    """Tables of the characters of a run, along all that is kept; and sums of them that know less of what is before."""
    characters = _CLASSES[symbol[0]]
    level = {""}
    for at in range(int(symbol[1:])):
        after = set[str]()
        for before in sorted(level):
            place = _character_place(root, symbol, at, before)
            table = tables.get(place) or release.table([place], characters)
            if table is not None:
                tables[place] = table
                after |= {(before + character)[-2:] for character in table.counts}
        if with_sums and at:
            wholes = [first + second for first in (characters if at > 1 else [""]) for second in characters]
            for known in ("", *(characters if at > 1 else "")):
                name = _character_place(root, symbol, at, f"?{known}")
                places = [_character_place(root, symbol, at, one) for one in wholes if one.endswith(known)]
                if name not in tables and (table := release.table(places, characters)) is not None:
                    tables[name] = table
        level = after
