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
from typing import Any

import numpy as np

from tacit.corpus.record import Record, Span
from tacit.errors import PrepareError
from tacit.policy.base import Policy

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
        _slot(self)

    @property
    def values(self) -> int:
        """How many values the slot can hold."""
        slot = _slot(self)
        values: int = len(slot.symbols) ** slot.length
        return values


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
class _Slot:
    before: str
    after: str
    symbols: tuple[str, ...]
    length: int
    joint: str

    def text(self, value: str) -> str:
        return self.before + value + self.after

    def span(self, value: str) -> Span:
        return Span(len(self.before), len(self.before) + len(value), CANARY)


class KnownCanaries(Policy):
    """Marks the planted canaries that carry a span: `policy | KnownCanaries()` is told of them."""

    @property
    def id(self) -> str:
        return "known-canaries"

    def content(self) -> Any:  # noqa: ANN401  (any JSON value)
        return ["known-canaries", CANARY]

    def find(self, record: Record) -> tuple[Span, ...]:
        return tuple(span for span in record.spans or () if span.kind == CANARY)


def draw_canaries(plan: CanaryPlan, generator: np.random.Generator) -> tuple[CanaryRecord, ...]:
    """Values, then coins."""
    slot = _slot(plan)
    values = _distinct_values(slot, 2 * plan.count, generator)
    coins = generator.random(plan.count) < plan.inside_probability
    return tuple(
        CanaryRecord(
            id=f"canary-{number}",
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
    spans = (_slot(plan).span(canary.value),) if plan.known else ()
    for copy in range(canary.repetitions):
        yield Record(f"{canary.id}/{copy}", canary.text, user=canary.id, spans=spans)


def _slot(plan: CanaryPlan) -> _Slot:
    slots = list(_SLOT.finditer(plan.template))
    braces = plan.template.count("{") + plan.template.count("}")
    if len(slots) != 1 or braces != 2:
        raise PrepareError(
            expected="a template with one slot, such as 'My ID is {6 digits}', {4 letters}, {word} or {3 words}",
            found=f"{len(slots)} slots and {braces} braces in {plan.template!r}",
            way_out="write one slot and no other braces",
        )
    length, noun = int(slots[0][1] or 1), slots[0][2]
    symbols = tuple(_ALPHABETS[noun]) if noun in _ALPHABETS else plan.words
    if noun == "word" and (len(set(symbols)) < len(symbols) or not all(re.fullmatch(r"\S+", word) for word in symbols)):
        raise PrepareError("different words without white space", f"{len(symbols)} words", "mend the list of words")
    if len(symbols) ** length < 2 * plan.count:
        raise PrepareError(
            expected=f"a slot with at least {2 * plan.count} values, for {plan.count} canaries and their twins",
            found=f"{len(symbols) ** length} values of {slots[0][0]}",
            way_out="make the slot longer, plant fewer canaries, or give more words",
        )
    before, after = plan.template[: slots[0].start()], plan.template[slots[0].end() :]
    return _Slot(before, after, symbols, length, " " if noun == "word" else "")


def _distinct_values(slot: _Slot, count: int, generator: np.random.Generator) -> list[str]:
    """`count` different values, uniform among such lists: drawn one by one, repeats thrown away."""
    values: dict[str, None] = {}
    while len(values) < count:
        symbols = generator.integers(0, len(slot.symbols), size=slot.length)
        values.setdefault(slot.joint.join(slot.symbols[symbol] for symbol in symbols))
    return list(values)
