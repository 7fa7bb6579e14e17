"""What a configuration needs because of its mechanism; what can be refused before the corpus is read."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from tacit.config.checks import check_used, require
from tacit.config.choices import Duplicates
from tacit.config.load import load_config
from tacit.config.schema import Config
from tacit.errors import ConfigError
from tacit.mechanisms.mechanism import Needs
from tacit.mechanisms.registry import entries, entry_of
from tacit.mechanisms.settings import refuse_unused


def needs_of(config: Config) -> Needs:
    """What the mechanism that was asked for needs."""
    return entry_of(config.plan.mechanism).needs


def duplicates_of(config: Config) -> Duplicates:
    """Which repeated redacted text is left out."""
    return config.data.duplicates or needs_of(config).duplicates


def invents(config: Config) -> bool:
    """Whether public steps read invented secrets."""
    return (config.plan.public_view or needs_of(config).public_view) == "invented"


def load_checked(source: Path, keywords: Mapping[str, Any], *layers: Mapping[str, Any]) -> Config:
    """The settings of a corpus or a YAML file, with keywords (None: not given) and `layers` over them, checked."""
    given = {name: value for name, value in keywords.items() if value is not None}
    config = load_config(source, given, *layers)
    check_run(config)
    return config


def check_run(config: Config) -> None:
    """Refuse settings that contradict each other, and those that nothing would use."""
    check_used(config)
    needs, data, marking = needs_of(config), config.data, config.marking
    listed = marking.entity_kinds is not None or marking.aliases is not None
    owned = data.user_source == "given" or needs.users
    routed = marking.conservative_policy is None or needs.conservative
    require(
        not listed or needs.entities, f"entities for {_those_with('entities')}", "leave entity_kinds and aliases out"
    )
    require(routed, f"a conservative policy for {_those_with('conservative')}", "leave conservative_policy out")
    require(owned, f"user_source for {_those_with('users')}", "leave user_source out")
    invented = invents(config) or not marking.inventions
    require(invented, "inventions with plan.public_view=invented", "leave them out")
    if needs.private_rule is not None:
        _check_private_rule(config, asdict(needs.private_rule))
    if needs.settings is not None:
        given = {name for name, value in asdict(config.plan).items() if value is not None}
        refuse_unused(config.plan.mechanism, given - needs.settings - {"mechanism", "epsilon"})


def _check_private_rule(config: Config, fixed: Mapping[str, Any]) -> None:
    given = {name: value for name, value in asdict(config.private).items() if name != "learning_rate"}
    other = [f"private.{name}: {value}" for name, value in given.items() if value not in (None, fixed[name])]
    if other:
        raise ConfigError(
            expected=f"the private steps of {config.plan.mechanism} as printed: {fixed['optimizer']} with a constant "
            "learning rate",
            found=", ".join(other),
            way_out="leave it out: private.learning_rate alone can be chosen",
        )


def _those_with(need: Literal["entities", "conservative", "users"]) -> str:
    return " and ".join(entry.name for entry in entries() if getattr(entry.needs, need))
