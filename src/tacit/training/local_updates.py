"""A user's whole update as one clipped vector: train on the user's rows, take the difference, clip it.

McMahan et al., "Learning Differentially Private Recurrent Language Models" (ICLR 2018, arXiv 1710.06963), DP-FedAvg.

| paper | here |
|---|---|
| E, B, eta | `LocalSettings` |
| -Delta_k | the pseudo-gradient theta - theta_local, so that an optimiser may go down along the sum |
| S | `clipping.clip_norm` |
| w_k <= 1 | the weight of a unit, a public number |

Where we differ: the update is clipped once, when it is complete, not after every local step as well. One local step on
all rows is the clipped gradient of their mean loss, times the learning rate: DP-FedSGD.

G1 (sensitivity). A unit adds a vector of length at most `clip_norm` x its weight, rounding included, whatever its rows
   and the learning rate are; a weight too small for float32 adds nothing. `sensitivity` is `clip_norm`: it does not
   depend on who was drawn.
G2 (restored). Every parameter is afterwards, bit for bit, what it was: after each unit, and after an error.
G3 (weights). A weight multiplies the clipped vector; one outside [0, 1] is refused.
G4 (finite). A unit whose update, or its squared length, is not finite adds zero, and is counted.
G5 (exact). The sum equals that of training a copy of the model for each unit, up to float32 rounding, whatever the
   caller's autocast and the model's dropouts, which are off; `positions` changes nothing.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic

import numpy as np
import torch
from torch import Tensor, nn

from tacit.config.model_schema import LocalConfig
from tacit.data.batches import BatchKind, Trainable
from tacit.errors import ClaimRefused
from tacit.training.gradients.clipped import Clipping, exact, plain_sum, safe_factors
from tacit.training.gradients.recording import chosen_parameters, zero_sums


@dataclass(frozen=True, slots=True, eq=False)
class LocalUnit(Generic[BatchKind]):
    """One user: rows, weight, and what the order of its rows is drawn from, which must not depend on other users."""

    batch: BatchKind
    weight: float
    seed: tuple[int, ...]

    def __post_init__(self) -> None:
        if not 0 <= self.weight <= 1:
            raise ClaimRefused(
                expected="a unit's weight between 0 and 1, or its vector is longer than the price counts",
                found=str(self.weight),
                way_out="divide by a public cap and cut at 1: min(records / weight_cap, 1)",
            )


@dataclass(frozen=True, slots=True, eq=False)
class LocalSum:
    """What a private step adds noise to. Only `sums` after noise may leave; norms are exact, and private."""

    sums: dict[str, Tensor]  # by parameter name, in float32 or better
    sensitivity: float
    norms: Tensor  # (units,), before clipping and weighting
    non_finite: int


def local_sum(
    learner: Trainable[BatchKind],
    units: Iterable[LocalUnit[BatchKind]],
    clipping: Clipping,
    settings: LocalConfig,
    *,
    positions: int | None = None,
    parameters: Collection[str] | None = None,
) -> LocalSum:
    """Sum over `units` of the weighted clipped pseudo-gradient.

    positions, parameters: as in `clipped_sum`. Units are taken one at a time.
    """
    chosen = chosen_parameters(learner.module, parameters)
    training = _LocalTraining(learner, chosen, settings, positions)
    sums = zero_sums(chosen)
    norms = []
    for unit in units:
        with exact(learner.module, unit.batch.weights.device):
            update = training.update(unit.batch, np.random.Generator(np.random.PCG64DXSM(unit.seed)))
        norms.append(_add_clipped(sums, update, clipping, unit.weight))
    found = torch.tensor(norms, dtype=torch.float64)
    return LocalSum(sums, clipping.clip_norm, found, int((~found.isfinite()).sum()))


class _LocalTraining(Generic[BatchKind]):
    """Trains from the same start again and again."""

    def __init__(
        self,
        learner: Trainable[BatchKind],
        parameters: Mapping[str, nn.Parameter],
        settings: LocalConfig,
        positions: int | None,
    ) -> None:
        self._learner = learner
        self._parameters = parameters
        self._settings = settings
        self._positions = positions
        self._start = {name: parameter.detach().clone() for name, parameter in parameters.items()}

    def update(self, batch: BatchKind, generator: np.random.Generator) -> dict[str, Tensor]:
        """theta - theta_local: the local steps summed up, which loses no digits to a subtraction."""
        update = zero_sums(self._parameters)
        try:
            for number, part in enumerate(self._parts(batch, generator)):
                if number:  # the first step finds the start in place, and where the last one leads nobody looks
                    self._move(update)
                self._step(update, part)
        finally:
            self._restore()
        return update

    def _parts(self, batch: BatchKind, generator: np.random.Generator) -> Iterator[BatchKind]:
        for _ in range(self._settings.epochs):
            order = torch.from_numpy(generator.permutation(len(batch))).to(batch.weights.device)
            for first in range(0, len(order), self._settings.batch_size):
                yield batch.rows(order[first : first + self._settings.batch_size])

    def _step(self, update: dict[str, Tensor], part: BatchKind) -> None:
        gradient = plain_sum(self._learner, part, positions=self._positions, parameters=self._parameters)
        if gradient.weight:
            for name, total in gradient.sums.items():
                update[name].add_(total.div_(gradient.weight), alpha=self._settings.learning_rate)

    @torch.no_grad()
    def _move(self, update: Mapping[str, Tensor]) -> None:
        for name, parameter in self._parameters.items():
            parameter.copy_(self._start[name] - update[name])

    @torch.no_grad()
    def _restore(self) -> None:
        for name, parameter in self._parameters.items():
            parameter.copy_(self._start[name])


def _add_clipped(sums: dict[str, Tensor], update: Mapping[str, Tensor], clipping: Clipping, weight: float) -> float:
    """Add the weighted clipped update to `sums`; its length is returned."""
    squares = torch.stack([value.square().sum() for value in update.values()])[:, None]
    factors, finite = safe_factors(clipping, squares)
    if finite:
        for (name, value), factor in zip(update.items(), factors[:, 0].tolist(), strict=True):
            if factor * weight >= torch.finfo(value.dtype).smallest_normal:  # below, numbers have few digits
                sums[name].add_(value, alpha=factor * weight)
    return float(squares.sum().sqrt())
