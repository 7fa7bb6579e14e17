"""A folder that `tacit export` wrote is a release of its run: training on it composes what that run spent."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import tacit
from elsewhere import loaded_without_tacit
from runs import quiet
from saved import release_files, save_pretrained, save_tokenizer
from tacit import api
from tacit.common.files import digest
from tacit.config.load import load_config
from tacit.config.model_schema import CausalLMConfig
from tacit.data.corpus import write_jsonl
from tacit.errors import ConfigError, RunError
from tacit.mechanisms.build import EarlierRun, Terms
from tacit.models.causal_lm import CausalLM
from tacit.models.language_model import Learner
from tacit.models.loading import load
from tacit.privacy.guarantee import Status
from tacit.runs.earlier import release_digest
from tacit.runs.folder import RunFolder
from tacit.runs.release import MadeWith, ReleaseFile
from tacit.runs.verify import verify
from tacit.simulation.simulate import simulate
from tacit.training.stages import Trained, train

STEPS = {"mechanism": "dpsgd", "noise_multiplier": 1.0, "steps": 2, "expected_batch_size": 8}
WORDS: dict[str, Any] = {
    "policy": "gold",
    "held_out": 0.2,
    "max_tokens": 64,
    "max_full_tokens": 60,
    "plan": STEPS,
    "canaries": [],
}
TOKENS = [[5, 9, 30, 77, 4], [8, 8, 200, 6, 1]]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exports")
    write_jsonl(simulate("customersim", 60), folder / "corpus.jsonl")
    (folder / "tiny").mkdir()
    save_tokenizer((record.text for record in simulate("customersim", 50, seed=9)), 300, folder / "tiny")
    save_pretrained(CausalLM.new(CausalLMConfig(300, 16, 1, 2, 64)), folder / "tiny")
    return folder


def trained(place: Path, out: str, model: Path, **more: Any) -> Trained:  # noqa: ANN401
    words = {**WORDS, "corpus": str(place / "corpus.jsonl"), "model": str(model), **more}
    return train(load_config(words), place / out, quiet)


@pytest.fixture(scope="module")
def first(place: Path) -> Path:
    """A reported run of adapters that learned something."""
    words = {"lora": {"rank": 2, "base_name": "somebody/tiny"}, "private": {"learning_rate": 0.01}}
    run = trained(place, "first", place / "tiny", **words).folder
    api.report(run)
    return run


@pytest.fixture(scope="module")
def export(place: Path, first: Path) -> Path:
    return api.export(first, place / "export")


def logits(learner: Learner) -> Tensor:
    learner.module.eval()
    with torch.no_grad():
        return learner.logits(torch.tensor(TOKENS))


def earlier(folder: Path) -> EarlierRun:
    found = RunFolder.view(folder).read_json(Terms, ReleaseFile.PLAN).earlier
    assert found is not None
    return found


def test_what_the_run_spent_is_composed_as_from_the_run_itself(place: Path, first: Path, export: Path) -> None:
    """The same figures, words and assumptions; a folder without the claim, the control, has smaller figures."""
    by_run, by_export = trained(place, "by run", first), trained(place, "by export", export)
    assert by_export.guarantee.figures == by_run.guarantee.figures
    assert by_export.guarantee.sentence() == by_run.guarantee.sentence()
    assert by_export.guarantee.holds_if == by_run.guarantee.holds_if
    assert any(
        one.status is Status.ASSUMED and "base model was not" in one.text for one in by_export.guarantee.holds_if
    )
    known = earlier(by_export.folder)
    assert known.digest == release_digest(RunFolder.view(export)) != earlier(by_run.folder).digest
    assert replace(known, digest=earlier(by_run.folder).digest) == earlier(by_run.folder)
    assert verify(by_export.folder).holds

    stripped = Path(shutil.copytree(export, place / "stripped"))
    shutil.rmtree(stripped / "tacit")
    control = trained(place, "control", stripped).guarantee
    assert control.figures[0].epsilon < by_export.guarantee.figures[0].epsilon


def test_it_says_of_which_run_it_is_and_can_be_written_again(place: Path, first: Path, export: Path) -> None:
    view, run = RunFolder.view(export), RunFolder.view(first)
    assert view.read_json(MadeWith, ReleaseFile.MADE).exported_from == release_digest(run)
    assert verify(export).exported_from == release_digest(run)
    assert verify(first).exported_from is None
    for name in (
        ReleaseFile.PLAN,
        ReleaseFile.LEDGER,
        ReleaseFile.GUARANTEE,
        ReleaseFile.TOKENIZER,
        ReleaseFile.REPORT,
    ):
        assert view.path(name).read_bytes() == run.path(name).read_bytes()
    described = view.read_json(dict, ReleaseFile.ARCHITECTURE)
    assert (described["base"], described["lora"]) == (None, None)
    again, twice = api.export(first, place / "again"), api.export(export, place / "twice")
    manifests = [RunFolder.view(one).path(ReleaseFile.MANIFEST).read_bytes() for one in (export, again, twice)]
    assert manifests[0] == manifests[1] != manifests[2]
    assert verify(twice).exported_from == release_digest(view)
    assert not any(str(place).encode() in path.read_bytes() for path in release_files(export))


def test_it_is_loaded_with_tacit_and_without(place: Path, first: Path, export: Path) -> None:
    ours = logits(load(first)[0])
    assert not torch.allclose(ours, logits(CausalLM.from_folder(place / "tiny")), atol=1e-3), "adapters do something"
    found, _ = loaded_without_tacit({"it": {"release": export, "tokens": TOKENS, "texts": ["a"]}}, place)
    assert torch.allclose(found["it"], ours, rtol=1e-4, atol=1e-5)
    run = tacit.load(export)
    assert isinstance(run.model, CausalLM)
    assert torch.allclose(logits(run.model), ours, rtol=1e-4, atol=1e-5)
    assert run.guarantee.sentence() == tacit.load(first / "release").guarantee.sentence()
    assert run.generate("Hello", tokens=3).startswith("Hello")


def test_other_adapters_are_put_into_it(place: Path, first: Path, export: Path) -> None:
    with pytest.raises(ConfigError, match=r"tacit export RUN --merged FOLDER.*has the claim"):
        trained(place, "refused", first, lora={"rank": 4})
    run = trained(place, "other adapters", export, lora={"rank": 4})
    learner = load(run.folder)[0]
    assert isinstance(learner, CausalLM)
    assert learner.base == export
    assert earlier(run.folder).digest == release_digest(RunFolder.view(export))


@pytest.mark.parametrize(
    "name", [ReleaseFile.MODEL, ReleaseFile.MODEL_CONFIG, ReleaseFile.LEDGER, ReleaseFile.MADE, ReleaseFile.MODEL_CARD]
)
def test_a_changed_file_is_found(name: ReleaseFile, export: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(export, tmp_path / "copy"))
    content = bytearray((copy / name).read_bytes())
    content[-2] ^= 1
    (copy / name).write_bytes(content)
    assert not verify(copy).holds
    if name != ReleaseFile.MODEL_CARD:
        with pytest.raises(RunError, match="a run that verifies"):
            trained(tmp_path, "refused", copy, corpus=str(export.parent / "corpus.jsonl"))


def test_a_cheaper_claim_is_found_though_it_was_sealed_anew(export: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(export, tmp_path / "copy"))
    guarantee = json.loads((copy / ReleaseFile.GUARANTEE).read_text())
    guarantee["figures"][0]["epsilon"] /= 2
    (copy / ReleaseFile.GUARANTEE).write_text(json.dumps(guarantee))
    manifest = json.loads((copy / ReleaseFile.MANIFEST).read_text())
    manifest["files"][ReleaseFile.GUARANTEE] = digest(copy / ReleaseFile.GUARANTEE)
    (copy / ReleaseFile.MANIFEST).write_text(json.dumps(manifest))
    assert any("guarantee.json has" in one.why for one in verify(copy).checks)


@pytest.mark.parametrize("lost", [ReleaseFile.MANIFEST, ReleaseFile.GUARANTEE, ReleaseFile.LEDGER])
def test_a_part_of_the_claim_is_no_model_from_elsewhere(lost: ReleaseFile, export: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(export, tmp_path / "copy"))
    (copy / lost).unlink()
    with pytest.raises(RunError, match=r"finished run|verifies"):
        trained(tmp_path, "refused", copy, corpus=str(export.parent / "corpus.jsonl"))


def test_a_run_with_a_changed_paper_is_not_exported(first: Path, tmp_path: Path) -> None:
    """What loading does not read is copied, too: the new manifest would cover it."""
    copy = Path(shutil.copytree(first, tmp_path / "copy"))
    (copy / "release" / ReleaseFile.CERTIFICATE).write_text("Everything is fine.")
    with pytest.raises(RunError, match=r"certificate\.md was changed"):
        api.export(copy, tmp_path / "out")
    assert not list(tmp_path.glob("*out*"))
