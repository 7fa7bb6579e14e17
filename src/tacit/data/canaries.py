"""Canaries: made-up secrets planted in a corpus, so that an audit can ask whether the model says them.

Each canary is inside or outside by its own coin, so that an adversary who tells members from non-members can be
compared with a coin; its twin is drawn from the same distribution and never planted.

Formal guarantees:

G1 (distinct). No two values are equal, twins included.
G2 (exchangeable). Values are drawn before and apart from the coins: nothing but chance tells a canary from its twin, or
   one inside from one outside.
G3 (faithful). Planting leaves the corpus's records unchanged and in order, and plants each canary that is inside
   exactly `repetitions` times.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from tacit.data.records import Record, Span
from tacit.errors import PrepareError

CANARY = "CANARY"
_SLOT = re.compile(r"\{(?:([1-9]\d{0,2}) )?(digit|letter|word)s?\}")
_ALPHABETS = {"digit": "0123456789", "letter": "abcdefghijklmnopqrstuvwxyz"}


@dataclass(frozen=True, slots=True)
class CanaryPlan:
    """What to plant: `count` canaries of one template, each inside with `inside_probability`, then `repetitions` times.

    A template holds one slot: `{6 digits}`, `{4 letters}`, `{word}` or `{3 words}` (of `words`). When not `known`, the
    planted records carry no span: the canaries are secrets that the policy is not told of.
    """

    template: str
    count: int
    repetitions: int = 1
    inside_probability: float = 0.5
    known: bool = True
    words: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.count < 1 or self.repetitions < 1 or not 0 <= self.inside_probability <= 1:
            raise PrepareError(
                expected="at least one canary, at least one repetition and a probability in [0, 1]",
                found=f"count {self.count}, repetitions {self.repetitions}, probability {self.inside_probability}",
                way_out="mend the canary plan",
            )
        if self.slot.size < 2 * self.count:
            raise PrepareError(
                expected=f"a slot with at least {2 * self.count} values, for {self.count} canaries and their twins",
                found=f"{self.slot.size} values in {self.template!r}",
                way_out="make the slot longer, plant fewer canaries, or give more words",
            )

    @property
    def slot(self) -> "Slot":
        """What the template's slot can hold."""
        return Slot.of(self.template, self.words)

    @property
    def values(self) -> int:
        """How many values the slot can hold."""
        return self.slot.size


@dataclass(frozen=True, slots=True)
class CanaryRecord:
    """One canary, for the audit; `dataclasses.asdict` of it is JSON. The twin is never planted."""

    id: str
    text: str
    value: str
    inside: bool
    repetitions: int
    twin_text: str
    twin_value: str


@dataclass(frozen=True, slots=True)
class Slot:
    """The values of a template: `length` of `symbols` with `joint` between them; and the text around them."""

    before: str
    after: str
    symbols: tuple[str, ...]
    length: int
    joint: str

    @classmethod
    def of(cls, template: str, words: tuple[str, ...] = ()) -> "Slot":
        """The slot of a template; `words` are what `{word}` stands for."""
        slots = list(_SLOT.finditer(template))
        braces = template.count("{") + template.count("}")
        if len(slots) != 1 or braces != 2:
            raise PrepareError(
                expected="a template with one slot, such as 'My ID is {6 digits}', {4 letters}, {word} or {3 words}",
                found=f"{len(slots)} slots and {braces} braces in {template!r}",
                way_out="write one slot and no other braces",
            )
        length, noun = int(slots[0][1] or 1), slots[0][2]
        symbols = tuple(_ALPHABETS[noun]) if noun in _ALPHABETS else words
        if noun == "word" and not (_all_different(symbols) and all(re.fullmatch(r"\S+", word) for word in symbols)):
            raise PrepareError("different words without white space", f"{len(symbols)} words", "mend the list of words")
        before, after = template[: slots[0].start()], template[slots[0].end() :]
        return cls(before, after, symbols, length, " " if noun == "word" else "")

    @property
    def size(self) -> int:
        """How many values there are."""
        size: int = len(self.symbols) ** self.length
        return size

    def values(self) -> Iterator[str]:
        """Every value once, in the order of their numbers."""
        return map(self.joint.join, product(self.symbols, repeat=self.length))

    def number(self, value: str) -> int | None:
        """Which of `values()` it is; none if it is no value."""
        places = {symbol: place for place, symbol in enumerate(self.symbols)}
        symbols = value.split(self.joint) if self.joint else list(value)
        if len(symbols) != self.length or any(symbol not in places for symbol in symbols):
            return None
        number = 0
        for symbol in symbols:
            number = number * len(self.symbols) + places[symbol]
        return number

    def sample(self, count: int, generator: np.random.Generator) -> list[str]:
        """Independent uniform values."""
        return [self._value(generator) for _ in range(count)]

    def distinct(self, count: int, generator: np.random.Generator) -> list[str]:
        """`count` different values, uniform among such lists: drawn one by one, repeats thrown away."""
        values: dict[str, None] = {}
        while len(values) < count:
            values.setdefault(self._value(generator))
        return list(values)

    def text(self, value: str) -> str:
        """The template with this value."""
        return self.before + value + self.after

    def span(self, value: str) -> Span:
        """Where the value stands in its text."""
        return Span(len(self.before), len(self.before) + len(value), CANARY)

    def _value(self, generator: np.random.Generator) -> str:
        symbols = generator.integers(0, len(self.symbols), size=self.length)
        return self.joint.join(self.symbols[symbol] for symbol in symbols)


def draw_canaries(plan: CanaryPlan, generator: np.random.Generator, name: str = "canary") -> tuple[CanaryRecord, ...]:
    """Values, then coins; ids are `name` and a number."""
    slot = plan.slot
    values = slot.distinct(2 * plan.count, generator)
    coins = generator.random(plan.count) < plan.inside_probability
    return tuple(
        CanaryRecord(
            id=f"{name}-{number}",
            text=slot.text(value),
            value=value,
            inside=bool(inside),
            repetitions=plan.repetitions,
            twin_text=slot.text(twin),
            twin_value=twin,
        )
        for number, (value, twin, inside) in enumerate(zip(values[::2], values[1::2], coins, strict=True))
    )


def plant(
    records: Iterable[Record],
    plan: CanaryPlan,
    canaries: Sequence[CanaryRecord],
    corpus_size: int,
    generator: np.random.Generator,
) -> Iterator[Record]:
    """The records, streaming, with the canaries that are inside at random places among the first `corpus_size`.

    Each canary has a made-up user of its own. Copies have the ids `canary-3/0`, `canary-3/1`, ...
    Places beyond the end of a corpus that is shorter than said are at its end.
    """
    copies = [copy for canary in canaries if canary.inside for copy in _copies(plan, canary)]
    places = generator.integers(0, corpus_size, size=len(copies), endpoint=True)
    arrivals = [(int(places[number]), copies[number]) for number in np.argsort(places, kind="stable")]
    arrivals.reverse()
    for number, record in enumerate(records):
        while arrivals and arrivals[-1][0] <= number:
            yield arrivals.pop()[1]
        yield record
    while arrivals:
        yield arrivals.pop()[1]


def _copies(plan: CanaryPlan, canary: CanaryRecord) -> Iterator[Record]:
    spans = (plan.slot.span(canary.value),) if plan.known else ()
    for copy in range(canary.repetitions):
        yield Record(f"{canary.id}/{copy}", canary.text, user=canary.id, spans=spans)


def _all_different(words: tuple[str, ...]) -> bool:
    return len(set(words)) == len(words)
