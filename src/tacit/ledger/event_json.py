"""Events as JSON, both ways: one object an event, with its kind and every number its price depends on."""

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from tacit.errors import ClaimRefused, ConfigError, LedgerError
from tacit.events import Event, ExposedGaussian, Free, Gaussian, Relation, SampledGaussian, Unbounded

JsonEvent = dict[str, str | float | int]

_KINDS: dict[str, type[Event]] = {
    "free": Free,
    "unbounded": Unbounded,
    "gaussian": Gaussian,
    "sampled-gaussian": SampledGaussian,
    "exposed-gaussian": ExposedGaussian,
}
_TYPES: dict[str, type] = {
    "reason": str,
    "noise_multiplier": float,
    "sampling_rate": float,
    "copies": int,
    "relation": Relation,
}


def event_to_json(event: Event) -> JsonEvent:
    """The event as a JSON object."""
    for kind, found in _KINDS.items():
        if type(event) is found:
            return {"kind": kind, **asdict(event)}
    raise ClaimRefused(
        expected=f"an event ({', '.join(sorted(_KINDS))})",
        found=type(event).__name__,
        way_out="describe the step by one of these events",
    )


def event_from_json(value: object) -> Event:
    """The event of a JSON object; unknown kinds, missing and additional fields are refused."""
    if not isinstance(value, Mapping) or not isinstance(value.get("kind"), str):
        raise LedgerError(
            expected="an event: a JSON object with a kind",
            found=type(value).__name__,
            way_out="restore the file from a copy: it was not written by tacit, or was edited",
        )
    kind = _KINDS.get(str(value["kind"]))
    if kind is None:
        error = ConfigError.unknown_name("kind of event", str(value["kind"]), _KINDS)
        raise LedgerError(error.expected, error.found, error.way_out)
    names = {field.name for field in fields(kind)}
    if set(value) - {"kind"} != names:
        raise LedgerError(
            expected=f"the fields {', '.join(sorted(names))}",
            found=", ".join(sorted(map(str, value))),
            way_out="restore the file from a copy: it was written by another version, or was edited",
        )
    return kind(**{name: _typed(name, value[name]) for name in names})


def _typed(name: str, value: Any) -> Any:  # noqa: ANN401  (any JSON value, any field's type)
    wanted = _TYPES[name]
    fits = isinstance(value, (float, int) if wanted is float else (str if wanted is Relation else wanted))
    if isinstance(value, bool) or not fits or (wanted is Relation and value not in set(Relation)):
        raise LedgerError(
            expected=f"a {wanted.__name__.lower()} as {name}",
            found=repr(value),
            way_out="restore the file from a copy: it was edited",
        )
    return wanted(value)
