"""Ranks of a group, forked from one process that has imported everything: real processes and a real network, at once.

    python forked_ranks.py MODULE:FUNCTION FOLDER SIZE...

calls `FUNCTION(FOLDER)` once, then what it returns in each of SIZE processes with the environment of torchrun; one size
after the other.
"""

import os
import subprocess
import sys
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from pkgutil import resolve_name

from torch._C._distributed_c10d import TCPStore

from tacit.training.group import Group, joined

Work = Callable[[], None]
TIMEOUT = timedelta(seconds=120)
_HOST = "127.0.0.1"


def run_in_ranks(function: str, folder: Path, *sizes: int) -> None:
    """Have another process do all of this; its errors are this one's."""
    command = [sys.executable, __file__, function, str(folder), *map(str, sizes)]
    places = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": places, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-4000:]


def in_group(work: Callable[[Group], None]) -> Work:
    """`work` with the group of the process that does it."""

    def joining() -> None:
        with joined("cpu", TIMEOUT) as group:
            work(group)

    return joining


def fork_ranks(work: Work, size: int) -> None:
    """`work` in `size` ranks; an error in one is an error here."""
    store = TCPStore(_HOST, 0, is_master=True, wait_for_workers=False)
    ranks = [_fork(work, rank, size, store.port) for rank in range(size)]
    failed = [rank for rank in ranks if os.waitstatus_to_exitcode(os.waitpid(rank, 0)[1])]
    if failed:
        sys.exit(f"{len(failed)} of {size} ranks failed")


def _fork(work: Work, rank: int, size: int, port: int) -> int:
    child = os.fork()
    if child:
        return child
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(size), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    os.environ |= {"MASTER_ADDR": _HOST, "MASTER_PORT": str(port)}
    code = 1
    try:
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def main() -> None:
    function, folder, *sizes = sys.argv[1:]
    work = resolve_name(function)(Path(folder))
    for size in sizes:
        fork_ranks(work, int(size))


if __name__ == "__main__":
    main()
