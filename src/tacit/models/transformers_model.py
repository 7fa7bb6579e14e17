"""Models of transformers: what a run keeps of one, and how adapters are named, merged and put back."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor, nn

from tacit.common.files import digest
from tacit.common.libraries import foreign
from tacit.config.model_schema import LoRAConfig
from tacit.errors import ModelError
from tacit.models.language_model import ModuleModel

_WRAPPED = re.compile(r"\.(lora_\w+|modules_to_save)\.default\b")
_PREFIX = "base_model.model."
GIVE_BASE = (
    "`tacit generate` and `tacit export` have --base FOLDER, Python has tacit.load(RUN, base=FOLDER); for other "
    "commands put it where the run was trained with it, or use the folder that `tacit export` writes"
)


class TransformersModel(ModuleModel):
    """What models of transformers have in common.

    lora: how adapters were put into it. base: the local folder that its other weights are from.
    """

    __slots__ = ()
    lora: LoRAConfig | None
    base: Path | None


class WithModule(Protocol):
    """Whatever is trained."""

    @property
    def module(self) -> nn.Module: ...


def own_parameters(model: WithModule) -> dict[str, nn.Parameter]:
    """What a run has to keep of a model, by name: of adapters to a base model in a folder them alone, else all."""
    adapts = isinstance(model, TransformersModel) and model.lora is not None and model.base is not None
    return {name: value for name, value in model.module.named_parameters() if value.requires_grad or not adapts}


def published_name(name: str) -> str:
    """The name under which peft saves a parameter: an adapter, or a layer that is trained whole beside adapters."""
    return _PREFIX + _WRAPPED.sub(lambda match: "" if match[1] == "modules_to_save" else f".{match[1]}", name)


def whole_layers(model: TransformersModel) -> list[str]:
    """Layers that are trained beside the adapters, such as the head of a classifier: the largest ones, by path."""
    found: list[str] = []
    for path, layer in model.module.named_modules():
        parameters = dict(layer.named_parameters(path))
        trained = all(value.requires_grad and ".lora_" not in name for name, value in parameters.items())
        if parameters and trained and not any(path.startswith(f"{other}.") for other in found):
            found.append(path)
    return found


def put_adapters(model: TransformersModel, tensors: Mapping[str, Tensor]) -> None:
    """Put what a release saved into a model with the same adapters; every one gets its value."""
    names = {published_name(name): name for name in own_parameters(model)}
    if names.keys() != tensors.keys():
        raise _other_weights("other adapters than the settings of the run give")
    with foreign(lambda found: _other_weights(f"adapters of other sizes ({found})")):
        model.module.load_state_dict({names[name]: value for name, value in tensors.items()}, strict=False)


def merge_adapters(module: nn.Module) -> None:
    """Add the adapters to the weights beside them, and take them out."""
    from peft.tuners.lora import LoraLayer

    adapted = [(path, layer) for path, layer in module.named_modules() if isinstance(layer, LoraLayer)]
    for path, layer in adapted:
        layer.merge()
        parent, _, name = path.rpartition(".")
        setattr(module.get_submodule(parent), name, layer.get_base_layer())


@dataclass(frozen=True, slots=True)
class BaseModel:
    """The model that adapters belong to: the name that was declared, and the SHA-256 of its weights."""

    name: str
    sha256: str

    @classmethod
    def of(cls, folder: Path, name: str | None) -> "BaseModel":
        return cls(name or folder.resolve().name, weights_digest(folder))

    def check(self, folder: Path) -> None:
        """Refuse a folder with other weights."""
        if weights_digest(folder) != self.sha256:
            raise ModelError(
                expected=f"the base model {self.name!r} that the adapters were trained with",
                found=f"other weights in {folder}",
                way_out=f"give the folder of that model, unchanged: {GIVE_BASE}",
            )


def weights_digest(folder: Path) -> str:
    """SHA-256 of a folder's weights: of a single file its own, of several their names and digests."""
    files = sorted(folder.glob("*.safetensors"))
    if len(files) == 1:
        return digest(files[0])
    return hashlib.sha256("".join(f"{file.name} {digest(file)}\n" for file in files).encode()).hexdigest()


def peft_config(model: TransformersModel, base: BaseModel) -> dict[str, Any]:
    """The content of adapter_config.json."""
    module: Any = model.module
    content = dict(module.peft_config["default"].to_dict())
    content |= {"base_model_name_or_path": base.name, "inference_mode": True}
    content["modules_to_save"] = whole_layers(model) or None
    return {name: sorted(value) if isinstance(value, set) else value for name, value in content.items()}


def _other_weights(found: str) -> ModelError:
    return ModelError("the adapters of this model, and no others", found, "use files that belong together, unchanged")
