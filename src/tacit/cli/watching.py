"""Progress of long work for people: bars on a terminal, a line now and then elsewhere; always on standard error."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from rich.progress import TaskID

    from tacit.progress import Observer
    from tacit.progress import Progress as Done

_SECONDS_BETWEEN_LINES = 10.0


@contextmanager
def watching(title: str = "") -> "Iterator[Observer]":
    """A bar a stage, with speed, public loss and what was spent while training; `title` stands before the stage."""
    console = Console(stderr=True, highlight=False)
    meter = _Meter()
    if not console.is_terminal:
        lines = _Lines(console, title, meter)
        yield lines.told
        return
    columns = (
        TextColumn("{task.fields[stage]:<12}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f}/{task.fields[of]} {task.description}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bar:
        tasks: dict[str, TaskID] = {}

        def move(done: "Done") -> None:
            of = "?" if done.total is None else f"{done.total:,}"
            if done.stage not in tasks:
                tasks[done.stage] = bar.add_task("", total=done.total, stage=f"{title} {done.stage}".strip(), of=of)
            words = meter.words(done)
            bar.update(tasks[done.stage], completed=done.done, total=done.total, description=words, of=of)

        yield move


class _Lines:
    """A line when a stage ends, and every few seconds."""

    def __init__(self, console: Console, title: str, meter: "_Meter") -> None:
        self._console, self._title, self._meter = console, title, meter
        self._said = 0.0

    def told(self, done: "Done") -> None:
        words = self._meter.words(done)
        if done.done == done.total or time.monotonic() - self._said > _SECONDS_BETWEEN_LINES:
            self._said = time.monotonic()
            of = "" if done.total is None else f" of {done.total:,}"
            self._console.print(f"{self._title} {done.stage} {done.done:,}{of} {words}".strip(), markup=False)


class _Meter:
    """Speed, smoothed public loss, and what was spent."""

    def __init__(self) -> None:
        self._began: float | None = None
        self._tokens = 0
        self._loss: float | None = None

    def words(self, done: "Done") -> str:
        if done.stage != "training":
            return ""
        now = time.monotonic()
        if self._began is None:
            self._began = now  # after the first step, whose tokens do not count
        else:
            self._tokens += done.tokens
        if done.public_loss is not None:
            self._loss = done.public_loss if self._loss is None else 0.95 * self._loss + 0.05 * done.public_loss
        loss = "" if self._loss is None else f", public loss {self._loss:.3f}"
        spent = "" if done.epsilon is None else f", epsilon {done.epsilon:.3g} spent"
        passed = now - self._began
        speed = f"{self._tokens / passed:,.0f} tokens/s" if passed > 0 else "begun"
        return f"{speed}{loss}{spent}"
