"""A start that cannot succeed is refused before the corpus is read, and leaves nothing behind."""

from pathlib import Path
from typing import Any

import pytest

from tacit.config.load import load_config
from tacit.errors import ClaimRefused, TacitError
from tacit.training.stages import train
from tacit.training.start import check_start

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
