"""`config`: all settings of a run, from whatever a person gave."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from tacit.api.inputs import FieldNames
from tacit.errors import ConfigError

if TYPE_CHECKING:
    from tacit.config.load import Layer
    from tacit.config.schema import Config


def config(
    source: str | Path | None = None,
    *,
    prepared: str | Path | None = None,
    policy: str | None = None,
    mechanism: str | None = None,
    epsilon: float | None = None,
    epochs: float | None = None,
    expected_batch_size: float | None = None,
    task: str | None = None,
    model: str | None = None,
    lora_rank: int | None = None,
    base_name: str | None = None,
    tokenizer: str | None = None,
    mode: str | None = None,
    seed: int | None = None,
    settings: Mapping[str, Any] | None = None,
    **field_names: Unpack[FieldNames],
) -> "Config":
    """All settings of a run: those of a store, a corpus or a YAML file, these words over them, `settings` last.

    `settings` has full or short names: {"model_config.hidden_size": 64, "plan": {"public_epochs": 2}}.
    """
    from tacit.training.checks import load_checked
    from tacit.training.prepared import prepared_settings

    words: dict[str, Any] = {
        "mechanism": mechanism,
        "epsilon": epsilon,
        "epochs": epochs,
        "policy": policy,
        "task": task,
    }
    words |= {"expected_batch_size": expected_batch_size, "model": model, "tokenizer": tokenizer, "seed": seed}
    words |= {"mode": mode, "lora.rank": lora_rank, "lora.base_name": base_name, **field_names}
    if source is None and prepared is None:
        raise ConfigError("a corpus, a YAML file or a prepared store", "none", "give one of them")
    layers: list[Layer] = [] if prepared is None else [prepared_settings(Path(prepared))]
    layers += [] if source is None else [Path(source)]
    return load_checked(*layers, {name: value for name, value in words.items() if value is not None}, settings or {})
