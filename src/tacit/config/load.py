"""YAML, keywords and `--set` to a `Config`, all by one function; and a `Config` back to what may be seen of it.

A name may be shortened to any end that only one setting has: `held_out` is `data.held_out`. A mistyped name is answered
with the nearest one, wherever it is nested.

Settings that contradict each other, or that nothing would use, are refused.
"""

import difflib
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import MISSING, is_dataclass
from functools import cache
from pathlib import Path, PurePath
from typing import Any, TypeVar

import yaml
from pydantic import TypeAdapter, ValidationError

from tacit.common.serialize import NotStrict, first_fault, parse_yaml, read_yaml
from tacit.config.model_schema import CausalLMConfig, LSTMConfig, class_numbers
from tacit.config.schema import Config
from tacit.config.setting import AUTO, NAME, NO, Mode, Setting, every_section, every_setting
from tacit.errors import ConfigError
from tacit.privacy.plan import Noisy, Plan

T = TypeVar("T", bound=Hashable)
Layer = Mapping[str, Any] | Path | Config
SettingPath = tuple[str, ...]
YAML = (".yaml", ".yml")


def load_config(*layers: Layer) -> Config:
    """The settings of all layers, later ones over earlier ones: YAML files, corpora, mappings, or other settings."""
    return load(Config, *(_content(layer) for layer in layers))


def load(kind: type[T], *layers: Mapping[str, Any]) -> T:
    """`kind` with the settings of all layers; an unknown name or an impossible value is refused."""
    given: dict[SettingPath, Any] = {}
    for layer in layers:
        for path, value in _flat(kind, layer):
            _add(given, path, value)
    content: dict[str, Any] = {name: {} for name in every_section(kind) if _is_needed(kind, name)}
    for path, value in given.items():
        declared = _names(kind).get(".".join(path))
        if value is not None or (declared is not None and not declared.open):
            _put(content, path, value)
    try:
        return TypeAdapter(kind).validate_python(content)
    except ValidationError as error:
        fault = first_fault(error)
        helps = {one.name: one.help for one in every_setting(kind)}
        way_out = next((helps[name] for name in _with_parents(fault.name) if name in helps), "correct it")
        raise ConfigError(f"{fault.name}: {fault.message}", fault.found, way_out) from None


def full_name(kind: type, given: str) -> str:
    """The whole name of the setting or section that a person wrote; of a mapping's entry, the entry included."""
    known = _names(kind)
    parts = given.split(".")
    for end in range(len(parts), 0, -1):
        head, inside = ".".join(parts[:end]), parts[end:]
        found = [head] if head in known else [name for name in known if name.endswith(f".{head}")]
        found = [name for name in found if not inside or _is_open(known[name])]
        if len(found) > 1:
            raise ConfigError(f"the name of one setting, not {given!r}", "several", f"write {_either(found)}")
        if found:
            return ".".join((found[0], *inside))
    raise _unknown(given, known)


def full_names(words: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a run by their full names, whatever names and nesting a person chose."""
    return {".".join(path): value for path, value in _flat(Config, words)}


def parse_set(setting: str) -> dict[str, Any]:
    """`--set layers=2` as {"layers": 2}."""
    name, equals, value = setting.partition("=")
    if not equals:
        raise ConfigError("--set NAME=VALUE", setting, "such as --set model_config.hidden_size=300")
    try:
        return {name: parse_yaml(value)}
    except NotStrict as error:
        raise ConfigError(f"YAML after --set {name}=", str(error), "such as --set max_tokens=300") from error


def to_dict(settings: object) -> dict[str, Any]:
    """All settings of a section or a `Config`, nested as in YAML."""
    content: dict[str, Any] = TypeAdapter(type(settings)).dump_python(settings, mode="json")
    return content


def to_flat(config: Config) -> dict[str, Any]:
    """The value of every setting, as JSON has it, by its full name."""
    content = to_dict(config)
    names = [one.name for one in every_setting(Config) if "[]" not in one.name]
    return {name: _get(content, tuple(name.split("."))) for name in names if not name.startswith("model_config.")}


def to_yaml(config: Config) -> str:
    """All settings for a person to read, or to train with again."""
    content = to_dict(config)
    for one in every_setting(Config):
        path = tuple(one.name.split("."))
        inside = one.name.startswith(("model_config.", "lora.")) or "[]" in one.name
        if one.auto is not None and not inside and _get(content, path) is None:
            _put(content, path, AUTO)
    return yaml.safe_dump(content, sort_keys=False)


def released(config: Config) -> dict[str, Any]:
    """The settings that may leave: those declared so; of a path its last part."""
    whole, content = to_dict(config), dict[str, Any]()
    for one in every_setting(Config):
        if one.release != NO:
            _copy(whole, content, tuple(one.name.split(".")), one)
    return content


def _copy(whole: Any, content: Any, path: SettingPath, one: Setting) -> None:  # noqa: ANN401
    name, *inside = path
    is_list = name.endswith("[]")
    name = name.removesuffix("[]")
    value = None if whole is None else whole.get(name)
    if value is None:
        return
    if not inside:
        content[name] = PurePath(value).name if one.release == NAME else value
    elif is_list:
        entries = content.setdefault(name, [{} for _ in value])
        for entry, into in zip(value, entries, strict=True):
            _copy(entry, into, tuple(inside), one)
    elif name in whole and isinstance(value, dict):
        _copy(value, content.setdefault(name, {}), tuple(inside), one)


def _content(layer: Layer) -> Mapping[str, Any]:
    if isinstance(layer, Config):
        return to_dict(layer)
    if not isinstance(layer, Path):
        return layer
    if layer.suffix not in YAML:
        return {"corpus": str(layer)}
    content = read_yaml(layer)
    if not isinstance(content, dict):
        raise ConfigError(f"settings in {layer}", type(content).__name__, "write `corpus: ...` and `plan: {...}`")
    return content


def _flat(kind: type, words: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[SettingPath, Any]]:
    """Every setting with its full name; a mapping without names is a section that was asked for as it is."""
    for word, value in words.items():
        name = full_name(kind, f"{prefix}{word}")
        declared = _names(kind).get(name)
        if name in every_section(kind) or _is_open(declared):
            value = to_dict(value) if is_dataclass(value) else value
            if isinstance(value, Mapping) and value:
                yield from _flat(kind, value, f"{name}.")
            else:
                yield tuple(name.split(".")), _section_value(name, value)
            continue
        yield tuple(name.split(".")), _plain_value(name, declared, value)


def _section_value(name: str, value: object) -> dict[str, Any] | None:
    if value is None or isinstance(value, Mapping):
        return None if value is None else {}
    raise ConfigError(f"settings under {name}", repr(value), f"write {name}: {{setting: value}}")


def _plain_value(name: str, declared: Setting | None, value: Any) -> Any:  # noqa: ANN401
    if declared is None:
        return value
    if isinstance(value, bool) and declared.type is not bool:
        raise ConfigError(f"{name}: a number or a word", str(value).lower(), "this setting takes no boolean")
    return None if value == AUTO and declared.auto is not None else value


def _add(given: dict[SettingPath, Any], path: SettingPath, value: Any) -> None:  # noqa: ANN401
    """A section that is null is as if nobody had given it; one that is empty changes nothing that was given."""
    below = [other for other in given if other[: len(path)] == path]
    if value == {} and below:
        return
    for other in below:
        del given[other]
    given[path] = value


def _put(content: dict[str, Any], path: SettingPath, value: Any) -> None:  # noqa: ANN401
    for name in path[:-1]:
        inner = content.get(name)
        content[name] = content = inner if isinstance(inner, dict) else {}
    content[path[-1]] = value


def _get(content: Mapping[str, Any] | None, path: SettingPath) -> Any:  # noqa: ANN401
    found: Any = content
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def _is_open(declared: Setting | None) -> bool:
    return declared is not None and declared.open


@cache
def _names(kind: type) -> dict[str, Setting | None]:
    """All names that a person may write, and what each declares; a section's is None."""
    sections: dict[str, Setting | None] = dict.fromkeys(every_section(kind))
    return sections | {one.name: one for one in every_setting(kind) if "[]" not in one.name}


@cache
def _is_needed(kind: type, name: str) -> bool:
    """Whether a section has settings without a default."""
    return any(
        one.name.startswith(f"{name}.") and one.default is MISSING and "[]" not in one.name
        for one in every_setting(kind)
    )


def _unknown(given: str, known: Iterable[str]) -> ConfigError:
    last: dict[str, list[str]] = {}
    for name in known:
        last.setdefault(name.split(".")[-1], []).append(name)
    near = difflib.get_close_matches(given, known, n=3, cutoff=0.6)
    near += [
        name for end in difflib.get_close_matches(given.split(".")[-1], last, n=2, cutoff=0.6) for name in last[end]
    ]
    way_out = f"did you mean {_either(dict.fromkeys(near))}?" if near else "`tacit config` prints all settings"
    return ConfigError("the name of a setting", repr(given), way_out)


def _either(names: Iterable[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last


def _with_parents(name: str) -> Iterator[str]:
    parts = name.split(".")
    return (".".join(parts[:end]) for end in range(len(parts), 0, -1))


_DROPOUTS = ("dropout", "embedding_dropout", "weight_drop")
ModelShape = TypeVar("ModelShape", LSTMConfig, CausalLMConfig)


def check_used(config: Config) -> None:
    """Refuse settings that would be ignored."""
    is_new, adapts = config.is_new, config.model == "gpt" or not config.is_new
    learned, sized = (given is not None for given in (config.data.vocabulary_corpus, config.data.vocabulary_size))
    require(not learned or config.tokenizer_name == "bpe", "vocabulary_corpus for a bpe only", "set tokenizer: bpe")
    require(
        not sized or config.tokenizer_name in ("bpe", "english"),
        "vocabulary_size for a vocabulary that can have any",
        "set tokenizer: english or bpe",
    )
    require(
        is_new or not config.model_config, "model_config for a new model only", "leave it out: a folder has its own"
    )
    require(
        config.initial_weights != "english" or config.fits_english,
        "initial_weights: english for an lstm with default sizes, task and tokenizer",
        "leave initial_weights out, or model, model_config, task, tokenizer and vocabulary_size",
    )
    require(
        config.initial_weights is None or config.model == "lstm",
        "initial_weights for an lstm",
        "leave it out: others begin with the weights of their folder, or with random ones",
    )
    require(not is_new or config.tokenizer_name != "model", "a folder with the tokenizer", "use bytes, english or bpe")
    require(config.lora is None or adapts, "adapters for a gpt or a folder", "leave lora out")
    require(
        config.training.eval_steps is not None or config.training.early_stopping_patience is None,
        "eval_steps with early_stopping_patience",
        "set both",
    )
    _check_held_out(config)
    _check_task(config)
    _check_shape(config)
    _check_cache(config)
    _check_execution(config, adapts)
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


def _check_execution(config: Config, adapts: bool) -> None:
    execution = config.execution
    require(
        not config.is_new or execution.attn_implementation is None, "attn_implementation for a folder", "leave it out"
    )
    checkpoints = execution.gradient_checkpointing != "none"
    require(adapts or not checkpoints, "gradient_checkpointing for a gpt or a folder", "leave it out")
    if execution.fsdp == "base":
        require(not config.is_new, "fsdp for the adapters of a model from a folder", "leave execution.fsdp out")
        require(
            execution.cache_activations_gb is None,
            "fsdp, where all processes compute each layer together, or kept activations",
            "leave execution.cache_activations_gb out, or fsdp",
        )
        require(
            config.training.minutes is None,
            "minutes without fsdp: one process alone times rows before the others begin",
            "give epochs instead of minutes, or leave execution.fsdp out",
        )


def _check_cache(config: Config) -> None:
    layers = None if config.lora is None else config.lora.layers_to_transform
    require(layers is None or bool(layers), "layers to adapt", "leave lora.layers_to_transform out: all have adapters")
    if config.execution.cache_activations_gb is None:
        return
    above = layers is not None and min(layers) > 0
    require(above, "layers without adapters below the first, whose activations can be kept", _NO_CACHE)
    require(config.task == "language", "activations kept for task: language alone", _NO_CACHE)
    require(config.execution.precision == "float32", "activations kept in float32", "leave precision out")


_NO_CACHE = (
    "leave execution.cache_activations_gb out, or set lora.layers_to_transform to upper layers of a language model"
)


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
        fault = first_fault(error)
        raise ConfigError(f"model_config.{fault.name}: {fault.message}", fault.found, "correct the number") from None


def _check_shape(config: Config) -> None:
    if config.model == "lstm":
        shaped(LSTMConfig, config.model_config, {"vocabulary_size": 1})
    elif config.model == "gpt":
        shaped(CausalLMConfig, config.model_config, {"vocabulary_size": 1, "context": config.data.max_full_tokens + 2})


def require(holds: bool, expected: str, way_out: str) -> None:
    """Refuse settings of which this does not hold."""
    if not holds:
        raise ConfigError(expected, "settings that contradict each other", way_out)
