"""`tacit train`, `tacit config` and `tacit generate` as a person meets them."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from tacit.cli.main import app
from tacit.data.corpus import write_jsonl
from tacit.errors import ConfigError
from tacit.simulation.simulate import simulate

SETTINGS = """
corpus: {corpus}
policy: gold
held_out: 0.2
max_tokens: 64
max_full_tokens: 64
plan: {{mechanism: selective, noise_multiplier: 1.0, steps: 2, expected_batch_size: 8, public_epochs: 1}}
"""


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    corpus = tmp_path / "corpus.jsonl"
    write_jsonl(simulate("customersim", 40), corpus)
    file = tmp_path / "experiment.yaml"
    file.write_text(SETTINGS.format(corpus=corpus))
    return file


def test_train_then_resume_then_generate(settings: Path, tmp_path: Path) -> None:
    runner, folder = CliRunner(), tmp_path / "run"
    trained = runner.invoke(app, ["train", str(settings), "--out", str(folder)], catch_exceptions=False)
    assert trained.exit_code == 0
    for words in ("perplexity", "private", "differentially private", str(folder.name), "auto: clip_norm 1, delta "):
        assert words in trained.output
    again = runner.invoke(app, ["train", "--resume", str(folder)], catch_exceptions=False)
    assert again.exit_code == 0
    texts = {
        runner.invoke(app, ["generate", str(folder), "--prompt", "SYS: H", "--tokens", "8"]).output for _ in range(2)
    }
    assert len(texts) == 1
    assert texts.pop().startswith("SYS: H")


def test_config_prints_what_train_would_use(settings: Path) -> None:
    words = ["--epsilon", "3", "--seed", "7", "--set", "mode=research"]
    resolved = yaml.safe_load(CliRunner().invoke(app, ["config", str(settings), *words]).output)
    assert resolved["plan"]["epsilon"] == 3.0
    assert resolved["seed"] == 7
    assert resolved["model"] == "lstm"


@pytest.mark.parametrize("arguments", [["train"], ["train", "--resume", "x", "--epsilon", "2"], ["config"]])
def test_wrong_words_are_refused(arguments: list[str]) -> None:
    with pytest.raises(ConfigError):
        CliRunner().invoke(app, arguments, catch_exceptions=False)


def test_without_torch_the_command_that_installs_it_is_named(tmp_path: Path) -> None:
    corpus = tmp_path / "c.jsonl"
    corpus.write_text('{"text": "one"}\n' * 20)
    arguments = ["train", str(corpus), "--mechanism", "plain", "--out", str(tmp_path / "run")]
    program = (
        "import sys\n"
        "class NoTorch:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'torch': raise ModuleNotFoundError(name, name=name)\n"
        "sys.meta_path.insert(0, NoTorch())\n"
        f"from tacit.cli.main import main; main({arguments!r})"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert 'pip install "tacit[train]"' in ended.stderr
    assert not (tmp_path / "run").exists()
