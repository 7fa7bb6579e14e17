"""`tacit` under the elastic agent of torchrun, whose ranks are forked and killed.

    python elastic.py SIZE KILLS ARGUMENT... --out RUN

runs `tacit ARGUMENT... --out RUN` in SIZE ranks. KILLS times, one rank is killed (SIGKILL), and the agent starts all of
them again. Every other time the moment is any within two seconds after the ranks were started, or their tenth step;
otherwise it is within a fifth of a second after the ledger grew, which is during a step. Ranks are forked from a
process that has imported everything: torchrun itself would spend most of the time on imports.
"""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from tacit.cli.main import main as command_line
from tacit.runs.release import ReleaseFile
from tacit.training import stages  # noqa: F401  (every rank then has it)


def run_elastic(size: int, kills: int, *arguments: str) -> None:
    """Have another process do this; the run must end well."""
    command = [sys.executable, __file__, str(size), str(kills), *arguments]
    places = os.pathsep.join(path for path in sys.path if path)
    environment = {**os.environ, "PYTHONPATH": places, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    assert f"{kills} killed" in done.stderr, done.stderr[-4000:]


def train_arguments(corpus: Path, steps: int, out: Path, base: Path | None = None) -> list[str]:
    """Of a small research run of `selective` that writes a checkpoint after every step.

    base: a model whose layers the ranks share, to train adapters to.
    """
    settings: dict[str, object] = {
        "noise_multiplier": 1,
        "steps": steps,
        "public_epochs": 1,
        "public_batch_size": 16,
        "checkpoint_steps": 1,
        "held_out": 0.2,
        "max_tokens": 64,
        "max_full_tokens": 64,
    }
    small: dict[str, object] = {"model_config.hidden_size": 8, "model_config.embedding_size": 8}
    settings |= small if base is None else {"model": base, "lora.rank": 2, "fsdp": "base"}
    given = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    how = ["--policy", "gold", "--mechanism", "selective", "--expected-batch-size", "8", "--tokenizer", "bytes"]
    return ["-q", "train", str(corpus), *how, "--mode", "research", *given, "--out", str(out)]


def _rank(arguments: list[str]) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the agent's handler was forked, too
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = ["tacit", *arguments]
    command_line()


def _ranks() -> set[int]:
    """The processes of all ranks that are alive."""
    found: set[int] = set()
    for task in Path(f"/proc/{os.getpid()}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that has ended meanwhile
            found |= {int(child) for child in (task / "children").read_text().split()}
    return found


class Killer(threading.Thread):
    """Kills one rank of each generation, until enough are dead."""

    def __init__(self, size: int, kills: int, ledger: Path) -> None:
        super().__init__(daemon=True)
        self._size, self._kills, self._ledger = size, kills, ledger
        self._chance = random.Random(0)
        self.killed = 0

    def run(self) -> None:
        seen = set[int]()
        while self.killed < self._kills:
            alive = set[int]()
            while len(alive) < self._size:
                time.sleep(0.005)
                alive = _ranks() - seen
            self._wait(alive)
            with suppress(ProcessLookupError):
                os.kill(self._chance.choice(sorted(alive)), signal.SIGKILL)
                self.killed += 1
            seen |= alive

    def _wait(self, alive: set[int]) -> None:
        any_moment = bool(self.killed % 2)
        end = time.monotonic() + (self._chance.uniform(0, 2) if any_moment else float("inf"))
        sizes = {self._size_of_ledger()}
        while len(sizes) < (10 if any_moment else 4) and alive <= _ranks() and time.monotonic() < end:
            time.sleep(0.005)
            sizes.add(self._size_of_ledger())  # it is rewritten once when it is opened
        time.sleep(0 if any_moment else self._chance.uniform(0, 0.2))

    def _size_of_ledger(self) -> int:
        return self._ledger.stat().st_size if self._ledger.exists() else 0


def main() -> None:
    size, kills, *arguments = int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]
    settings = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=size,
        run_id="test",
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=kills + 1,
        monitor_interval=0.05,
        start_method="fork",
    )
    killer = Killer(size, kills, Path(arguments[-1]) / "release" / ReleaseFile.LEDGER)
    killer.start()
    elastic_launch(settings, _rank)(arguments)
    print(f"{killer.killed} killed", file=sys.stderr)


if __name__ == "__main__":
    main()
