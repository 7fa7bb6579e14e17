"""What all models of transformers share: local folders, adapters, and silence."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from torch import nn

from tacit.common.huggingface import from_folder
from tacit.common.libraries import quietly
from tacit.config.model_schema import LoRAConfig


def pretrained(kind: Any, folder: Path, vocabulary_size: int, unread: Collection[str] = ()) -> nn.Module:  # noqa: ANN401
    """The model that a class of transformers makes of a local folder: whole but for parts that nobody reads.

    It gets room for `vocabulary_size` tokens if it has less.
    """
    module = from_folder(kind, folder, unread)
    if vocabulary_size > module.config.vocab_size:
        with quietly():
            module.resize_token_embeddings(vocabulary_size)
    loaded: nn.Module = module
    return loaded


def with_adapters(module: nn.Module, lora: LoRAConfig) -> nn.Module:
    """`module` with adapters beside every linear layer but the head; all else is frozen."""
    from peft import LoraConfig, inject_adapter_in_model
    from transformers.pytorch_utils import Conv1D

    config = LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules="all-linear",
        fan_in_fan_out=any(isinstance(part, Conv1D) for part in module.modules()),
        task_type="CAUSAL_LM",
    )
    adapted: nn.Module = inject_adapter_in_model(config, module)
    return adapted
