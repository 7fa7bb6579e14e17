"""Whole runs by one process and by two: same plan, same price, same model; and what their claims say."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from forked_ranks import run_in_ranks
from rank_runs import RUNS
from tacit.mechanisms.mechanism import TRUSTED_MACHINES
from tacit.privacy.guarantee import Guarantee
from tacit.runs.folder import RunFolder
from tacit.runs.release import PrivateFile, ReleaseFile
from tacit.runs.utility import Utility
from tacit.runs.verify import verify
from tacit.runs.weights import read_model

EXACT = [name for name in RUNS if name != "released"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    run_in_ranks("rank_runs:every_run", folder, 1, 2)
    return folder


def both(runs: Path, name: str) -> tuple[RunFolder, RunFolder]:
    return RunFolder.view(runs / f"{name}-1"), RunFolder.view(runs / f"{name}-2")


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_the_number_of_ranks_is_in_neither_plan_nor_price(name: str, runs: Path) -> None:
    alone, together = both(runs, name)
    for file in (ReleaseFile.PLAN, ReleaseFile.LEDGER):
        assert _content(alone, file) == _content(together, file)
    figures = [run.read_json(Guarantee, PrivateFile.GUARANTEE).figures for run in (alone, together)]
    assert figures[0] == figures[1]


def _content(run: RunFolder, file: ReleaseFile) -> list[dict[str, Any]]:
    """Without what chains the lines of a ledger."""
    lines = run.path(file).read_text().splitlines() if file == ReleaseFile.LEDGER else [run.path(file).read_text()]
    return [
        {name: value for name, value in json.loads(line).items() if name not in ("chain", "after")} for line in lines
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_a_claim_says_that_several_processes_are_trusted(name: str, runs: Path) -> None:
    """Inside and outside; a run of one process does not say it, and both verify."""
    for run, expected in zip(both(runs, name), (False, True), strict=True):
        for place in (PrivateFile.GUARANTEE, ReleaseFile.GUARANTEE):
            assert (TRUSTED_MACHINES in run.read_json(Guarantee, place).holds_if) == expected
        assert verify(run.folder).holds


@pytest.mark.slow
@pytest.mark.parametrize("name", EXACT)
def test_models_and_their_utility_agree(name: str, runs: Path) -> None:
    """Within 1e-6: also where models are chosen on the way, and for classes."""
    first, second = (read_model(run) for run in both(runs, name))
    assert first.keys() == second.keys()
    for key, value in first.items():
        torch.testing.assert_close(second[key], value, rtol=0, atol=1e-6)
    worth, other = (run.read_json(Utility, PrivateFile.UTILITY) for run in both(runs, name))
    assert worth.labels == other.labels
    assert worth.overall.tokens == other.overall.tokens
    assert worth.overall.nats == pytest.approx(other.overall.nats, rel=1e-6)
