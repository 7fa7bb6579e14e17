"""Frozen dataclasses as JSON, both ways, and settings from a person's words: strictly, what is not known is refused."""

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from tacit.errors import ConfigError

T = TypeVar("T")
Settings = TypeVar("Settings", bound=BaseModel)


def to_json(value: object) -> str:
    """`value` as indented JSON."""
    return TypeAdapter(type(value)).dump_json(value, indent=2).decode()


def from_json(kind: type[T], text: str | bytes) -> T:
    """The value of type `kind` that `to_json` wrote."""
    try:
        value = TypeAdapter(kind).validate_json(text, strict=True, extra="forbid")
    except ValidationError as error:
        fault = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(part) for part in fault["loc"]) or "the top"
        raise ConfigError(
            expected=f"a {kind.__name__} as JSON",
            found=f"{fault['msg']} at {where}",
            way_out="use a file that tacit wrote, unchanged",
        ) from None
    return value


def from_words(kind: type[Settings], given: Mapping[str, Any]) -> Settings:
    """`given` as settings; an unknown or impossible word is named, with the nearest that is known or what it means."""
    for word in given:
        if word not in kind.model_fields:
            raise ConfigError.unknown_name("setting", str(word), kind.model_fields)
        if isinstance(given[word], bool):
            raise ConfigError(f"{word}: a number or a word", str(given[word]).lower(), "no setting is true or false")
    try:
        return kind.model_validate(dict(given))
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        word, *inside = (str(part) for part in fault["loc"])
        message = f"{fault['msg'][0].lower()}{fault['msg'][1:]}"
        raise ConfigError(
            expected=f"{'.'.join((word, *inside))}: {message}",
            found=repr(fault["input"]) if word in given else "nothing",
            way_out=kind.model_fields[word].description or "correct it",
        ) from None


def merged(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """`over` laid over `under`, word by word inside groups such as `plan`."""
    result = dict(under)
    for word, value in over.items():
        below = result.get(word)
        result[word] = merged(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return result
