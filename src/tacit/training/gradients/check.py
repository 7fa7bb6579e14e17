"""A proof by example, on tokens that are nobody's, that the fast path computes this model's gradients row by row."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional

from tacit.data.batches import PADDING, BatchKind, LabeledBatch, TextBatch, Trainable, wide_type
from tacit.errors import GradientError
from tacit.models.causal_lm import require_causal
from tacit.models.classifier import Classifier
from tacit.models.language_model import Learner
from tacit.training.gradients.clipped import ClippedGradients, Flat, clipped_sum, exact, plain_sum
from tacit.training.gradients.recording import chosen_parameters

_TOLERANCE = 1e-3
_NO_CLIPPING = 1e30
_ROWS, _LENGTHS = 5, (9, 5, 2)  # the rows that are compared have different lengths
_AHEAD = 128  # how far a language model is tried for looking ahead


def check_gradients(
    model: Learner | Classifier, *, longest: int = 32, parameters: Collection[str] | None = None
) -> None:
    """Compare fast sums and norms of random rows with plain autograd on each row alone; refuse a model that differs.

    It finds what hooks cannot see: a weight used outside its layer's forward, scores changed after the head, and rows
    (or padding) that influence others, whose gradients have no bound; and a language model that looks ahead. Parameters
    that move are shifted meanwhile: at zero, where many begin, they would hide what they do.
    longest: how many positions a row has at most, and so how far others may be padded. Run it once before training; it
    reads no data and leaves no trace.
    """
    chosen = chosen_parameters(model.module, parameters)
    device = next(model.module.parameters()).device
    _require_float32(model.module)
    longest = min(longest, model.context)
    tokens = torch.randint(model.vocabulary_size, (_ROWS, _AHEAD), generator=torch.Generator().manual_seed(0))
    rows = [row[:length].tolist() for row, length in zip(tokens, _LENGTHS, strict=False)]
    with exact(model.module, device), _shifted(chosen):
        if isinstance(model, Classifier):
            _check_on(model, LabeledBatch.of_rows(rows, [0, 1, 0]).to(device), chosen, longest, PADDING)
        else:
            require_causal(model, tokens[:, : min(longest, _AHEAD)].to(device))
            _check_on(model, TextBatch.of_rows(rows).to(device), chosen, longest, padding=0)


def _check_on(
    model: Trainable[BatchKind], batch: BatchKind, chosen: Mapping[str, nn.Parameter], longest: int, padding: int
) -> None:
    rows = [batch.rows(torch.tensor([row], device=batch.weights.device)) for row in range(len(batch))]
    _check_apart(model, batch, rows, longest, padding)
    fast = clipped_sum(model, batch, Flat(_NO_CLIPPING), parameters=chosen)
    slow = [_gradients(model, row, chosen) for row in rows]
    total = {name: torch.stack([row[name] for row in slow]).sum(dim=0) for name in chosen}
    scale = _length(total)
    wrong = [
        name
        for name, value in total.items()
        for sums in (fast.sums, plain_sum(model, batch, parameters=chosen).sums)
        if not (sums[name] - value).norm() <= _TOLERANCE * (value.norm() + 1e-3 * scale)
    ]
    if wrong or not _norms_agree(fast, slow):
        raise GradientError(
            expected="gradients read from the layers to equal those of autograd",
            found=f"a difference in {', '.join(dict.fromkeys(wrong)) or 'the norms of single rows'}",
            way_out="freeze these parameters, or use their weights only through their layer's forward",
        )


def _check_apart(
    model: Trainable[BatchKind], batch: BatchKind, rows: list[BatchKind], longest: int, padding: int
) -> None:
    """What is computed for a row alone, beside others, and with the padding that the longest row would give it."""
    more = max(0, longest - batch.inputs.shape[1])
    with torch.no_grad():
        together = model.logits(batch.inputs)
        padded = model.logits(functional.pad(batch.inputs, (0, more), value=padding))
        for index, row in enumerate(rows):
            alone = model.logits(row.inputs)[0]
            room = _TOLERANCE * float(alone.abs().amax())
            for found in (together[index, : len(alone)], padded[index, : len(alone)]):
                if not float((found - alone).abs().amax()) <= room:
                    raise GradientError(
                        expected="a model in which neither other rows nor padding change what is computed for a row",
                        found=f"{type(model.module).__name__}, whose logits for a row depend on the other rows",
                        way_out="replace what mixes rows, such as batch normalisation, by a layer that looks at one"
                        " row, and what depends on the longest row, such as dynamic positions, by what does not",
                    )


def _gradients(model: Trainable[BatchKind], row: BatchKind, chosen: Mapping[str, nn.Parameter]) -> dict[str, Tensor]:
    with torch.enable_grad():
        loss = model.token_losses(row).total
    return dict(zip(chosen, torch.autograd.grad(loss, list(chosen.values()), materialize_grads=True), strict=True))


def _norms_agree(fast: ClippedGradients, slow: list[dict[str, Tensor]]) -> bool:
    norms = torch.stack([_length(row) for row in slow]).to(fast.norms.dtype)
    return fast.non_finite == 0 and bool(((fast.norms - norms).abs() <= _TOLERANCE * norms.amax()).all())


def _length(values: Mapping[str, Tensor]) -> Tensor:
    return torch.stack([value.square().sum() for value in values.values()]).sum().sqrt()


@contextmanager
def _shifted(parameters: Mapping[str, nn.Parameter]) -> Iterator[None]:
    """Every parameter at a random place near its own for a while; afterwards, bit for bit, what it was."""
    chance = torch.Generator().manual_seed(1)
    kept = {name: parameter.detach().clone() for name, parameter in parameters.items()}
    try:
        with torch.no_grad():
            for name, parameter in parameters.items():
                size = 0.01 + 0.1 * float(kept[name].square().mean().sqrt())
                noise = torch.randn(parameter.shape, generator=chance, dtype=parameter.dtype)
                parameter.add_(noise.to(parameter.device), alpha=size)
        yield
    finally:
        with torch.no_grad():
            for name, parameter in parameters.items():
                parameter.copy_(kept[name])


def _require_float32(module: nn.Module) -> None:
    narrow = {str(value.dtype) for value in module.parameters() if value.dtype != wide_type(value.dtype)}
    if narrow:
        raise GradientError(
            expected="a model in float32: in fewer digits, rounding for one row depends on the others",
            found=", ".join(sorted(narrow)),
            way_out="call model.float() before training",
        )
