"""What all models of transformers share: local folders, adapters, and silence."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tacit.errors import ModelError
from tacit.silence import quietly


@dataclass(frozen=True, slots=True)
class LoRASettings:
    """Low-rank adapters beside every linear layer but the head (Hu et al. 2021, 2106.09685); the rest is frozen."""

    rank: int = 8
    alpha: int = 16
    dropout: float = 0.0


def pretrained(kind: Any, folder: Path, vocabulary_size: int) -> nn.Module:  # noqa: ANN401  (a class of transformers)
    """The model of a local folder: safetensors only, no code from the folder, no network.

    It gets room for `vocabulary_size` tokens if it has less.
    """
    if not any(folder.glob("*.safetensors")) or not (folder / "config.json").is_file():
        raise ModelError(
            expected="a folder with config.json and safetensors weights",
            found=str(folder),
            way_out="save the model with save_pretrained(folder, safe_serialization=True)",
        )
    with quietly():
        module = kind.from_pretrained(
            folder, local_files_only=True, use_safetensors=True, trust_remote_code=False, dtype=torch.float32
        )
        if vocabulary_size > module.config.vocab_size:
            module.resize_token_embeddings(vocabulary_size)
    loaded: nn.Module = module
    return loaded


def with_adapters(module: nn.Module, lora: LoRASettings) -> nn.Module:
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
