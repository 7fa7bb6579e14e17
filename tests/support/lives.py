"""Processes of the command line that tests can kill at any moment, forked from one that has imported everything."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

FORKING = """
import json, os, resource, sys
import tacit.training.stages
from tacit.cli.main import main

for line in sys.stdin:
    child = os.fork()
    if child == 0:
        limits, arguments = json.loads(line)
        sys.argv = ["tacit", *arguments]
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(2, 1)
        if limits:
            resource.setrlimit(limits[0], (limits[1], limits[1]))
        main()
        os._exit(0)
    os.write(1, f"{child}\\n".encode())
    os.write(1, f"{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}\\n".encode())
"""


class Lives:
    """Processes of the command line, forked one after the other from one that has imported everything."""

    def __init__(self, words: Path) -> None:
        """What the processes say goes to the file `words`."""
        self._said = words.open("a")
        self._parent = subprocess.Popen(
            [sys.executable, "-c", FORKING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said, text=True
        )
        self._waiting = False

    def begin(self, *arguments: str, limits: tuple[int, int] | None = None) -> int:
        """The process id of `tacit arguments`."""
        assert self._parent.stdin is not None
        self._parent.stdin.write(json.dumps([limits, arguments]) + "\n")
        self._parent.stdin.flush()
        return int(self._line())

    def end(self) -> int:
        """The exit code of the process that was begun last, when it has ended; a signal is negative."""
        return int(self._line())

    def run(self, *arguments: str) -> int:
        """The exit code of `tacit arguments`."""
        self.begin(*arguments)
        return self.end()

    def limited(self, what: int, limit: int) -> "Limited":
        """The same, for processes that may have no more than `limit` of a resource."""
        return Limited(self, what, limit)

    def close(self) -> None:
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        self._parent.stdin.close()
        self._parent.wait()
        self._parent.stdout.close()
        self._said.close()

    def _line(self) -> str:
        assert self._parent.stdout is not None
        line = self._parent.stdout.readline()
        assert line, "the parent of all processes is gone"
        return line


@dataclass(frozen=True, slots=True)
class Limited:
    """Processes with little of one resource, from their first moment on."""

    lives: Lives
    what: int
    limit: int

    def run(self, *arguments: str) -> int:
        """The exit code of `tacit arguments`."""
        self.lives.begin(*arguments, limits=(self.what, self.limit))
        return self.lives.end()
