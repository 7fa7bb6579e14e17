"""The plain sum of gradients, for public steps: same batches, same memory-saving loss, no clipping, no norms."""

from collections.abc import Collection
from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.gradients.cross_entropy import overwritable, replace_by_gradient
from tacit.gradients.recording import chosen_parameters
from tacit.models.base import Learner
from tacit.models.batch import Batch


@dataclass(frozen=True, slots=True, eq=False)
class PlainSum:
    """Gradients of the batch's weighted loss, by parameter name, float32; and the loss in nats."""

    sums: dict[str, Tensor]
    loss: float
    weight: float


def plain_sum(
    model: Learner, batch: Batch, *, positions: int | None = None, parameters: Collection[str] | None = None
) -> PlainSum:
    """Sum over the rows of the gradient of their weighted losses; arguments as in `clipped_sum`, `.grad` untouched."""
    chosen = chosen_parameters(model.module, parameters)
    sums = {name: torch.zeros_like(value, dtype=torch.float32, requires_grad=False) for name, value in chosen.items()}
    loss = 0.0
    for _, part in batch.micro_batches(positions):
        with torch.enable_grad():
            logits = model.logits(part.inputs)
        with torch.autocast(logits.device.type, enabled=False):
            gradient = overwritable(logits)
            loss += float((replace_by_gradient(gradient, part.targets, part.weights) * part.weights).sum())
            found = torch.autograd.grad([logits], list(chosen.values()), [gradient], materialize_grads=True)
            for total, value in zip(sums.values(), found, strict=True):
                total.add_(value)
    return PlainSum(sums, loss, float(batch.weights.sum()))
