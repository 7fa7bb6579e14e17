"""How each kind of layer is read: per-row gradients from its input and the gradient of its output.

To add a rule: a class with the methods of `LayerRule`, and a line in `rule_of`. A rule may be a guess: whether it gives
what autograd gives is checked on every model before training (`gradients.check`).
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol
from weakref import WeakValueDictionary

import torch
from torch import Tensor, nn
from torch.nn import functional

from tacit.data.batches import wide, wide_type
from tacit.errors import GradientError
from tacit.models.lstm import Recurrence
from tacit.training.gradients.contributions import Lookup, Outer, PerRow, Sequence, Use

_CONV1D = "transformers.pytorch_utils.Conv1D"


class Sequences:
    """Makes each tensor of activations a `Sequence` once: layers that read the same input share its Gram matrices.

    It keeps none alive that nobody else keeps; what is found by its address is therefore still there.
    """

    def __init__(self) -> None:
        self._known: WeakValueDictionary[tuple[int, int, tuple[int, ...], tuple[int, ...]], Sequence]
        self._known = WeakValueDictionary()

    def of(self, values: Tensor) -> Sequence:
        """(rows, ..., width) with all steps in one dimension."""
        flat = values.detach().reshape(values.shape[0], -1, values.shape[-1])
        key = (flat.data_ptr(), flat._version, tuple(flat.shape), flat.stride())
        return self._known.setdefault(key, Sequence(flat))


@dataclass(frozen=True, slots=True)
class Arguments:
    """What a layer was called with."""

    positional: tuple[Any, ...]
    named: Mapping[str, Any]

    @property
    def tensors(self) -> list[Tensor]:
        """Those among them; the first is what the layer reads."""
        every = (*self.positional, *self.named.values())
        return [value for value in every if isinstance(value, Tensor)]


@dataclass(frozen=True, slots=True, eq=False)
class LayerCall:
    """One call of a layer in a pass: what it read and what came back, with one entry per row in front.

    `output` is kept only for rules that watch the input; `arguments` are what the layer got, unchanged.
    """

    values: Tensor
    output: Tensor | None
    gradient: Tensor
    sequences: Sequences
    arguments: Arguments


class LayerRule(Protocol):
    """How one kind of layer is read."""

    @property
    def watches_input(self) -> bool:
        """Whether it needs the gradient of its input, and its output; otherwise the gradient of its output."""

    def covers(self, layer: nn.Module) -> frozenset[str]:
        """Names, within the layer, of the parameters this rule accounts for."""

    def uses(self, layer: nn.Module, call: LayerCall) -> Mapping[str, Use]:
        """The use of each parameter in one call."""


class LinearRule:
    """y = x W^T + b, or y = x W + b when `transposed` (the Conv1D of GPT-2)."""

    watches_input = False

    def __init__(self, transposed: bool) -> None:
        self._transposed = transposed

    def covers(self, layer: nn.Module) -> frozenset[str]:
        return frozenset(("weight", "bias"))

    def uses(self, layer: nn.Module, call: LayerCall) -> Mapping[str, Use]:
        values, signals = call.sequences.of(call.values), call.sequences.of(call.gradient)
        weight = Outer(values, signals) if self._transposed else Outer(signals, values)
        if "bias" not in dict(layer.named_parameters(recurse=False)):
            return {"weight": weight}
        return {"weight": weight, "bias": PerRow(wide(signals.values).sum(dim=1))}


class EmbeddingRule:
    """y = W[tokens]; a subclass may compute its own row numbers (OPT's positions) and scale y (Gemma 3's tokens)."""

    watches_input = False

    def covers(self, layer: nn.Module) -> frozenset[str]:
        """The weight, unless its gradient is not the plain sum over rows."""
        assert isinstance(layer, nn.Embedding)
        plain = layer.max_norm is None and not layer.scale_grad_by_freq and not layer.sparse
        return frozenset(("weight",)) if plain else frozenset()

    def uses(self, layer: nn.Module, call: LayerCall) -> Mapping[str, Use]:
        """Indices given once for all rows, repeated for every row."""
        assert isinstance(layer, nn.Embedding)
        gradient = call.gradient.detach()
        if type(layer) is nn.Embedding:
            indices = call.values.expand(gradient.shape[:-1])
        else:
            indices, scale = _looked_up(layer, call.arguments)
            indices, scale = (found.expand(gradient.shape[:-1]) for found in (indices, scale))
            gradient = gradient * scale.to(gradient.dtype).unsqueeze(-1)
        indices = indices.reshape(len(gradient), -1)
        gradients = gradient.reshape(len(gradient), -1, gradient.shape[-1])
        if layer.padding_idx is not None:
            gradients = gradients.masked_fill((indices == layer.padding_idx)[:, :, None], 0.0)
        return {"weight": Lookup(indices, gradients, layer.num_embeddings)}


def _looked_up(layer: nn.Embedding, arguments: Arguments) -> tuple[Tensor, Tensor]:
    """Row numbers and scales: what the layer itself makes of a table that contains row numbers and ones."""
    numbers = torch.arange(layer.num_embeddings, dtype=torch.float64, device=layer.weight.device)
    table = torch.stack((numbers, torch.ones_like(numbers)), dim=1)
    found = _with_parameters(layer, weight=table)(*arguments.positional, **arguments.named)
    return (found[..., 0] / found[..., 1]).round().long(), found[..., 1]


def _with_parameters(layer: nn.Module, **parameters: Tensor | None) -> Callable[..., Tensor]:
    """The layer's forward with other parameters; the layer and its hooks stay out of it."""
    twin = copy.copy(layer)
    vars(twin)["_parameters"] = parameters
    forward: Callable[..., Tensor] = twin.forward
    return forward


class NormRule:
    """y = (a + w) n(x) + b, with n the normalization without scale and shift, and any constant a."""

    watches_input = False

    def __init__(self, normalize: Callable[[Tensor], Tensor]) -> None:
        self._normalize = normalize

    def covers(self, layer: nn.Module) -> frozenset[str]:
        return frozenset(("weight", "bias"))

    def uses(self, layer: nn.Module, call: LayerCall) -> Mapping[str, Use]:
        """Small enough to be formed for every row at once."""
        shape = tuple(layer.get_parameter("weight").shape)
        signal = wide(call.gradient.detach()).reshape(len(call.gradient), -1, *shape)
        values = self._normalize(wide(call.values.detach())).reshape(signal.shape)
        return {"weight": PerRow((signal * values).sum(dim=1)), "bias": PerRow(signal.sum(dim=1))}


class RecurrenceRule:
    """z_t = p_t + W h_{t-1}: a linear layer whose input is the hidden states one step earlier."""

    watches_input = True

    def covers(self, layer: nn.Module) -> frozenset[str]:
        return frozenset(("weight",))

    def uses(self, layer: nn.Module, call: LayerCall) -> Mapping[str, Use]:
        """The gradient of the projections is that of every z_t."""
        assert call.output is not None
        earlier = functional.pad(call.output.detach()[:, :-1], (0, 0, 1, 0))
        if len(call.arguments.tensors) > 1:
            raise GradientError("a recurrence without weight drop", "a mask", "leave the mask out in private steps")
        return {"weight": Outer(call.sequences.of(call.gradient), call.sequences.of(earlier))}


def rule_of(layer: nn.Module) -> LayerRule | None:
    """The rule for this kind of layer. A subclass may compute something else: it is tried on numbers."""
    kind = type(layer)
    if kind is nn.Linear or f"{kind.__module__}.{kind.__qualname__}" == _CONV1D:
        return LinearRule(transposed=kind is not nn.Linear)
    if isinstance(layer, nn.Linear):
        return LinearRule(transposed=False) if _is_linear(layer) else None
    if isinstance(layer, nn.Embedding):
        return EmbeddingRule()
    if kind is Recurrence:
        return RecurrenceRule()
    normalize = _normalization(layer)
    return None if normalize is None else NormRule(normalize)


def _is_linear(layer: nn.Linear) -> bool:
    """Whether a subclass (Falcon's) computes x W^T + b after all."""
    weight = layer.weight.detach()
    values = _numbers(weight, (2, 3, layer.in_features))
    with torch.no_grad():
        return _is_near(layer.forward(values), functional.linear(values, weight, layer.bias))


def _normalization(layer: nn.Module) -> Callable[[Tensor], Tensor] | None:
    """What a normalization layer computes before scale and shift; None if it is no such layer."""
    if isinstance(layer, nn.LayerNorm):
        return partial(functional.layer_norm, normalized_shape=layer.normalized_shape, eps=layer.eps)
    if isinstance(layer, nn.RMSNorm):
        return partial(functional.rms_norm, normalized_shape=layer.normalized_shape, eps=layer.eps)
    own = dict(layer.named_parameters())
    if not type(layer).__name__.endswith("Norm") or not {"weight"} <= own.keys() <= {"weight", "bias"}:
        return None
    if not _is_scaled(layer, own["weight"].detach(), own.get("bias")):
        return None
    return _rms_norm(layer, own["weight"].detach()) or partial(_unscaled, layer)


def _is_scaled(layer: nn.Module, weight: Tensor, bias: Tensor | None) -> bool:
    """Whether scale and shift act on each number alone: y(w, b) = y(0, 0) + w n(x) + b."""
    values = _numbers(weight, (2, 3, *weight.shape))
    shift = None if bias is None else torch.zeros_like(bias)
    with torch.no_grad():
        base = _with_parameters(layer, weight=torch.zeros_like(weight), bias=shift)(values)
        expected = base + weight * _unscaled(layer, values) + (0.0 if bias is None else bias)
        return _is_near(layer.forward(values), expected)


def _unscaled(layer: nn.Module, values: Tensor) -> Tensor:
    """n(x), whatever it is: y(1, 0) - y(0, 0)."""
    own = dict(layer.named_parameters())
    empty = {name: torch.zeros_like(value) for name, value in own.items()}
    filled = {**empty, "weight": torch.ones_like(own["weight"])}
    return _with_parameters(layer, **filled)(values) - _with_parameters(layer, **empty)(values)


def _rms_norm(layer: nn.Module, weight: Tensor) -> Callable[[Tensor], Tensor] | None:
    """The function of torch, where a layer (Llama's, Gemma's and their kin) computes x / rms(x): it is faster."""
    names = [name for name in ("variance_epsilon", "eps") if isinstance(vars(layer).get(name), float)]
    if not names:
        return None
    found = partial(functional.rms_norm, normalized_shape=tuple(weight.shape), eps=vars(layer)[names[0]])
    values = _numbers(weight, (2, 3, *weight.shape))
    with torch.no_grad():
        return found if _is_near(found(values), _unscaled(layer, values)) else None


def _numbers(like: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Numbers to try a layer on, the same every time: some near one, some so small that an epsilon matters."""
    values = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    values[1:] *= 1e-3
    return values.to(like)


def _is_near(found: Tensor, expected: Tensor) -> bool:
    """To float32 precision at best: layers of transformers compute in float32 whatever they are given."""
    narrow = found.dtype != wide_type(found.dtype)
    return torch.allclose(found, expected.to(found.dtype), rtol=1e-2 if narrow else 1e-5, atol=1e-2 if narrow else 1e-6)
