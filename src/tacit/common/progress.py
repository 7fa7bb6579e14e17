"""Progress events for long-running work, and the logger `tacit`."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

LOG = logging.getLogger("tacit")
LOG.addHandler(logging.NullHandler())  # a program that wants to see the lines adds a handler of its own


@dataclass(frozen=True, slots=True)
class Progress:
    """No loss of a private step. `done` of `total` steps, rows, records or candidates.

    `tokens` counts the targets of private draws too: it is for the screen, not for the release. `characters` were read
    so far, and `share` of the corpus file. `seconds`, of "estimating" alone: what training takes at the speed of `done`
    made-up rows.
    """

    stage: str  # "reading", "preparing", "estimating", "training", "measuring", or what an attack calls its own
    done: int
    total: int | None
    tokens: int = 0
    public_loss: float | None = None
    epsilon: float | None = None  # spent so far
    characters: int = 0
    share: float | None = None
    seconds: float | None = None


class TimeLeft:
    """Estimates how long a stage still takes, from all events but its first, which is slower than those after it."""

    def __init__(self) -> None:
        self._stage = ("", False)  # and whether it counts, or knows its share of a file
        self._began, self._first = 0.0, 0.0

    def seconds(self, done: Progress, now: float) -> float | None:
        """Until the stage ends; None where that is not known."""
        place, end = (float(done.done), done.total) if done.share is None else (done.share, 1.0)
        stage = (done.stage, done.share is None)
        if stage != self._stage:
            self._stage, self._began, self._first = stage, now, place
        if end is None or place <= self._first:
            return None
        return (now - self._began) / (place - self._first) * (end - place)


Observer = Callable[[Progress], None]


def unwatched(_: Progress) -> None:
    """The observer that sees nothing."""


def logged(observe: Observer) -> Observer:
    """`observe`, with a line in the log when a stage begins and when it ends, and for debugging at every event."""
    begun: set[str] = set()

    def told(done: Progress) -> None:
        if done.stage not in begun:
            begun.add(done.stage)
            LOG.info("%s", done.stage)
        of = "" if done.total is None else f" of {done.total}"
        LOG.log(logging.INFO if done.done == done.total else logging.DEBUG, "%s: %d%s", done.stage, done.done, of)
        observe(done)

    return told
