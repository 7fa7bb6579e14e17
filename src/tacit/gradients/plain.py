"""The plain sum of gradients, for public steps: same batches, same head, no clipping, no norms."""

from collections.abc import Collection
from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.gradients.head import HeadPass, memory, states_before_head
from tacit.gradients.recording import chosen_parameters, names_within, zero_sums
from tacit.models.batch import BatchKind, Trainable, wide


@dataclass(frozen=True, slots=True, eq=False)
class PlainSum:
    """Gradients of the batch's weighted loss, by parameter name, in float32 or better; and the loss in nats."""

    sums: dict[str, Tensor]
    loss: float
    weight: float


def plain_sum(
    model: Trainable[BatchKind],
    batch: BatchKind,
    *,
    positions: int | None = None,
    parameters: Collection[str] | None = None,
) -> PlainSum:
    """Sum over the rows of the gradient of their weighted losses; arguments as in `clipped_sum`, `.grad` untouched."""
    chosen = chosen_parameters(model.module, parameters)
    sums = zero_sums(chosen)
    of_head = {local: sums[name] for name, local in names_within(model.head, chosen).items()}
    loss = 0.0
    with memory() as room:
        for _, part in batch.micro_batches(positions):
            head = HeadPass(model.head, states_before_head(model, part), part, room, keep_scores=False)
            with torch.no_grad():
                for scores, read in head.chunks():
                    _add(of_head, scores.flatten(0, 1), wide(read.flatten(0, 1)))
            for total, value in zip(sums.values(), head.backward(*chosen.values()), strict=True):
                total.add_(value)
            loss += float(head.row_losses().sum())
    return PlainSum(sums, loss, float(batch.weights.sum()))


def _add(sums: dict[str, Tensor], gradient: Tensor, read: Tensor) -> None:
    """Add what a few rows say about the head's weight and bias."""
    if "weight" in sums:
        sums["weight"].addmm_(gradient.t(), read)
    if "bias" in sums:
        sums["bias"].add_(gradient.sum(dim=0))
