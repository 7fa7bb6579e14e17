"""How long training will take, where a step takes so long that nobody should wait for the first to know.

Rows of the next steps are drawn aside, their tokens are replaced by made-up ones, and a few of them are timed. It is
for the screen: how many rows a draw has, and how long they are, may not leave.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from tacit.data.batches import PADDING, Examples, LabeledBatch, TextBatch, Trainable
from tacit.models.causal_lm import CausalLM
from tacit.privacy.plan import Plain, PoissonUsers, Step
from tacit.training.gradients.clipped import Flat, clipped_sum, plain_sum
from tacit.training.sampling import sampler_for
from tacit.training.updates import Updates

SLOW_STEP = 10.0  # seconds; after a quicker one, the step itself says how long training takes
_LONG_ENOUGH = 3.0  # seconds that a timing should have: the first rows are slower than those after them
_MOST_ROWS = 64


@dataclass(frozen=True, slots=True)
class Estimate:
    """`seconds` that all steps take, at the speed of `rows` made-up rows."""

    seconds: float
    rows: int


def estimated(updates: Updates, left: Iterator[Step]) -> Estimate | None:
    """For the steps that are `left`; None if the first of them is quick, or there is none."""
    first = next(left, None)
    if first is None:
        return None
    measured = {first: _time(updates, first)}
    seconds = measured[first].seconds
    if seconds < SLOW_STEP:
        return None
    for step in left:
        if step not in measured:
            measured[step] = _time(updates, step)
        seconds += measured[step].seconds
    return Estimate(seconds, sum(one.rows for one in measured.values()))


def _time(updates: Updates, step: Step) -> Estimate:
    """Of one step: more and more rows are timed, until that takes a while or the step is known to be quick."""
    chance = np.random.default_rng(0)
    draws = sampler_for(step.draw, step.pool, updates.pools).draw(chance)
    drawn = np.concatenate([np.empty(0, np.int64), *(units.rows for units in draws)])
    passes = step.draw.local_epochs if isinstance(step.draw, PoissonUsers) else 1
    some = chance.permutation(drawn)[:_MOST_ROWS]
    count, seconds, expected = 0, 0.0, 0.0
    while count < len(some) and seconds < _LONG_ENOUGH and (not count or expected >= SLOW_STEP):
        count = min(len(some), max(1, 2 * count))
        batch = made_up(updates.read(step, some[:count]), updates.vocabulary_size)
        began = time.monotonic()
        _carry_out(updates, step, batch)
        seconds = time.monotonic() - began
        expected = seconds / count * len(drawn) * passes
    return Estimate(expected, count)


def _carry_out(updates: Updates, step: Step, batch: Examples) -> None:
    """The gradients of a step, and nothing done with them."""
    model: Trainable[Any] = updates.learner
    if isinstance(model, CausalLM):
        model = replace(model, cache=None)  # which has room for the rows of the corpus
    how, moving = updates.how(step), updates.moving[step.trainable]
    with updates.autocast():
        if isinstance(step.update, Plain):
            plain_sum(model, batch, parameters=moving, **how)
        else:
            clipped_sum(model, batch, Flat(step.update.clip_norm), parameters=moving, **how)


def made_up(batch: Examples, vocabulary_size: int) -> Examples:
    """As many rows, as long, with tokens that are nobody's."""
    if isinstance(batch, TextBatch):
        return replace(batch, tokens=_random(batch.tokens, vocabulary_size))
    assert isinstance(batch, LabeledBatch)
    inputs = torch.where(batch.inputs == PADDING, PADDING, _random(batch.inputs, vocabulary_size))
    return replace(batch, inputs=inputs, targets=torch.zeros_like(batch.targets))


def _random(tokens: torch.Tensor, vocabulary_size: int) -> torch.Tensor:
    chance = torch.Generator().manual_seed(0)
    return torch.randint(vocabulary_size, tokens.shape, generator=chance).to(tokens.device)
