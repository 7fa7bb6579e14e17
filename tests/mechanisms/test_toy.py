"""A new mechanism is one file and one line in the registry: it trains, is audited, reported and swept."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import toy_mechanism
from tacit.data.store import PreparedCorpus
from tacit.errors import ConfigError
from tacit.mechanisms.registry import REGISTRY
from tacit.privacy.guarantee import Guarantee
from tacit.runs.folder import RunFolder
from tacit.runs.release import PrivateFile, ReleaseFile
from tacit.runs.verify import check_verified
from tacit.sweeps import scheduler
from tacit.sweeps.sweep import sweep

COMMAND = "import toy_mechanism; toy_mechanism.register(); from tacit.sweeps.worker import main; main()"
RECIPE: dict[str, Any] = {
    "name": "toys",
    "needs": {"train": {"simulate": "customersim", "dialogs": 40}},
    "settings": {
        "corpus": "$train",
        "policy": "gold",
        "plan": {"mechanism": "toy", "noise_multiplier": 1.0, "steps": 3, "expected_batch_size": 8},
        "data": {"held_out": 0.3, "segment_by": "turn", "max_tokens": 64, "max_full_tokens": 64},
        "model_config": {"embedding_size": 4, "hidden_size": 4},
        "audit": {"canaries": [{"template": "My ID is {2 digits}.", "count": 4, "inside_probability": 1.0}]},
    },
    "runs": {"toy": {}},
    "audit": {"candidates": 10},
}


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """The toy, here and in the processes of a sweep."""
    monkeypatch.setitem(REGISTRY, "toy", "toy_mechanism:ENTRY")
    monkeypatch.setattr(scheduler, "COMMAND", (sys.executable, "-c", COMMAND))
    support = str(Path(toy_mechanism.__file__).parent)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((support, os.environ.get("PYTHONPATH", ""))))


@pytest.mark.usefixtures("known")
def test_a_toy_trains_is_audited_reported_and_swept(tmp_path: Path) -> None:
    recipe = tmp_path / "toys.yaml"
    recipe.write_text(yaml.safe_dump(RECIPE))
    swept = sweep(recipe)
    (outcome,) = swept.outcomes
    assert swept.exit_code == 0, outcome.refused
    assert outcome.line["figures"]["attacks"]["verdict"] != "contradicted"
    run = RunFolder.view(tmp_path / "toys.runs" / outcome.name)
    check_verified(run)
    claim = run.read_json(Guarantee, ReleaseFile.GUARANTEE).claim
    assert claim.endswith("as a toy has it.")
    assert claim in run.path(ReleaseFile.REPORT).read_text(encoding="utf-8")
    assert outcome.line["figures"]["claim"]["figures"][0]["epsilon"] > 0
    assert PreparedCorpus(run.path(PrivateFile.PREPARED)).header.counts.duplicates > 0, "as its needs have it"


@pytest.mark.usefixtures("known")
def test_what_a_toy_does_not_need_is_refused_before_anything_runs(tmp_path: Path) -> None:
    recipe = tmp_path / "toys.yaml"
    for more in ({"public_epochs": 1}, {"entity_cap": 3}):
        plan = {**RECIPE["settings"]["plan"], **more}
        recipe.write_text(yaml.safe_dump({**RECIPE, "settings": {**RECIPE["settings"], "plan": plan}}))
        with pytest.raises(ConfigError, match="settings that toy uses"):
            sweep(recipe)
