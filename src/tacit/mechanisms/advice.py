"""What to change first: a plan beside the same one with half the epsilon, with twice the data and with larger batches.

What private steps teach depends on the size of the model, on the number of steps, and on the noise of a step beside its
batch (McKenna et al. 2025, "Scaling Laws for Differentially Private Language Models", arXiv 2501.18914). That ratio is
computed here. A loss is only quoted where one was measured: `advice.json`, which benchmarks/advice.py writes.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import pairwise
from typing import Any

from tacit.common.charts import Note, Table
from tacit.common.serialize import from_json
from tacit.errors import TacitError
from tacit.mechanisms.mechanism import Mechanism
from tacit.privacy.plan import PoissonRecords, PoissonUsers

AS_ASKED, MORE_DATA, LARGER = "as asked", "twice the data", "twice the batch"
MEASURED = "advice.json"
MEASURED_WITH = "dpsgd"
_BATCH = ("expected_batch_size", "sampling_rate", "epochs", "steps")
_SIMILAR_STEPS = 2.0  # how many times as many steps a measurement may have had
_WORTH_IT = 0.85  # of the ratio: twice the time for less is not what to change first
Repriced = Callable[[Mapping[str, Any], int], Mechanism]
"""The mechanism with other settings, for a corpus so many times as large."""


@dataclass(frozen=True, slots=True)
class MeasuredLoss:
    """What noise cost one small model: nats per character more than without, on held-out text of a public corpus."""

    corpus: str
    steps: int
    noise_to_batch: float
    lost: float


@dataclass(frozen=True, slots=True)
class Option:
    """A way to train. lost: the least and the most nats per character that noise cost where it was measured."""

    name: str
    epsilon: float
    batch: float
    steps: int
    noise_to_batch: float
    lost: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class Advice:
    """The plan and what else could be done, and what to change first."""

    options: tuple[Option, ...]
    first: str

    def tables(self) -> Iterator[Table | Note]:
        """One line for each option."""
        known = any(option.lost is not None for option in self.options)
        head = ("", "epsilon", "batch", "steps", "noise / batch", *(("nats per character lost",) if known else ()))
        rows = (
            (
                option.name,
                f"{option.epsilon:g}",
                f"{option.batch:,.0f}",
                f"{option.steps:,}",
                f"{option.noise_to_batch:.3g}",
                *((_range(option.lost),) if known else ()),
            )
            for option in self.options
        )
        yield Table(head, tuple(rows))
        yield Note(self.first)


def advise(asked: Mapping[str, Any], mechanism: Mechanism, repriced: Repriced) -> Advice | None:
    """Advice for `mechanism`, which `asked` led to; None where no target epsilon or no Poisson draw is asked for."""
    private, epsilon = mechanism.private, asked.get("epsilon")
    draws = [step.draw for step in mechanism.plan().executions() if step.optimizer == "private"]
    if private is None or epsilon is None or not all(isinstance(one, PoissonRecords | PoissonUsers) for one in draws):
        return None
    target = float(epsilon)
    larger = {name: value for name, value in asked.items() if name not in _BATCH}
    larger |= {"expected_batch_size": 2 * private.expected_batch, "steps": private.steps}
    found = {
        AS_ASKED: (target, mechanism),
        "half the epsilon": (target / 2, _tried(repriced, {**asked, "epsilon": target / 2}, 1)),
        MORE_DATA: (target, _tried(repriced, asked, 2)),
        LARGER: (target, _tried(repriced, larger, 1)),
    }
    options = [_option(name, of, one) for name, (of, one) in found.items() if one is not None]
    return Advice(tuple(options), _first({option.name: option for option in options}))


def _tried(repriced: Repriced, words: Mapping[str, Any], scale: int) -> Mechanism | None:
    """None where these settings would be refused, such as a batch of more than there is."""
    try:
        return repriced(words, scale)
    except TacitError:
        return None


def _option(name: str, epsilon: float, mechanism: Mechanism) -> Option:
    private = mechanism.private
    assert private is not None
    ratio = private.noise_multiplier / private.expected_batch
    lost = expected_loss(ratio, private.steps) if mechanism.name == MEASURED_WITH else None
    return Option(name, epsilon, private.expected_batch, private.steps, ratio, lost)


def _first(options: Mapping[str, Option]) -> str:
    """A larger batch costs time alone, so it comes first as long as it helps."""
    now = options[AS_ASKED].noise_to_batch
    if LARGER in options and options[LARGER].noise_to_batch <= _WORTH_IT * now:
        larger = options[LARGER]
        return (
            f"Change first: expected_batch_size, to {larger.batch:,.0f} with {larger.steps:,} steps. It takes twice "
            f"the time and no privacy; noise / batch falls from {now:.3g} to {larger.noise_to_batch:.3g}."
        )
    more = f" (twice as much: {options[MORE_DATA].noise_to_batch:.3g})" if MORE_DATA in options else ""
    return f"Change first: the data{more}. Larger batches would hardly lower noise / batch any more."


def _range(lost: tuple[float, float] | None) -> str:
    if lost is None:
        return "not measured"
    low, high = (f"{one:.2f}" for one in lost)
    return low if low == high else f"{low} to {high}"


@cache
def measured_losses() -> tuple[MeasuredLoss, ...]:
    """All that was measured."""
    return from_json(tuple[MeasuredLoss, ...], files("tacit.mechanisms").joinpath(MEASURED).read_bytes())


def expected_loss(ratio: float, steps: int) -> tuple[float, float] | None:
    """What noise cost at this ratio, on each corpus where about as many steps were taken; never beyond the measured."""
    found = []
    for corpus in sorted({one.corpus for one in measured_losses()}):
        curve = sorted((one for one in measured_losses() if one.corpus == corpus), key=lambda one: one.noise_to_batch)
        if all(1 / _SIMILAR_STEPS <= steps / one.steps <= _SIMILAR_STEPS for one in curve):
            around = [(a, b) for a, b in pairwise(curve) if a.noise_to_batch <= ratio <= b.noise_to_batch]
            found += [_between(a, b, ratio) for a, b in around[:1]]
    return (min(found), max(found)) if found else None


def _between(below: MeasuredLoss, above: MeasuredLoss, ratio: float) -> float:
    """On the line between two measurements, over the logarithm of the ratio."""
    low, high = math.log(below.noise_to_batch), math.log(above.noise_to_batch)
    return below.lost + (above.lost - below.lost) * (math.log(ratio) - low) / (high - low)
