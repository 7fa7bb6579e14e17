"""The work of an audit, divided among the processes that make it together: the ranks that torchrun started, or one.

An attack is written as for one process. What takes time, passes through a model, is divided where it is done: scores of
passages, totals of candidates, parts of generated text. All else every process does by itself, in the same way.

G1 (one result). Parts, and the chance in each, are the same whatever the number of processes. So are the results.
G2 (same everywhere). Every process has all results. Where one divides other work than the others, all of them stop.
G3 (whole inside). Work on a part that divides work of its own does all of it in this process.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tacit.models.evaluation import OneReader, Readers

Part = TypeVar("Part")


class Ranks(Readers, Protocol):
    """The processes that make an audit together."""

    def share(self, costs: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Which of the parts with these costs are this process's."""

    def broadcast_(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by that of the first process."""

    def check_equal(self, what: str, content: bytes) -> None:
        """Stop every process unless all have the same content."""


@dataclass(frozen=True, slots=True)
class OneRank(OneReader):
    """A process that makes an audit alone."""

    def share(self, costs: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return np.arange(len(costs))

    def broadcast_(self, tensors: Sequence[Tensor]) -> None:
        """They are the first process's already."""

    def check_equal(self, what: str, content: bytes) -> None:
        """There is no other."""


ALONE = OneRank()
_RANKS: ContextVar[Ranks] = ContextVar("ranks", default=ALONE)


@contextmanager
def together(ranks: Ranks) -> Iterator[None]:
    """Inside, work is divided among these."""
    before = _RANKS.set(ranks)
    try:
        yield
    finally:
        _RANKS.reset(before)


def divided(
    parts: Sequence[Part],
    sizes: Sequence[int],
    work: Callable[[Part], None],
    results: Sequence[npt.NDArray[Any]],
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Have `work` done on every part, each in one process; afterwards all have the results.

    sizes: of the parts, by which they are dealt and progress is counted. results: what the work adds to, zeros before.
    """
    ranks, total, done = _RANKS.get(), sum(sizes), 0
    ranks.check_equal("work in an audit", json.dumps([list(sizes), [one.shape for one in results]]).encode())
    with together(ALONE):
        for number in ranks.share(np.array(sizes, dtype=np.int64)).tolist():
            work(parts[number])
            done += sizes[number]
            if progress is not None:
                progress(min(total, done * ranks.size), total)
    ranks.sum_([torch.from_numpy(one) for one in results])


def make_equal(tensors: Sequence[Tensor]) -> None:
    """Give every process the numbers of the first: machines may round what each computed by itself differently."""
    _RANKS.get().broadcast_(tensors)


def generators(generator: torch.Generator, count: int) -> list[torch.Generator]:
    """One for each part, from what `generator` draws: no part's chance depends on who does the others."""
    seeds = torch.randint(1 << 62, (count,), generator=generator).tolist()
    return [torch.Generator().manual_seed(seed) for seed in seeds]
