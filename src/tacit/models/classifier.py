"""Text classifiers: an LSTM or a Hugging Face encoder, its states pooled over each row's own length, and a linear head.

For gradients a classifier has one place a row: its head is called once, on states (rows, 1, width), and the only target
of a row is its class.

G1 (own length). What is computed for a row depends neither on its padding nor on the other rows, up to rounding.
"""

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tacit.common.libraries import LOADING, Loading, foreign
from tacit.config.model_schema import ClassifierConfig, LoRAConfig, LSTMConfig
from tacit.data.batches import PADDING
from tacit.errors import ModelError
from tacit.models.causal_lm import pretrained, untrained, with_adapters
from tacit.models.language_model import ModuleModel
from tacit.models.lstm import LSTMModule


class ClassifierModule(nn.Module):
    """Inputs (rows, time) of a labeled batch to logits (rows, 1, classes); `network` takes tokens and a mask."""

    def __init__(self, network: nn.Module, width: int, settings: ClassifierConfig) -> None:
        super().__init__()
        self.settings = settings
        self.network = network
        self.head = nn.Linear(width, len(settings.classes))
        nn.init.normal_(self.head.weight, std=0.02)
        nn.init.zeros_(self.head.bias)

    def forward(self, inputs: Tensor) -> Tensor:
        real = inputs != PADDING
        states = self.network(inputs.clamp(min=0), real)
        pooled = functional.dropout(_pooled(states, real), self.settings.dropout, self.training)
        logits: Tensor = self.head(pooled)
        return logits


def _pooled(states: Tensor, real: Tensor) -> Tensor:
    """(rows, 1, width): the mean over each row's own states."""
    lengths = real.sum(dim=1)
    return torch.where(real.unsqueeze(2), states, 0.0).sum(dim=1, keepdim=True) / lengths[:, None, None]


class LSTMStates(nn.Module):
    """The states of the last layer of an LSTM; padding comes after them and cannot reach back."""

    def __init__(self, settings: LSTMConfig) -> None:
        super().__init__()
        self.lstm = LSTMModule(settings)
        self.lstm.add_module("head", nn.Identity())  # states where a language model has scores

    def forward(self, tokens: Tensor, real: Tensor) -> Tensor:
        states: Tensor = self.lstm(tokens)
        return states


class EncoderStates(nn.Module):
    """The last states of an encoder of transformers, in which nobody attends to padding."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, tokens: Tensor, real: Tensor) -> Tensor:
        states: Tensor = self.encoder(input_ids=tokens, attention_mask=real.long()).last_hidden_state
        return states


class ModuleClassifier(ModuleModel):
    """What both kinds of classifiers have in common."""

    __slots__ = ()
    module: ClassifierModule

    @property
    def settings(self) -> ClassifierConfig:
        return self.module.settings

    @property
    def head(self) -> nn.Module:
        return self.module.head


@dataclass(frozen=True, slots=True, eq=False)
class LSTMClassifier(ModuleClassifier):
    """An LSTM with a head over classes. `module.eval()` switches its dropouts off."""

    module: ClassifierModule
    shape: LSTMConfig

    @classmethod
    def new(cls, shape: LSTMConfig, settings: ClassifierConfig) -> "LSTMClassifier":
        """A classifier with fresh weights from torch's global generator."""
        if shape.tied:
            raise ModelError("an LSTM that is not tied: no head over words", "tied", "leave `tied` out")
        return cls(ClassifierModule(LSTMStates(shape), shape.sizes()[-1][1], settings), shape)

    @property
    def vocabulary_size(self) -> int:
        return self.shape.vocabulary_size

    def description(self) -> dict[str, Any]:
        return {"kind": "lstm classifier", "settings": asdict(self.settings), "shape": asdict(self.shape)}


@dataclass(frozen=True, slots=True, eq=False)
class EncoderClassifier(ModuleClassifier):
    """An encoder of transformers with a head over classes; with LoRA, adapters and head alone move."""

    module: ClassifierModule
    lora: LoRAConfig | None = None

    @classmethod
    def of(cls, encoder: nn.Module, settings: ClassifierConfig, lora: LoRAConfig | None = None) -> "EncoderClassifier":
        """A model object that AutoModel gave; a pooler of its own is taken out, as nobody reads it."""
        if "pooler" in dict(encoder.named_children()):
            encoder.add_module("pooler", nn.Identity())
        config: Any = encoder.config
        adapted = encoder if lora is None else with_adapters(encoder, lora)
        return cls(ClassifierModule(EncoderStates(adapted), config.hidden_size, settings), lora)

    @classmethod
    def from_folder(
        cls,
        folder: Path,
        settings: ClassifierConfig,
        lora: LoRAConfig | None = None,
        vocabulary_size: int = 0,
        loading: Loading = LOADING,
    ) -> "EncoderClassifier":
        """The encoder of a local Hugging Face folder: safetensors only, no code from the folder, no network.

        It gets room for `vocabulary_size` tokens if it has less.
        """
        from transformers import AutoModel

        return cls.of(pretrained(AutoModel, folder, vocabulary_size, ("pooler",), lora, loading), settings, lora)

    @classmethod
    def described(
        cls, config: dict[str, Any], settings: ClassifierConfig, lora: LoRAConfig | None = None
    ) -> "EncoderClassifier":
        """An encoder of this configuration (as in its `to_dict()`) with fresh weights."""
        from transformers import AutoModel

        return cls.of(untrained(AutoModel, config), settings, lora)

    @property
    def _config(self) -> Any:  # noqa: ANN401
        return self.module.network.get_submodule("encoder").config

    @property
    def vocabulary_size(self) -> int:
        return int(self._config.vocab_size)

    @property
    def context(self) -> int:
        """How many tokens it can read at a time."""
        return positions_of(self.module, self._config)

    def description(self) -> dict[str, Any]:
        lora = None if self.lora is None else asdict(self.lora)
        config = self._config.to_dict()
        return {"kind": "encoder classifier", "settings": asdict(self.settings), "lora": lora, "config": config}


def positions_of(module: nn.Module, config: Any) -> int:  # noqa: ANN401
    """How many tokens a model of transformers can read. RoBERTa and its kin count from after their padding index."""
    first = 0
    for path, table in module.named_modules():
        if path.endswith("position_embeddings") and isinstance(table, nn.Embedding):
            first = 0 if table.padding_idx is None else table.padding_idx + 1
    return int(getattr(config, "max_position_embeddings", sys.maxsize)) - first


Classifier = LSTMClassifier | EncoderClassifier


def build_classifier(description: dict[str, Any]) -> Classifier:
    """The classifier that `description()` describes; its weights still have to be loaded."""
    kind = description.get("kind")
    if kind not in ("lstm classifier", "encoder classifier"):
        raise ModelError("an lstm classifier or an encoder classifier", repr(kind), "use a file that tacit wrote")
    with foreign(lambda found: ModelError("the description of a classifier", found, "use a file that tacit wrote")):
        words = description["settings"]
        settings = ClassifierConfig(tuple(words["classes"]), words["dropout"])
        if kind == "lstm classifier":
            return LSTMClassifier.new(LSTMConfig(**description["shape"]), settings)
        lora = None if description["lora"] is None else LoRAConfig(**description["lora"])
        return EncoderClassifier.described(description["config"], settings, lora)
