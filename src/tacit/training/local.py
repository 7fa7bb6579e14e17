"""One user's whole training as one clipped vector.

`local_sum` is DP-FedAvg (McMahan et al., ICLR 2018, arXiv 1710.06963): a user's whole update is one clipped vector. Of
the paper, E, B and eta are `LocalConfig`, -Delta_k is theta - theta_local, S is `clip_norm`, w_k a unit's weight. Where
we differ: the update is clipped once, when it is complete. One local step on all rows is DP-FedSGD.

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
from tacit.training.gradients.clipped import Clipping, Method, add_clipped, exact, plain_sum
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
    method: Method = "fused",
) -> LocalSum:
    """Sum over `units` of the weighted clipped pseudo-gradient.

    positions, parameters, method: as in `plain_sum`. Units are taken one at a time.
    """
    chosen = chosen_parameters(learner.module, parameters)
    training = _LocalTraining(learner, chosen, settings, positions, method)
    sums = zero_sums(chosen)
    norms = []
    for unit in units:
        with exact(learner.module, unit.batch.weights.device):
            update = training.update(unit.batch, np.random.Generator(np.random.PCG64DXSM(unit.seed)))
        norms.append(float(add_clipped(sums, update, clipping, unit.weight)))
    found = torch.tensor(norms, dtype=torch.float64)
    return LocalSum(sums, clipping.clip_norm, found, int((~found.isfinite()).sum()))


@dataclass(eq=False)
class _LocalTraining(Generic[BatchKind]):
    """Trains from the same start again and again."""

    learner: Trainable[BatchKind]
    parameters: Mapping[str, nn.Parameter]
    settings: LocalConfig
    positions: int | None
    method: Method

    def __post_init__(self) -> None:
        self._start = {name: parameter.detach().clone() for name, parameter in self.parameters.items()}

    def update(self, batch: BatchKind, generator: np.random.Generator) -> dict[str, Tensor]:
        """theta - theta_local: the local steps summed up, which loses no digits to a subtraction."""
        update = zero_sums(self.parameters)
        try:
            for number, part in enumerate(self._parts(batch, generator)):
                if number:  # the first step finds the start in place, and where the last one leads nobody looks
                    self._place(update)
                gradient = plain_sum(
                    self.learner, part, positions=self.positions, parameters=self.parameters, method=self.method
                )
                if gradient.weight:
                    for name, total in gradient.sums.items():
                        update[name].add_(total.div_(gradient.weight), alpha=self.settings.learning_rate)
        finally:
            self._place(None)
        return update

    def _parts(self, batch: BatchKind, generator: np.random.Generator) -> Iterator[BatchKind]:
        for _ in range(self.settings.epochs):
            order = torch.from_numpy(generator.permutation(len(batch))).to(batch.weights.device)
            for first in range(0, len(order), self.settings.batch_size):
                yield batch.rows(order[first : first + self.settings.batch_size])

    @torch.no_grad()
    def _place(self, update: Mapping[str, Tensor] | None) -> None:
        for name, parameter in self.parameters.items():
            parameter.copy_(self._start[name] if update is None else self._start[name] - update[name])
