"""The recipes of the papers' tables: results are of the recipe beside them, documents say what results say, and no test
part chooses anything.
"""

import importlib.util
import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tacit.common.serialize import dotted
from tacit.sweeps.recipe import Recipe, read_recipe, variations

PROJECT = Path(__file__).parents[2]
FOLDER = PROJECT / "benchmarks" / "reproduce"
RECIPES = sorted(FOLDER.glob("*.yaml"))
RESULTS = sorted(FOLDER.glob("*.results.json"))
DOCUMENT = (PROJECT / "docs" / "results.md").read_text(encoding="utf-8")
MEASURED_ON = "data.held_out_corpus"


def _tables() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tables", FOLDER / "tables.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _recipe_of(results: Path) -> tuple[Path, dict[str, Any]]:
    return results.with_name(results.name.replace(".results.json", ".yaml")), json.loads(results.read_text())


@pytest.mark.parametrize("file", RECIPES, ids=lambda place: str(place.name))
def test_recipes_state_their_time_and_compare_across_vocabularies(file: Path) -> None:
    recipe = read_recipe(file)
    assert "minutes" in recipe.duration
    for one in variations(recipe):
        assert recipe.perplexity_tokenizer or one.settings.get("task") == "classification"
        assert dotted(one.settings)[MEASURED_ON]


@pytest.mark.parametrize("place", RESULTS, ids=lambda place: str(place.name))
def test_results_are_of_the_recipe_beside_them(place: Path) -> None:
    file, results = _recipe_of(place)
    recipe = read_recipe(file, results["scale"])
    planned = [(one.name, one.group, one.differs) for one in variations(recipe)]
    assert [(line["name"], line["group"], line["differs"]) for line in results["runs"]] == planned


@pytest.mark.parametrize("place", RESULTS, ids=lambda place: str(place.name))
def test_the_document_has_the_table_that_the_script_makes(place: Path) -> None:
    tables = _tables()
    file, results = _recipe_of(place)
    assert tables.put(DOCUMENT, read_recipe(file).name, tables.made(file, results)) == DOCUMENT


def test_every_table_of_the_document_has_results() -> None:
    named = {json.loads(place.read_text())["recipe"] for place in RESULTS}
    assert set(re.findall(r"<!-- table: (\S+) -->", DOCUMENT)) == named


def _named_after_a_test_part(recipe: Recipe) -> set[str]:
    return {f"${name}" for name, need in recipe.needs.items() if "test" in f"{need.file} {need.made_by} {need.split}"}


def _uses(words: dict[str, Any], needs: set[str]) -> Iterator[str]:
    yield from (word for word, value in dotted(words).items() if str(value) in needs)


@pytest.mark.parametrize("file", RECIPES, ids=lambda place: str(place.name))
def test_a_test_part_is_measured_with_and_nothing_else(file: Path) -> None:
    recipe = read_recipe(file)
    tests = _named_after_a_test_part(recipe)
    used = {word for one in variations(recipe) for word in _uses(one.settings, tests)}
    assert used <= {MEASURED_ON}


def test_a_recipe_that_chooses_by_its_test_part_would_be_found(tmp_path: Path) -> None:
    """The negative control."""
    text = "\n".join(
        [
            "name: cheat",
            "needs: {train: {file: a.jsonl}, test: {file: a.test.jsonl}}",
            "settings: {corpus: $train, held_out: 0.1, eval_steps: 5, eval_on: $test, plan: {mechanism: plain}}",
            "runs: {plain: {plan.public_epochs: 1}}",
        ]
    )
    (tmp_path / "cheat.yaml").write_text(text)
    recipe = read_recipe(tmp_path / "cheat.yaml")
    (one,) = variations(recipe)
    assert list(_uses(one.settings, _named_after_a_test_part(recipe))) == ["training.eval_on"]
