"""Which layers have per-row gradients here, and how each is read off its input and its output's gradient.

To add a layer: a class with the methods of `Rule`, and a line in `rule_of`.
"""

from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from tacit.data.batches import wide, wide_type
from tacit.errors import GradientError
from tacit.models.lstm import Recurrence
from tacit.training.gradients.contributions import Lookup, Outer, PerRow, Sequence, Summed, Use

_CONV1D = "transformers.pytorch_utils.Conv1D"


class Sequences:
    """Makes each tensor of activations a `Sequence` once: layers that read the same input share its Gram matrices."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int, tuple[int, ...], tuple[int, ...]], Sequence] = {}

    def of(self, values: Tensor) -> Sequence:
        """(rows, ..., width) with all steps in one dimension."""
        flat = values.detach().reshape(values.shape[0], -1, values.shape[-1])
        key = (flat.data_ptr(), flat._version, tuple(flat.shape), flat.stride())
        return self._known.setdefault(key, Sequence(flat))


class LayerRule(Protocol):
    """How one kind of layer is read."""

    @property
    def watches_input(self) -> bool:
        """Whether it needs the gradient of its input, and its output; otherwise the gradient of its output."""

    def covers(self, layer: nn.Module) -> frozenset[str]:
        """Names, within the layer, of the parameters this rule accounts for."""

    def uses(
        self,
        layer: nn.Module,
        inputs: tuple[Tensor, ...],
        output: Tensor | None,
        gradient: Tensor,
        sequences: Sequences,
    ) -> Mapping[str, Use]:
        """The use of each parameter in one call."""


class LinearRule:
    """y = x W^T + b, or y = x W + b when `transposed` (the Conv1D of GPT-2)."""

    watches_input = False

    def __init__(self, transposed: bool) -> None:
        self._transposed = transposed

    def covers(self, layer: nn.Module) -> frozenset[str]:
        """Weight and bias."""
        return frozenset(("weight", "bias"))

    def uses(
        self,
        layer: nn.Module,
        inputs: tuple[Tensor, ...],
        output: Tensor | None,
        gradient: Tensor,
        sequences: Sequences,
    ) -> Mapping[str, Use]:
        """Weight before bias: the bias reuses its Gram matrices."""
        values, signals = sequences.of(inputs[0]), sequences.of(gradient)
        weight = Outer(values, signals) if self._transposed else Outer(signals, values)
        return {"weight": weight, "bias": Summed(signals)}


class EmbeddingRule:
    """y = W[tokens]."""

    watches_input = False

    def covers(self, layer: nn.Module) -> frozenset[str]:
        """The weight, unless its gradient is not the plain sum over rows."""
        assert isinstance(layer, nn.Embedding)
        plain = layer.max_norm is None and not layer.scale_grad_by_freq and not layer.sparse
        return frozenset(("weight",)) if plain else frozenset()

    def uses(
        self,
        layer: nn.Module,
        inputs: tuple[Tensor, ...],
        output: Tensor | None,
        gradient: Tensor,
        sequences: Sequences,
    ) -> Mapping[str, Use]:
        """Indices given once for all rows, repeated for every row."""
        assert isinstance(layer, nn.Embedding)
        indices = inputs[0].expand(gradient.shape[:-1]).reshape(len(gradient), -1)
        gradients = gradient.detach().reshape(len(gradient), -1, gradient.shape[-1])
        if layer.padding_idx is not None:
            gradients = gradients.masked_fill((indices == layer.padding_idx)[:, :, None], 0.0)
        return {"weight": Lookup(indices, gradients, layer.num_embeddings)}


class NormRule:
    """y = w n(x) + b, with n the normalization without scale and shift."""

    watches_input = False

    def covers(self, layer: nn.Module) -> frozenset[str]:
        """Scale and shift."""
        return frozenset(("weight", "bias"))

    def uses(
        self,
        layer: nn.Module,
        inputs: tuple[Tensor, ...],
        output: Tensor | None,
        gradient: Tensor,
        sequences: Sequences,
    ) -> Mapping[str, Use]:
        """Small enough to be formed for every row at once."""
        shape = tuple(layer.get_parameter("weight").shape)
        signal = wide(gradient.detach()).reshape(len(gradient), -1, *shape)
        values = _normalised(layer, wide(inputs[0].detach()), shape).reshape(signal.shape)
        return {"weight": PerRow((signal * values).sum(dim=1)), "bias": PerRow(signal.sum(dim=1))}


class RecurrenceRule:
    """z_t = p_t + W h_{t-1}: a linear layer whose input is the hidden states one step earlier."""

    watches_input = True

    def covers(self, layer: nn.Module) -> frozenset[str]:
        """The recurrent weight."""
        return frozenset(("weight",))

    def uses(
        self,
        layer: nn.Module,
        inputs: tuple[Tensor, ...],
        output: Tensor | None,
        gradient: Tensor,
        sequences: Sequences,
    ) -> Mapping[str, Use]:
        """The gradient of the projections is that of every z_t."""
        assert output is not None
        earlier = functional.pad(output.detach()[:, :-1], (0, 0, 1, 0))
        if len(inputs) > 1 and inputs[1] is not None:
            raise GradientError("a recurrence without weight drop", "a mask", "leave the mask out in private steps")
        return {"weight": Outer(sequences.of(gradient), sequences.of(earlier))}


def rule_of(layer: nn.Module) -> LayerRule | None:
    """The rule for exactly this kind of layer; a subclass may compute something else and has none."""
    kind = type(layer)
    if kind is nn.Linear or f"{kind.__module__}.{kind.__qualname__}" == _CONV1D:
        return LinearRule(transposed=kind is not nn.Linear)
    if kind is nn.Embedding:
        return EmbeddingRule()
    if kind is nn.LayerNorm or kind is nn.RMSNorm or _is_rms_norm(layer):
        return NormRule()
    return RecurrenceRule() if kind is Recurrence else None


def _normalised(layer: nn.Module, values: Tensor, shape: tuple[int, ...]) -> Tensor:
    if isinstance(layer, nn.LayerNorm):
        return functional.layer_norm(values, shape, None, None, layer.eps)
    return functional.rms_norm(values, shape, None, _rms_epsilon(layer))


def _rms_epsilon(layer: nn.Module) -> float | None:
    return layer.eps if isinstance(layer, nn.RMSNorm) else float(vars(layer)["variance_epsilon"])


def _is_rms_norm(layer: nn.Module) -> bool:
    """Whether a layer that calls itself RMSNorm (Llama's and its kin) computes w x / rms(x): tried on numbers."""
    names = [name for name, _ in layer.named_parameters()]
    if not type(layer).__name__.endswith("RMSNorm") or names != ["weight"] or "variance_epsilon" not in vars(layer):
        return False
    weight = layer.get_parameter("weight").detach()
    values = torch.linspace(-1.0, 2.0, weight.numel(), dtype=weight.dtype, device=weight.device).view(1, -1)
    expected = weight * functional.rms_norm(values, tuple(weight.shape), None, _rms_epsilon(layer))
    with torch.no_grad():
        return torch.allclose(
            layer(values), expected, rtol=1e-5 if weight.dtype == wide_type(weight.dtype) else 1e-2, atol=1e-6
        )
