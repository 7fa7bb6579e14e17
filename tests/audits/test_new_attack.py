"""An attack is one file and one line: whatever it brings is shown everywhere, without another edit."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from audited import KNOWN, train_run
from finished_runs import write_run
from tacit.audits import attacks
from tacit.audits.findings import Audit
from tacit.cli.main import app
from tacit.common.serialize import from_json
from tacit.errors import ConfigError, RunError
from tacit.reports.comparison_page import comparison_page
from tacit.reports.finished_run import read_run, read_runs
from tacit.reports.run_page import run_page
from tacit.runs.folder import RunFolder
from tacit.runs.release import check_fields
from tacit.runs.weights import keep_model
from tacit.sweeps.charts import sweep_page
from tacit.sweeps.recipe import Recipe, read_recipe
from tacit.sweeps.result_columns import columns_of
from tacit.sweeps.worker import figures
from toy_attacks import RATE

TOYS = ["toy_attacks:TOY", "toy_attacks:QUIET_TOY"]


@pytest.fixture(scope="module", autouse=True)
def registered() -> Any:  # noqa: ANN401
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attacks, "ATTACKS", [*attacks.ATTACKS, *TOYS])
        yield


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    plan = {"mechanism": "plain", "public_epochs": 1}
    folder = train_run(tmp_path_factory.mktemp("toy"), plan, [{**KNOWN, "repetitions": 1}])
    with RunFolder.open(folder) as opened:
        keep_model(opened, 1, {})  # the weights of the release
    return folder


@pytest.fixture(scope="module")
def shown(run: Path) -> str:
    words = ["audit", str(run), "--candidates", "12", "--checkpoints"]
    result = CliRunner().invoke(app, words, catch_exceptions=False, env={"COLUMNS": "120"})
    assert result.exit_code == 0
    return result.output


def test_the_command_line_shows_it(shown: str) -> None:
    for words in ("what the toy saw", "wooden", "The toy attack plays", "The toy box stays", "what nobody may know"):
        assert words in shown
    assert "toy rate" in shown.split("models saved during training")[1]


def test_json_has_all_of_it_and_reads_back(run: Path, shown: str) -> None:
    words = ["audit", str(run), "--candidates", "12", "--checkpoints", "--json"]
    printed = CliRunner().invoke(app, words, catch_exceptions=False).stdout
    found = from_json(Audit, printed)
    assert found == from_json(Audit, (run / "private" / "audit.json").read_text())
    assert found.figures["toy rate"] == RATE
    assert found.checkpoints[0].figures["toy rate"] == RATE / 2
    assert "quiet toy" in [one.attack for one in found.training_records]


def test_what_is_about_canaries_leaves_and_nothing_else(run: Path, shown: str) -> None:
    released = (run / "release" / "tacit" / "audit.json").read_text()
    assert "what the toy saw" in released
    assert "quiet" not in released
    assert "toy box" not in released
    content = json.loads((run / "private" / "audit.json").read_text())
    with pytest.raises(RunError, match=r"canaries\[\].inside, .*training_records\[\]"):
        check_fields("tacit/audit.json", content)


def test_the_page_of_the_run_draws_it(run: Path, shown: str) -> None:
    outside, inside = (run_page(read_run(run, inside)) for inside in (False, True))
    for page in (outside, inside):
        for words in ("Toys in a row", "Toys on a floor", "wooden", "62.5 toys", "per box", "The toy attack plays"):
            assert words in page
    for words in ("The toy box stays inside", "what nobody may know"):
        assert words in inside
        assert words not in outside


def test_the_page_of_several_runs_compares_by_it(run: Path, shown: str, tmp_path: Path) -> None:
    page = comparison_page(read_runs([run, write_run(tmp_path / "other", "plain")]))
    table = page.split('<table class="runs">')[1].split("</table>")[0]
    assert '<th scope="col" class="number">Toy</th>' in table
    assert table.count("62.5 toys") == 1
    assert "Toys against utility" in page
    assert "Toy: how many toys." in page


def test_a_sweep_has_its_columns_and_draws_them(run: Path, shown: str, tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path, "toy rate")
    line = {"name": "a-seed-0", "group": "a", "seed": 0, "refused": None, "seconds": {}}
    line["figures"] = figures(run, None, None, attacks=True)
    assert "toy rate" in columns_of([line], {})
    page = sweep_page(recipe, {"recipe": "r", "scale": 1.0, "tuning": "", "mixed": None, "runs": [line]})
    assert '<th scope="col" class="number">Toy rate</th>' in page
    assert "Toy rate, in toys" in page
    assert ">chance</text>" in page
    with pytest.raises(ConfigError, match="did you mean toy rate"):
        recipe_of(tmp_path, "toy rat")


def recipe_of(folder: Path, column: str) -> Recipe:
    content = {
        "name": "r",
        "needs": {"train": {"simulate": "customersim", "dialogs": 20}},
        "settings": {"corpus": "$train", "policy": "gold", "save_steps": 10},
        "runs": {"a": {"plan": {"mechanism": "plain", "public_epochs": 2}}},
        "grid": {"seed": [0]},
        "audit": {"checkpoints": True},
        "draws": [
            {"title": "Toys", "x": "perplexity", "y": column},
            {"title": "On the way", "points": "checkpoints", "x": "step", "y": column},
        ],
    }
    path = folder / "r.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return read_recipe(path)
