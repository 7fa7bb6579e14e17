"""Checkpoints: whole or not there, damage recognised, killed at any moment, never cheaper than the ledger."""

import errno
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch

from tacit.config.setting import Mode
from tacit.errors import LedgerError, RunError
from tacit.privacy.events import Free
from tacit.runs.folder import RunFolder
from tacit.runs.release import PrivateFile, ReleaseFile
from tacit.training.checkpoints import Checkpoint, Checkpoints
from tacit.training.pools import ShuffleState
from tacit.training.randomness import Streams

FILES = ("model.safetensors", "optimizer.safetensors", "state.json", "manifest.json")


def a_checkpoint(step: int, streams: Streams | None = None) -> Checkpoint:
    model = {"weight": torch.full((8, 4), float(step)), "half": torch.ones(3, dtype=torch.bfloat16)}
    optimizer = {"weight.moment": torch.full((8, 4), -float(step)), "step": torch.tensor(step)}
    state = (streams or Streams.research(1)).state()
    return Checkpoint(step, model, optimizer, state, {"0 public": ShuffleState("ab12", 7)})


def is_of_step(checkpoint: Checkpoint, step: int) -> bool:
    return (
        checkpoint.step == step
        and bool(torch.all(checkpoint.model["weight"] == step))
        and bool(torch.all(checkpoint.optimizer["weight.moment"] == -step))
        and int(checkpoint.optimizer["step"]) == step
    )


def step_names(run: RunFolder) -> list[str]:
    return sorted(path.name for path in run.path(PrivateFile.CHECKPOINTS).iterdir())


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RunFolder]:
    with RunFolder.create(tmp_path / "run") as run:
        yield run


def test_what_was_written_comes_back(run: RunFolder) -> None:
    streams = Streams.research(9)
    streams.noise.seed(11)
    streams.batches.random(5)
    written = a_checkpoint(12, streams)
    assert Checkpoints(run).latest() is None
    assert Checkpoints(run).write(written).name == "step-000012"
    resumed = Checkpoints(run).latest()
    assert resumed is not None
    assert resumed.damaged == ()
    read = resumed.checkpoint
    assert is_of_step(read, 12)
    assert read.model["half"].dtype == torch.bfloat16
    assert (read.streams, read.samplers) == (written.streams, written.samplers)
    assert Streams.resumed(read.streams).batches.random() == streams.batches.random()


def test_a_plain_optimizer_has_no_tensors(run: RunFolder) -> None:
    bare = Checkpoint(0, {"w": torch.zeros(1)}, {}, Streams.release().state(), {})
    Checkpoints(run).write(bare)
    resumed = Checkpoints(run).latest()
    assert resumed is not None
    assert (resumed.checkpoint.optimizer, resumed.checkpoint.samplers) == ({}, {})


def test_g1_each_file_is_synced_before_the_name(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    sync, rename = os.fsync, os.rename

    def told_sync(descriptor: int) -> None:
        done.append(os.readlink(f"/proc/self/fd/{descriptor}").rsplit("/", 1)[1])
        sync(descriptor)

    def told_rename(source: Path, target: Path) -> None:
        done.append("rename")
        rename(source, target)

    monkeypatch.setattr(os, "fsync", told_sync)
    monkeypatch.setattr(os, "rename", told_rename)
    Checkpoints(run).write(a_checkpoint(3))
    assert done == [*FILES, ".draft-step-000003", "rename", "checkpoints"]


def test_g4_the_last_two_are_kept(run: RunFolder) -> None:
    for step in (1, 5, 999_999, 1_000_000):  # also where names grow longer
        Checkpoints(run).write(a_checkpoint(step))
    assert step_names(run) == ["step-1000000", "step-999999"]
    resumed = Checkpoints(run).latest()
    assert resumed is not None
    assert resumed.checkpoint.step == 1_000_000


def test_the_same_step_again_changes_nothing_and_an_earlier_one_is_refused(run: RunFolder) -> None:
    for step in (4, 8, 8):
        Checkpoints(run).write(a_checkpoint(step))
    assert step_names(run) == ["step-000004", "step-000008"]
    with pytest.raises(RunError, match="step-000008"):
        Checkpoints(run).write(a_checkpoint(6))


def flip(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@pytest.mark.parametrize("name", FILES)
def test_g2_damage_in_any_file_is_recognised(run: RunFolder, name: str) -> None:
    """Cuts, additions, bits all over the file, every fifth of the manifest. Control: whole again, it is used again."""
    Checkpoints(run).write(a_checkpoint(1))
    place = Checkpoints(run).write(a_checkpoint(2)) / name
    view = Checkpoints(RunFolder.view(run.folder))  # looks without setting aside
    whole = place.read_bytes()
    bits = range(0, len(whole) * 8, 5 if name == "manifest.json" else 55)
    cuts = [b"", whole[:1], whole[: len(whole) // 2], whole[:-1], whole + b"x", whole + whole]
    for content in [*cuts, *(flip(whole, bit) for bit in bits)]:
        place.write_bytes(content)
        resumed = view.latest()
        assert resumed is not None
        assert is_of_step(resumed.checkpoint, 1)
        assert resumed.damaged == ("step-000002",)
    place.unlink()
    assert (found := view.latest()) is not None
    assert is_of_step(found.checkpoint, 1)
    place.write_bytes(whole)
    assert (found := view.latest()) is not None
    assert is_of_step(found.checkpoint, 2)


def test_g2_a_damaged_checkpoint_is_set_aside_and_the_run_goes_on(run: RunFolder) -> None:
    Checkpoints(run).write(a_checkpoint(1))
    (Checkpoints(run).write(a_checkpoint(2)) / "model.safetensors").write_bytes(b"")
    resumed = Checkpoints(run).latest()
    assert resumed is not None
    assert resumed.damaged == ("step-000002",)
    assert step_names(run) == ["damaged-step-000002", "step-000001"]
    Checkpoints(run).write(a_checkpoint(2))
    resumed = Checkpoints(run).latest()
    assert resumed is not None
    assert is_of_step(resumed.checkpoint, 2)
    assert resumed.damaged == ()


def test_g2_a_damaged_checkpoint_is_replaced_by_one_of_its_step(run: RunFolder) -> None:
    for _ in range(2):
        place = Checkpoints(run).write(a_checkpoint(2))
        (place / "state.json").unlink()
    Checkpoints(run).write(a_checkpoint(2))
    assert step_names(run) == ["damaged-step-000002", "step-000002"]


def test_all_damaged_is_an_error_and_nothing_is_removed(run: RunFolder) -> None:
    for step in (1, 2):
        (Checkpoints(run).write(a_checkpoint(step)) / "state.json").write_bytes(b"{}")
    with pytest.raises(RunError, match="damage in all of them"):
        Checkpoints(run).latest()
    assert step_names(run) == ["step-000001", "step-000002"]


def test_g3_an_older_ledger_is_refused(run: RunFolder) -> None:
    run.ledger.declare("private", {"record": Free("why")})
    run.ledger.charge("private", 3)
    ledger = run.path(ReleaseFile.LEDGER)
    shutil.copy(ledger, run.folder / "old")
    run.ledger.charge("private")
    Checkpoints(run).write(a_checkpoint(4))
    run.ledger.charge("private")  # a step that was charged and then lost
    run.close()
    with RunFolder.open(run.folder) as again:
        assert Checkpoints(again).latest() is not None
    os.replace(run.folder / "old", ledger)
    with RunFolder.open(run.folder) as again, pytest.raises(LedgerError, match="fewer executions of private"):
        Checkpoints(again).latest()


def test_a_reader_cannot_write(run: RunFolder) -> None:
    with pytest.raises(RunError, match="open for writing"):
        Checkpoints(RunFolder.view(run.folder)).write(a_checkpoint(1))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
@pytest.mark.parametrize("fails_at", range(1, 8))
def test_a_full_disk_loses_nothing(run: RunFolder, monkeypatch: pytest.MonkeyPatch, number: int, fails_at: int) -> None:
    """Each sync and the rename fail in turn: a clear error, the checkpoint before stays, no draft remains."""
    Checkpoints(run).write(a_checkpoint(1))
    calls = 0

    def failing(real: Any) -> Any:  # noqa: ANN401
        def call(*arguments: Any) -> Any:  # noqa: ANN401
            nonlocal calls
            calls += 1
            if calls == fails_at:
                raise OSError(number, os.strerror(number))
            return real(*arguments)

        return call

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", failing(os.fsync))
        patched.setattr(os, "rename", failing(os.rename))
        with pytest.raises(RunError, match=os.strerror(number).lower()):
            Checkpoints(run).write(a_checkpoint(2))
    resumed = Checkpoints(run).latest()
    assert resumed is not None
    assert resumed.checkpoint.step == (2 if fails_at == 7 else 1)  # the seventh is after the rename
    assert not any(name.startswith(".draft") for name in step_names(run))
    Checkpoints(run).write(a_checkpoint(3))


def test_an_interrupted_write_leaves_no_draft(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any) -> NoReturn:  # noqa: ANN401
        raise KeyboardInterrupt

    Checkpoints(run).write(a_checkpoint(1))
    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", interrupt)
        with pytest.raises(KeyboardInterrupt):
            Checkpoints(run).write(a_checkpoint(2))
    assert step_names(run) == ["step-000001"]


FORKING = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from tacit.runs.folder import RunFolder
from tacit.training.checkpoints import Checkpoints
from test_run_checkpoints import a_checkpoint

def count_down(real, left):
    def call(*arguments, **words):
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments, **words)
    return call

def write_for_ever(fatal_call):
    with RunFolder.open(Path(sys.argv[1])) as run:
        if fatal_call:
            left = [fatal_call]
            for name in ("fsync", "rename", "mkdir", "rmdir", "unlink", "close", "open"):
                setattr(os, name, count_down(getattr(os, name), left))
        found = Checkpoints(run).latest()
        step = found.checkpoint.step if found else 0
        while True:
            step += 1
            Checkpoints(run).write(a_checkpoint(step))
            os.write(1, f"{step}\\n".encode())

for line in sys.stdin:
    child = os.fork()
    if child == 0:
        write_for_ever(int(line))
    os.write(1, f"pid {child}\\n".encode())
    os.waitpid(child, 0)
    os.write(1, b"dead\\n")
"""


class Writers:
    """Processes that write checkpoints until they are killed, forked from one that has torch loaded."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-c", FORKING, str(folder), str(Path(__file__).parent)]
        self._parent = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def live_and_die(self, fatal_call: int, seconds: float) -> int:
        """The last step a writer acknowledged. It dies at its n-th call to the system, or after some seconds."""
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        self._parent.stdin.write(f"{fatal_call}\n")
        self._parent.stdin.flush()
        acknowledged = 0
        killed = bool(fatal_call)
        while (line := self._parent.stdout.readline().strip()) != "dead":
            assert line, "the parent of the writers is gone"
            if line.startswith("pid"):
                child = int(line.split()[1])
            else:
                acknowledged = int(line)
            if not killed and acknowledged:
                time.sleep(seconds)
                os.kill(child, signal.SIGKILL)
                killed = True
        return acknowledged

    def close(self) -> None:
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        self._parent.stdin.close()
        self._parent.wait()
        self._parent.stdout.close()


@pytest.fixture
def writers(run: RunFolder) -> Iterator[Writers]:
    run.close()
    writers = Writers(run.folder)
    yield writers
    writers.close()


def survivor(run: RunFolder) -> int:
    """The step that a new process would go on from."""
    with RunFolder.open(run.folder) as again:
        resumed = Checkpoints(again).latest()
        assert resumed is not None
        assert is_of_step(resumed.checkpoint, resumed.checkpoint.step)
        assert resumed.damaged == ()
        return resumed.checkpoint.step


def test_g1_killed_at_every_call_to_the_system(run: RunFolder, writers: Writers) -> None:
    """Call by call through a whole write, with two checkpoints before it and the removal of an old one."""
    writers.live_and_die(100, 0)
    for fatal_call in range(1, 46):
        before = survivor(run)
        assert before >= 2
        acknowledged = writers.live_and_die(fatal_call, 0)
        reached = survivor(run)
        assert max(before, acknowledged) <= reached <= max(before, acknowledged) + 1
    assert acknowledged > before, "the calls tried do not cover a whole write"


def test_g1_killed_at_random_moments(run: RunFolder, writers: Writers) -> None:
    """Twenty lives, each going on from the one before."""
    moments = random.Random(5)
    last = 0
    for _ in range(20):
        acknowledged = writers.live_and_die(0, moments.uniform(0, 0.05))
        reached = survivor(run)
        assert max(last, acknowledged) <= reached
        last = reached
    assert last >= 20


def test_release_says_nothing_of_the_checkpoint(run: RunFolder) -> None:
    """A research seed and the sampler's key are in private/ and nowhere else."""
    checkpoint = a_checkpoint(1, Streams.research(123456789))
    exact = checkpoint.streams.exact
    assert exact is not None
    Checkpoints(run).write(checkpoint)
    kept = b"".join(path.read_bytes() for path in run.path(PrivateFile.CHECKPOINTS).rglob("*") if path.is_file())
    released = b"".join(path.read_bytes() for path in (run.folder / "release").rglob("*") if path.is_file())
    for secret in (exact.noise_key, exact.batches.state, "ab12"):
        assert secret.encode() in kept
        assert secret.encode() not in released


def test_a_release_run_keeps_no_seed(run: RunFolder) -> None:
    place = Checkpoints(run).write(a_checkpoint(1, Streams.release()))
    assert f'"mode": "{Mode.RELEASE}",\n    "exact": null' in (place / "state.json").read_text()
