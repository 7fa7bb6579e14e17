"""The processes that train one model together: one, or the ranks that torchrun starts. The loop knows nothing else.

G1 (one writer). Rank 0 alone writes, and charges the ledger before it takes part in a sum: no rank has a sum, and so
   none makes an update, that was not charged.
G2 (same everywhere). After `sum_` and `broadcast_` every rank has the same bits; `check_equal` stops all ranks where
   something differs.
G3 (by cost). `share` gives each rank about the same work, by public lengths; the number of ranks changes rounding and
   speed, nothing else.
G4 (answers). A rank that hears nothing of the others within the timeout raises a RunError; nobody waits forever.
G5 (no pickle). What is sent is raw numbers, or bytes that are JSON or safetensors.
G6 (together). Where the weights of a model are shared among the ranks, a pass through it needs all of them. Each pass
   is announced (`begin_pass`); a rank with less work than others takes part in theirs (`finish_passes`), with a pass of
   made-up tokens of which nothing is kept.

Everything that is sent is exact: gradients before noise, and the key of the noise. Whoever can read the network between
the machines, or their memory, sees it; a claim says so.
"""

import hashlib
import heapq
import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import PrefixStore, Store, TCPStore

from tacit.common.ranks import is_launched
from tacit.errors import RunError, TacitError

_SMALL = 1 << 20  # numbers: smaller tensors are sent together
_SECONDS_BETWEEN = 0.2
_HOST = torch.device("cpu")
_JOINED = count()  # every rank joins the same groups, one after the other
_READY, _DONE = "ready", "done"


@dataclass(slots=True)
class Passes:
    """Whether passes through the model need every rank, and whether this one has no work of its own left."""

    together: bool = False
    idle: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    """This process among `size`; `launch` names what started them, the same after every elastic restart."""

    rank: int = 0
    size: int = 1
    launch: str = ""
    restarts: int = 0
    device: torch.device = _HOST
    store: Store | None = None  # of this restart; None without torchrun
    passes: Passes = field(default_factory=Passes)

    @property
    def writes(self) -> bool:
        """Whether this process writes the run folder, and prints."""
        return self.rank == 0

    def share(self, costs: np.ndarray) -> np.ndarray:
        """Which of the things with these costs are this rank's, rising."""
        return shares(costs, self.size)[self.rank]

    def sum_(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its sum over all ranks, which have the same shapes."""
        if self.size == 1:
            return
        here = self.device.type
        large = [one for one in tensors if one.numel() >= _SMALL and one.is_contiguous() and one.device.type == here]
        kept = {id(one) for one in large}
        small: dict[torch.dtype, list[Tensor]] = {}
        for one in tensors:
            if id(one) not in kept:
                small.setdefault(one.dtype, []).append(one)
        with _answered(), torch.no_grad():
            for one in large:
                dist.all_reduce(one)
            for several in small.values():
                flat = torch.cat([one.reshape(-1) for one in several]).to(self.device)
                dist.all_reduce(flat)
                for one, total in zip(several, torch.split(flat, [one.numel() for one in several]), strict=True):
                    one.copy_(total.view_as(one))

    def broadcast_(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by that of rank 0."""
        if self.size == 1:
            return
        with _answered(), torch.no_grad():
            for one in tensors:
                sent = one.detach().to(self.device).contiguous()
                dist.broadcast(sent, 0)
                one.copy_(sent)

    def broadcast(self, content: bytes) -> bytes:
        """What rank 0 gives; what the others give is not looked at."""
        if self.size == 1:
            return content
        length = torch.tensor([len(content)])
        self.broadcast_([length])
        sent = torch.zeros(int(length), dtype=torch.uint8)
        if self.writes:
            sent = torch.frombuffer(bytearray(content), dtype=torch.uint8) if content else sent
        self.broadcast_([sent])
        return sent.numpy().tobytes()

    def barrier(self) -> None:
        """Return when every rank is here."""
        self.sum_([torch.zeros(1)])

    def begin_pass(self) -> None:
        """Call all ranks to a pass through the model, where it needs them."""
        if self.passes.together and not self.passes.idle:
            self._anyone(True)

    def finish_passes(self, idle: Callable[[], object]) -> None:
        """Take part in passes of ranks that have more work, where they need this one; then all of them return.

        idle: one pass of the kind that the others make; nothing of it is kept.
        """
        if not self.passes.together:
            return
        while self._anyone(False):
            self.passes.idle = True
            try:
                idle()
            finally:
                self.passes.idle = False

    def _anyone(self, here: bool) -> bool:
        """Whether this holds in any rank."""
        found = torch.tensor([int(here)], device=self.device)
        with _answered():
            dist.all_reduce(found, dist.ReduceOp.MAX)
        return bool(found)

    @contextmanager
    def passing(self) -> Iterator[None]:
        """Errors of passes that need every rank as what they mean."""
        try:
            yield
        except RuntimeError as error:
            if self.passes.together and _is_lost(error):
                raise _silence(error) from error
            raise

    def check_equal(self, what: str, content: bytes) -> None:
        """Stop every rank unless all have the same content."""
        if self.size == 1:
            return
        number = int.from_bytes(hashlib.blake2b(content, digest_size=7).digest(), "little")
        ends = torch.tensor([number, -number], device=self.device)
        with _answered():
            dist.all_reduce(ends, dist.ReduceOp.MAX)
        if int(ends[0]) != -int(ends[1]):
            raise RunError(
                expected=f"the same {what} in every process",
                found="others in one of them: machines of different kinds, versions or files, or a fault of one",
                way_out="use equal machines with equal files, then resume from the last checkpoint",
            )

    def announce_ready(self) -> None:
        """Let the others begin: what they read is on the disk."""
        self._announce(_READY)

    def announce_done(self) -> None:
        """Let the others end."""
        self._announce(_DONE)

    def ready(self) -> bool:
        """Whether rank 0 has announced that the others may begin, waiting for a moment."""
        return self._heard(_READY)

    def done(self) -> bool:
        """Whether rank 0 has announced that the run is complete, waiting for a moment."""
        return self._heard(_DONE)

    def _announce(self, name: str) -> None:
        if self.store is not None:
            with _answered():
                self.store.set(name, "1")

    def _heard(self, name: str) -> bool:
        """No collective: rank 0 may prepare for hours, far longer than a sum may take."""
        assert self.store is not None
        with _answered():
            if self.store.check([name]):
                return True
        time.sleep(_SECONDS_BETWEEN)
        return False


ALONE = Group()


def shares(costs: np.ndarray, size: int) -> list[np.ndarray]:
    """The numbers of the things with these costs, dealt to `size` ranks: the dearest first, each to the least busy."""
    if size == 1:
        return [np.arange(len(costs))]
    dealt: list[list[int]] = [[] for _ in range(size)]
    busy = [(0.0, rank) for rank in range(size)]
    for number in np.argsort(-costs, kind="stable").tolist():
        cost, rank = heapq.heappop(busy)
        dealt[rank].append(number)
        heapq.heappush(busy, (cost + float(costs[number]), rank))
    return [np.array(sorted(own), dtype=np.int64) for own in dealt]


@contextmanager
def joined(device: str, timeout: timedelta) -> Iterator[Group]:
    """The group of this process, by the environment that torchrun sets; without it, the process is alone."""
    if not is_launched():
        yield ALONE
        return
    environment = os.environ
    rank, size = int(environment["RANK"]), int(environment["WORLD_SIZE"])
    restarts = int(environment.get("TORCHELASTIC_RESTART_COUNT", "0"))
    here = torch.device(device)
    if here.type == "cuda":
        here = torch.device("cuda", int(environment.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(here)
    with _answered():
        # in a store that outlives a restart, ranks would find the addresses of those that were killed; agents count
        # restarts each for itself, so that a node which came later would look elsewhere in one that does not
        prefix = f"tacit/{restarts if _of_agent() else 0}/{next(_JOINED)}"
        store = PrefixStore(prefix, _store(rank, size, timeout))
        backend = "nccl" if here.type == "cuda" else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=timeout)
    try:
        yield Group(rank, size, _launch(), restarts, here, store)
    finally:
        dist.destroy_process_group()


def _store(rank: int, size: int, timeout: timedelta) -> Store:
    """The agent of torchrun serves one to all ranks; other launchers leave that to rank 0."""
    return TCPStore(
        os.environ["MASTER_ADDR"],
        int(os.environ["MASTER_PORT"]),
        size,
        is_master=rank == 0 and not _of_agent(),
        timeout=timeout,
        wait_for_workers=False,
        multi_tenant=True,
    )


def _of_agent() -> bool:
    """Whether the store is of torchrun's agent, and the same after every restart."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def _launch() -> str:
    """What a rank and its successor after a restart have in common: the agent that started both."""
    return f"{os.environ.get('TORCHELASTIC_RUN_ID', 'none')} {socket.gethostname()} {os.getppid()}"


@contextmanager
def _answered() -> Iterator[None]:
    """Errors of torch.distributed as what they mean: some process, or the network, is gone."""
    try:
        yield
    except TacitError:
        raise
    except RuntimeError as error:
        raise _silence(error) from error


def _silence(error: RuntimeError) -> RunError:
    return RunError(
        expected="every process of the run to answer in time",
        found=f"silence or a closed connection ({type(error).__name__})",
        way_out="see what the other processes and the network did; then tacit train --resume RUN",
    )


def _is_lost(error: RuntimeError) -> bool:
    """Whether an error is of a collective; those of gloo are known by their words alone."""
    return isinstance(error, dist.DistError) or "gloo" in str(error)
