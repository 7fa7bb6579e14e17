"""The loss of a softmax layer and its gradient, in the memory of the logits.

The logits are the largest tensor of a step (rows x time x vocabulary). Autograd would hold them, their log-softmax and
their gradient; here the gradient is written over the logits, a few rows at a time, while these are in the cache.
"""

import torch
from torch import Tensor
from torch.nn import functional

_CHUNK_NUMBERS = 1 << 18
_LEAST_PROBABILITY = 1e-30  # below it, float32 probabilities lose digits; the loss is then taken from the logits
_RESHAPES = ("ViewBackward0", "UnsafeViewBackward0")
_PRODUCTS = ("AddmmBackward0", "MmBackward0")


def overwritable(logits: Tensor) -> Tensor:
    """The memory of `logits` if backward will not look at their values again (a product's output); else a copy."""
    node = logits.grad_fn
    while node is not None and node.name() in _RESHAPES:
        node = node.next_functions[0][0]
    # `.data` and not `.detach()`: raising the version of a view would renew its grad_fn and lose the hooks on it
    own = logits.is_contiguous() and (node is None or node.name() in _PRODUCTS)
    return logits.data if own else logits.detach().clone(memory_format=torch.contiguous_format)


def replace_by_gradient(logits: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    """The loss of every target, (rows, time); afterwards `logits` holds the gradient of the weighted sum of losses.

    logits: (rows, time, vocabulary), contiguous, detached; written in their own type, computed in float32.
    """
    flat, target = logits.view(-1, logits.shape[2]), targets.reshape(-1, 1)
    weight = weights.reshape(-1, 1)
    losses = torch.empty_like(weight)
    rows = max(1, _CHUNK_NUMBERS // flat.shape[1])
    scratch = torch.empty(min(rows, len(flat)), flat.shape[1], device=flat.device)
    for part in range(0, len(flat), rows):
        chunk = slice(part, part + rows)
        losses[chunk] = _one_chunk(flat[chunk], target[chunk], weight[chunk], scratch)
    return losses.view(weights.shape)


def _one_chunk(logits: Tensor, target: Tensor, weight: Tensor, scratch: Tensor) -> Tensor:
    values = logits.float()
    probabilities = torch.softmax(values, dim=1, out=scratch[: len(logits)])
    chosen = probabilities.gather(1, target)
    losses = -chosen.log()
    unsure = chosen[:, 0] < _LEAST_PROBABILITY
    if unsure.any():
        losses[unsure] = functional.cross_entropy(values[unsure], target[unsure, 0], reduction="none")[:, None]
    torch.mul(probabilities, weight, out=values)
    values.scatter_add_(1, target, -weight)
    if values.dtype != logits.dtype:
        logits.copy_(values)
    return losses
