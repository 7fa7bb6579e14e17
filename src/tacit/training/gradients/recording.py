"""Watches a model through one forward and backward pass, and leaves it as it was.

G1 (no trace). Hooks are on the model only inside the `with` block; `requires_grad` flags are restored, also after an
   error.
G2 (coverage). Every parameter that is to move belongs to a layer with a rule, else it is refused by name before the
   pass; and its layer took part in the loss, else it is refused by name after it.
G3 (by place). A parameter is known by its layer and by what the layer calls it, not as an object: FSDP puts others in
   its place and takes them away.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from tacit.data.batches import Examples, wide_type
from tacit.errors import GradientError
from tacit.training.gradients.contributions import Lookup, Outer, Use
from tacit.training.gradients.rules import Arguments, LayerCall, LayerRule, Sequences, rule_of


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


Place = tuple[nn.Module, str]
"""A layer, and what it calls one of its own parameters."""


def places_of(module: nn.Module, names: Collection[str]) -> dict[Place, str]:
    """Where the parameters of these names are; a tied one is in several places, and has its first name."""
    first: dict[int, str] = {}
    found: dict[Place, str] = {}
    for path, layer in module.named_modules():
        for local, value in layer.named_parameters(recurse=False):
            name = first.setdefault(id(value), f"{path}.{local}".lstrip("."))
            if name in names:
                found[layer, local] = name
    return found


def names_within(module: nn.Module, layer: nn.Module, names: Collection[str]) -> dict[str, str]:
    """Which of these parameters of `module` are the layer's own, and what it calls them."""
    return {name: local for (where, local), name in places_of(module, names).items() if where is layer}


@contextmanager
def only_moving(module: nn.Module, names: Collection[str]) -> Iterator[None]:
    """Inside, the parameters of these names require a gradient and no others do; afterwards all flags are as before."""
    flags = {name: parameter.requires_grad for name, parameter in module.named_parameters()}
    try:
        for name, parameter in module.named_parameters():
            parameter.requires_grad_(name in names)
        yield
    finally:
        for name, parameter in module.named_parameters():
            parameter.requires_grad_(flags[name])


class Recording:
    """The uses of each parameter, as the backward pass reaches them; those of `unwatched` are noted by others."""

    def __init__(self, module: nn.Module, names: Collection[str], unwatched: nn.Module | None) -> None:
        self._module, self._unwatched = module, unwatched
        self._names = list(names)
        self._places = places_of(module, names)
        self._within: dict[nn.Module, list[str]] = {}
        for layer, local in self._places:
            self._within.setdefault(layer, []).append(local)
        self._uses: dict[str, list[Use]] = {}
        self._sequences = Sequences()
        self.handles: list[RemovableHandle] = []  # of hooks that are removed when the pass is over
        self.rows = 0  # of the pass under way
        self._time = 0

    def start(self, batch: Examples) -> None:
        """Forget the last pass; the next one reads `batch`."""
        self._uses = {name: [] for name in self._names}
        self._sequences = Sequences()
        self.rows, self._time = batch.inputs.shape

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
    def watching(self) -> Iterator[None]:
        """Hooks on every layer that holds a parameter that moves; inside, no parameter requires a gradient."""
        watched = self._covered()
        handles = []
        with only_moving(self._module, ()):
            try:
                for layer, rule in watched:
                    if layer is self._unwatched:
                        continue
                    if rule.watches_input:
                        handles.append(layer.register_forward_pre_hook(_require_input_gradient))
                    handles.append(layer.register_forward_hook(_Hook(self, rule), with_kwargs=True))
                yield
            finally:
                for handle in handles:
                    handle.remove()

    def _covered(self) -> list[tuple[nn.Module, LayerRule]]:
        found: list[tuple[nn.Module, LayerRule]] = []
        refused = []
        for path, layer in self._module.named_modules():
            own = set(self.moves(layer))
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
                way_out="freeze these parameters with requires_grad_(False), or take the gradients by rows",
            )
        return found

    def moves(self, layer: nn.Module) -> Collection[str]:
        """What the layer calls those of its own parameters that move."""
        return self._within.get(layer, ())

    def note(self, layer: nn.Module, local: str, use: Use) -> None:
        """One use of the parameter that the layer calls `local`, if it moves."""
        name = self._places.get((layer, local))
        if name is not None:
            self._uses[name].append(use)

    def record(
        self, layer: nn.Module, rule: LayerRule, arguments: Arguments, output: Tensor | None, gradient: Tensor
    ) -> None:
        """Note what one call of a layer contributes to each of its parameters that move."""
        moving = self.moves(layer)
        with torch.no_grad():
            values, signals = (self._row_by_row(layer, part) for part in (arguments.tensors[0], gradient))
            call = LayerCall(values, output, signals, self._sequences, arguments)
            for local, use in rule.uses(layer, call).items():
                if local in moving:
                    self.note(layer, local, use.kept() if isinstance(use, Outer) else use)

    def _row_by_row(self, layer: nn.Module, values: Tensor) -> Tensor:
        """The values with one entry per row in front; some layers (OPT's) get all positions of all rows in a line."""
        if len(values) == self.rows:
            return values
        if len(values) == 1:
            return values.expand(self.rows, *values.shape[1:])
        if len(values) == self.rows * self._time:
            return values.reshape(self.rows, self._time, *values.shape[1:])
        raise GradientError(
            expected=f"layers whose first dimension is the batch of {self.rows} rows",
            found=f"{type(layer).__name__} with {tuple(values.shape)}",
            way_out="take the gradients by rows, freeze this layer, or keep the batch dimension in front",
        )


class _Hook:
    """A forward hook that asks for the gradient of the layer's output (or input)."""

    def __init__(self, recording: Recording, rule: LayerRule) -> None:
        self._recording = recording
        self._rule = rule

    def __call__(
        self, layer: nn.Module, positional: tuple[Any, ...], named: dict[str, Any], output: Tensor
    ) -> Tensor | None:
        recording, rule, arguments = self._recording, self._rule, Arguments(positional, named)
        shared = output.shape[0] == 1 and recording.rows > 1
        if shared:  # positions looked up once for all rows: give each row its own
            output = output.expand(recording.rows, *output.shape[1:])
        watched = arguments.tensors[0] if rule.watches_input else output
        if not watched.requires_grad:
            watched.requires_grad_()
        seen = output.detach() if rule.watches_input else None  # nothing is kept that is not needed
        hook = _GradientHook(recording, layer, rule, arguments, seen)
        recording.handles.append(watched.register_hook(hook))  # type: ignore[no-untyped-call]
        return output if shared else None


class _GradientHook:
    """Records a call of a layer when its gradient is known, and lets go of what the layer read."""

    def __init__(
        self, recording: Recording, layer: nn.Module, rule: LayerRule, arguments: Arguments, output: Tensor | None
    ) -> None:
        self._recording, self._layer, self._rule = recording, layer, rule
        self._call: tuple[Arguments, Tensor | None] | None = (arguments, output)

    def __call__(self, gradient: Tensor) -> None:
        assert self._call is not None
        (arguments, output), self._call = self._call, None
        self._recording.record(self._layer, self._rule, arguments, output, gradient)


def _require_input_gradient(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    if not inputs[0].requires_grad:
        inputs[0].requires_grad_()
