"""One function over many items on all cores, in order, with flat memory.

G1 (order). Results come in the order of the items, whatever the number of processes.
G2 (flat). At most `IN_FLIGHT` items per process are read ahead of the results handed out.
G3 (clean end). Ctrl-C reaches the caller alone; workers end with the `with` block, and forked ones with the caller.

The tool a function works with, such as a policy, is sent to each process once. On Linux a caller without other Python
threads is forked, so that workers share the models that it has loaded; otherwise processes are spawned, because a
thread may hold a lock that a forked process would wait for. With one process everything runs in the caller's own.
"""

import contextlib
import ctypes
import multiprocessing
import os
import pickle
import re
import signal
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import chain, islice
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from tacit.errors import ConfigError, WorkerLost

Tool = TypeVar("Tool")
Item = TypeVar("Item")
Result = TypeVar("Result")
IN_FLIGHT = 3
_MAIN = b"__main__"
_PR_SET_PDEATHSIG = 1  # prctl(2)
_OPENMP = re.compile(r"/lib(gomp|omp|iomp5)\b[^/]*\.so[^/]*$")


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def processes_for(items: Iterable[Item], wanted: int | None, few: int) -> tuple[int, Iterator[Item]]:
    """How many processes are worth starting, all cores unless told otherwise, and the items; one for fewer than `few`.

    So few are done sooner than processes have started.
    """
    number = cores() if wanted is None else wanted
    rest = iter(items)
    head = list(islice(rest, few))
    return number if len(head) == few else min(number, 1), chain(head, rest)


def in_batches(
    items: Iterable[Item], weight: Callable[[Item], int], most_items: int, most_weight: int
) -> Iterator[list[Item]]:
    """Items in lists of bounded length and weight (but for the last item of a list), so that no list takes long."""
    batch: list[Item] = []
    total = 0
    for item in items:
        batch.append(item)
        total += weight(item)
        if len(batch) >= most_items or total >= most_weight:
            yield batch
            batch, total = [], 0
    if batch:
        yield batch


class Workers(Generic[Tool]):
    """Processes that share a tool; a context manager."""

    def __init__(self, tool: Tool, processes: int) -> None:
        if processes < 1:
            raise ConfigError("at least one process", str(processes), "leave it out to use all cores")
        self._tool = tool
        self._processes = processes
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Self:
        if self._processes > 1:
            method = "fork" if sys.platform == "linux" and threading.active_count() == 1 else "spawn"
            context = multiprocessing.get_context(method)
            parent = os.getpid() if method == "fork" else None
            self._pool = ProcessPoolExecutor(self._processes, context, _receive, (_sendable(self._tool), parent))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def map(self, function: Callable[[Tool, Item], Result], items: Iterable[Item]) -> Iterator[tuple[Item, Result]]:
        """Each item with `function(tool, item)`; the function must be defined at the top level of a module."""
        if self._pool is None:
            for item in items:
                yield item, function(self._tool, item)
            return
        needed = not can_be_sent((self._tool, function))
        waiting: deque[tuple[Item, Future[Result]]] = deque()
        try:
            for item in items:
                with _interrupts_held(), _main_hidden(needed), warnings.catch_warnings():
                    warnings.simplefilter("ignore", DeprecationWarning)  # a fork beside the threads of native libraries
                    waiting.append((item, self._pool.submit(_work, function, item)))
                if len(waiting) >= IN_FLIGHT * self._processes:
                    first, future = waiting.popleft()
                    yield first, future.result()
            while waiting:
                first, future = waiting.popleft()
                yield first, future.result()
        except BrokenProcessPool:
            raise WorkerLost from None


def can_be_sent(tool: object) -> bool:
    """Whether other processes can be given the tool without running the caller's script, which may have no guard."""
    try:
        return _MAIN not in pickle.dumps(tool)
    except (pickle.PicklingError, AttributeError, TypeError):
        return False


@contextlib.contextmanager
def _main_hidden(needed: bool) -> Iterator[None]:
    """Processes started inside do not run the caller's script again, unless what they work with is defined there."""
    main = sys.modules["__main__"]
    known = {} if needed else {name: getattr(main, name, None) for name in ("__spec__", "__file__")}
    try:
        for name in known:
            setattr(main, name, None)
        yield
    finally:
        for name, value in known.items():
            setattr(main, name, value)


@contextlib.contextmanager
def _interrupts_held() -> Iterator[None]:
    """Processes started inside never see Ctrl-C (they inherit the mask); the caller sees it right after."""
    if sys.platform == "win32":
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _sendable(tool: Tool) -> Tool:
    try:
        pickle.dumps(tool)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ConfigError(
            expected="a policy that can be sent to other processes",
            found=f"one that cannot ({type(error).__name__})",
            way_out="define its class at the top of a module, or use one process",
        ) from error
    return tool


_received: Any = None


def _receive(tool: object, parent: int | None) -> None:
    global _received
    _received = tool
    if parent is not None:
        _use_one_thread()
        # A forked worker has the caller's open files, and would keep them locked if it lived on.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)


def _use_one_thread() -> None:
    """Threads of OpenMP and of tokenizers do not survive a fork: whoever waits for them waits forever."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        libraries = {line.split(maxsplit=5)[-1].strip() for line in maps if _OPENMP.search(line)}
    for library in libraries:
        ctypes.CDLL(library).omp_set_num_threads(1)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)  # of MKL too


def _work(function: Callable[[Any, Item], Result], item: Item) -> Result:
    return function(_received, item)
