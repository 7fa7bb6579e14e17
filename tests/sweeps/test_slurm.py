"""`tacit sweep RECIPE --slurm FOLDER`: jobs that a cluster runs, with a stand-in for sbatch that runs them at once."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tacit.errors import ConfigError
from tacit.sweeps.sweep import write_slurm

RECIPE = {
    "name": "small",
    "needs": {"train": {"simulate": "customersim", "dialogs": 30}},
    "settings": {
        "corpus": "$train",
        "policy": "gold",
        "mode": "research",
        "held_out": 0.3,
        "max_tokens": 64,
        "max_full_tokens": 64,
        "tokenizer": "bytes",
        "model_config": {"hidden_size": 8, "embedding_size": 8},
        "plan": {"mechanism": "plain", "public_epochs": 1},
    },
    "grid": {"seed": [0, 1]},
}
SBATCH = """#!/bin/bash
# prints a number, as sbatch --parsable does, and runs the job at once
echo "$@" >> "$SUBMITTED"
wc -l < "$SUBMITTED"
bash "${@: -1}" > /dev/null
"""


@pytest.fixture
def submit(tmp_path: Path) -> Path:
    recipe = tmp_path / "small.yaml"
    recipe.write_text(yaml.safe_dump(RECIPE))
    return write_slurm(recipe, tmp_path / "jobs", audit=False)


def test_every_run_is_a_job_and_one_collects(submit: Path) -> None:
    """Jobs are JSON in a folder that nobody else reads; an older folder is not mixed with a new one."""
    folder = submit.parent
    jobs = sorted(path.stem for path in folder.glob("*.json"))
    assert len(jobs) == 2
    assert {path.stem for path in folder.glob("*.sbatch")} == {*jobs, "collect"}
    assert all(json.loads((folder / f"{name}.json").read_text())["settings"]["seed"] in (0, 1) for name in jobs)
    assert folder.stat().st_mode & 0o077 == 0
    with pytest.raises(ConfigError, match="a new folder"):
        write_slurm(folder.parent / "small.yaml", folder)


@pytest.mark.slow
def test_jobs_do_what_the_sweep_would(submit: Path, tmp_path: Path) -> None:
    """Catches a collecting job that trains again, and options of the cluster that are lost."""
    stand_in, submitted = tmp_path / "bin" / "sbatch", tmp_path / "submitted"
    stand_in.parent.mkdir()
    stand_in.write_text(SBATCH)
    stand_in.chmod(0o755)
    submitted.touch()
    places = os.pathsep.join(path for path in sys.path if path)
    path = os.pathsep.join((str(stand_in.parent), os.environ["PATH"]))
    environment = {**os.environ, "PATH": path, "PYTHONPATH": places, "SUBMITTED": str(submitted)}
    done = subprocess.run([str(submit), "--partition=short"], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = submitted.read_text().splitlines()
    assert [Path(line.split()[-1]).stem for line in lines][-1] == "collect"
    assert all("--partition=short" in line for line in lines)
    assert "--dependency=afterany:1:2" in lines[-1]
    results = json.loads((tmp_path / "small.results.json").read_text())
    assert len(results["runs"]) == 2
    for run in results["runs"]:
        assert run["refused"] is None
        assert run["figures"] is not None
        assert not (tmp_path / "small.runs" / ".sweep" / f"{run['name']}.log").exists()  # the sweep started no process
