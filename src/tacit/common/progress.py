"""Progress events for long-running work."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """No loss of a private step. `done` of `total` steps, rows, records or candidates.

    `tokens` counts the targets of private draws too: it is for the screen, not for the release.
    """

    stage: str  # "preparing", "training", "measuring", or what an attack calls its own
    done: int
    total: int | None
    tokens: int = 0
    public_loss: float | None = None
    epsilon: float | None = None  # spent so far


Observer = Callable[[Progress], None]


def unwatched(_: Progress) -> None:
    """The observer that sees nothing."""
