"""A sequence classifier of transformers as it is, with PEFT's adapters or without."""

import sys
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from tacit.data.batches import PADDING
from tacit.errors import ModelError
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
        """Nobody attends to padding."""
        self.require_context(tokens)
        real = tokens != PADDING
        filled = tokens.masked_fill(~real, self._config.get_text_config().pad_token_id or 0)
        logits: Tensor = self.module(input_ids=filled, attention_mask=real.long()).logits
        return logits.unsqueeze(1)


def positions_of(module: nn.Module, config: Any) -> int:  # noqa: ANN401
    """How many tokens a model of transformers can read. RoBERTa and its kin count from after their padding index."""
    first = 0
    for path, table in module.named_modules():
        if path.endswith("position_embeddings") and isinstance(table, nn.Embedding):
            first = 0 if table.padding_idx is None else table.padding_idx + 1
    return int(getattr(config, "max_position_embeddings", sys.maxsize)) - first


def require_padding_token(module: Any) -> None:  # noqa: ANN401
    """Decoders take the state of a row's last token, and find it by the padding after it."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

    config = module.config.get_text_config()
    if config.pad_token_id is None and config.model_type not in MODEL_FOR_MASKED_LM_MAPPING_NAMES:
        raise ModelError(
            expected=f"a pad_token_id, by which {type(module).__name__} finds the last token of a text",
            found="none in config.json",
            way_out="set pad_token_id there to a token that no text ends with, or use an encoder such as BERT",
        )
