"""Models kept on the way: every so many steps and at the end, for the curve of an audit."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from audited import KNOWN, train_run
from runs import quiet
from tacit.audits.audit import audit
from tacit.config.audit_schema import AuditConfig, ExtractionConfig
from tacit.config.load import check_used, load_config
from tacit.errors import ConfigError
from tacit.runs.folder import RunFolder
from tacit.runs.release import ReleaseFile
from tacit.runs.weights import kept_models

PLAN = {"mechanism": "plain", "public_epochs": 2, "public_batch_size": 16}
SETTINGS = AuditConfig(candidates=20, secrets=5, checkpoints=True, extraction=ExtractionConfig(tries=1))


def test_models_are_kept_every_so_many_steps_and_at_the_end(tmp_path: Path) -> None:
    folder = train_run(tmp_path, PLAN, [KNOWN], save_steps=3)
    kept = kept_models(RunFolder.view(folder))
    last = kept[-1]
    assert [one.step for one in kept] == [*range(3, last.step, 3), last.step]
    assert len(kept) > 2
    released = load_file(folder / "release" / ReleaseFile.MODEL)
    for name, value in last.tensors().items():
        assert torch.equal(value, released[name])
    curve = audit(folder, SETTINGS, quiet).checkpoints
    assert [one.step for one in curve] == [one.step for one in kept]
    assert curve[-1].perplexity < curve[0].perplexity


def test_a_classifier_keeps_no_models() -> None:
    words = {"corpus": "x", "plan": {"mechanism": "plain"}, "task": "classification", "classes": ["a", "b"]}
    with pytest.raises(ConfigError, match="save_steps"):
        check_used(load_config({**words, "save_steps": 2}))
