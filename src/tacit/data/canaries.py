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

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tacit.config.audit_schema import CanaryPlan
from tacit.data.records import Record, Span

CANARY = "CANARY"


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
    start = len(plan.slot.before)
    spans = (Span(start, start + len(canary.value), CANARY),) if plan.known else ()
    for copy in range(canary.repetitions):
        yield Record(f"{canary.id}/{copy}", canary.text, user=canary.id, spans=spans)
