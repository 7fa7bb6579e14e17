"""`tacit train --processes 2` and `tacit audit`: torchrun itself, as people start it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from audited import KNOWN, train_run
from elastic import train_arguments
from runs import write_corpus
from tacit.cli.main import main
from tacit.privacy.ledger import read_entries
from tacit.runs.folder import RunFolder
from tacit.runs.release import PrivateFile, ReleaseFile
from tacit.runs.verify import verify
from tacit.training.checkpoints import Checkpoints


def environment() -> dict[str, str]:
    places = os.pathsep.join(path for path in sys.path if path)
    return {**os.environ, "PYTHONPATH": places, "OMP_NUM_THREADS": "1"}


def begin(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tacit", *arguments, "--processes", "2"]
    return subprocess.Popen(command, env=environment(), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.mark.slow
def test_two_processes_train_one_model(tmp_path: Path) -> None:
    """One of them prints. Settings that mean nothing are refused before any is started."""
    out = tmp_path / "run"
    words = train_arguments(write_corpus(tmp_path, 24), 2, out)
    process = begin(*words)
    printed, said = process.communicate()
    assert process.returncode == 0, said
    assert printed.count(f"run {out}") == 1
    assert '"several": true' in (out / "private" / PrivateFile.PROCESSES).read_text()
    refused = begin(*words[:-2], "--set", "nonsense=1")
    _, said = refused.communicate()
    assert refused.returncode == 2
    assert said.count("expected") == 1


@pytest.mark.slow
def test_an_interrupt_loses_no_step(tmp_path: Path) -> None:
    """Ctrl-C reaches every process once: the step under way ends, with a checkpoint."""
    out = tmp_path / "run"
    words = train_arguments(write_corpus(tmp_path, 24), 1_000_000, out)
    process = begin(*(word.replace("checkpoint_steps=1", "checkpoint_steps=1000000") for word in words))
    ledger = out / "release" / ReleaseFile.LEDGER
    while not ledger.exists() or sum(read_entries(ledger).charges().values()) < 5:
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate()
    assert process.returncode == 130, said
    assert said.count("stopped; resume with") == 1
    resumed = Checkpoints(RunFolder.view(out)).latest()
    assert resumed is not None
    assert resumed.checkpoint.step == sum(read_entries(ledger).charges().values())


@pytest.mark.parametrize("verb", ["train", "audit"])
def test_arguments_given_by_python_reach_every_process(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches processes that are started with the arguments of whatever program called `main`."""
    started = []

    class Agent:
        def __init__(self, command: list[str], **_: object) -> None:
            started.append(command)

        def wait(self) -> int:
            return 7

    monkeypatch.setattr(subprocess, "Popen", Agent)
    words = [*train_arguments(write_corpus(tmp_path, 24), 1, tmp_path / "run")] if verb == "train" else ["audit", "run"]
    words += ["--processes", "2"]
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 7
    assert started[0][-len(words) - 2 :] == ["-m", "tacit", *words]


@pytest.mark.slow
def test_two_processes_audit_as_one_does(tmp_path: Path) -> None:
    """With shadow models, which both train first. One of them prints, and writes."""
    run = train_run(tmp_path, {"mechanism": "plain", "public_epochs": 2}, [KNOWN])
    words = ["-q", "audit", str(run), "--candidates", "20", "--shadow-models", "1", "--json"]
    together = begin(*words)
    printed, said = together.communicate()
    assert together.returncode == 0, said
    found = (run / "private" / PrivateFile.AUDIT).read_text()
    assert json.loads(printed)
    assert verify(run).holds
    alone = subprocess.run([sys.executable, "-m", "tacit", *words], env=environment(), capture_output=True, text=True)
    assert alone.returncode == 0, alone.stderr
    assert alone.stdout == printed
    assert (run / "private" / PrivateFile.AUDIT).read_text() == found
