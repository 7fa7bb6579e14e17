"""The processes of a sweep: one per run, some at a time, none left behind."""

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Any

from tacit.common.files import try_lock
from tacit.common.progress import Progress
from tacit.common.serialize import dotted, to_json
from tacit.errors import RunError
from tacit.reports.run_page import without_folders
from tacit.sweeps.recipe import Variation
from tacit.sweeps.worker import Job, JobState, read_state, write_state

RunPlace = str | Path
COMMAND = (sys.executable, "-c", "from tacit.sweeps.worker import main; main()")
_SECONDS_FOR_LOCK = 30.0
_QUOTED = re.compile(r"(['\"])(/[^'\"\n]+)\1")
_FOLDERS = re.compile(r"(?<![\w.~)])/+(?:[^\s/'\"]+/+)*(?=[^\s/'\"])")


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """How one run ended: its line of the results. refused: why it has no figures; known: it was done before."""

    name: str
    line: dict[str, Any]
    refused: dict[str, str] | None = None
    known: bool = False

    @property
    def is_contradicted(self) -> bool:
        attacks = (self.line.get("figures") or {}).get("attacks")
        return attacks is not None and attacks["verdict"] == "contradicted"


SweepObserver = Callable[[str, Progress | RunOutcome], None]


@dataclass(frozen=True, slots=True)
class Places:
    """Where a sweep reads and writes."""

    recipe: Path
    out: Path
    results: Path
    data: Path

    @classmethod
    def of(
        cls, recipe: Path, out: RunPlace | None, results: RunPlace | None, data: RunPlace | None, scale: float
    ) -> "Places":
        """The given ones, or those next to the recipe; another scale has other places."""
        stem = recipe.stem if scale == 1 else f"{recipe.stem}-at-{scale:g}"
        return cls(
            recipe,
            Path(out or recipe.with_name(f"{stem}.runs")).absolute(),
            Path(results or recipe.with_name(f"{stem}.results.json")).absolute(),
            Path(data or recipe.parent / "data").absolute(),
        )

    @property
    def own(self) -> Path:
        """The sweep's own folder; no run has such a name."""
        return self.out / ".sweep"

    def state(self, name: str) -> Path:
        return self.own / f"{name}.json"

    def without(self, text: str, settings: dict[str, Any]) -> str:
        """`text` with only the last part of every absolute path.

        A blank ends a path, except in quotes and in the paths of `settings`.
        """
        paths = [value for value in dotted(settings).values() if isinstance(value, str) and value.startswith("/")]
        named = {path: PurePath(path).name for path in paths if PurePath(path).name}
        roots = {str(self.out): "OUT", str(self.data): "DATA", str(self.recipe.parent.absolute()): "RECIPE"}
        for known in (roots, named):
            for place in sorted(known, key=len, reverse=True):
                text = text.replace(place, known[place])
        return _FOLDERS.sub("", _QUOTED.sub(lambda found: found[1] + PurePath(found[2]).name + found[1], text))


class Drive:
    """Runs jobs in processes of their own and collects how they ended."""

    def __init__(self, places: Places, threads: int, lock: int, observe: SweepObserver) -> None:
        self._places, self._threads, self._lock, self._observe = places, threads, lock, observe
        self._living: set[subprocess.Popen[str]] = set()
        self._telling, self._stopped = threading.Lock(), False

    def all(self, pool: ThreadPoolExecutor, todo: list[tuple[Variation, Job]]) -> Iterator[RunOutcome]:
        """In the order of the recipe. If interrupted, the processes finish and save their current steps."""
        waiting = [pool.submit(self._one, one, job) for one, job in todo]
        try:
            for future in waiting:
                yield future.result()
        except BaseException:
            self._stopped = True
            for future in waiting:
                future.cancel()
            for process in list(self._living):
                if process.stdin is not None:
                    process.stdin.close()
            raise

    def _one(self, one: Variation, job: Job) -> RunOutcome:
        place, begun = self._places.state(one.name), JobState(job.identity.trained)
        state = read_state(place) or begun
        known = state.is_done(job.identity) and Path(job.folder).exists()
        if not known and not self._stopped:
            refused = self._process(one.name, job)
            state = read_state(place) or begun
            if refused is not None and not self._stopped:
                state = replace(state, refused=refused, figures=None)
                write_state(place, state)
        line = {
            "name": one.name,
            "group": one.group,
            "seed": one.settings.get("seed", 0),
            "differs": without_folders(one.differs),
            "figures": state.figures,
            "refused": state.refused,
            "seconds": state.seconds if state.figures is not None else {},
        }
        outcome = RunOutcome(one.name, line, state.refused, known)
        self._tell(one.name, outcome)
        return outcome

    def _process(self, name: str, job: Job) -> dict[str, str] | None:
        """Why the run failed, if it did."""
        self._tell(name, Progress("preparing", 0, None))
        environment = {**os.environ, "OMP_NUM_THREADS": str(self._threads), "MKL_NUM_THREADS": str(self._threads)}
        refused: dict[str, str] | None = None
        printed = self._places.own / f"{name}.log"
        descriptor = os.open(printed, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as log:
            process = subprocess.Popen(
                [*COMMAND],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environment,
                pass_fds=(self._lock,),  # held until the last process is gone
                start_new_session=True,  # Ctrl-C is for the scheduler, which asks its processes to stop
            )
        with process:
            self._living.add(process)
            assert process.stdin is not None
            assert process.stdout is not None
            with suppress(BrokenPipeError):  # its end is reported below
                print(" ".join(to_json(job).split("\n")), file=process.stdin, flush=True)
            if self._stopped:  # while it was started
                process.stdin.close()
            for line in process.stdout:
                message = json.loads(line)
                if "progress" in message:
                    self._tell(name, Progress(**message["progress"]))
                else:
                    found = message["refused"].items()
                    refused = {part: self._places.without(text, job.settings) for part, text in found}
            code = process.wait()
            self._living.discard(process)
        if code == 0:
            return refused
        return {
            "expected": "a process that ends when its run is done",
            "found": f"one that ended by signal {-code}" if code < 0 else f"one that ended with code {code}",
            "way_out": f"see {self._places.without(str(printed), {})}; the same command resumes "
            "(use fewer --jobs if memory was short)",
        }

    def _tell(self, name: str, news: Progress | RunOutcome) -> None:
        with self._telling:
            self._observe(name, news)


def available_threads() -> int:
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return int(asked) if asked.isdecimal() and int(asked) else len(os.sched_getaffinity(0))


@contextmanager
def locked(path: Path) -> Iterator[int]:
    """Be the only sweep of a folder; processes of a sweep that died are waited for, as they end after their step."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        began = time.monotonic()
        while not try_lock(descriptor):
            if time.monotonic() - began > _SECONDS_FOR_LOCK:
                folder = path.parent.parent
                raise RunError(f"to be the only sweep of {folder}", "another one at work", "wait for it to end")
            time.sleep(0.2)
        yield descriptor
    finally:
        os.close(descriptor)
