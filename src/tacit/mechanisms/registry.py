"""Mechanisms: one file each, one line each in the registry."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any

from tacit.common.serialize import from_json, to_json
from tacit.config.plan_schema import CorpusCounts, PlanConfig
from tacit.errors import ClaimRefused, ConfigError
from tacit.mechanisms.custom import OWN_UNITS, Own
from tacit.mechanisms.mechanism import Mechanism, Needs, PrivateSteps
from tacit.mechanisms.settings import MeasuredCounts, MechanismEntry, PlanSettings
from tacit.privacy.plan import Plan, Unit

REGISTRY: dict[str, str] = {
    "plain": "tacit.mechanisms.plain:ENTRY",
    "redaction": "tacit.mechanisms.redaction:REDACTION",
    "invented": "tacit.mechanisms.redaction:INVENTED",
    "dpsgd": "tacit.mechanisms.dpsgd:ENTRY",
    "selective": "tacit.mechanisms.selective:SELECTIVE",
    "twice": "tacit.mechanisms.selective:TWICE",
    "cadp": "tacit.mechanisms.cadp:ENTRY",
    "crt": "tacit.mechanisms.crt:ENTRY",
    "user": "tacit.mechanisms.user:ENTRY",
    "uedp": "tacit.mechanisms.uedp:ENTRY",
    "selective-published": "tacit.papers.mechanisms:SELECTIVE_PUBLISHED",
    "cadp-published": "tacit.papers.mechanisms:CADP_PUBLISHED",
    "uedp-published": "tacit.papers.mechanisms:UEDP_PUBLISHED",
}
"""Where each mechanism's entry is; it is loaded when asked for."""

_OWN: dict[str, MechanismEntry] = {}


def entries() -> tuple[MechanismEntry, ...]:
    return tuple(resolve_name(reference) for reference in REGISTRY.values())


def entry_of(name: str) -> MechanismEntry:
    """The mechanism of this name, or the one that papers call so."""
    entry: MechanismEntry | None = resolve_name(REGISTRY[name]) if name in REGISTRY else _other_entries().get(name)
    if entry is None:
        raise ConfigError.unknown_name("mechanism", name, {*REGISTRY, *_other_entries()})
    return entry


def _other_entries() -> dict[str, MechanismEntry]:
    return _OWN | {other: entry for entry in entries() for other in entry.also_called}


def register_mechanism(name: str, summary: str, build: Callable[[PlanSettings], Own]) -> None:
    """From now on, in this process, `mechanism: name` asks for a mechanism of one's own (`tacit.mechanisms.custom`)."""
    if name in {*REGISTRY, *_other_entries()} - _OWN.keys():
        raise ConfigError("a name for an own mechanism that is not taken", name, "choose another name")
    _OWN[name] = MechanismEntry(name, summary, build, Own, OWN_UNITS, Needs())


def build_mechanism(
    plan: PlanConfig, measured: MeasuredCounts | None = None, counts: CorpusCounts | None = None
) -> Mechanism:
    """The mechanism that is asked for, before any calibration; counts that nobody gave are `measured`."""
    entry = entry_of(plan.mechanism)
    settings = PlanSettings(plan, measured or {}, entry.needs, counts)
    mechanism = entry.build(settings)
    if entry.kind is Own:
        _check_own(mechanism, entry.name, settings)
    settings.finish()
    return mechanism


def _check_own(mechanism: Mechanism, name: str, settings: PlanSettings) -> None:
    """Refuse what could claim more than its ledger: other classes, borrowed names, a number of units of its own."""
    if type(mechanism) is not Own or mechanism.name != name:
        found = f"a {type(mechanism).__name__} called {mechanism.name!r}"
        raise ClaimRefused(f"an Own called {name!r}", found, "return tacit.mechanisms.custom.Own from the builder")
    counted = {Unit.SECRETS: "secret_records", Unit.FLAGGED_RECORD: "flagged"}
    count = settings.count(counted.get(mechanism.unit, "records"))
    if mechanism.private.population != count:
        raise ClaimRefused(
            expected=f"private steps over the {count} units of the corpus",
            found=f"{mechanism.private.population}",
            way_out="settings.private(settings.take('secret_records', records)), or the count of the protected unit",
        )


@dataclass(frozen=True, slots=True)
class Described:
    """A mechanism with all its numbers, as a file has it."""

    name: str
    settings: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _OwnSettings:
    private: PrivateSteps
    unit: Unit


def describe(mechanism: Mechanism) -> Described:
    """What `rebuild` needs. Of one's own mechanism, its list of steps is the plan itself."""
    settings = _OwnSettings(mechanism.private, mechanism.unit) if isinstance(mechanism, Own) else mechanism
    return Described(mechanism.name, json.loads(to_json(settings)))


def rebuild(described: Described, plan: Plan) -> Mechanism:
    """The mechanism that was described; refused when it would not execute `plan`, or goes by another's name."""
    settings = json.dumps(described.settings)
    if described.name in REGISTRY:
        mechanism = from_json(entry_of(described.name).kind, settings)
    else:
        own = from_json(_OwnSettings, settings)
        mechanism = Own(described.name, own.private, lambda _: plan, own.unit)
    if mechanism.name != described.name or mechanism.plan() != plan:
        found = f"the plan or the name of another than {described.name} with these settings"
        raise ClaimRefused("a mechanism and the plan that follows from it", found, "use a file that tacit wrote")
    return mechanism
