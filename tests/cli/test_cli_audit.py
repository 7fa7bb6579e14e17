"""`tacit audit` as a person meets it."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from audited import HIDDEN, KNOWN, train_run
from saved import save_pretrained
from tacit import api
from tacit.audits.attacks.epsilon import WHICH_CANARIES
from tacit.audits.attacks.exposure import NO_CANARIES
from tacit.audits.attacks.extraction import NO_SECRETS
from tacit.audits.attacks.membership import FEW_ROWS
from tacit.cli.main import app
from tacit.config.model_schema import CausalLMConfig
from tacit.data.tokenizer import NOTHING, train_bpe
from tacit.errors import AttackError, ConfigError, RunError
from tacit.models.causal_lm import CausalLM
from tacit.runs.folder import RunFolder
from tacit.runs.release import PrivateFile
from tacit.runs.verify import planted_canaries
from tacit.runs.weights import keep_model

LITTLE = {"mechanism": "plain", "public_epochs": 1}
NOISY = {"mechanism": "dpsgd", "noise_multiplier": 5.0, "steps": 2, "expected_batch_size": 20}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    plans = [{**KNOWN, "repetitions": 1}, {**HIDDEN, "template": "Key {3 letters}", "repetitions": 1}]
    folder = train_run(tmp_path_factory.mktemp("audit"), NOISY, plans)
    with RunFolder.open(folder) as opened:
        keep_model(opened, 1, {})  # the weights of the release
    return folder


def invoked(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["audit", *map(str, arguments)], catch_exceptions=False, env={"COLUMNS": "120"})
    assert result.exit_code == 0
    return result.output


def test_the_claim_the_verdict_and_all_attacks_are_shown(run: Path) -> None:
    output = invoked(run, "--candidates", 12, "--reference", run, "--checkpoints")
    words = ["Each training record has", "Consistent: with 97.5 % confidence", "My ID is {4 digits}", "does not"]
    words += ["text alone", "loss", "zlib", "min-k", "neighborhood", "reference", "most probable text", "held out"]
    words += [
        "12 members and 12 others",
        "models saved during training",
        "perplexity",
        "two-stage",
        "release/tacit/audit.json",
        "private/audit.json",
    ]
    assert [one for one in words if one not in output] == []
    for stage in ("exposure", "membership", "extraction", "checkpoints"):
        assert f"\n{stage} " in f"\n{output}"
    assert len(json.loads((run / "private" / "audit.json").read_text())["checkpoints"]) == 1


def test_bars_move_on_a_terminal(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    output = invoked(run, "--candidates", 12)
    assert "membership" in output
    assert "4/4" in output
    assert "\x1b[" in output


def test_canaries_that_do_not_fit_the_claim_come_with_a_hint(tmp_path: Path) -> None:
    plan = {
        "mechanism": "selective",
        "noise_multiplier": 5.0,
        "steps": 2,
        "expected_batch_size": 20,
        "public_epochs": 1,
    }
    output = invoked(train_run(tmp_path, plan, [KNOWN]), "--candidates", 12)
    assert "Not comparable" in output
    assert WHICH_CANARIES.split("\n")[0] in output


def test_secrets_are_shown_when_asked_for_and_never_else(run: Path) -> None:
    planted = planted_canaries(RunFolder.view(run)).planted
    values = {canary.value for one in planted for canary in one.canaries}
    shown = invoked(run, "--candidates", 12, "--show-secrets").split()
    assert values <= set(shown)
    assert not values & set(invoked(run, "--candidates", 12).split())


def test_a_run_with_nothing_to_attack_says_what_is_missing(tmp_path: Path) -> None:
    output = invoked(train_run(tmp_path, LITTLE, [], policy="pii"))
    assert NO_CANARIES in output
    assert NO_SECRETS in output
    assert "Not comparable" in output
    (tmp_path / "few").mkdir()
    assert FEW_ROWS in invoked(train_run(tmp_path / "few", LITTLE, [], held_out=0.05))


def test_options_that_do_not_go_together_are_refused(run: Path, tmp_path: Path) -> None:
    wrong: list[tuple[list[object], type[Exception]]] = [
        ([], ConfigError),
        ([run, "--model", tmp_path], ConfigError),
        ([run, "--out", tmp_path / "x.json"], ConfigError),
        ([run, "--candidates", "candidates.jsonl"], ConfigError),
        ([run, "--candidates", "9"], AttackError),
        (["--model", tmp_path], ConfigError),
        (["--model", tmp_path, "--candidates", "x", "--reference", run], ConfigError),
        ([tmp_path], RunError),
    ]
    for arguments, error in wrong:
        with pytest.raises(error):
            invoked(*arguments)


def test_a_foreign_model_is_audited_with_a_file_of_candidates(tmp_path: Path) -> None:
    tokenizer = train_bpe(["My code is 12"], 256, NOTHING)
    torch.manual_seed(0)
    model = CausalLM.new(CausalLMConfig(tokenizer.codec.size, width=16, layers=1, heads=2, context=32))
    save_pretrained(model, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "eos_token_id": 0}))
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer.codec.definition()["content"]))
    candidates = tmp_path / "candidates.jsonl"
    candidates.write_text('{"id": "one", "template": "My code is {5 digits}", "value": "83125"}\n')
    arguments = ("--model", tmp_path, "--candidates", candidates)
    output = invoked(*arguments, "--out", tmp_path / "audit.json")
    assert "one" in output
    assert "100,000" in output
    written = json.loads((tmp_path / "audit.json").read_text())
    assert written["secrets"][0]["space"] == 100_000
    assert "83125" not in output.split()
    assert "83125" in invoked(*arguments, "--show-secrets").split()


def test_attacks_are_chosen_by_name_and_settings_of_the_run_are_the_defaults(run: Path, tmp_path: Path) -> None:
    output = invoked(run, "--attacks", "exposure, membership", "--candidates", 12)
    assert "12 members and 12 others" in output
    assert "most probable text" not in output
    assert "That takes the attack `epsilon`" in output
    with pytest.raises(ConfigError, match="did you mean membership"):
        api.audit(run, attacks=["membrship"])
    settings = RunFolder.view(run).read_json(dict, PrivateFile.SETTINGS)
    settings["audit"] |= {"candidates": 11, "confidence": 0.9}
    shutil.copytree(run, tmp_path / "run")
    (tmp_path / "run" / "private" / PrivateFile.SETTINGS).write_text(json.dumps(settings))
    assert "11 members and 11 others" in invoked(tmp_path / "run", "--attacks", "membership")
    assert "10 members and 10 others" in invoked(tmp_path / "run", "--attacks", "membership", "--candidates", 10)
