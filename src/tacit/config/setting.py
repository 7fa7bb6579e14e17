"""How one setting is declared: type, default, help, limits, and whether it may leave; all else follows from that.

@section
class PlanConfig:
    clip_norm: float = setting(1.0, "Largest L2 norm of one unit's gradient.", gt=0, release=VALUE, why="a constant")

Named choices that settings take.
"""

from collections.abc import Iterator
from dataclasses import MISSING, dataclass
from enum import StrEnum
from functools import cache
from types import UnionType
from typing import Any, Literal, TypeVar, Union, cast, dataclass_transform, get_args, get_origin

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass as pydantic_dataclass
from pydantic.fields import FieldInfo

Kind = TypeVar("Kind")
REQUIRED: Any = ...
AUTO = "auto"


class Release(StrEnum):
    """How much of a setting leaves with a run."""

    VALUE = "value"
    NAME = "name"  # of a path its last part
    NO = "no"


VALUE, NAME, NO = Release


def setting(
    default: Any,  # noqa: ANN401
    help: str,
    *,
    auto: float | str | None = None,
    flag: bool | str = False,
    release: Release = NO,
    why: str = "",
    names: tuple[type, ...] = (),
    **limits: Any,  # noqa: ANN401
) -> Any:  # noqa: ANN401
    """Declare a setting of a section.

    auto: of a setting that is None unless a person gives it, the value then taken, or the rule that gives it.
    flag: whether `tacit train` has a flag for it, or what the flag is called. why: why it may leave.
    names: the models whose sizes a mapping has.
    limits: those of pydantic, such as gt=0.
    """
    facts: Any = {"auto": auto, "flag": flag, "release": release, "why": why, "names": names}
    value = {"default_factory": default} if isinstance(default, type) else {"default": default}
    return Field(description=help, json_schema_extra=facts, **value, **limits)


@dataclass_transform(frozen_default=True)
def section(kind: type[Kind]) -> type[Kind]:
    """Settings that belong together: frozen, checked when made, without names that it does not declare."""
    made: Any = pydantic_dataclass(frozen=True, config=ConfigDict(extra="forbid"))(kind)
    return cast(type[Kind], made)


@dataclass(frozen=True, slots=True)
class Setting:
    """One declared setting, by its full name. `[]` in a name: of each entry of a list."""

    name: str
    type: Any
    default: Any
    help: str
    auto: float | str | None
    flag: str | None  # what its flag and its keyword are called, if it has them
    release: Release
    why: str
    open: bool  # a mapping, whose names a person chooses

    @property
    def many(self) -> bool:
        return any(get_origin(one) in (tuple, list) for one in _alternatives(self.type))


@cache
def every_setting(kind: type) -> tuple[Setting, ...]:
    """All settings under `kind`, in the order of their declaration."""
    return tuple(_settings(kind, ""))


@cache
def every_section(kind: type) -> tuple[str, ...]:
    """The names of all sections under `kind`."""
    return tuple(_sections(kind, ""))


def fields_of(kind: Any) -> dict[str, FieldInfo]:  # noqa: ANN401
    fields: dict[str, FieldInfo] = kind.__pydantic_fields__
    return {name: field for name, field in fields.items() if isinstance(field.json_schema_extra, dict)}


def section_in(annotation: object) -> type | None:
    """The section that a field holds, if it holds one."""
    return next((one for one in _alternatives(annotation) if hasattr(one, "__pydantic_fields__")), None)


def _alternatives(annotation: object) -> tuple[Any, ...]:
    return get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)


def _sections(kind: type, prefix: str) -> Iterator[str]:
    for name, field in fields_of(kind).items():
        inner = section_in(field.annotation)
        if inner is not None:
            yield f"{prefix}{name}"
            yield from _sections(inner, f"{prefix}{name}.")


def _settings(kind: type, prefix: str) -> Iterator[Setting]:
    for name, field in fields_of(kind).items():
        inner = section_in(field.annotation)
        if inner is not None:
            yield from _settings(inner, f"{prefix}{name}.")
            continue
        facts: Any = field.json_schema_extra
        yield _declared(f"{prefix}{name}", field, is_open=get_origin(field.annotation) is dict)
        for entry in (entry for one in _alternatives(field.annotation) for entry in get_args(one)):
            if hasattr(entry, "__pydantic_fields__"):
                yield from _settings(entry, f"{prefix}{name}[].")
        inside = {at: of for model in facts["names"] for at, of in fields_of(model).items()}
        yield from (_declared(f"{prefix}{name}.{at}", of) for at, of in inside.items())


def _declared(name: str, field: FieldInfo, *, is_open: bool = False) -> Setting:
    facts: Any = field.json_schema_extra
    flag = name.split(".")[-1] if facts["flag"] is True else facts["flag"] or None
    default = MISSING if field.is_required() else field.get_default(call_default_factory=True)
    return Setting(
        name,
        field.annotation,
        default,
        field.description or "",
        facts["auto"],
        flag,
        facts["release"],
        facts["why"],
        is_open,
    )


class Mode(StrEnum):
    """Whether a run can be repeated from its seed, or its model may leave your organization."""

    RESEARCH = "research"  # everything from one seed
    RELEASE = "release"  # everything from the operating system


Duplicates = Literal["keep", "exact", "doubtful"]
SegmentBy = Literal["record", "turn", "sentence"]
TrainOn = Literal["all", "assistant"]
PublicView = Literal["redacted", "invented", "learned"]


class Method(StrEnum):
    """How ranks are found."""

    EXACT = "exact"
    SAMPLED = "sampled"
    EXTRAPOLATED = "extrapolated"
