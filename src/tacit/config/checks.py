"""Settings that contradict each other, or that nothing would use, are refused."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from tacit.config.choices import Mode
from tacit.config.model_schema import CausalLMConfig, LSTMConfig, class_numbers
from tacit.config.schema import Config
from tacit.errors import ConfigError
from tacit.privacy.plan import Noisy, Plan

_DROPOUTS = ("dropout", "embedding_dropout", "weight_drop")
ModelShape = TypeVar("ModelShape", LSTMConfig, CausalLMConfig)


def check_used(config: Config) -> None:
    """Refuse settings that would be ignored."""
    is_new, adapts = config.is_new, config.model == "gpt" or not config.is_new
    of_bpe = config.data.vocabulary_size is not None or config.data.vocabulary_corpus is not None
    require(not of_bpe or config.tokenizer_name == "bpe", "a vocabulary for a bpe only", "set tokenizer: bpe")
    require(
        is_new or not config.model_config, "model_config for a new model only", "leave it out: a folder has its own"
    )
    require(not is_new or config.tokenizer_name != "model", "a folder with the tokenizer", "use bytes or bpe")
    require(config.lora is None or adapts, "adapters for a gpt or a folder", "leave lora out")
    require(
        config.training.eval_steps is not None or config.training.early_stopping_patience is None,
        "eval_steps with early_stopping_patience",
        "set both",
    )
    _check_held_out(config)
    _check_task(config)
    _check_shape(config)
    bfloat = config.execution.precision == "bfloat16"
    require(not (bfloat and config.model == "lstm"), "float32 for the lstm", "leave precision out")
    whole = config.data.user_source != "documents" or config.data.segment_by == "record"
    require(
        whole, "documents that are not cut", "leave user_source out: a text without a user is the user of its segments"
    )
    doubted = config.data.duplicates != "doubtful" or config.marking.conservative_policy is not None
    require(doubted, "a conservative policy (of crt), which says what is doubtful", "leave duplicates out")
    seeded = config.seed is not None
    released = seeded and config.mode == Mode.RELEASE
    require(not released, "no seed in release mode", "leave the seed out, or set mode=research for a run to repeat")


def check_public_steps(config: Config, plan: Plan) -> None:
    """Refuse what acts in public steps alone where the plan has none: it would be ignored."""
    words = {f"model_config.{word}": value for word, value in config.model_config.items() if word in _DROPOUTS}
    words["lora.dropout"] = 0.0 if config.lora is None else config.lora.dropout
    given = [word for word, value in words.items() if value]
    given += ["precision"] if config.execution.precision != "float32" else []
    if given and all(isinstance(step.update, Noisy) for step in plan.executions()):
        raise ConfigError(
            expected="settings that this plan uses: its private steps have no dropout and compute in float32",
            found=", ".join(given),
            way_out="leave them out, or choose a mechanism with public steps",
        )


def _check_held_out(config: Config) -> None:
    apart = config.data.held_out_corpus is not None
    require(not apart or config.data.held_out is None, "held_out or held_out_corpus", "leave one of them out")
    on_it = config.training.eval_steps is not None and config.training.eval_on in ("redacted", "full")
    on_it = on_it or _same_file(config.training.eval_on, config.data.held_out_corpus)
    require(not (apart and on_it), "a choice that never looks at held_out_corpus", "eval_on: a file of its own")


def _same_file(one: str, other: str | None) -> bool:
    return other is not None and Path(one).resolve() == Path(other).resolve()


def _check_task(config: Config) -> None:
    kept = config.classifies and config.training.save_steps is not None
    require(not kept, "save_steps for a language model, which an audit attacks", "leave save_steps out")
    classes = config.classes
    if not config.classifies:
        require(classes is None, "classes with task: classification", "set the task, or leave classes out")
        return
    if classes is None:
        raise ConfigError("a public list of classes", "none", "classes: [name, name, ...]")
    class_numbers(classes)
    classifies = config.model == "lstm" or not config.is_new
    require(classifies, "an lstm or an encoder that classifies", "model: lstm, or an encoder's folder")


def shaped(kind: type[ModelShape], given: Mapping[str, Any], fixed: Mapping[str, int]) -> ModelShape:
    """The settings of a new model: what a person gave, and what is `fixed` by tokenizer and corpus."""
    known = [word for word in kind.__dataclass_fields__ if word not in fixed]
    for word in given:
        if word not in known:
            raise ConfigError.unknown_name("setting in model_config", word, known)
    try:
        return TypeAdapter(kind).validate_python({**given, **fixed})
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in fault["loc"])
        raise ConfigError(f"model_config.{where}: {fault['msg']}", repr(fault["input"]), "correct the number") from None


def _check_shape(config: Config) -> None:
    if config.model == "lstm":
        shaped(LSTMConfig, config.model_config, {"vocabulary_size": 1})
    elif config.model == "gpt":
        shaped(CausalLMConfig, config.model_config, {"vocabulary_size": 1, "context": config.data.max_full_tokens + 2})


def require(holds: bool, expected: str, way_out: str) -> None:
    """Refuse settings of which this does not hold."""
    if not holds:
        raise ConfigError(expected, "settings that contradict each other", way_out)
