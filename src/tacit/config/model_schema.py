"""Settings of models, optimizers and adapters."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Literal

from pydantic import Field

from tacit.config.setting import VALUE, section, setting
from tacit.errors import ConfigError, ModelError

LayerNumber = Annotated[int, Field(ge=0)]
constant = partial(setting, release=VALUE, why="chosen without looking at the corpus")
"""Declares a setting that leaves."""
_LEARNING_RATE = "Learning rate; halve it if the loss jumps. Tuning it on private text costs privacy."
BY_MODEL = "by the kind of model and of steps: docs/defaults.md"
_MAX_GRAD_NORM = "Shorten the averaged gradient to this norm; null: never."


@section
class LSTMConfig:
    """The shape of an LSTM language model. Dropouts act in public steps alone: masks that rows share couple them.

    dropout: on the embedded input and on the output of every layer; locked: one mask a row, the same at every step.
    embedding_dropout: drops whole words, one mask a batch. weight_drop: drops recurrent weights, one mask a batch.
    tied: output weights are the embedding; the last layer then has the embedding's size.
    """

    vocabulary_size: int
    embedding_size: int = setting(200, "Size of a token's embedding.")
    hidden_size: int = setting(200, "Size of a hidden layer; raise it for a better and slower model.")
    layers: int = setting(1, "Number of layers.")
    dropout: float = setting(0.2, "Dropout on the input and output of each layer, in public steps only.")
    locked: bool = setting(False, "One dropout mask per row, the same at every position (LSTM).")
    embedding_dropout: float = setting(0.0, "Share of whole words dropped in each batch (LSTM).")
    weight_drop: float = setting(0.0, "Share of recurrent weights dropped in each batch (LSTM).")
    tied: bool = setting(False, "Use the embedding as output weights (LSTM).")

    def __post_init__(self) -> None:
        for name in ("vocabulary_size", "embedding_size", "hidden_size", "layers"):
            if getattr(self, name) < 1:
                raise ModelError(f"{name} of at least 1", str(getattr(self, name)), "correct the number")
        for name in ("dropout", "embedding_dropout", "weight_drop"):
            if not 0 <= getattr(self, name) < 1:
                raise ModelError(f"{name} from 0 to below 1", str(getattr(self, name)), "correct the number")

    @classmethod
    def awd(cls, vocabulary_size: int) -> "LSTMConfig":
        """Three layers of 1150 with all of AWD-LSTM's dropouts."""
        return cls(
            vocabulary_size, 100, 1150, 3, dropout=0.3, locked=True, embedding_dropout=0.1, weight_drop=0.5, tied=True
        )

    def sizes(self) -> list[tuple[int, int]]:
        """Input and hidden size of each layer."""
        hidden = [self.hidden_size] * self.layers
        if self.tied:
            hidden[-1] = self.embedding_size
        return list(zip([self.embedding_size, *hidden[:-1]], hidden, strict=True))


@section
class LoRAConfig:
    """Low-rank adapters beside every linear layer but the head (Hu et al. 2021, 2106.09685); the rest is frozen.

    dropout: on what adapters read, in public steps alone.
    layers_to_transform: numbers from 0; nothing below the first of them is differentiated.
    """

    rank: int = constant(
        8, "Train adapters of this rank, 4 to 16, and nothing else; higher learns more.", flag="lora_rank"
    )
    alpha: int = constant(16, "Scale of the adapters: alpha / rank.")
    dropout: float = constant(0.0, "Dropout on the adapters' input, in public steps only.")
    layers_to_transform: tuple[LayerNumber, ...] | None = constant(
        None,
        "Layers that get adapters, counted from 0; the last six of 30, [24, 25, 26, 27, 28, 29], train much faster.",
        auto="all",
    )
    base_name: str | None = constant(
        None,
        "What the released adapters call the model that they belong to, such as its name on a hub; never a path.",
        auto="the folder's name",
        flag="base_name",
    )

    def __post_init__(self) -> None:
        if self.base_name is not None and (not self.base_name or self.base_name[0] in "./~\\" or ":" in self.base_name):
            way_out = "give a name such as gpt2 or organization/model: paths do not leave the machine"
            raise ConfigError("the name of the base model", repr(self.base_name), way_out)


@section
class CausalLMConfig:
    """The shape of a GPT-2 with fresh weights. Dropout acts in public steps alone."""

    vocabulary_size: int
    width: int = setting(384, "Width of a GPT: a multiple of `heads`.")
    layers: int = setting(6, "Number of layers.")
    heads: int = setting(6, "Number of attention heads of a GPT.")
    context: int = 512
    dropout: float = setting(0.1, "Dropout in public steps.")

    def __post_init__(self) -> None:
        for name in ("vocabulary_size", "width", "layers", "heads", "context"):
            if getattr(self, name) < 1:
                raise ModelError(f"{name} of at least 1", str(getattr(self, name)), "correct the number")
        if self.width % self.heads:
            raise ModelError("a width that heads divide", f"{self.width} and {self.heads} heads", "change one of them")


@section
class ClassifierConfig:
    """What stands on top of a network.

    classes: their names, in the order of their numbers; a public list, never one collected from the corpus.
    dropout: on the mean over the row's states, which the head reads.
    """

    classes: tuple[str, ...]
    dropout: float = 0.0

    def __post_init__(self) -> None:
        class_numbers(self.classes)
        if not 0 <= self.dropout < 1:
            raise ModelError("dropout from 0 to below 1", str(self.dropout), "correct the number")


def class_numbers(classes: Sequence[str]) -> dict[str, int]:
    numbers = {name: number for number, name in enumerate(classes)}
    if len(numbers) != len(classes) or len(classes) < 2:
        found = f"{len(classes)} names, {len(numbers)} of them different"
        raise ModelError("two or more classes with different names", found, "correct the list of classes")
    return numbers


@section
class OptimizerConfig:
    """Which rule, how fast, and how the learning rate moves with the step: never with a private loss."""

    optimizer: Literal["sgd", "adam"] | None = constant(
        None, "adam or sgd.", auto="adam; sgd for private steps beside public ones"
    )
    learning_rate: float | None = constant(None, _LEARNING_RATE, auto=BY_MODEL, gt=0, allow_inf_nan=False)
    warmup_steps: int = constant(0, "Steps over which the learning rate rises.")
    lr_scheduler: Literal["none", "linear"] | None = constant(
        None,
        "none: a constant learning rate; linear: it falls to 0 at the last step.",
        auto="linear with adam, none with sgd",
    )
    max_grad_norm: float | None = constant(None, _MAX_GRAD_NORM)

    def rate(self, done: int, total: int) -> float:
        """The learning rate after `done` of `total` steps; never below 0, also if there are more steps than planned."""
        if self.learning_rate is None:
            raise ConfigError("a learning rate", "none", "give one")
        warm = min(1.0, (done + 1) / self.warmup_steps) if self.warmup_steps > 0 else 1.0
        left = max(0.0, 1.0 - done / total) if self.lr_scheduler != "none" else 1.0
        return self.learning_rate * warm * left


@section
class PublicOptimizerConfig(OptimizerConfig):
    """The optimizer of public steps, whose gradients are neither clipped nor noised."""

    max_grad_norm: float | None = constant(1.0, _MAX_GRAD_NORM)


@section
class LocalConfig:
    """Plain SGD on the mean loss of `batch_size` rows at a time, `epochs` shuffled passes over the unit's rows."""

    epochs: int = Field(1, exclude=True)  # no setting: `plan.local_epochs` decides
    batch_size: int = constant(16, "Records in a batch of a user's local training.")
    learning_rate: float = constant(1.0, "Learning rate of a user's local training.")

    def __post_init__(self) -> None:
        for noun, count in (("local epoch", self.epochs), ("row a local batch", self.batch_size)):
            if count < 1:
                raise ConfigError(f"at least one {noun}", str(count), "correct the number")
        if not (math.isfinite(self.learning_rate) and self.learning_rate > 0):
            raise ConfigError("a local learning rate above 0", str(self.learning_rate), "correct the number")
