"""`tacit sweep` as a person meets it: trained, attacked, reported; killed, and gone on with."""

import json
import math
import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from typer.testing import CliRunner, Result

from tacit.cli.main import app
from tacit.data.tokenizer import NOTHING, train_bpe
from tacit.errors import ConfigError
from tacit.privacy.ledger import read_entries
from tacit.runs.folder import RunFolder
from tacit.runs.release import ReleaseFile
from tacit.runs.weights import read_model
from tacit.sweeps.sweep import sweep

STEPS = 40
SELECTIVE = {
    "mechanism": "selective",
    "noise_multiplier": 1.0,
    "steps": 3,
    "expected_batch_size": 8,
    "public_epochs": 1,
}
RECIPE: dict[str, Any] = {
    "name": "two",
    "duration": "seconds",
    "needs": {
        "train": {"simulate": "customersim", "dialogs": 60},
        "test": {"simulate": "customersim", "dialogs": 20, "split": "test"},
        "measure": {"file": "measure.json"},
    },
    "settings": {
        "corpus": "$train",
        "held_out_corpus": "$test",
        "policy": "gold",
        "max_tokens": 64,
        "max_full_tokens": 64,
        "checkpoint_steps": 3,
        "save_steps": 4,
        "model_config": {"embedding_size": 8, "hidden_size": 8},
        "canaries": [{"template": "My ID is {2 digits}.", "count": 6, "repetitions": 2}],
    },
    "runs": {"selective": {"plan": SELECTIVE}},
    "perplexity_tokenizer": "$measure",
    "audit": {"candidates": 20, "secrets": 5, "checkpoints": True},
    "draws": [{"title": "On the way", "points": "checkpoints", "x": "perplexity", "y": "exposure"}],
}


def write_recipe(folder: Path, **over: Any) -> Path:  # noqa: ANN401
    content = train_bpe(["hello there, I have a question"], 280, NOTHING).codec.definition()["content"]
    (folder / "data").mkdir(exist_ok=True)
    (folder / "data" / "measure.json").write_text(json.dumps(content))
    path = folder / "two.yaml"
    path.write_text(yaml.safe_dump({**RECIPE, **over}, sort_keys=False))
    return path


def invoked(*words: str) -> Result:
    return CliRunner().invoke(app, ["sweep", *words], catch_exceptions=False)


def test_a_sweep_from_recipe_to_page(tmp_path: Path) -> None:
    """A run ends with a model, an audit and pages; the same command again does nothing and says the same."""
    file = write_recipe(tmp_path)
    first = invoked(str(file))
    assert first.exit_code == 0
    said = " ".join(first.output.split())
    assert "two, 1 runs: seconds" in said
    assert "selective: training" in said
    assert "no guarantee covers that" in said
    run = tmp_path / "two.runs" / "selective"
    assert (run / "release" / ReleaseFile.REPORT).exists()
    text = (tmp_path / "two.results.json").read_text()
    assert str(tmp_path) not in text
    (line,) = json.loads(text)["runs"]
    found = line["figures"]
    assert found["claim"]["figures"][0]["epsilon"] > 0
    assert found["utility"]["normalised"]["overall"]["count"] > 0
    _check_exposure(run, found["attacks"])
    assert {"training", "audit"} == set(line["seconds"])
    on_the_way = found["attacks"]["checkpoints"]
    last, overall = on_the_way[-1], found["utility"]["normalised"]["overall"]["perplexity"]
    assert last["normalised"] == pytest.approx(overall, rel=1e-4)
    page = (tmp_path / "two.runs" / "sweep.html").read_text()
    assert page.count('<a class="point"') == len(on_the_way) > 1
    settings = json.loads((run / "private" / "settings.json").read_text())
    assert settings["data"]["held_out_corpus"].endswith("test.jsonl")
    assert "held_out_corpus" not in json.loads((run / "release" / ReleaseFile.CONFIG).read_text())["data"]
    secrets = json.loads((run / "private" / "canaries.json").read_text())
    values = [canary["value"] for plan in secrets["planted"] for canary in plan["canaries"]]
    assert values
    assert not any(f'"{value}"' in text for value in values)
    begun = (run / "release" / ReleaseFile.LEDGER).stat().st_mtime_ns
    again = sweep(file)
    assert [one.known for one in again.outcomes] == [True]
    assert (run / "release" / ReleaseFile.LEDGER).stat().st_mtime_ns == begun
    assert (tmp_path / "two.results.json").read_text() == text


def _check_exposure(run: Path, attacks: dict[str, Any]) -> None:
    """The figures are medians of the dots that the audit has, each an exposure among all hundred values."""
    figures = {name: value for name, value in attacks["figures"].items() if "exposure" in name}
    assert figures.keys() == {"exposure", "exposure, not planted", "best exposure", "exposure p"}
    audit = json.loads((run / "private" / "audit.json").read_text())
    (chart,) = next(one for one in audit["canaries"] if one["attack"] == "exposure")["charts"]
    planted, others = ([dot["value"] for dot in row["items"]] for row in chart["rows"])
    assert 1 <= len(planted) <= 6
    assert len(planted) + len(others) == 12
    for bits in planted + others:
        assert 0 <= bits <= math.log2(100)
        assert 200 / 2**bits == pytest.approx(round(200 / 2**bits)), "a rank is whole, or a half where values tie"
    assert figures["exposure"] == pytest.approx(statistics.median(planted))
    assert figures["exposure, not planted"] == pytest.approx(statistics.median(others))
    assert figures["best exposure"] == pytest.approx(max(planted))
    assert 1 / math.comb(12, len(planted)) <= figures["exposure p"] * (1 + 1e-9) <= 1 + 1e-9
    last = attacks["checkpoints"][-1]["figures"]  # the model that was released
    assert {name: last[name] for name in figures} == pytest.approx(figures)


def test_words_that_mean_nothing_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        invoked(str(tmp_path / "none.yaml"))
    with pytest.raises(ConfigError, match=r"measure\.json"):
        invoked(str(write_recipe(tmp_path)), "--data", str(tmp_path))
    with pytest.raises(ConfigError, match="`scales:`"):
        invoked(str(write_recipe(tmp_path)), "--scale", "0.5")


def _begin(file: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", "from tacit.cli.main import main; main()", "sweep", str(file)]
    with (file.parent / "said").open("ab") as said:
        return subprocess.Popen(command, stdout=said, stderr=said)


def _wait(file: Path, steps: int, process: subprocess.Popen[bytes]) -> None:
    ledger = file.parent / "two.runs" / "long" / "release" / ReleaseFile.LEDGER
    for _ in range(2000):
        if ledger.exists() and sum(read_entries(ledger).charges().values()) >= steps:
            return
        assert process.poll() is None, (file.parent / "said").read_text()
        time.sleep(0.05)
    raise AssertionError("no step was taken")


def _children(process: int) -> list[int]:
    found = []
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = place.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == process:
            found.append(int(place.parent.name))
    return found


@pytest.mark.slow
def test_killed_sweeps_go_on_and_end_as_undisturbed_ones(tmp_path: Path) -> None:
    """The driver dies, then a process of a run, then nobody: the same model, the same results but for the ledger."""
    plan = {**SELECTIVE, "steps": STEPS, "public_epochs": 4}
    folders = [tmp_path / "calm", tmp_path / "killed"]
    for folder in folders:
        folder.mkdir()
    files = [write_recipe(folder, runs={"long": {"plan": plan}}) for folder in folders]
    assert sweep(files[0]).exit_code == 0

    driver = _begin(files[1])
    _wait(files[1], 8, driver)
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()

    driver = _begin(files[1])  # waits until the process that was left behind has ended, then goes on
    _wait(files[1], 20, driver)
    (child,) = _children(driver.pid)
    os.kill(child, signal.SIGKILL)
    assert driver.wait() == 1
    assert "one that ended by signal 9" in (files[1].parent / "said").read_text()

    swept = sweep(files[1])
    assert swept.exit_code == 0
    models = [read_model(RunFolder.view(folder / "two.runs" / "long")) for folder in folders]
    assert all(torch.equal(models[0][name], models[1][name]) for name in models[0])
    charges = [
        read_entries(folder / "two.runs" / "long" / "release" / ReleaseFile.LEDGER).charges() for folder in folders
    ]
    assert STEPS == charges[0]["private"] <= charges[1]["private"]
    results = [json.loads((folder / "two.results.json").read_text())["runs"][0] for folder in folders]
    for line in results:
        assert line.pop("seconds")
        line["figures"].pop("claim")  # steps that were done twice were paid twice
        line["figures"]["attacks"].pop("bounds")
        line["figures"]["attacks"].pop("verdict")
    assert results[0] == results[1]


@pytest.mark.slow
def test_several_at_a_time_end_as_one_after_the_other(tmp_path: Path) -> None:
    """Two processes, each with its share of the threads; the page compares both."""
    places = [tmp_path / "one", tmp_path / "two"]
    texts = []
    for jobs, place in enumerate(places, 1):
        place.mkdir()
        file = write_recipe(
            place, runs={"selective": {"plan": SELECTIVE}}, grid={"seed": [0, 1]}, audit=False, draws=[]
        )
        swept = sweep(file, jobs=jobs)
        assert swept.page is not None
        assert "selective-seed-1" in swept.page.read_text()
        content = json.loads(swept.results.read_text())
        for line in content["runs"]:
            assert line.pop("seconds")
        texts.append(json.dumps(content))
    assert texts[0] == texts[1]
