"""Text classifiers: an LSTM of ours, pooled over each row's own length, or a sequence classifier of transformers.

For gradients a classifier has one place a row: the only target of a row is its class.

G1 (own length). What is computed for a row depends neither on its padding nor on the other rows, up to rounding.
"""

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
from tacit.models.sequence_classifier import SequenceClassifier, require_padding_token
from tacit.models.transformers_model import TransformersModel


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


@dataclass(frozen=True, slots=True, eq=False)
class LSTMClassifier(ModuleModel):
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
    def settings(self) -> ClassifierConfig:
        return self.module.settings

    @property
    def head(self) -> nn.Module:
        return self.module.head

    @property
    def vocabulary_size(self) -> int:
        return self.shape.vocabulary_size

    def description(self) -> dict[str, Any]:
        return {"kind": "lstm classifier", "settings": asdict(self.settings), "shape": asdict(self.shape)}


@dataclass(frozen=True, slots=True, eq=False)
class EncoderClassifier(TransformersModel):
    """A sequence classifier of transformers, untouched: an encoder (or a decoder that has one), pooled as its family
    does, and a head over classes. With LoRA, adapters, pooler and head move.
    """

    module: nn.Module
    settings: ClassifierConfig
    lora: LoRAConfig | None = None
    base: Path | None = None

    @classmethod
    def of(
        cls,
        module: Any,  # noqa: ANN401
        settings: ClassifierConfig,
        lora: LoRAConfig | None = None,
        base: Path | None = None,
    ) -> "EncoderClassifier":
        """A model object that AutoModelForSequenceClassification gave. base: the local folder that it is from."""
        if settings.dropout:
            way_out = "set classifier_dropout in its config.json"
            raise ModelError("no dropout of ours on a model of transformers", str(settings.dropout), way_out)
        require_padding_token(module)
        if lora is not None:
            trained = list(_new_parts(module).values())
            module = with_adapters(module, lora, trained)
        return cls(module, settings, lora, base)

    @classmethod
    def from_folder(
        cls,
        folder: Path,
        settings: ClassifierConfig,
        lora: LoRAConfig | None = None,
        vocabulary_size: int = 0,
        loading: Loading = LOADING,
    ) -> "EncoderClassifier":
        """The model of a local Hugging Face folder: safetensors only, no code from the folder, no network.

        Pooler and head are new where the folder has none. It gets room for `vocabulary_size` tokens if it has less.
        """
        kind = _ForClasses(settings.classes)
        return cls.of(pretrained(kind, folder, vocabulary_size, (), lora, loading), settings, lora, folder)

    @classmethod
    def described(
        cls, config: dict[str, Any], settings: ClassifierConfig, lora: LoRAConfig | None = None
    ) -> "EncoderClassifier":
        """A model of this configuration (as in its `to_dict()`) with fresh weights."""
        return cls.of(untrained(_ForClasses(settings.classes), config), settings, lora)

    @property
    def _scorer(self) -> SequenceClassifier:
        return SequenceClassifier(self.module)

    @property
    def head(self) -> nn.Module:
        return self._scorer.head

    @property
    def vocabulary_size(self) -> int:
        return self._scorer.vocabulary_size

    @property
    def context(self) -> int:
        return self._scorer.context

    def logits(self, tokens: Tensor) -> Tensor:
        return self._scorer.logits(tokens)

    def description(self) -> dict[str, Any]:
        lora = None if self.lora is None else asdict(self.lora)
        module: Any = self.module
        return {
            "kind": "sequence-classifier",
            "settings": asdict(self.settings),
            "lora": lora,
            "config": module.config.to_dict(),
        }


@dataclass(frozen=True, slots=True)
class _ForClasses:
    """AutoModelForSequenceClassification for these classes."""

    classes: tuple[str, ...]

    def from_pretrained(self, folder: Path, **settings: Any) -> tuple[nn.Module, dict[str, Any]]:  # noqa: ANN401
        """Weights of pooler and head may be missing: they are new, and trained."""
        from transformers import AutoModelForSequenceClassification

        model, told = AutoModelForSequenceClassification.from_pretrained(folder, **self._labels, **settings)
        new = tuple(f"{path}." for path in _new_parts(model))
        told["missing_keys"] = [name for name in told["missing_keys"] if not name.startswith(new)]
        return model, told

    def from_config(self, config: Any) -> nn.Module:  # noqa: ANN401
        from transformers import AutoModelForSequenceClassification

        config.update(self._labels)
        model: nn.Module = AutoModelForSequenceClassification.from_config(config)  # type: ignore[no-untyped-call]
        return model

    @property
    def _labels(self) -> dict[str, Any]:
        named = dict(enumerate(self.classes))
        return {"id2label": named, "label2id": {name: number for number, name in named.items()}}


def _new_parts(module: Any) -> dict[str, nn.Module]:  # noqa: ANN401
    """What a classifier has and an encoder has not, by name: all beside the base model, and that one's pooler."""
    base = module.base_model_prefix
    parts = {name: part for name, part in module.named_children() if name != base}
    if isinstance(pooler := getattr(module.get_submodule(base), "pooler", None), nn.Module):
        parts[f"{base}.pooler"] = pooler
    return parts


Classifier = LSTMClassifier | EncoderClassifier


def build_classifier(description: dict[str, Any]) -> Classifier:
    """The classifier that `description()` describes; its weights still have to be loaded."""
    kind = description.get("kind")
    if kind not in ("lstm classifier", "sequence-classifier"):
        raise ModelError("an lstm classifier or a sequence-classifier", repr(kind), "use a file that tacit wrote")
    with foreign(lambda found: ModelError("the description of a classifier", found, "use a file that tacit wrote")):
        words = description["settings"]
        settings = ClassifierConfig(tuple(words["classes"]), words["dropout"])
        if kind == "lstm classifier":
            return LSTMClassifier.new(LSTMConfig(**description["shape"]), settings)
        lora = None if description["lora"] is None else LoRAConfig(**description["lora"])
        return EncoderClassifier.described(description["config"], settings, lora)
