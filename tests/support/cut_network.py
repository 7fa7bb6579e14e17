"""Two ranks in network namespaces of their own, joined by a cable (a veth pair) that is cut while they train.

    python cut_network.py COUNTER ARGUMENT...

is `tacit ARGUMENT...` as one of the ranks runs it; the file COUNTER has a byte for each update that the rank applied.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from unittest.mock import patch

from torch import Tensor

from tacit.cli.main import main as command_line
from tacit.training.optimizers import Optimizer

SPACES = ("tacit-rank-0", "tacit-rank-1")
ADDRESSES = ("10.77.0.1", "10.77.0.2")
_PORT = "29777"


def ip(*arguments: str) -> None:
    """The command `ip`."""
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


def lay_cable() -> None:
    """Two namespaces with a cable between them; refused (an OSError, or a CalledProcessError) to most users."""
    for space in SPACES:
        ip("netns", "add", space)
    ip("link", "add", "rank0", "netns", SPACES[0], "type", "veth", "peer", "name", "rank1", "netns", SPACES[1])
    for number, (space, address) in enumerate(zip(SPACES, ADDRESSES, strict=True)):
        ip("-n", space, "addr", "add", f"{address}/24", "dev", f"rank{number}")
        ip("-n", space, "link", "set", f"rank{number}", "up")
        ip("-n", space, "link", "set", "lo", "up")


def remove_cable() -> None:
    """The namespaces, and all that is in them."""
    for space in SPACES:
        subprocess.run(["ip", "netns", "del", space], capture_output=True)


def cut_cable() -> None:
    """From now on no packet arrives, and nobody is told."""
    ip("-n", SPACES[0], "link", "set", "rank0", "down")


def begin_rank(rank: int, counter: Path, arguments: list[str]) -> subprocess.Popen[str]:
    """`tacit ARGUMENT...` as one of two ranks, in its namespace, without torchrun: rank 0 serves the store."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "OMP_NUM_THREADS": "1",
        "RANK": str(rank),
        "WORLD_SIZE": "2",
        "MASTER_ADDR": ADDRESSES[0],
        "MASTER_PORT": _PORT,
        "GLOO_SOCKET_IFNAME": f"rank{rank}",
    }
    command = ["ip", "netns", "exec", SPACES[rank], sys.executable, __file__, str(counter), *arguments]
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)


def main() -> None:
    counter, apply = Path(sys.argv[1]), Optimizer.apply

    def counting(
        optimizer: Optimizer, parameters: Mapping[str, Tensor], gradients: Mapping[str, Tensor], noise: float = 0.0
    ) -> None:
        with counter.open("a") as file:
            file.write(".")
        apply(optimizer, parameters, gradients, noise)

    sys.argv = ["tacit", *sys.argv[2:]]
    with patch.object(Optimizer, "apply", counting):
        command_line()


if __name__ == "__main__":
    main()
