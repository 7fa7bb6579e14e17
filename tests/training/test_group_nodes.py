"""A machine that is lost: two agents of torchrun, of which one is killed with its rank. The run is finished anyway."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from elastic import train_arguments
from runs import write_corpus
from tacit.privacy.ledger import read_entries
from tacit.runs.release import ReleaseFile
from tacit.runs.verify import verify

STEPS = 60


class Nodes:
    """Agents that meet at one port; each is a machine with one rank."""

    def __init__(self, nodes: str, log: Path) -> None:
        with socket.create_server(("localhost", 0)) as free:
            self._port = free.getsockname()[1]
        self._nodes, self._log = nodes, log
        self.agents: list[subprocess.Popen[bytes]] = []

    @property
    def needed(self) -> int:
        """Without so many machines nothing is done."""
        return int(self._nodes.split(":")[0])

    def begin(self, *words: str) -> subprocess.Popen[bytes]:
        """One more machine, which runs `tacit` with these words."""
        meeting = ["--rdzv-id", "job", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"localhost:{self._port}"]
        how = ["--nnodes", self._nodes, "--nproc-per-node", "1", "--max-restarts", "3", *meeting]
        places = os.pathsep.join(path for path in sys.path if path)
        environment = os.environ | {"PYTHONPATH": places, "OMP_NUM_THREADS": "1"}
        environment["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
        command = [sys.executable, "-m", "torch.distributed.run", *how, "-m", "tacit", *words]
        with self._log.open("ab") as log:
            agent = subprocess.Popen(
                command, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        self.agents.append(agent)
        return agent

    def wait_for_meeting(self) -> None:
        """The machine at which all meet must not be the one that is lost."""
        while True:
            with suppress(OSError), socket.create_connection(("localhost", self._port), 1):
                return
            time.sleep(0.1)

    @staticmethod
    def lose(agent: subprocess.Popen[bytes]) -> None:
        """Kill an agent and its rank, which torchrun has put into a session of its own."""
        ranks = Path(f"/proc/{agent.pid}/task/{agent.pid}/children").read_text().split()
        for one in (agent.pid, *map(int, ranks)):
            with suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)
        agent.wait()

    def end(self) -> None:
        for agent in self.agents:
            if agent.poll() is None:
                self.lose(agent)


@pytest.fixture(params=["2", "1:2"])
def nodes(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Nodes]:
    made = Nodes(request.param, tmp_path / "log")
    yield made
    made.end()


def charges(run: Path) -> int:
    ledger = run / "release" / ReleaseFile.LEDGER
    return sum(read_entries(ledger).charges().values()) if ledger.exists() else 0


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux")
def test_a_run_is_finished_without_a_machine_that_was_lost(nodes: Nodes, tmp_path: Path) -> None:
    """With as many machines, by a new one; with fewer allowed, by the others. Catches ranks that never meet again."""
    run = tmp_path / "run"
    words = train_arguments(write_corpus(tmp_path, 24), STEPS, run)
    first = nodes.begin(*words)
    nodes.wait_for_meeting()
    second = nodes.begin(*words)
    while charges(run) < 5:
        assert first.poll() is None, (tmp_path / "log").read_text()[-4000:]
        time.sleep(0.05)
    nodes.lose(second)
    again = [first]
    if nodes.needed == 2:
        again.append(nodes.begin("-q", "train", "--resume", str(run)))
    assert [agent.wait(300) for agent in again] == [0] * len(again), (tmp_path / "log").read_text()[-4000:]
    assert verify(run).holds
    assert charges(run) >= STEPS
