"""What works where no optional package is installed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tacit.common.libraries import EXTRAS

PROGRAM = """
import json, sys
from typer.testing import CliRunner

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name in json.loads(sys.argv[1]):
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, Missing())
from tacit.cli.main import app

for arguments in json.loads(sys.argv[2]):
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, (arguments, result.output)
"""


def test_corpora_are_scanned_labelled_and_priced_without_any_extra(tmp_path: Path) -> None:
    packages = [name.replace("-", "_") for name in EXTRAS]
    corpus = str(tmp_path / "c.jsonl.zst")
    commands = [
        ["simulate", "customersim", "--dialogs", "30", "--out", corpus],
        ["scan", corpus, "--policy", "pii", "--out", str(tmp_path / "scan")],
        ["policy", "compare", corpus, "--policies", "digits,pii", "--out", str(tmp_path / "policies")],
        ["label", "draw", corpus, "--policy", "pii", "--records", "5", "--out", str(tmp_path / "labels.jsonl")],
        ["plan", "--mechanism", "selective", "--records", "1000", "--epsilon", "8", "--epochs", "2"],
    ]
    program = [sys.executable, "-c", PROGRAM, json.dumps(packages), json.dumps(commands)]
    ended = subprocess.run(program, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("module", ["tacit.models.loading", "tacit.training.stages"])
def test_without_torch_python_names_the_command_too(module: str) -> None:
    program = (
        "import importlib.metadata as metadata\n"
        "def version(package): raise metadata.PackageNotFoundError(package)\n"
        "import tacit.common.libraries as libraries; libraries.version = version\n"
        f"import {module}"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.stderr.splitlines()[-1].endswith('Way out: pip install "tacit[train]"')
