"""A recipe of runs: what they need, what they share, in what they differ, and how they shrink with one dial.

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
    draws: [{title: Privacy against utility, x: epsilon, y: perplexity}]     # pictures: see `draws.py`

Audits with `checkpoints: true` attack the models that runs keep on the way, with `training.save_steps`.

A need is known by its content; a file that settings name directly, by its name alone. Files that a policy under
`needs` names are looked for in the data folder, like every need.

A run that is done stays done when tacit itself has changed since: training again is for whoever removes its folder. Its
figures name the code that made them, by a hash, and the results say so when not all runs were made with the same.

G1 (all). Every run is taken with every choice of the axes of `grid` and of its own; names tell all of them apart.
G2 (one dial). A dial other than 1 multiplies what `scales` lists, rounds it, and never goes below 1; nothing else.
G3 (nothing ignored). A word, need or key of `scales` that nothing uses is refused, and so is a column or setting that
   nothing has, under `paper` and `draws`.
"""

import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from tacit.common.serialize import LARGEST_SEED, from_words, merged, read_yaml
from tacit.config.load import full_name, full_names
from tacit.config.schema import Config
from tacit.errors import ConfigError
from tacit.sweeps.result_columns import ChartSpec, check_draws, draws_of, table_columns

SettingsDict = dict[str, Any]
SEED = "seed"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_GRID = "grid"
_REPEATABLE: SettingsDict = {"mode": "research"}  # unless a recipe says otherwise


class Need(BaseModel):
    """A file that runs read: one that is there, a policy that is written, or dialogs that are simulated."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    file: str | None = Field(None, description="A file of the data folder.")
    made_by: str | None = Field(None, description="The command that makes it; FILE stands for its place.")
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
    settings: SettingsDict = Field(description="Settings that all runs share: the words of an experiment.")
    runs: dict[str, SettingsDict] = Field({}, description="Named variations; each may have a grid of its own.")
    grid: dict[str, list[Any]] = Field({}, description="Axes whose product is taken: plan.epsilon: [1, 2, 4].")
    scales: list[str] = Field([], description="What the dial multiplies: needs.NAME.records, plan.public_epochs.")
    perplexity_tokenizer: str | None = Field(
        None, description="A tokenizer.json whose tokens perplexities are stated in."
    )
    paper: dict[str, dict[str, float | str]] = Field({}, description="Printed figures: {run: {perplexity: 160}}.")
    audit: SettingsDict | None = Field({}, description="Settings of the audits, or false.")
    draws: list[ChartSpec] = Field([], description="Pictures: {title: ..., x: epsilon, y: perplexity}.")


@dataclass(frozen=True, slots=True)
class Variation:
    """One run. run: its name under `runs`; group: its name without the seed; differs: what is not common, dotted."""

    name: str
    run: str
    group: str
    words: SettingsDict
    differs: SettingsDict


def read_recipe(path: Path, scale: float = 1.0) -> Recipe:
    """The recipe in a YAML file, at this position of the dial."""
    content = read_yaml(path)
    if not isinstance(content, dict):
        raise ConfigError(f"a recipe in {path}", type(content).__name__, "write `name: ...` and `settings: {...}`")
    if not (math.isfinite(scale) and scale > 0):
        raise ConfigError("a scale above 0", str(scale), "such as --scale 0.1")
    if content.get("audit") is False:
        content["audit"] = None
    content["needs"] = _needs(content.get("needs") or {})
    content["draws"] = draws_of(content.get("draws") or [])
    recipe = _with_full_names(from_words(Recipe, content))
    everything = variations(recipe)
    _check(recipe, everything)
    return recipe if scale == 1 else _scaled(recipe, everything, scale)


def _with_full_names(recipe: Recipe) -> Recipe:
    def axes(grid: dict[str, list[Any]]) -> dict[str, list[Any]]:
        return {full_name(Config, word): values for word, values in grid.items()}

    def run(words: SettingsDict) -> SettingsDict:
        own = full_names({word: value for word, value in words.items() if word != _GRID})
        return own | ({_GRID: axes(words[_GRID] or {})} if _GRID in words else {})

    return recipe.model_copy(
        update={
            "settings": full_names(recipe.settings),
            "runs": {name: run(words or {}) for name, words in recipe.runs.items()},
            "grid": axes(recipe.grid),
            "scales": [word if word.startswith("needs.") else full_name(Config, word) for word in recipe.scales],
        }
    )


def variations(recipe: Recipe) -> list[Variation]:
    """Every run, in the order of the recipe; the last axis moves first."""
    found = [
        variation
        for name, own in (recipe.runs or {"": {}}).items()
        for variation in _variations(recipe, name, {word: value for word, value in own.items() if word != _GRID})
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
    elif isinstance(value, dict):
        yield from itertools.chain.from_iterable(map(references, value.values()))
    elif isinstance(value, list):
        yield from itertools.chain.from_iterable(map(references, value))


def resolved(value: Any, places: Mapping[str, str]) -> Any:  # noqa: ANN401
    """`value` with the place of each need instead of its $NAME."""
    if isinstance(value, str) and value.startswith("$"):
        return places[value[1:]]
    if isinstance(value, dict):
        return {word: resolved(inner, places) for word, inner in value.items()}
    if isinstance(value, list):
        return [resolved(inner, places) for inner in value]
    return value


def nested(words: Mapping[str, Any]) -> SettingsDict:
    """Dotted names as groups: {"plan.epsilon": 2} is {"plan": {"epsilon": 2}}."""
    result: SettingsDict = {}
    for path, value in words.items():
        content = nested(value) if isinstance(value, dict) else value
        for word in reversed(str(path).split(".")):
            content = {word: content}
        result = merged(result, content)
    return result


def dotted(words: Mapping[str, Any], prefix: str = "") -> SettingsDict:
    """Groups as dotted names."""
    found: SettingsDict = {}
    for word, value in words.items():
        found |= dotted(value, f"{prefix}{word}.") if isinstance(value, dict) and value else {f"{prefix}{word}": value}
    return found


def _needs(given: object) -> SettingsDict:
    if not isinstance(given, dict):
        raise ConfigError("needs: a mapping of names", type(given).__name__, "needs: {train: {file: train.jsonl}}")
    needs = {str(name): {"file": need} if isinstance(need, str) else need for name, need in given.items()}
    return {name: _need(name, need) for name, need in needs.items()}


def _need(name: str, given: object) -> Need:
    if not isinstance(given, dict):
        raise ConfigError(f"needs.{name}: a file or a mapping", type(given).__name__, "{file: train.jsonl}")
    need = from_words(Need, given)
    ways = [way for way in ("file", "policy", "simulate") if getattr(need, way) is not None]
    belongs = {"file": {"made_by", "records"}, "policy": set[str](), "simulate": {"dialogs", "seed", "split"}}
    if len(ways) != 1:
        raise ConfigError(f"needs.{name}: one of file, policy and simulate", " and ".join(ways) or "none", "name one")
    beside = given.keys() - {ways[0]} - belongs[ways[0]]
    if beside:
        raise ConfigError(f"needs.{name}: what {ways[0]} knows", ", ".join(sorted(beside)), "leave it out")
    if ways == ["simulate"] and need.dialogs is None:
        raise ConfigError(f"needs.{name}.dialogs", "nothing", "say how many dialogs to simulate")
    return need


def _variations(recipe: Recipe, name: str, own: SettingsDict) -> Iterator[Variation]:
    axes = dict(recipe.runs.get(name, {}).get(_GRID) or {})
    axes |= {word: values for word, values in recipe.grid.items() if word not in axes}
    for word, values in axes.items():
        if not isinstance(values, list) or not values:
            raise ConfigError(f"values of the axis {word}", repr(values), f"{word}: [value, value]")
    common = merged(_REPEATABLE, nested(recipe.settings))
    for values in itertools.product(*axes.values()):
        chosen = dict(zip(axes, values, strict=True))
        differs = dotted(merged(nested(own), nested(chosen)))
        called, group = (
            _named([name, *(f"{word.split('.')[-1]}-{_short(chosen[word])}" for word in axes if word != left_out)])
            for left_out in ("", SEED)
        )
        yield Variation(called, name or recipe.name, group or recipe.name, merged(common, nested(differs)), differs)


def _named(parts: list[str]) -> str:
    return "-".join(filter(None, parts))


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
    used = {name for one in everything for name in references(one.words)} | set(references(recipe.perplexity_tokenizer))
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
    _check_kept(recipe, everything)


def _check_kept(recipe: Recipe, everything: list[Variation]) -> None:
    values: dict[str, list[object]] = {}
    for word, value in (pair for one in everything for pair in dotted(one.words).items() if pair[0] != SEED):
        values.setdefault(word, []).append(value)
    kept = any(one.words.get("training", {}).get("save_steps") for one in everything)
    attacked = recipe.audit is not None and recipe.audit.get("checkpoints") is True
    if attacked and not kept:
        raise ConfigError(
            expected="runs that keep models on the way, as audit.checkpoints asks to attack them",
            found="none with training.save_steps",
            way_out="settings: {training.save_steps: 100}, or leave audit.checkpoints out",
        )
    check_draws(recipe.draws, values, {name for one in everything for name in (one.run, one.group)}, kept, attacked)


def _scaled(recipe: Recipe, everything: list[Variation], scale: float) -> Recipe:
    """The recipe with its numbers moved: in the needs, and wherever settings, runs and axes state them."""
    _check_scales(recipe, everything)
    settings = {word for word in recipe.scales if not word.startswith("needs.")}

    def moved(words: SettingsDict) -> SettingsDict:
        flat = dotted(nested({word: value for word, value in words.items() if word != _GRID}))
        moved = {word: _times(word, value, scale) if word in settings else value for word, value in flat.items()}
        return moved | ({_GRID: axes(words[_GRID])} if _GRID in words else {})

    def axes(grid: dict[str, list[Any]]) -> dict[str, list[Any]]:
        return {
            word: [_times(word, value, scale) for value in values] if word in settings else values
            for word, values in grid.items()
        }

    needs = {
        name: need.model_copy(
            update={
                word: _times(word, getattr(need, word), scale)
                for word in ("records", "dialogs")
                if f"needs.{name}.{word}" in recipe.scales
            }
        )
        for name, need in recipe.needs.items()
    }
    runs = {name: moved(own) for name, own in recipe.runs.items()}
    update = {"needs": needs, "settings": moved(recipe.settings), "runs": runs, "grid": axes(recipe.grid)}
    return recipe.model_copy(update=update)


def _check_scales(recipe: Recipe, everything: list[Variation]) -> None:
    known = {word for one in everything for word in dotted(one.words)}
    known |= {
        f"needs.{name}.{word}"
        for name, need in recipe.needs.items()
        for word in ("records", "dialogs")
        if getattr(need, word) is not None
    }
    if not recipe.scales:
        raise ConfigError("`scales:` in the recipe, with --scale", "none", "list what the dial is to multiply")
    for word in recipe.scales:
        if word not in known:
            raise ConfigError.unknown_name("setting that some run has, under `scales`", word, known)


def _times(word: str, value: object, scale: float) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"a number at {word}, which `scales` lists", repr(value), "take it out of `scales`")
    return max(1, math.floor(value * scale + 0.5))
