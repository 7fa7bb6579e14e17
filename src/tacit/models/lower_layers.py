"""The layers below a causal model's first adapter: what they compute, and the model without them.

They are frozen. Of a record's tokens they therefore make the same states in every pass, which may be kept instead of
being computed again.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from tacit.common.libraries import foreign
from tacit.errors import ModelError
from tacit.models.language_model import Learner, speaking

_ADAPTER = "lora_"
_TOLERANCE = 1e-5  # of the largest state; only rounding may differ
_WAY_OUT = "leave execution.cache_activations_gb out"


class LowerLayers:
    """A causal model, cut below the first of its layers that has adapters.

    G1 (alone). `states` reads one row: what it returns depends on no other row, not even in the last digit.
    G2 (tried). A model that is more than its two halves one after the other, for instance because upper layers use
       states of lower ones, or that drops some states at random, is refused when this object is made.
    G3 (no trace). The model is afterwards as it was, also after an error.
    """

    def __init__(self, learner: Learner) -> None:
        self._learner = learner
        layers, first = _cut(learner.module)
        self._below, self._above = layers[:first], [*layers[first:], learner.head]
        device = next(learner.module.parameters()).device
        tokens = (torch.arange(2 * 5, device=device) % learner.vocabulary_size).view(2, 5)
        with foreign(lambda found: _refused("a model whose layers are called one after the other", found)):
            with speaking(learner.module):
                whole = self._before_head(tokens)
                below = torch.stack([self.states(row) for row in tokens])
                with self.replaced_by(below):
                    cut = self._before_head(tokens)
            with torch.no_grad(), _training(learner.module):
                dropped = self._read_by_first(tokens[:1])
        _require_equal(cut, whole, "upper layers that read nothing of the lower ones but their last states")
        _require_equal(dropped, below[:1], "no dropout below the first adapter")
        self.width = below.shape[2]

    def states(self, row: Tensor) -> Tensor:
        """(time, width): what the first layer with adapters reads for this row of tokens; without gradient."""
        with speaking(self._learner.module):
            return self._read_by_first(row[None])[0]

    @contextmanager
    def replaced_by(self, states: Tensor) -> Iterator[None]:
        """Inside, the layers below do nothing, and the first with adapters reads `states` (rows, time, width)."""
        with _passing_on(self._below), _reading(self._above[0], states):
            yield

    def _read_by_first(self, tokens: Tensor) -> Tensor:
        with _seen_by(self._above[0]) as seen, _passing_on(self._above):
            self._learner.logits(tokens)
        return seen[0]

    def _before_head(self, tokens: Tensor) -> Tensor:
        with _seen_by(self._learner.head) as seen, _passing_on([self._learner.head]):
            self._learner.logits(tokens)
        return seen[0]


def _cut(module: nn.Module) -> tuple[list[nn.Module], int]:
    """The layers of the model, and the number of the first that has adapters."""
    adapted = {path for path, _ in module.named_parameters() if _ADAPTER in path}
    for path, part in module.named_modules():
        if isinstance(part, nn.ModuleList):
            inside = {name.removeprefix(f"{path}.").split(".")[0] for name in adapted if name.startswith(f"{path}.")}
            if inside and all(name.startswith(f"{path}.") for name in adapted):
                return list(part), min(int(number) for number in inside)
    raise _refused("adapters in a model's list of layers alone", "adapters elsewhere, or none")


@contextmanager
def _passing_on(layers: list[nn.Module]) -> Iterator[None]:
    """Inside, each of these returns what it is given first."""
    try:
        for layer in layers:
            layer.forward = _first_argument
        yield
    finally:
        for layer in layers:
            vars(layer).pop("forward", None)


def _first_argument(states: Tensor, *_: Any, **__: Any) -> Tensor:  # noqa: ANN401
    return states


@contextmanager
def _reading(layer: nn.Module, states: Tensor) -> Iterator[None]:
    """Inside, the layer's first argument is `states`."""
    handle = layer.register_forward_pre_hook(lambda _, inputs: (states, *inputs[1:]))
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def _seen_by(layer: nn.Module) -> Iterator[list[Tensor]]:
    """What the layer is given first, in each of its calls."""
    seen: list[Tensor] = []
    handle = layer.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    try:
        yield seen
    finally:
        handle.remove()


@contextmanager
def _training(module: nn.Module) -> Iterator[None]:
    """Dropout on for a while; chance is afterwards as it was."""
    modes = [(part, part.training) for part in module.modules()]
    devices = [value.device for value in module.parameters() if value.is_cuda][:1]
    with ExitStack() as after:
        after.enter_context(torch.random.fork_rng(devices=devices))
        for part, mode in modes:
            after.callback(setattr, part, "training", mode)
        module.train()
        yield


def _require_equal(found: Tensor, expected: Tensor, what: str) -> None:
    if not float((found - expected).abs().amax()) <= _TOLERANCE * float(expected.abs().amax()):
        raise _refused(what, "other states than those of the whole model")


def _refused(expected: str, found: str) -> ModelError:
    return ModelError(f"{expected}, so that activations below can be kept", found, _WAY_OUT)
