"""A start that cannot succeed is refused before the corpus is read, and leaves nothing behind."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tacit.config.load import load_config, to_yaml
from tacit.errors import ClaimRefused, ConfigError, TacitError
from tacit.training.checks import check_run, check_start
from tacit.training.covered import choice_of
from tacit.training.stages import train

GOOD: dict[str, Any] = {"corpus": "nowhere.jsonl", "plan": {"mechanism": "dpsgd", "epsilon": 2}}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no target": ({"epsilon": None}, "no privacy target.*--epsilon"),
    "mechanism": ({"mechanism": "dpsdg"}, "did you mean dpsgd"),
    "setting of another mechanism": ({"recall": 0.9}, "settings that dpsgd uses"),
    "two targets": ({"noise_multiplier": 1}, "both"),
    "contradiction": ({"seed": 3}, "no seed in release mode"),
    "model": ({"model": "lstmm"}, "a local Hugging Face folder"),
    "sizes": ({"model_config": {"hidden_sise": 3}}, "did you mean hidden_size"),
    "dropout without public steps": ({"model_config": {"dropout": 0.2}}, "its private steps have no dropout"),
    "choice": ({"eval_steps": 5}, "chosen on public text"),
    "duplicates": ({"duplicates": "exact"}, "duplicates: keep"),
    "policy": ({"policy": "pie"}, "pii"),
    "corpus": ({}, "nowhere.jsonl"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_start_leaves_nothing(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The corpus does not exist, and every other mistake is named before that one."""
    monkeypatch.chdir(tmp_path)
    words, answer = REFUSED[name]
    with pytest.raises(TacitError, match=answer):
        train(load_config(GOOD, words), tmp_path / "run", lambda _: None)
    assert list(tmp_path.iterdir()) == []


def test_what_was_never_compared_is_refused_before_a_folder_is_made(tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_text('{"text": "one"}\n' * 20)
    words = {"corpus": str(tmp_path / "c.jsonl"), "tokenizer": "bpe"}
    with pytest.raises(ClaimRefused, match="tokenizer"):
        train(load_config(GOOD, words), tmp_path / "run", lambda _: None)
    assert not (tmp_path / "run").exists()


def test_a_large_batch_is_no_mistake_before_the_corpus_is_counted() -> None:
    asked = load_config(GOOD, {"expected_batch_size": 10**8})
    assert check_start(asked).private is not None


@pytest.mark.parametrize("mechanism", ["selective-published", "cadp-published"])
def test_private_steps_as_printed_move_as_printed(mechanism: str) -> None:
    words = {"corpus": "c.jsonl", "mechanism": mechanism}
    others = {"optimizer": "adam", "lr_scheduler": "linear", "warmup_steps": 3, "max_grad_norm": 1.0}
    for name, value in others.items():
        with pytest.raises(
            ConfigError, match=rf"{mechanism} as printed: sgd .*private\.{name}: {value}\. Way out: leave it out"
        ):
            check_run(load_config(words, {f"private.{name}": value}))
        check_run(load_config(words, {"mechanism": "uedp-published", f"private.{name}": value}))
    as_it_is = {"optimizer": "sgd", "lr_scheduler": "none", "learning_rate": 2.0}
    printed = load_config(words, {"private": as_it_is})
    for config in (load_config(words), printed):
        check_run(config)
        check_run(load_config(yaml.safe_load(to_yaml(config))))
        assert choice_of(config)["private.optimizer"] == "sgd"
