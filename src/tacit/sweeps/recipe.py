"""A recipe of runs: what they need, what they share, in what they differ, and what `--scale` multiplies.

    name: twice-two
    duration: 2 minutes on two cores
    needs:
      train: {file: dialogs.jsonl, records: 2000}       # the first so many records of a file
      unsure: {policy: {forgetful: {policy: gold, miss_rate: 0.1}}}
      others: {simulate: customersim, dialogs: 500, seed: 9}
    settings: {corpus: $train, policy: $unsure, plan: {epsilon: 2}}   # settings, by their full names
    runs:
      dpsgd: {plan.mechanism: dpsgd}
      selective: {plan.mechanism: selective, grid: {plan.public_epochs: [1, 3]}}
    grid: {seed: [0, 1]}
    scales: [needs.train.records, plan.public_epochs]
    audit: {candidates: 200}                            # or false
    draws: [{title: Privacy against utility, x: epsilon, y: perplexity}]     # charts: see `result_columns`

A need is identified by its content; a file that settings name directly, by its name alone. Files that a policy under
`needs` names are looked for in the data folder, like every need. A finished run stays finished when tacit itself has
changed: its figures contain a hash of the code that made them, and the results say so if the hashes differ.

G1 (all). Every run is combined with every choice of the axes of `grid` and of its own; names tell all of them apart.
G2 (one scale). A scale other than 1 multiplies what `scales` lists, rounded, never below 1, and nothing else.
G3 (nothing ignored). A setting, need or key of `scales` that nothing uses is refused, and so is a column or setting
   under `paper` and `draws` that no run has.
"""

import itertools
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from tacit.common.serialize import LARGEST_SEED, dotted, from_words, map_strings, merged, read_yaml
from tacit.config.load import full_name, full_names
from tacit.config.schema import Config
from tacit.errors import ConfigError
from tacit.sweeps.result_columns import ChartSpec, chart_specs, check_charts, is_number, table_columns

SettingsDict = dict[str, Any]
SEED = "seed"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_GRID = "grid"
_SIZES = ("records", "dialogs")  # of needs, which `scales` may list
_REPEATABLE: SettingsDict = {"mode": "research"}  # unless a recipe says otherwise


class Need(BaseModel):
    """A file that runs read: one that is there, a policy that is written, or dialogs that are simulated."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    file: str | None = Field(None, description="A file of the data folder.")
    made_by: str | None = Field(None, description="The command that makes it; FILE is replaced by its path.")
    records: int | None = Field(None, ge=1, description="Only the first so many records of the file.")
    policy: Any = Field(None, description="The definition of a policy, as under `policy:` of a YAML file.")
    simulate: str | None = Field(None, description="The name of a simulator: customersim.")
    dialogs: int | None = Field(None, ge=1, description="How many dialogs to simulate.")
    seed: int | None = Field(None, ge=0, le=LARGEST_SEED, description="Seed of the simulation.")
    split: Literal["train", "validation", "test"] | None = Field(None, description="Splits of one seed share nobody.")


class Recipe(BaseModel):
    """All of a recipe but `audit`, which may be false."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern=f"^{_NAME.pattern}$", description="Letters, digits, dots, dashes and underscores.")
    duration: str = Field("", description='How long the whole sweep takes: "25 minutes on two cores".')
    needs: dict[str, Need] = Field({}, description="Files that settings name as $NAME.")
    settings: SettingsDict = Field(description="Settings that all runs share: their full names, or groups.")
    runs: dict[str, SettingsDict] = Field({}, description="Named variations; each may have a grid of its own.")
    grid: dict[str, list[Any]] = Field({}, description="Axes whose product is taken: plan.epsilon: [1, 2, 4].")
    scales: list[str] = Field([], description="What --scale multiplies: needs.NAME.records, plan.public_epochs.")
    perplexity_tokenizer: str | None = Field(
        None, description="A tokenizer.json whose tokens perplexities are stated in."
    )
    paper: dict[str, dict[str, float | str]] = Field({}, description="Printed figures: {run: {perplexity: 160}}.")
    audit: SettingsDict | None = Field({}, description="Settings of the audits, or false.")
    draws: list[ChartSpec] = Field([], description="Charts: {title: ..., x: epsilon, y: perplexity}.")


@dataclass(frozen=True, slots=True)
class Variation:
    """One run. run: its name under `runs`; group: its name without the seed; differs: what is not common, dotted."""

    name: str
    run: str
    group: str
    settings: SettingsDict
    differs: SettingsDict


def read_recipe(path: Path, scale: float = 1.0) -> Recipe:
    """The recipe in a YAML file, at this scale."""
    content = read_yaml(path)
    if not isinstance(content, dict):
        raise ConfigError(f"a recipe in {path}", type(content).__name__, "write `name: ...` and `settings: {...}`")
    if not (math.isfinite(scale) and scale > 0):
        raise ConfigError("a scale above 0", str(scale), "such as --scale 0.1")
    if content.get("audit") is False:
        content["audit"] = None
    content["needs"] = _needs(content.get("needs") or {})
    content["draws"] = chart_specs(content.get("draws") or [])
    recipe = from_words(Recipe, content)
    scales = [name if name.startswith("needs.") else full_name(Config, name) for name in recipe.scales]
    recipe = _changed(recipe, full_names, lambda name, values: (full_name(Config, name), values), scales=scales)
    everything = variations(recipe)
    _check(recipe, everything)
    return recipe if scale == 1 else _scaled(recipe, everything, scale)


def _changed(
    recipe: Recipe,
    settings: Callable[[SettingsDict], SettingsDict],
    axis: Callable[[str, list[Any]], tuple[str, list[Any]]],
    **update: object,
) -> Recipe:
    """The recipe with other settings and axes, wherever it states them."""

    def axes(grid: dict[str, list[Any]]) -> dict[str, list[Any]]:
        return dict(axis(name, values) for name, values in grid.items())

    def run(own: SettingsDict) -> SettingsDict:
        return settings(_without_grid(own)) | ({_GRID: axes(own[_GRID] or {})} if _GRID in own else {})

    runs = {name: run(own or {}) for name, own in recipe.runs.items()}
    update |= {"settings": settings(recipe.settings), "runs": runs, "grid": axes(recipe.grid)}
    return recipe.model_copy(update=update)


def _without_grid(run: SettingsDict) -> SettingsDict:
    return {name: value for name, value in run.items() if name != _GRID}


def variations(recipe: Recipe) -> list[Variation]:
    """Every run, in the order of the recipe; the last axis moves first."""
    found = [
        variation
        for name, own in (recipe.runs or {"": {}}).items()
        for variation in _variations(recipe, name, _without_grid(own))
    ]
    names = [one.name for one in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError("a different name for each run", f"{twice[0]!r} twice", "give axes values that differ")
    return found


def references(value: object) -> Iterator[str]:
    """The needs that are named in `value`, as $NAME."""
    if isinstance(value, str) and value.startswith("$"):
        yield value[1:]
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from references(inner)


def resolved(value: Any, places: Mapping[str, str]) -> Any:  # noqa: ANN401
    """`value` with the place of each need instead of its $NAME."""
    return map_strings(value, lambda text: places[text[1:]] if text.startswith("$") else text)


def nested(settings: Mapping[str, Any]) -> SettingsDict:
    """Dotted names as groups: {"plan.epsilon": 2} is {"plan": {"epsilon": 2}}."""
    result: SettingsDict = {}
    for path, value in settings.items():
        content = nested(value) if isinstance(value, dict) else value
        for name in reversed(str(path).split(".")):
            content = {name: content}
        result = merged(result, content)
    return result


def _needs(given: object) -> dict[str, Need]:
    if not isinstance(given, dict):
        raise ConfigError("needs: a mapping of names", type(given).__name__, "needs: {train: {file: train.jsonl}}")
    return {str(name): _need(str(name), need) for name, need in given.items()}


def _need(name: str, given: object) -> Need:
    if isinstance(given, str):
        return from_words(Need, {"file": given})
    if not isinstance(given, dict):
        raise ConfigError(f"needs.{name}: a file or a mapping", type(given).__name__, "{file: train.jsonl}")
    need = from_words(Need, given)
    ways = [way for way in ("file", "policy", "simulate") if getattr(need, way) is not None]
    belongs = {"file": {"made_by", "records"}, "policy": set[str](), "simulate": {"dialogs", "seed", "split"}}
    if len(ways) != 1:
        raise ConfigError(f"needs.{name}: one of file, policy and simulate", " and ".join(ways) or "none", "name one")
    others = given.keys() - {ways[0]} - belongs[ways[0]]
    if others:
        raise ConfigError(f"needs.{name}: what belongs to {ways[0]}", ", ".join(sorted(others)), "leave it out")
    if ways == ["simulate"] and need.dialogs is None:
        raise ConfigError(f"needs.{name}.dialogs", "nothing", "set how many dialogs to simulate")
    return need


def _variations(recipe: Recipe, run: str, own: SettingsDict) -> Iterator[Variation]:
    axes = dict(recipe.runs.get(run, {}).get(_GRID) or {})
    axes |= {name: values for name, values in recipe.grid.items() if name not in axes}
    for name, values in axes.items():
        if not isinstance(values, list) or not values:
            raise ConfigError(f"values of the axis {name}", repr(values), f"{name}: [value, value]")
    common = merged(_REPEATABLE, nested(recipe.settings))
    for values in itertools.product(*axes.values()):
        chosen = dict(zip(axes, values, strict=True))
        differs = dotted(merged(nested(own), nested(chosen)))
        parts = {name: f"{name.split('.')[-1]}-{_short(value)}" for name, value in chosen.items()}
        called = "-".join(filter(None, (run, *parts.values())))
        group = "-".join(filter(None, (run, *(part for name, part in parts.items() if name != SEED))))
        yield Variation(called, run or recipe.name, group or recipe.name, merged(common, nested(differs)), differs)


def _short(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return re.sub(r"[^A-Za-z0-9._]+", "-", text).strip("-")


def _check(recipe: Recipe, everything: list[Variation]) -> None:
    for variation in everything:
        if not _NAME.fullmatch(variation.name):
            raise ConfigError(
                expected="names of runs of letters, digits, dots, dashes and underscores, up to 100",
                found=repr(variation.name),
                way_out="name the run under `runs:`, or choose shorter values",
            )
    used = {name for one in everything for name in references(one.settings)} | set(
        references(recipe.perplexity_tokenizer)
    )
    for name in sorted(used - recipe.needs.keys()):
        raise ConfigError.unknown_name("need", name, recipe.needs)
    for name in sorted(recipe.needs.keys() - used):
        raise ConfigError("needs that some setting names", f"{name}, which none does", f"use ${name}, or leave it out")
    groups = {one.group for one in everything}
    for name in sorted(recipe.paper.keys() - groups):
        raise ConfigError.unknown_name("run, without its seed, under `paper`", name, groups)
    columns = table_columns() if recipe.paper else {}
    for column in sorted({column for printed in recipe.paper.values() for column in printed} - columns.keys()):
        raise ConfigError.unknown_name("column, under `paper`", column, columns)
    values: dict[str, list[object]] = {}
    for name, value in (pair for one in everything for pair in dotted(one.settings).items() if pair[0] != SEED):
        values.setdefault(name, []).append(value)
    kept = any(one.settings.get("training", {}).get("save_steps") for one in everything)
    attacked = recipe.audit is not None and recipe.audit.get("checkpoints") is True
    if attacked and not kept:
        raise ConfigError(
            expected="runs that keep checkpoints, as audit.checkpoints asks to attack them",
            found="none with training.save_steps",
            way_out="settings: {training.save_steps: 100}, or leave audit.checkpoints out",
        )
    names = {name for one in everything for name in (one.run, one.group)}
    check_charts(recipe.draws, values, names, kept and attacked)


def _scaled(recipe: Recipe, everything: list[Variation], scale: float) -> Recipe:
    """The recipe with every number that `scales` lists multiplied: in needs, settings, runs and axes."""
    known = {name for one in everything for name in dotted(one.settings)}
    for name, given in recipe.needs.items():
        known |= {f"needs.{name}.{size}" for size in _SIZES if getattr(given, size) is not None}
    if not recipe.scales:
        raise ConfigError("`scales:` in the recipe, with --scale", "none", "list what --scale should multiply")
    for name in recipe.scales:
        if name not in known:
            raise ConfigError.unknown_name("setting that some run has, under `scales`", name, known)

    def times(name: str, value: object) -> object:
        if name not in recipe.scales:
            return value
        if not is_number(value):
            raise ConfigError(f"a number at {name}, which `scales` lists", repr(value), "take it out of `scales`")
        return max(1, math.floor(value * scale + 0.5))

    def settings(given: SettingsDict) -> SettingsDict:
        return {name: times(name, value) for name, value in dotted(nested(given)).items()}

    def axis(name: str, values: list[Any]) -> tuple[str, list[Any]]:
        return name, [times(name, value) for value in values]

    def need(name: str, given: Need) -> Need:
        sizes = {size: times(f"needs.{name}.{size}", getattr(given, size)) for size in _SIZES}
        return given.model_copy(update=sizes)

    return _changed(recipe, settings, axis, needs={name: need(name, given) for name, given in recipe.needs.items()})
