"""Custom models: any causal network of layers whose per-row gradients are known, registered by name.

    class Mine(nn.Module):
        def __init__(self, vocabulary_size: int, context: int, shape: Mapping[str, float]) -> None:
            ...
            self.head = nn.Linear(width, vocabulary_size)     # its output is what forward returns, unchanged

        def forward(self, tokens: Tensor) -> Tensor: ...      # (rows, time) to (rows, time, vocabulary)

    register_model("mine", Mine)

Whether its gradients can be had a row at a time is checked before training (`gradients.check`).

G1 (causal). A network whose output depends on later tokens is refused: padding would then reveal other rows.
G2 (apart). A network that mixes rows while it trains, or remembers them in a buffer, is refused: such influence has no
   bound. Dropout is `nn.Dropout`, which is switched off for this check.
   Both are checked by example, on five rows of up to 128 random tokens: who means to hide a mixture can.
G3 (by name). A release folder never makes tacit run code: only names registered in this process are known.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tacit.config.schema import CUSTOM_MODELS
from tacit.errors import ModelError
from tacit.models.causal_lm import require_causal
from tacit.models.language_model import ModuleModel, Rereading, speaking

Build = Callable[[int, int, Mapping[str, float]], nn.Module]
"""From the number of tokens, the longest row and what is under `model_config` to a network with a `head`."""

_OWN: dict[str, Build] = CUSTOM_MODELS
_TAKEN = ("lstm", "gpt")
_ROWS, _LENGTH = 5, 128
_DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)


def register_model(name: str, build: Build) -> None:
    """From now on, in this process, `model: name` asks for the network that `build` makes."""
    if name in _TAKEN or name.endswith("classifier"):
        raise ModelError("a name for an own model that is not taken", name, "choose another name")
    _OWN[name] = build


@dataclass(frozen=True, slots=True, eq=False)
class CustomModel(ModuleModel):
    """A registered network as a Learner; it evaluates the whole text again for every generated token."""

    name: str
    module: nn.Module
    vocabulary_size: int
    longest: int
    shape: Mapping[str, float]

    @classmethod
    def new(cls, name: str, vocabulary_size: int, longest: int, shape: Mapping[str, float]) -> "CustomModel":
        """With fresh weights from torch's global generator."""
        model = cls(name, _OWN[name](vocabulary_size, longest, shape), vocabulary_size, longest, dict(shape))
        _check(model)
        return model

    @classmethod
    def described(cls, name: str, settings: Mapping[str, Any]) -> "CustomModel":
        """The model that `description()` describes; its weights still have to be loaded."""
        return cls.new(name, settings["vocabulary_size"], settings["longest"], settings["shape"])

    @property
    def head(self) -> nn.Module:
        """The layer over the vocabulary."""
        return self.module.get_submodule("head")

    def begin(self, tokens: Tensor) -> Rereading:
        """The reading after the rows of `tokens`."""
        return Rereading.of(self, tokens)

    def description(self) -> dict[str, Any]:
        """Its name, and what it was built with."""
        settings = {"vocabulary_size": self.vocabulary_size, "longest": self.longest, "shape": dict(self.shape)}
        return {"kind": self.name, "settings": settings}


def _check(model: CustomModel) -> None:
    """On tokens that are nobody's."""
    if not isinstance(getattr(model.module, "head", None), nn.Module):
        raise ModelError(f"a network {model.name} with a layer `head`", "none", "self.head = nn.Linear(..., tokens)")
    length = min(_LENGTH, model.longest)
    tokens = torch.randint(model.vocabulary_size, (_ROWS, length), generator=torch.Generator().manual_seed(0))
    require_causal(model, tokens)
    _check_apart(model, tokens)


def _check_apart(model: CustomModel, tokens: Tensor) -> None:
    buffers = {name: value.clone() for name, value in model.module.named_buffers()}
    with speaking(model.module):
        for part in model.module.modules():
            part.training = not isinstance(part, _DROPOUTS)
        together, alone = model.logits(tokens)[1:], model.logits(tokens[1:])
    remembers = any(not torch.equal(value, buffers[name]) for name, value in model.module.named_buffers())
    if remembers or not torch.allclose(together, alone, rtol=1e-4, atol=1e-5):
        raise ModelError(
            expected="a network that computes each row from that row alone, and remembers none",
            found="rows that mix while training, a buffer that changes, or chance outside nn.Dropout",
            way_out="replace batch normalization by layer normalization, and use nn.Dropout for dropout",
        )
