"""Progress of long work for people: bars on a terminal, a line now and then elsewhere; always on standard error."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table as RichTable
from rich.text import Text

from tacit.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.progress import TaskID

    from tacit.common.charts import Table
    from tacit.common.progress import Observer
    from tacit.common.progress import Progress as Done
    from tacit.data.corpus import CorpusReader
    from tacit.policies.card import ShareOf

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


_SECONDS_BETWEEN_COUNTS = 5.0
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


def make_folder(folder: Path) -> None:
    """The folder for a result."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            expected=f"to write to {folder}",
            found=error.strerror or type(error).__name__,
            way_out="name a folder you may write to with --out",
        ) from error


@contextmanager
def reading_progress(reader: "CorpusReader") -> "Iterator[Callable[[int, int], None]]":
    """A bar on a terminal, now and then a line of its own elsewhere; always on standard error."""
    console = Console(stderr=True, highlight=False)
    began = time.monotonic()
    if console.is_terminal:
        columns = (BarColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
        with Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task(reader.path.name, total=None)

            def move(records: int, characters: int) -> None:
                speed = characters / max(time.monotonic() - began, 1e-9)
                share = reader.share_read
                words = _done(records, characters) + f", {speed:,.0f} characters/s"
                bar.update(task, completed=share or 0.0, total=None if share is None else 1.0, description=words)

            yield move
        return
    last = began

    def line(records: int, characters: int) -> None:
        nonlocal last
        if time.monotonic() - last >= _SECONDS_BETWEEN_COUNTS:
            last = time.monotonic()
            print(_done(records, characters), file=sys.stderr, flush=True)

    yield line


def _done(records: int, characters: int) -> str:
    return f"{records:,} records, {characters:,} characters"


def share_cell(share: "ShareOf", between: str = " ") -> Text:
    """A share in per cent, and behind `between` its interval."""
    from tacit.common.formatting import interval

    ends = interval(share.interval).removesuffix(" %").replace(" to ", "-")
    return Text(_value(share)) if share.value is None else Text.assemble(_value(share), (f"{between}({ends})", "dim"))


def _value(share: "ShareOf") -> str:
    from tacit.common.formatting import percent

    return percent(share.value).removesuffix(" %")
