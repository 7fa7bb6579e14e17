"""`tacit train --processes 2`: torchrun itself, as people start it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from elastic import train_arguments
from runs import write_corpus
from tacit.cli.main import main
from tacit.privacy.ledger import read_entries
from tacit.runs.folder import RunFolder
from tacit.runs.release import PrivateFile, ReleaseFile
from tacit.training.checkpoints import Checkpoints


def begin(*arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-m", "tacit", *arguments, "--processes", "2"]
    return subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


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


def test_arguments_given_by_python_reach_every_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches processes that are started with the arguments of whatever program called `main`."""
    started = []

    class Agent:
        def __init__(self, command: list[str], **_: object) -> None:
            started.append(command)

        def wait(self) -> int:
            return 7

    monkeypatch.setattr(subprocess, "Popen", Agent)
    words = [*train_arguments(write_corpus(tmp_path, 24), 1, tmp_path / "run"), "--processes", "2"]
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 7
    assert started[0][-len(words) - 2 :] == ["-m", "tacit", *words]
