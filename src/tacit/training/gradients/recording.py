"""Watches a model through one forward and backward pass, and leaves it as it was.

G1 (no trace). Hooks are on the model only inside the `with` block; `requires_grad` flags are restored, also after an
   error.
G2 (coverage). Every parameter that is to move belongs to a layer with a rule, else it is refused by name before the
   pass; and its layer took part in the loss, else it is refused by name after it.

A layer's rule reads per-row gradients off its input and its output's gradient. To add one: a class with the methods of
`LayerRule`, and a line in `rule_of`.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol
from weakref import WeakValueDictionary

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.hooks import RemovableHandle

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


@dataclass(frozen=True, slots=True, eq=False)
class LayerCall:
    """One call of a layer in a pass; `output` is kept only for rules that watch the input."""

    inputs: tuple[Tensor, ...]
    output: Tensor | None
    gradient: Tensor
    sequences: Sequences


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
        values, signals = call.sequences.of(call.inputs[0]), call.sequences.of(call.gradient)
        weight = Outer(values, signals) if self._transposed else Outer(signals, values)
        if "bias" not in dict(layer.named_parameters(recurse=False)):
            return {"weight": weight}
        return {"weight": weight, "bias": PerRow(wide(signals.values).sum(dim=1))}


class EmbeddingRule:
    """y = W[tokens]."""

    watches_input = False

    def covers(self, layer: nn.Module) -> frozenset[str]:
        """The weight, unless its gradient is not the plain sum over rows."""
        assert isinstance(layer, nn.Embedding)
        plain = layer.max_norm is None and not layer.scale_grad_by_freq and not layer.sparse
        return frozenset(("weight",)) if plain else frozenset()

    def uses(self, layer: nn.Module, call: LayerCall) -> Mapping[str, Use]:
        """Indices given once for all rows, repeated for every row."""
        assert isinstance(layer, nn.Embedding)
        gradient = call.gradient
        indices = call.inputs[0].expand(gradient.shape[:-1]).reshape(len(gradient), -1)
        gradients = gradient.detach().reshape(len(gradient), -1, gradient.shape[-1])
        if layer.padding_idx is not None:
            gradients = gradients.masked_fill((indices == layer.padding_idx)[:, :, None], 0.0)
        return {"weight": Lookup(indices, gradients, layer.num_embeddings)}


class NormRule:
    """y = w n(x) + b, with n the normalization without scale and shift."""

    watches_input = False

    def covers(self, layer: nn.Module) -> frozenset[str]:
        return frozenset(("weight", "bias"))

    def uses(self, layer: nn.Module, call: LayerCall) -> Mapping[str, Use]:
        """Small enough to be formed for every row at once."""
        shape = tuple(layer.get_parameter("weight").shape)
        signal = wide(call.gradient.detach()).reshape(len(call.gradient), -1, *shape)
        values = _normalised(layer, wide(call.inputs[0].detach()), shape).reshape(signal.shape)
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
        if len(call.inputs) > 1 and call.inputs[1] is not None:
            raise GradientError("a recurrence without weight drop", "a mask", "leave the mask out in private steps")
        return {"weight": Outer(call.sequences.of(call.gradient), call.sequences.of(earlier))}


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


def chosen_parameters(module: nn.Module, names: Collection[str] | None) -> dict[str, nn.Parameter]:
    """The parameters that move: those named, or all that require a gradient; a tied one has its first name."""
    known = dict(module.named_parameters())
    if names is None:
        return {name: parameter for name, parameter in known.items() if parameter.requires_grad}
    unknown = sorted(set(names) - set(known))
    if unknown:
        raise GradientError(
            "names of parameters of the model", ", ".join(unknown), "take names from module.named_parameters()"
        )
    return {name: parameter for name, parameter in known.items() if name in names}


def zero_sums(parameters: Mapping[str, nn.Parameter]) -> dict[str, Tensor]:
    """A sum of nothing for each, in float32 or better."""
    return {
        name: torch.zeros_like(value, dtype=wide_type(value.dtype), requires_grad=False)
        for name, value in parameters.items()
    }


def names_within(layer: nn.Module, parameters: dict[str, nn.Parameter]) -> dict[str, str]:
    """Which of `parameters` are the layer's own, and what it calls them."""
    names = {id(parameter): name for name, parameter in parameters.items()}
    own = layer.named_parameters(recurse=False)
    return {names[id(value)]: local for local, value in own if id(value) in names}


class Recording:
    """The uses of each parameter, as the backward pass reaches them; those of the head are noted by others."""

    def __init__(self, parameters: dict[str, nn.Parameter], head: nn.Module) -> None:
        self._parameters = parameters
        self._head = head
        self._names = {id(parameter): name for name, parameter in parameters.items()}
        self._uses: dict[str, list[Use]] = {}
        self._sequences = Sequences()
        self.handles: list[RemovableHandle] = []  # of hooks that are removed when the pass is over
        self.rows = 0  # of the pass under way

    def start(self, rows: int) -> None:
        """Forget the last pass; the next one has this many rows."""
        self._uses = {name: [] for name in self._parameters}
        self._sequences = Sequences()
        self.rows = rows

    def finish(self) -> dict[str, list[Use]]:
        """The uses of every parameter in this pass, dense ones first; they are forgotten here."""
        idle = [name for name, uses in self._uses.items() if not uses]
        if idle:
            raise GradientError(
                expected="every parameter that moves to take part in the loss through its layer's forward",
                found=f"no gradient for {', '.join(idle)}",
                way_out="freeze these parameters, or call the layer itself instead of using its weight elsewhere",
            )
        uses, self._uses = self._uses, {}
        self._sequences = Sequences()
        for handle in self.handles:  # tensor, hook and input hold each other: memory would wait for the collector
            handle.remove()
        self.handles.clear()
        return {name: sorted(found, key=lambda use: isinstance(use, Lookup)) for name, found in uses.items()}

    @contextmanager
    def watching(self, module: nn.Module) -> Iterator[None]:
        """Hooks on every layer that holds a parameter that moves; inside, no parameter requires a gradient."""
        watched = self._covered(module)
        flags = [(parameter, parameter.requires_grad) for parameter in module.parameters()]
        handles = []
        try:
            for parameter, _ in flags:
                parameter.requires_grad_(False)
            for layer, rule in watched:
                if layer is self._head:
                    continue
                if rule.watches_input:
                    handles.append(layer.register_forward_pre_hook(_require_input_gradient))
                handles.append(layer.register_forward_hook(_Hook(self, rule)))
            yield
        finally:
            for handle in handles:
                handle.remove()
            for parameter, flag in flags:
                parameter.requires_grad_(flag)

    def _covered(self, module: nn.Module) -> list[tuple[nn.Module, LayerRule]]:
        found: list[tuple[nn.Module, LayerRule]] = []
        refused = []
        for path, layer in module.named_modules():
            own = {local for local, value in layer.named_parameters(recurse=False) if id(value) in self._names}
            if not own:
                continue
            rule = rule_of(layer)
            if rule is None or not own <= rule.covers(layer):
                refused += [f"{path}.{local} ({type(layer).__name__})".lstrip(".") for local in sorted(own)]
            else:
                found.append((layer, rule))
        if refused:
            raise GradientError(
                expected="parameters of layers whose per-example gradients are known (Linear, Conv1D, Embedding,"
                " LayerNorm, RMSNorm, tacit's LSTM)",
                found=", ".join(refused),
                way_out="freeze these parameters with requires_grad_(False), or add a rule in gradients/recording.py",
            )
        return found

    def moves(self, layer: nn.Module) -> Collection[str]:
        """What the layer calls those of its own parameters that move."""
        return [local for local, value in layer.named_parameters(recurse=False) if id(value) in self._names]

    def note(self, layer: nn.Module, local: str, use: Use) -> None:
        """One use of the parameter that the layer calls `local`, if it moves."""
        name = self._names.get(id(getattr(layer, local, None)))
        if name is not None:
            self._uses[name].append(use)

    def record(
        self, layer: nn.Module, rule: LayerRule, inputs: tuple[Tensor, ...], output: Tensor | None, gradient: Tensor
    ) -> None:
        """Note what one call of a layer contributes to each of its parameters that move."""
        if len(gradient) != self.rows:
            raise GradientError(
                expected=f"layers whose first dimension is the batch of {self.rows} rows",
                found=f"{type(layer).__name__} with an output of {tuple(gradient.shape)}",
                way_out="freeze this layer, or keep the batch dimension in front",
            )
        moving = self.moves(layer)
        with torch.no_grad():
            call = LayerCall(inputs, output, gradient, self._sequences)
            for local, use in rule.uses(layer, call).items():
                if local in moving:
                    self.note(layer, local, use.kept() if isinstance(use, Outer) else use)


class _Hook:
    """A forward hook that asks for the gradient of the layer's output (or input)."""

    def __init__(self, recording: Recording, rule: LayerRule) -> None:
        self._recording = recording
        self._rule = rule

    def __call__(self, layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor | None:
        recording, rule = self._recording, self._rule
        shared = output.shape[0] == 1 and recording.rows > 1
        if shared:  # positions looked up once for all rows: give each row its own
            output = output.expand(recording.rows, *output.shape[1:])
        watched = inputs[0] if rule.watches_input else output
        if not watched.requires_grad:
            watched.requires_grad_()
        seen = output.detach() if rule.watches_input else None  # nothing is kept that is not needed
        hook = _GradientHook(recording, layer, rule, inputs, seen)
        recording.handles.append(watched.register_hook(hook))  # type: ignore[no-untyped-call]
        return output if shared else None


class _GradientHook:
    """Records a call of a layer when its gradient is known, and lets go of what the layer read."""

    def __init__(
        self, recording: Recording, layer: nn.Module, rule: LayerRule, inputs: tuple[Tensor, ...], output: Tensor | None
    ) -> None:
        self._recording, self._layer, self._rule = recording, layer, rule
        self._inputs, self._output = inputs, output

    def __call__(self, gradient: Tensor) -> None:
        inputs, output = self._inputs, self._output
        self._inputs, self._output = (), None
        self._recording.record(self._layer, self._rule, inputs, output, gradient)


def _require_input_gradient(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    if not inputs[0].requires_grad:
        inputs[0].requires_grad_()
