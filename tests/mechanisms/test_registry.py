"""Entries: each loads, is true of its mechanism, uses the settings that it declares; nobody else knows the names."""

import ast
import re
from dataclasses import fields
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest
from test_mechanisms import EXAMPLES

import tacit
from tacit.config.load import load
from tacit.config.plan_schema import CorpusCounts, PlanConfig
from tacit.errors import ConfigError
from tacit.mechanisms.build import plan
from tacit.mechanisms.registry import REGISTRY, build_mechanism, entries, entry_of
from tacit.mechanisms.settings import ALWAYS_USED, MechanismEntry

VALUES: dict[str, Any] = {
    "noise_multiplier": 2.0,
    "delta": 1e-6,
    "expected_batch_size": 20,
    "sampling_rate": 0.05,
    "epochs": 2,
    "steps": 5,
    "clip_norm": 0.5,
    "clip_style": "automatic",
    "trainable": "head",
    "public_batch_size": 8,
    "public_epochs": 1,
    "public_view": "learned",
    "form_epsilon": 0.3,
    "targets": "all",
    "weight_cap": 2,
    "local_epochs": 2,
    "user_cap": 3,
    "entity_cap": 2,
    "entity_rate": 0.5,
    "other_rate": 0.5,
    "recall": 0.9,
    "events_per_batch": 2.0,
    "noised_states": 0,
}
INSTEAD_OF = {
    "expected_batch_size": "sampling_rate",
    "sampling_rate": "expected_batch_size",
    "epochs": "steps",
    "steps": "epochs",
    "user_cap": "weight_cap",
}
COUNTS = {
    "records": 1000,
    "secret_records": 800,
    "flagged": 300,
    "other_records": 100,
    "users": 500,
    "sensitive_share": 0.4,
    "segments_per_record": 1,
}


def test_every_reference_loads() -> None:
    """Catches a registry that names what was moved or renamed: nothing imports it before it is asked for."""
    texts = [module.read_text(encoding="utf-8") for module in Path(tacit.__file__).parent.rglob("*.py")]
    references = {one for text in texts for one in re.findall(r'"(tacit(?:\.\w+)+:\w+)"', text)}
    assert references >= {*REGISTRY.values()}
    assert len(references) > len(REGISTRY)
    for reference in references:
        assert resolve_name(reference) is not None


@pytest.mark.parametrize("name", REGISTRY)
def test_an_entry_is_true_of_its_mechanism(name: str) -> None:
    entry = entry_of(name)
    mechanism = plan({"mechanism": name, **EXAMPLES[name]}).mechanism
    assert mechanism.name == entry.name == name
    assert type(mechanism) is entry.kind
    assert set(entry.units) == {neighbors.unit for neighbors in mechanism.notions()}


def test_names_are_used_once() -> None:
    names = [name for entry in entries() for name in (entry.name, *entry.also_called)]
    assert len(names) == len(set(names)) > len(REGISTRY)
    for entry in entries():
        assert all(entry_of(name) is entry for name in (entry.name, *entry.also_called))


@pytest.mark.parametrize("entry", entries(), ids=lambda entry: entry.name)
def test_a_mechanism_uses_the_settings_it_declares_and_refuses_all_others(entry: MechanismEntry) -> None:
    declared = {one.name for kind in (PlanConfig, CorpusCounts) for one in fields(kind)}
    assert {*VALUES, *COUNTS, *ALWAYS_USED} == declared
    used = {name for name in VALUES if _refused(entry, name) is None}
    assert used == set(entry.needs.settings or ())
    for name in VALUES.keys() - used:
        refused = _refused(entry, name)
        assert refused is not None
        assert name in refused.found.split(", ")


def _refused(entry: MechanismEntry, name: str) -> ConfigError | None:
    """How the mechanism refuses the setting beside those of its example; None where it does not."""
    given = {word: value for word, value in EXAMPLES[entry.name].items() if word not in COUNTS}
    given.pop(INSTEAD_OF.get(name, ""), None)
    if name == "public_batch_size" and entry.needs.entities:
        given["public_epochs"] = 1
    value = VALUES[name]
    if name == "public_view" and "form_epsilon" not in (entry.needs.settings or ()):
        value = "invented"  # others count no forms
    if name == "form_epsilon" and name in (entry.needs.settings or ()):
        given["public_view"] = "learned"
    words = load(PlanConfig, {"mechanism": entry.name, **given, name: value})
    try:
        build_mechanism(words, {count: partial(abs, number) for count, number in COUNTS.items()})
    except ConfigError as error:
        return error
    return None


def test_nobody_else_knows_a_mechanism_by_its_name() -> None:
    """Catches code that asks which mechanism it is: such a need belongs to `Needs`, in the mechanism's own file."""
    names = {name for entry in entries() for name in (entry.name, *entry.also_called)} - {
        "plain",
        "user",
        "invented",
    }  # which are words for other things, too
    package = Path(tacit.__file__).parent
    for module in package.rglob("*.py"):
        if module.relative_to(package).parts[0] in ("mechanisms", "papers") or module.stem == "five_ways":
            continue
        strings = (node for node in ast.walk(ast.parse(module.read_text())) if isinstance(node, ast.Constant))
        assert names.isdisjoint({node.value for node in strings if isinstance(node.value, str)}), module
