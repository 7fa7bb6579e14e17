"""Frozen dataclasses as JSON, both ways, strictly: what was not written here is refused."""

from functools import cache
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from tacit.errors import ConfigError

T = TypeVar("T")


def to_json(value: object) -> str:
    """`value` as indented JSON."""
    return _adapter(type(value)).dump_json(value, indent=2).decode()


def from_json(kind: type[T], text: str | bytes) -> T:
    """The value of type `kind` that `to_json` wrote."""
    try:
        value: T = _adapter(kind).validate_json(text, strict=True, extra="forbid")
    except ValidationError as error:
        fault = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(part) for part in fault["loc"]) or "the top"
        raise ConfigError(
            expected=f"a {kind.__name__} as JSON",
            found=f"{fault['msg']} at {where}",
            way_out="use a file that tacit wrote, unchanged",
        ) from None
    return value


@cache
def _adapter(kind: type) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
