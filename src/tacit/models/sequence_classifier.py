"""A sequence classifier of transformers as it is, with PEFT's adapters or without, for a training loop of one's own."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from tacit.data.batches import PADDING
from tacit.errors import ModelError
from tacit.models.classifier import positions_of
from tacit.models.language_model import ModuleModel


@dataclass(frozen=True, slots=True, eq=False)
class SequenceClassifier(ModuleModel):
    """Inputs (rows, time) of a labeled batch to logits (rows, 1, classes)."""

    module: nn.Module

    @property
    def _config(self) -> Any:  # noqa: ANN401
        config: Any = self.module.config
        return config

    @property
    def classes(self) -> int:
        """How many classes there are."""
        return int(self._config.num_labels)

    @property
    def vocabulary_size(self) -> int:
        return int(self._config.get_text_config().vocab_size)

    @property
    def context(self) -> int:
        return positions_of(self.module, self._config.get_text_config())

    @property
    def head(self) -> nn.Module:
        """The last linear layer with an output for each class; where PEFT keeps a copy of it to train, the copy."""
        layers = [part for part in self.module.modules() if isinstance(part, nn.Linear)]
        heads = [layer for layer in layers if layer.out_features == self.classes]
        if not heads or self.classes < 2:
            raise ModelError(
                expected="a sequence classifier with a linear layer over at least two classes",
                found=f"{type(self.module).__name__} with num_labels {self.classes}",
                way_out="AutoModelForSequenceClassification.from_pretrained(folder, num_labels=...)",
            )
        return heads[-1]

    def logits(self, tokens: Tensor) -> Tensor:
        self.require_context(tokens)
        real = tokens != PADDING
        filled = tokens.masked_fill(~real, self._config.pad_token_id or 0)
        logits: Tensor = self.module(input_ids=filled, attention_mask=real.long()).logits
        return logits.unsqueeze(1)
