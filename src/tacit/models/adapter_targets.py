"""Which linear layers get adapters.

All but the head, what stands around experts (PEFT would adapt routers and stacked experts in ways that have no fast
gradient), and parts of a multimodal model that text never reaches. Where a model has experts, layers that have the name
of one are left out too: PEFT 0.21 takes such a name for the experts'.
"""

from collections.abc import Collection
from typing import Any

from torch import nn

from tacit.errors import ModelError

_NAMES_OF_EXPERTS = frozenset({"gate", "gate_proj", "up_proj", "down_proj", "w1", "w2", "w3"})


def adapter_targets(module: Any, trained: Collection[nn.Module] = ()) -> list[str]:  # noqa: ANN401  (of transformers)
    """The shortest endings of names that mean these layers and no others, as PEFT takes them.

    trained: parts that are trained as they are, and get no adapters.
    """
    from transformers.pytorch_utils import Conv1D

    left_out = [module.get_output_embeddings(), *trained]
    paths = [path for path, part in module.named_modules() if any(part is one for one in left_out)]
    around_experts = [path.rpartition(".")[0] for path, _ in module.named_modules() if path.endswith(".experts")]
    paths += around_experts
    inside = "" if read_by_text(module) is module else _path_of(module, read_by_text(module))
    every = {path for path, part in module.named_modules() if path}
    chosen = {
        path
        for path, part in module.named_modules()
        if isinstance(part, nn.Linear | Conv1D)
        and _is_in(path, inside)
        and not any(_is_in(path, outside) for outside in paths)
        and not (around_experts and path.rpartition(".")[2] in _NAMES_OF_EXPERTS)
    }
    if not chosen:
        raise ModelError(
            expected="a model with linear layers that adapters can be put beside",
            found=f"{type(module).__name__}, which has none outside its head and its experts",
            way_out="train without lora, or use another model",
        )
    return sorted(_shortest_endings(chosen, every - chosen))


def read_by_text(module: Any) -> nn.Module:  # noqa: ANN401
    """The part of a model that text passes through: of a multimodal one, its language model."""
    if module.config.get_text_config() is module.config:
        whole: nn.Module = module
        return whole
    part: nn.Module = module.get_decoder()
    return part


def text_trained(module: Any) -> nn.Module:  # noqa: ANN401
    """The model, in which parts that text never reaches do not learn."""
    whole: nn.Module = module
    if (reached := read_by_text(module)) is not module:
        learns = {id(value) for part in (reached, module.get_output_embeddings()) for value in part.parameters()}
        for parameter in whole.parameters():
            parameter.requires_grad_(id(parameter) in learns)
    return whole


def _path_of(module: nn.Module, part: nn.Module) -> str:
    paths: dict[int, str] = {id(found): path for path, found in module.named_modules()}
    return paths[id(part)]


def _is_in(path: str, outside: str) -> bool:
    return not outside or path == outside or path.startswith(f"{outside}.")


def _shortest_endings(chosen: set[str], others: set[str]) -> set[str]:
    """Endings of dotted names, each as short as it can be without meaning one of `others`."""
    endings = set()
    for path in chosen:
        parts = path.split(".")
        for length in range(1, len(parts) + 1):
            ending = ".".join(parts[-length:])
            if not any(other == ending or other.endswith(f".{ending}") for other in others):
                endings.add(ending)
                break
    return endings
