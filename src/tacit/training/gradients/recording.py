"""Watches a model through one forward and backward pass, and leaves it as it was.

G1 (no trace). Hooks are on the model only inside the `with` block; `requires_grad` flags are restored, also after an
   error.
G2 (coverage). Every parameter that is to move belongs to a layer with a rule, else it is refused by name before the
   pass; and its layer took part in the loss, else it is refused by name after it.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from tacit.data.batches import wide_type
from tacit.errors import GradientError
from tacit.training.gradients.contributions import Lookup, Outer, Use
from tacit.training.gradients.layer_rules import LayerRule, Sequences, rule_of


def chosen_parameters(module: nn.Module, names: Collection[str] | None) -> dict[str, nn.Parameter]:
    """The parameters that move: those named, or all that require a gradient; a tied one has its first name."""
    known = dict(module.named_parameters())
    if names is None:
        return {name: parameter for name, parameter in known.items() if parameter.requires_grad}
    unknown = sorted(set(names) - set(known))
    if unknown:
        raise GradientError(
            expected="names of parameters of the model",
            found=", ".join(unknown),
            way_out="take names from module.named_parameters()",
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
        self._handles: list[RemovableHandle] = []
        self._rows = 0

    def start(self, rows: int) -> None:
        """Forget the last pass; the next one has this many rows."""
        self._uses = {name: [] for name in self._parameters}
        self._sequences = Sequences()
        self._rows = rows

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
        for handle in self._handles:  # tensor, hook and input hold each other: memory would wait for the collector
            handle.remove()
        self._handles.clear()
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
                way_out="freeze these parameters with requires_grad_(False), or add a rule in gradients/layers.py",
            )
        return found

    def moves(self, layer: nn.Module) -> Collection[str]:
        """What the layer calls those of its own parameters that move."""
        return names_within(layer, self._parameters).values()

    def note(self, layer: nn.Module, local: str, use: Use) -> None:
        """One use of the parameter that the layer calls `local`, if it moves."""
        name = self._names.get(id(getattr(layer, local, None)))
        if name is not None:
            self._uses[name].append(use)

    def record(
        self, layer: nn.Module, rule: LayerRule, inputs: tuple[Tensor, ...], output: Tensor | None, gradient: Tensor
    ) -> None:
        """Note what one call of a layer contributes to each of its parameters that move."""
        if len(gradient) != self._rows:
            raise GradientError(
                expected=f"layers whose first dimension is the batch of {self._rows} rows",
                found=f"{type(layer).__name__} with an output of {tuple(gradient.shape)}",
                way_out="freeze this layer, or keep the batch dimension in front",
            )
        moving = self.moves(layer)
        with torch.no_grad():
            for local, use in rule.uses(layer, inputs, output, gradient, self._sequences).items():
                if isinstance(use, Outer) and local in moving:
                    use.squared_norms()  # now, while its tensors are in the cache
                self.note(layer, local, use)

    def until_finished(self, handle: RemovableHandle) -> None:
        """Remove the hook when the pass is over."""
        self._handles.append(handle)

    @property
    def rows(self) -> int:
        """Rows of the pass under way."""
        return self._rows


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
        recording.until_finished(
            watched.register_hook(  # type: ignore[no-untyped-call]
                lambda gradient: recording.record(layer, rule, inputs, seen, gradient)
            )
        )
        return output if shared else None


def _require_input_gradient(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    if not inputs[0].requires_grad:
        inputs[0].requires_grad_()
