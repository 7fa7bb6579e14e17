"""What every verb prints: progress and the log on standard error, results as tables or as JSON on standard output.

Progress is a bar on a terminal and a line now and then elsewhere. `--quiet` leaves it out; `--verbose` adds the log.
"""

import json
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Protocol

import typer
from rich.console import Console, Group
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table as RichTable
from rich.text import Text

from tacit.common.progress import LOG, unwatched

if TYPE_CHECKING:
    from rich.progress import TaskID

    from tacit.common.charts import Table
    from tacit.common.progress import Observer
    from tacit.common.progress import Progress as Done
    from tacit.policies.card import ShareOf

_SECONDS_BETWEEN_LINES = 10.0
_HANDLER = "tacit on standard error"
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else.")]


class JsonResult(Protocol):
    """A result of `tacit.api`."""

    def to_json(self) -> object:
        """The result as JSON values."""


def set_verbosity(quiet: bool, verbose: bool) -> None:
    """What is printed beside results: nothing, progress, or progress and the log."""
    global _quiet
    _quiet = quiet
    for old in [handler for handler in LOG.handlers if handler.name == _HANDLER]:
        LOG.removeHandler(old)
    LOG.setLevel(logging.DEBUG if verbose else logging.NOTSET)
    if verbose:
        handler = logging.StreamHandler()
        handler.name = _HANDLER
        handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(message)s", "%H:%M:%S"))
        LOG.addHandler(handler)


_quiet = False


def is_quiet() -> bool:
    """Whether progress is left out."""
    return _quiet


def print_json(result: JsonResult) -> None:
    """The result for machines."""
    typer.echo(json.dumps(result.to_json(), indent=2))


@contextmanager
def watching(title: str = "") -> "Iterator[Observer]":
    """A bar per stage, with speed, public loss and what was spent while training; `title` comes before the stage."""
    if _quiet:
        yield unwatched
        return
    console = Console(stderr=True, highlight=False)
    meter = _Meter()
    if not console.is_terminal:
        lines = _Lines(console, title, meter)
        yield lines.told
        return
    columns = (
        TextColumn("{task.fields[stage]:<12}"),
        BarColumn(),
        TextColumn("{task.fields[count]} {task.description}", markup=False),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bar:
        tasks: dict[str, TaskID] = {}

        def move(done: "Done") -> None:
            count = f"{done.done:,}" if done.total is None else f"{done.done:,}/{done.total:,}"
            if done.stage not in tasks:
                tasks[done.stage] = bar.add_task("", total=None, stage=f"{title} {done.stage}".strip(), count=count)
            total, completed = (done.total, done.done) if done.share is None else (1.0, done.share)
            words = meter.words(done)
            bar.update(tasks[done.stage], completed=completed, total=total, description=words, count=count)

        yield move


class _Lines:
    """A line when a stage ends, and every few seconds."""

    def __init__(self, console: Console, title: str, meter: "_Meter") -> None:
        self._console, self._title, self._meter = console, title, meter
        self._said = time.monotonic()

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
        now = time.monotonic()
        if done.stage == "reading":
            self._began = now if self._began is None else self._began
            rate = done.characters / max(now - self._began, 1e-9)
            return f"records, {done.characters:,} characters, {rate:,.0f} characters/s"
        if done.stage != "training":
            return ""
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


_LONGEST_NUMBER = 24  # characters of a cell that is not wrapped


def rich_table(table: "Table") -> Group:
    """A table of a result, as a terminal shows it: words to the left, numbers to the right and never broken."""
    drawn = RichTable(box=None, pad_edge=False)
    for place, head in enumerate(table.head):
        longest = max((len(row[place]) for row in table.rows), default=0)
        is_number = place > 0 and longest <= _LONGEST_NUMBER
        drawn.add_column(Text(head), justify="right" if place else "left", min_width=longest if is_number else None)
    for row in table.rows:
        drawn.add_row(*map(Text, row))
    above = [Text(table.title, style="italic")] if table.title else []
    return Group(*above, drawn, *([Text(table.more)] if table.more else []))


def share_cell(share: "ShareOf", between: str = " ") -> Text:
    """A share in per cent, and behind `between` its interval."""
    from tacit.common.formatting import interval

    ends = interval(share.interval).removesuffix(" %").replace(" to ", "-")
    return (
        Text(share_value(share))
        if share.value is None
        else Text.assemble(share_value(share), (f"{between}({ends})", "dim"))
    )


def share_value(share: "ShareOf") -> str:
    from tacit.common.formatting import percent

    return percent(share.value).removesuffix(" %")
