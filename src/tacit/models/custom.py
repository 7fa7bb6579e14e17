"""A model of one's own: any causal network of layers whose per-row gradients are known, by a name.

    class Mine(nn.Module):
        def __init__(self, vocabulary_size: int, context: int, shape: Mapping[str, float]) -> None:
            ...
            self.head = nn.Linear(width, vocabulary_size)     # its output is what forward returns, unchanged

        def forward(self, tokens: Tensor) -> Tensor: ...      # (rows, time) to (rows, time, vocabulary)

    register_model("mine", Mine)

Whether its gradients can be had a row at a time is checked before training (`gradients.check`).

G1 (causal). A network whose output at some place depends on what follows is refused: padding would then tell of others.
G2 (apart). A network that mixes rows while it trains, or remembers them in a buffer, is refused: such influence has no
   bound. Dropout is `nn.Dropout`, which is switched off for this check.
   Both are checked by example, on five rows of up to 128 random tokens: who means to hide a mixture can.
G3 (by name). What a release folder says about a model never makes tacit run code: only names of this process are known.
"""

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from tacit.common.huggingface import fill
from tacit.data.batches import TextBatch, TokenLosses
from tacit.errors import ModelError
from tacit.models.causal_lm import require_causal
from tacit.models.language_model import Rereading, losses_of, speaking
from tacit.models.lstm import SETTINGS_FILE, WEIGHTS_FILE

Build = Callable[[int, int, Mapping[str, float]], nn.Module]
"""From the number of tokens, the longest row and the words under `shape` to a network with a `head`."""

_OWN: dict[str, Build] = {}
_TAKEN = ("lstm", "gpt")
_ROWS, _LENGTH = 5, 128
_DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)


def register_model(name: str, build: Build) -> None:
    """From now on, in this process, `model: name` asks for the network that `build` makes."""
    if name in _TAKEN or name.endswith("classifier"):
        raise ModelError("a name for an own model that is not taken", name, "choose another name")
    _OWN[name] = build


def is_own(name: object) -> bool:
    """Whether `name` was registered in this process."""
    return isinstance(name, str) and name in _OWN


@dataclass(frozen=True, slots=True, eq=False)
class CustomModel:
    """A registered network as a Learner; it reads the whole text anew at every token it says."""

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
        """What `description()` told of; its weights are still to be loaded."""
        return cls.new(name, settings["vocabulary_size"], settings["longest"], settings["shape"])

    @classmethod
    def load(cls, name: str, folder: Path, settings: Mapping[str, Any]) -> "CustomModel":
        """The model that `save` wrote."""
        model = cls.described(name, settings)
        fill(model.module, load_file(folder / WEIGHTS_FILE))
        return model

    @property
    def context(self) -> int:
        """No limit of its own: rows are cut before they come here."""
        return sys.maxsize

    @property
    def head(self) -> nn.Module:
        """The layer over the vocabulary."""
        return self.module.get_submodule("head")

    def logits(self, tokens: Tensor) -> Tensor:
        """(rows, time, vocabulary)."""
        logits: Tensor = self.module(tokens)
        return logits

    def token_losses(self, batch: TextBatch) -> TokenLosses:
        """The loss of every target."""
        return losses_of(self.logits(batch.inputs), batch)

    def log_probabilities(self, batch: TextBatch) -> Tensor:
        """(rows, time): of every target."""
        with speaking(self.module):
            return -self.token_losses(batch).losses

    def begin(self, tokens: Tensor) -> Rereading:
        """The reading after the rows of `tokens`."""
        return Rereading.of(self, tokens)

    def save(self, folder: Path) -> None:
        """Weights as safetensors, name and shape as JSON."""
        weights = {name: value.detach().contiguous() for name, value in self.module.named_parameters()}
        save_file(weights, folder / WEIGHTS_FILE)
        (folder / SETTINGS_FILE).write_text(json.dumps(self.description(), indent=2) + "\n", encoding="utf-8")

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
            way_out="replace batch normalisation by layer normalisation, and drop with nn.Dropout",
        )
