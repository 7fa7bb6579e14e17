"""A frozen base model whose layers are shared among processes by FSDP2: each keeps its share of every weight.

While a layer computes, in the forward and in the backward pass, its weights are gathered; afterwards they are let go.
What moves (adapters, the head of a classifier) stays whole in every process, and so do embeddings, the last norm and
the head, whose weights are also read outside of their layers.

G1 (cut on arrival). While a model is loaded, each weight of a layer is cut as soon as it was read, and pages of its
   file are given back: a process never holds more of the layers than its share and one weight. A loader that puts
   weights in place in another way would cost memory; the result is the same.
G2 (everyone). A pass needs every process, however little it has to do: see `tacit.training.group`.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.nn.modules.module import (
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)

from tacit.common.machine import let_go, mapped_files

_FILES = ".safetensors"
_ONE_AFTER_THE_OTHER = {"HF_DEACTIVATE_ASYNC_LOAD": "1"}  # else threads read all weights before the first is cut
Place = tuple[nn.Module, str]


class CutWeights:
    """The shares of weights that arrived, by layer and name."""

    def __init__(self, rank: int, size: int) -> None:
        self._rank, self._size = rank, size
        self._mapped_before = mapped_files(_FILES)
        self._parents: dict[nn.Module, nn.Module] = {}
        self._shares: dict[Place, Tensor] = {}

    def note_parent(self, parent: nn.Module, _: str, child: nn.Module | None) -> None:
        """A hook of torch for modules that get a child."""
        if child is not None:
            self._parents[child] = parent

    def cut(self, layer: nn.Module, name: str, arrived: nn.Parameter | None) -> nn.Parameter | None:
        """A hook of torch for parameters: one that takes the place of a sketch is kept as a share of it.

        What a layer gets instead has the same shape, and one number.
        """
        sketch = layer._parameters.get(name)
        if arrived is None or arrived.is_meta or sketch is None or not sketch.is_meta:
            return None
        if self._in_block(layer):
            self._shares[layer, name] = share_of(arrived.detach(), self._rank, self._size).clone()
            held = arrived.new_zeros(()).expand(arrived.shape)
        else:
            held = arrived.detach().clone()  # it may be a part of a file, all of which would stay
        let_go(mapped_files(_FILES) - self._mapped_before)
        kept = nn.Parameter(held, arrived.requires_grad)
        vars(kept).update(vars(arrived))  # notes of transformers: it is loaded
        return kept

    def take(self, place: Place) -> Tensor | None:
        """The share of the weight at this place, which is forgotten here; None if it was not cut."""
        return self._shares.pop(place, None)

    def _in_block(self, layer: nn.Module) -> bool:
        above: nn.Module | None = layer
        while above is not None and not isinstance(above, nn.ModuleList):
            above = self._parents.get(above)
        return above is not None


def share_of(weight: Tensor, rank: int, size: int) -> Tensor:
    """The rows of a weight that a process keeps, as FSDP2 deals them; the last processes may have none."""
    rows = -(-len(weight) // size) if weight.dim() else 0
    return weight[rank * rows : (rank + 1) * rows]


@contextmanager
def cut_on_arrival(rank: int, size: int) -> Iterator[CutWeights]:
    """Inside, models that are loaded keep the share of this process of each weight of their layers."""
    kept = CutWeights(rank, size)
    handles = [
        register_module_module_registration_hook(kept.note_parent),
        register_module_parameter_registration_hook(kept.cut),  # type: ignore[arg-type]  # it may return one
    ]
    try:
        with patch.dict(os.environ, _ONE_AFTER_THE_OTHER):
            yield kept
    finally:
        for handle in handles:
            handle.remove()


def blocks_of(module: nn.Module) -> list[nn.Module]:
    """The layers of a model: what is in its outermost lists of modules."""
    if isinstance(module, nn.ModuleList):
        return list(module)
    return [block for child in module.children() for block in blocks_of(child)]


def share_blocks(module: nn.Module, kept: CutWeights, mesh: Any) -> None:  # noqa: ANN401  (a mesh of torch)
    """Have FSDP2 share the frozen weights of all layers among the processes of `mesh`."""
    from torch.distributed.fsdp import fully_shard

    for block in blocks_of(module):
        frozen = [place for place in _places(block) if not _value(place).requires_grad]
        shares = {place: share for place in frozen if (share := kept.take(place)) is not None}
        for layer, name in shares:  # untouched pages of memory, which FSDP2 cuts again
            layer._parameters[name] = nn.Parameter(torch.empty(_value((layer, name)).shape), False)
        moving = {value for value in block.parameters() if value.requires_grad}
        fully_shard(block, mesh=mesh, reshard_after_forward=True, ignored_params=moving)
        with torch.no_grad():
            for place, share in shares.items():
                shared: Any = _value(place)
                shared.to_local().copy_(share)
    # of the rest nothing is shared; under one root, what was gathered for a layer is let go by the next
    fully_shard(module, mesh=mesh, ignored_params=set(module.parameters()))


def whole_tensors(module: nn.Module) -> Iterator[Tensor]:
    """Parameters and buffers of which every process has all."""
    from torch.distributed.tensor import DTensor

    return (value for value in module.state_dict().values() if not isinstance(value, DTensor))


def _places(block: nn.Module) -> Iterator[Place]:
    for layer in block.modules():
        for name, _ in layer.named_parameters(recurse=False):
            yield layer, name


def _value(place: Place) -> nn.Parameter:
    layer, name = place
    return layer.get_parameter(name)
