"""`tacit train --processes N`, `tacit audit`: the same command in N processes of this machine, by torchrun's agent.

`python -m tacit.cli.processes ARGUMENTS` is torchrun without the traceback of its own when a process has failed, which
has said why.
"""

import signal
import subprocess
import sys
from collections.abc import Sequence

import typer

from tacit.common.ranks import is_launched


def divide(context: typer.Context, processes: int | None) -> None:
    """If several processes were asked for and this is none of them: run the command in them, and end as they did."""
    if processes is not None and not is_launched():
        raise typer.Exit(_launch(processes, context.find_root().obj))


def _launch(processes: int, arguments: Sequence[str]) -> int:
    """Run a command line in so many processes; the exit code of the first that failed, or 0.

    Ctrl-C goes to the agent alone, which passes it on: every process gets it once.
    """
    agent = ["--standalone", "--nproc-per-node", str(processes), "-m", "tacit", *arguments]
    child = subprocess.Popen([sys.executable, "-m", "tacit.cli.processes", *agent], start_new_session=True)
    before = signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    try:
        while True:
            try:
                return child.wait()
            except KeyboardInterrupt:
                child.send_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGTERM, before)


def main() -> None:
    """As `torchrun`."""
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import main as torchrun

    try:
        torchrun()
    except ChildFailedError as error:
        _, first = error.get_first_failure()
        sys.exit(first.exitcode if first.exitcode > 0 else 1)
    except SignalException as error:
        sys.exit(128 + error.sigval)


if __name__ == "__main__":
    main()
