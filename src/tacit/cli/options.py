"""Flags of the command line, generated from the declared settings: there is nothing to keep in step by hand."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING
from typing import Any, cast, get_type_hints

import typer

from tacit.api.inputs import FieldNames
from tacit.config.schema import Config
from tacit.config.setting import Setting, every_setting

FIELDS = tuple(one for one in every_setting(Config) if one.name.endswith("_field"))
"""What a corpus calls the parts of a record: flags of every verb that reads one."""


def flags_for(declared: Iterable[Setting]) -> list[inspect.Parameter]:
    """One option per setting, named after the last part of its name; nothing given is None."""
    return [
        inspect.Parameter(
            name_of(one),
            inspect.Parameter.KEYWORD_ONLY,
            default=typer.Option(None, f"--{name_of(one).replace('_', '-')}", help=_help(one)),
            annotation=one.type | None,
        )
        for one in declared
    ]


def name_of(one: Setting) -> str:
    """What the flag of a setting is called."""
    return one.name.split(".")[-1]


def with_flags(verb: Callable[..., None], declared: Iterable[Setting]) -> Callable[..., None]:
    """`verb` with a flag for each setting; its parameter `flags` receives those that were given, by full name."""
    chosen = tuple(declared)

    def command(**options: Any) -> None:  # noqa: ANN401  (typer reads the signature set below)
        given = {one.name: options.pop(name_of(one)) for one in chosen}
        verb(**options, flags={name: value for name, value in given.items() if value is not None})

    hints = get_type_hints(verb, include_extras=True)
    fixed = [
        one.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[one.name])
        for one in inspect.signature(verb).parameters.values()
        if one.name != "flags"
    ]
    signature = inspect.Signature([*fixed, *flags_for(chosen)])
    command.__signature__ = signature  # type: ignore[attr-defined]
    command.__annotations__ = {name: one.annotation for name, one in signature.parameters.items()}
    command.__doc__, command.__name__ = verb.__doc__, verb.__name__
    return command


def field_names(flags: Mapping[str, str]) -> FieldNames:
    """The flags of `FIELDS` that were given, as keywords of `tacit.api`."""
    return cast(FieldNames, {name.split(".")[-1]: value for name, value in flags.items()})


def _help(one: Setting) -> str:
    default = one.auto if one.default is None else one.default
    return one.help if default is None or default is MISSING else f"{one.help} Default: {default}."
