"""Before training: which way of computing per-row gradients is right for a model, and whether it has any.

Fast ways are compared with plain autograd on each row alone, on random tokens that are nobody's. It finds what hooks
cannot see: a weight used outside its layer's forward, scores changed after the head, layers that no rule reads.

G1 (apart). A model is refused if other rows, or padding, change what is computed for a row, or if a language model
   looks ahead: a row's influence would then have no bound.
G2 (choices). A model that chooses by comparing numbers (the router of a mixture of experts) takes one row at a time:
   rounding, which depends on the other rows of a batch, could tip a choice, and a row's gradient with it.
G3 (no trace). The model is afterwards, bit for bit, what it was.
G4 (no memory). A model whose buffers change when it reads is refused: they would keep what no noise covers.
"""

import logging
import math
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from tacit.common.libraries import foreign
from tacit.common.progress import LOG
from tacit.data.batches import PADDING, BatchKind, LabeledBatch, TextBatch, Trainable, wide_type
from tacit.errors import GradientError
from tacit.models.causal_lm import require_causal
from tacit.models.classifier import Classifier
from tacit.models.language_model import Learner
from tacit.models.sequence_classifier import SequenceClassifier
from tacit.training.gradients.clipped import ClippedGradients, Flat, Method, clipped_sum, exact, gradients_of, plain_sum
from tacit.training.gradients.recording import chosen_parameters, only_moving, zero_sums

_TOLERANCE = 1e-3
_NO_CLIPPING = 1e30
_LENGTHS = (9, 5, 2)  # the rows that are compared have different lengths
_AHEAD = 128  # how far a language model is tried for looking ahead
_SHOWN = 3  # names in a reason
_ALIVE = 0.5  # times 1 / sqrt(width)
_LARGE_SCORE = 1e3  # scores are tried up to here: a soft cap does nothing to small ones
_CHOICES = {"topk", "sort", "argmax", "argmin", "kthvalue", "max.dim", "min.dim"}


def check_gradients(
    model: Learner | Classifier | SequenceClassifier, *, longest: int = 32, parameters: Collection[str] | None = None
) -> Method:
    """The fastest method whose sums and norms equal those of autograd on each row alone; it is logged.

    Parameters that move are shifted meanwhile: at zero, where many begin, they would hide what they do.
    longest: how many positions a row has at most, and so how far others may be padded. Run it once before training.
    """
    chosen = chosen_parameters(model.module, parameters)
    device = next(model.module.parameters()).device
    _require_float32(model.module)
    _require_no_batch_norm(model.module)
    longest = min(longest, model.context)
    tokens = torch.randint(model.vocabulary_size, (len(_LENGTHS), _AHEAD), generator=torch.Generator().manual_seed(0))
    rows = [row[:length].tolist() for row, length in zip(tokens, _LENGTHS, strict=True)]
    with exact(model.module, device), _shifted(chosen), _unchanged_buffers(model.module):
        with torch.no_grad(), foreign(_unable):
            model.logits(tokens[:2, :2].to(device))
        if isinstance(model, Classifier | SequenceClassifier):
            return _chosen(model, LabeledBatch.of_rows(rows, [0, 1, 0]).to(device), chosen, longest, PADDING)
        require_causal(model, tokens[:1, : min(longest, _AHEAD)].to(device))
        return _chosen(model, TextBatch.of_rows(rows).to(device), chosen, longest, padding=0)


def _unable(found: str) -> GradientError:
    way_out = "use a model that transformers can run here: its folder may be damaged, or its config wrong"
    return GradientError("a model that computes scores for rows of tokens", found, way_out)


def _chosen(
    model: Trainable[BatchKind], batch: BatchKind, chosen: Mapping[str, nn.Parameter], longest: int, padding: int
) -> Method:
    rows = [batch.rows(torch.tensor([row], device=batch.weights.device)) for row in range(len(batch))]
    choices = _check_apart(model, batch, rows, longest, padding)
    truth = _Truth.of(model, rows, chosen)
    if not choices:  # which may leave an expert out
        _require_all_learn(truth)
    methods: tuple[Method, ...] = ("fused", "layers", "rows")
    reasons = []
    if choices:
        methods = ("rows",)
        reasons.append(f"it chooses by comparing numbers ({', '.join(choices)}), and rounding could tip a choice")
    for method in methods:
        reason = _why_not(model, batch, chosen, truth, method)
        if reason is None:
            return _logged(model, method, reasons)
        reasons.append(f"not {method}: {reason}")
    raise GradientError(
        expected="a model whose per-example gradients, by one method at least, equal those of autograd",
        found=f"{type(model.module).__name__}: {'; '.join(reasons)}",
        way_out="freeze the parameters that differ",
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Truth:
    """What autograd gives for each row alone: the sum of their gradients, and their norms."""

    sums: dict[str, Tensor]
    norms: Tensor

    @classmethod
    def of(cls, model: Trainable[BatchKind], rows: list[BatchKind], chosen: Mapping[str, nn.Parameter]) -> "_Truth":
        sums, norms = zero_sums(chosen), []
        with only_moving(model.module, chosen):
            for row in rows:
                found, _ = gradients_of(model, row, chosen)
                norms.append(_length(found))
                for name, value in found.items():
                    sums[name].add_(value)
        return cls(sums, torch.stack(norms))

    def differences(self, found: Mapping[str, Tensor]) -> list[str]:
        """Names of parameters whose sum is another."""
        room = 1e-3 * _length(self.sums)
        return [
            name
            for name, value in self.sums.items()
            if not (found[name] - value).norm() <= _TOLERANCE * (value.norm() + room)
        ]

    def has_norms(self, found: ClippedGradients) -> bool:
        differences = (found.norms - self.norms.to(found.norms.dtype)).abs()
        return found.non_finite == 0 and bool((differences <= _TOLERANCE * self.norms.amax()).all())


def _require_all_learn(truth: _Truth) -> None:
    idle = [name for name, total in truth.sums.items() if not total.any()]
    if idle:
        raise GradientError(
            expected="every parameter that moves to take part in the loss: others would move by noise alone",
            found=f"no gradient for {_few(idle)}",
            way_out="freeze these parameters with requires_grad_(False)",
        )


def _logged(model: Trainable[BatchKind], method: Method, reasons: list[str]) -> Method:
    why = f" ({'; '.join(reasons)})" if reasons else ""
    slow = method == "rows"
    LOG.log(
        logging.WARNING if slow else logging.INFO,
        "per-example gradients of %s by method %s%s%s",
        type(model.module).__name__,
        method,
        ": private steps take longer" if slow else "",
        why,
    )
    return method


def _why_not(
    model: Trainable[BatchKind], batch: BatchKind, chosen: Mapping[str, nn.Parameter], truth: _Truth, method: Method
) -> str | None:
    """Why a method is wrong for this model; None if it is right."""
    try:
        if method == "fused" and not _ends_with_head(model, batch):
            return "scores are changed after the head"
        fast = clipped_sum(model, batch, Flat(_NO_CLIPPING), parameters=chosen, method=method)
        plain = plain_sum(model, batch, parameters=chosen, method=method)
    except GradientError as error:
        return _few(error.found.split(", "))
    except Exception as error:  # whatever a model does when its layers are watched: it has another way
        return f"{type(error).__name__} in a pass that watches the layers"
    wrong = truth.differences(fast.sums) or truth.differences(plain.sums)
    if wrong:
        return f"a difference in {_few(wrong)}"
    return None if truth.has_norms(fast) else "a difference in the norms of single rows"


def _ends_with_head(model: Trainable[BatchKind], batch: BatchKind) -> bool:
    """Whether the model's scores are the output of its head, bit for bit, small and large."""
    weight = model.head.get_parameter("weight")
    kept = weight.detach().clone()
    seen: list[Tensor] = []
    handle = model.head.register_forward_hook(lambda _, __, output: seen.append(output))
    try:
        with torch.no_grad():
            small = model.logits(batch.inputs)
            weight.mul_(_LARGE_SCORE / small.abs().amax().clamp(min=1e-6))
            large = model.logits(batch.inputs)
    finally:
        handle.remove()
        with torch.no_grad():
            weight.copy_(kept)
    return len(seen) == 2 and all(
        found.numel() == scores.numel() and torch.equal(found.view_as(scores), scores)
        for found, scores in zip(seen, (small, large), strict=True)
    )


def _check_apart(
    model: Trainable[BatchKind], batch: BatchKind, rows: list[BatchKind], longest: int, padding: int
) -> list[str]:
    """Results for a row alone, in a batch with others, and with the padding that the longest row requires.

    The operations that choose by comparing numbers are returned. One row is padded: a long pass is most of the work.
    """
    more = max(0, longest - batch.inputs.shape[1])
    with torch.no_grad():
        with _Watch() as watch:
            together = model.logits(batch.inputs)
        padded = model.logits(functional.pad(batch.inputs[:1], (0, more), value=padding))
        for index, row in enumerate(rows):
            alone = model.logits(row.inputs)[0]
            room = _TOLERANCE * float(alone.abs().amax())
            for found in (together[index], *padded[index : index + 1]):
                if not float((found[: len(alone)] - alone).abs().amax()) <= room:
                    raise GradientError(
                        expected="a model in which neither other rows nor padding change what is computed for a row",
                        found=f"{type(model.module).__name__}, whose logits for a row depend on the other rows",
                        way_out="replace what mixes rows, such as batch normalization, by a layer that looks at one"
                        " row, and what depends on the longest row, such as dynamic positions, by what does not",
                    )
    return list(watch.seen)


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the operations that choose by comparing numbers."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: dict[str, None] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
        name = func.overloadpacket.__name__
        full = f"{name}.{func._overloadname}"
        if {name, full} & _CHOICES and isinstance(args[0], Tensor) and args[0].is_floating_point():
            self.seen[name] = None
        return func(*args, **(kwargs or {}))


def _few(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


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
                if parameter.dim() > 1:  # as large as keeps a signal alive: small weights hide what rows do to others
                    size = max(size, _ALIVE / math.sqrt(parameter.shape[-1]))
                noise = torch.randn(parameter.shape, generator=chance, dtype=parameter.dtype)
                parameter.add_(noise.to(parameter.device), alpha=size)
        yield
    finally:
        with torch.no_grad():
            for name, parameter in parameters.items():
                parameter.copy_(kept[name])


@contextmanager
def _unchanged_buffers(module: nn.Module) -> Iterator[None]:
    """Refuse a model whose buffers change inside; they are what they were in any case."""
    kept = {name: value.clone() for name, value in module.named_buffers()}
    changed = []
    try:
        yield
    finally:
        for name, value in list(module.named_buffers()):
            if name not in kept or not torch.equal(value, kept[name]):
                changed.append(name)
                path, _, local = name.rpartition(".")
                setattr(module.get_submodule(path), local, kept.get(name))
    if changed:
        raise GradientError(
            expected="a model that remembers nothing of what it reads: noise covers gradients alone",
            found=f"buffers that change in a forward pass: {_few(changed)}",
            way_out="remove these buffers, or let `forward` leave them as they are while `self.training` is false",
        )


def _require_float32(module: nn.Module) -> None:
    narrow = {str(value.dtype) for value in module.parameters() if value.dtype != wide_type(value.dtype)}
    if narrow:
        raise GradientError(
            expected="a model in float32: in fewer digits, rounding for one row depends on the others",
            found=", ".join(sorted(narrow)),
            way_out="call model.float() before training",
        )


def _require_no_batch_norm(module: nn.Module) -> None:
    found = [path for path, part in module.named_modules() if isinstance(part, nn.modules.batchnorm._BatchNorm)]
    if found:
        raise GradientError(
            expected="a model without batch normalization, which has no gradient of a single row",
            found=", ".join(found),
            way_out="replace it by layer normalization",
        )
