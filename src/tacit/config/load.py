"""YAML, keywords and `--set` to a `Config`, all by one function; and a `Config` back to what may be seen of it.

A name may be shortened to any end that only one setting has: `held_out` is `data.held_out`. A mistyped name is answered
with the nearest one, wherever it is nested.
"""

import difflib
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import MISSING, is_dataclass
from functools import cache
from pathlib import Path, PurePath
from typing import Any, TypeVar

import yaml
from pydantic import TypeAdapter, ValidationError

from tacit.common.serialize import NotStrict, parse_yaml, read_yaml
from tacit.config.schema import Config
from tacit.config.setting import AUTO, NAME, NO, Setting, every_section, every_setting
from tacit.errors import ConfigError

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
        raise _impossible(kind, error, {".".join(path) for path in given}) from None


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


def _impossible(kind: type, error: ValidationError, given: set[str]) -> ConfigError:
    fault = error.errors(include_url=False)[0]
    path = [str(part) for part in fault["loc"]]
    known = {one.name: one for one in every_setting(kind)}
    name = next((".".join(path[:end]) for end in range(len(path), 0, -1) if ".".join(path[:end]) in known), path[0])
    message = f"{fault['msg'][0].lower()}{fault['msg'][1:]}"
    found = repr(fault["input"]) if fault["type"] != "missing" else "nothing"
    return ConfigError(f"{'.'.join(path)}: {message}", found, known[name].help if name in known else "correct it")
