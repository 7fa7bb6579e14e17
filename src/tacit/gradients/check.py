"""A proof by example, on tokens that are nobody's, that the fast path computes this model's gradients."""

from collections.abc import Collection

import torch
from torch import Tensor

from tacit.errors import GradientError
from tacit.gradients.clipped import clipped_sum
from tacit.gradients.clipping import PerParameter
from tacit.gradients.plain import plain_sum
from tacit.gradients.recording import chosen_parameters
from tacit.models.base import Learner
from tacit.models.batch import PADDING, Batch, BatchKind, LabelledBatch, Trainable
from tacit.models.classifier import Classifier

_TOLERANCE = 1e-3
_NO_CLIPPING = 1e30


def check_gradients(model: Learner | Classifier, *, length: int = 8, parameters: Collection[str] | None = None) -> None:
    """Compare fast sums of two random rows, unclipped, with plain autograd; refuse the model where they differ.

    It finds what hooks cannot see: a weight used outside its layer's forward, scores changed after the head, and rows
    (or padding) that influence others, whose gradients have no bound. Run it once before training; it reads no data and
    leaves no trace.
    """
    device = next(model.module.parameters()).device
    tokens = torch.randint(model.vocabulary_size, (2, length + 1), generator=torch.Generator().manual_seed(0))
    if isinstance(model, Classifier):
        _check_on(model, _labelled(tokens[:, 1:]).to(device), parameters)
    else:
        _check_on(model, Batch.of_tokens(tokens.to(device)), parameters)


def _labelled(tokens: Tensor) -> LabelledBatch:
    """A long row of the first class, and a short one of the second."""
    tokens[1, (tokens.shape[1] + 1) // 2 :] = PADDING
    return LabelledBatch(tokens, torch.tensor([[0], [1]]), torch.ones(2, 1))


def _check_on(model: Trainable[BatchKind], batch: BatchKind, parameters: Collection[str] | None) -> None:
    modes = [(part, part.training) for part in model.module.modules()]
    last = torch.tensor([len(batch) - 1], device=batch.weights.device)
    model.module.eval()
    try:
        fast = clipped_sum(model, batch, PerParameter(_NO_CLIPPING), parameters=parameters)
        plain = plain_sum(model, batch, parameters=parameters).sums
        chosen = chosen_parameters(model.module, parameters)
        with torch.enable_grad():
            total = model.token_losses(batch).total
        slow = dict(zip(chosen, torch.autograd.grad(total, list(chosen.values()), materialize_grads=True), strict=True))
        with torch.no_grad():
            together, alone = model.logits(batch.inputs)[last], model.logits(batch.rows(last).inputs)
    finally:
        for part, mode in modes:
            part.training = mode
    if not torch.allclose(together, alone, rtol=_TOLERANCE, atol=_TOLERANCE * float(alone.abs().amax())):
        raise GradientError(
            expected="a model in which no row of a batch changes what is computed for another",
            found="logits of a row that depend on the other rows",
            way_out="replace what mixes rows, such as batch normalisation, by a layer that looks at one row",
        )
    scale = torch.stack([value.norm() for value in slow.values()]).norm()
    wrong = [
        name
        for name, value in slow.items()
        if max((sums[name] - value).norm() for sums in (fast.sums, plain)) > _TOLERANCE * (value.norm() + 1e-3 * scale)
    ]
    if wrong or fast.non_finite:
        raise GradientError(
            expected="gradients read from the layers to equal those of autograd",
            found=f"a difference in {', '.join(wrong) or 'rows that are not finite'}",
            way_out="freeze these parameters, or use their weights only through their layer's forward",
        )
