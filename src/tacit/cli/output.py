"""What every command prints: progress and the log on standard error, results as tables or as JSON on standard output.

Progress is a bar on a terminal and a line now and then elsewhere. `--quiet` leaves it out; `--verbose` adds the log.
Flags are generated from the declared settings: nothing has to be kept in step by hand.
"""

import inspect
import json
import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast, get_type_hints

import typer
from rich.console import Console, Group
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table as RichTable
from rich.text import Text

from tacit.api.inputs import FieldNames
from tacit.common.charts import Note, Result, Table
from tacit.common.formatting import about
from tacit.common.progress import LOG, TimeLeft, unwatched
from tacit.config.schema import Config
from tacit.config.setting import Setting, every_setting

if TYPE_CHECKING:
    from rich.progress import TaskID

    from tacit.common.progress import Observer
    from tacit.common.progress import Progress as Done

SECONDS_BETWEEN_LINES = 10.0
_HANDLER = "tacit on standard error"
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else.")]
CorpusPath = Annotated[Path, typer.Argument(help="jsonl, csv, txt (also .gz, .xz, .zst), parquet, or a saved dataset.")]
Processes = Annotated[int | None, typer.Option(help="How many processes.", show_default="all cores")]
FIELDS = tuple(one for one in every_setting(Config) if one.name.endswith("_field"))
"""What a corpus calls the parts of a record: flags of every command that reads one."""


class _OnStandardError(logging.Handler):
    """Prints lines of the log where standard error is now, not where it was."""

    def emit(self, record: logging.LogRecord) -> None:
        print(self.format(record), file=sys.stderr)


def set_verbosity(quiet: bool, verbose: bool) -> None:
    """What is printed beside results: nothing, progress and warnings, or progress and the log."""
    global _quiet
    _quiet = quiet
    for old in [handler for handler in LOG.handlers if handler.name == _HANDLER]:
        LOG.removeHandler(old)
    LOG.setLevel(logging.DEBUG if verbose else logging.NOTSET)
    if verbose or not quiet:
        handler = _OnStandardError()
        handler.name = _HANDLER
        handler.setLevel(logging.DEBUG if verbose else logging.WARNING)
        handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(message)s", "%H:%M:%S"))
        LOG.addHandler(handler)


_quiet = False


def is_quiet() -> bool:
    """Whether progress is left out."""
    return _quiet


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
            if done.seconds is not None:
                console.print(f"{title} {meter.words(done)}".strip(), markup=False)
                return
            count = f"{done.done:,}" if done.total is None else f"{done.done:,}/{done.total:,}"
            if done.stage not in tasks:
                tasks[done.stage] = bar.add_task("", total=None, stage=f"{title} {done.stage}".strip(), count=count)
            total, completed = (done.total, done.done) if done.share is None else (1.0, done.share)
            words = meter.words(done)
            bar.update(tasks[done.stage], completed=completed, total=total, description=words, count=count)

        yield move


class _Lines:
    """A line when a stage ends, every few seconds, and as soon as it is known that training takes longer than that."""

    def __init__(self, console: Console, title: str, meter: "_Meter") -> None:
        self._console, self._title, self._meter = console, title, meter
        self._said = time.monotonic()
        self._estimated = False

    def told(self, done: "Done") -> None:
        words, left = self._meter.words(done), self._meter.left
        first = done.stage == "training" and not self._estimated and (left or 0.0) > SECONDS_BETWEEN_LINES
        self._estimated |= first
        if done.seconds is not None:
            self._print(words)
        elif first or done.done == done.total or time.monotonic() - self._said > SECONDS_BETWEEN_LINES:
            self._said = time.monotonic()
            of = "" if done.total is None else f" of {done.total:,}"
            self._print(f"{done.stage} {done.done:,}{of} {words}")

    def _print(self, line: str) -> None:
        self._console.print(f"{self._title} {line}".strip(), markup=False, soft_wrap=True)


class _Meter:
    """Speed, time left, smoothed public loss, and what was spent."""

    def __init__(self) -> None:
        self._stage = ""
        self._made = time.monotonic()
        self._began = 0.0
        self._tokens = 0
        self._loss: float | None = None
        self._time_left = TimeLeft()
        self.left: float | None = None  # seconds until the stage ends

    def words(self, done: "Done") -> str:
        now = time.monotonic()
        self.left = self._time_left.seconds(done, now)
        left = "" if not self.left else f", {about(self.left)} left"
        if done.stage != self._stage:
            self._stage, self._began = done.stage, now  # of training after the first step, whose tokens do not count
        else:
            self._tokens += done.tokens
        if done.seconds is not None:
            rows = "one made-up row" if done.done == 1 else f"{done.done:,} made-up rows"
            return f"{about(now - self._made + done.seconds)} in total, estimated from {rows}; measuring comes on top"
        if done.stage == "preparing" and done.share is not None and left:
            return f"records{left} to read the corpus; tokenizing and training come on top"
        if done.stage == "reading":
            rate = done.characters / max(now - self._made, 1e-9)
            return f"records, {done.characters:,} characters, {rate:,.0f} characters/s{left}"
        if done.stage != "training":
            return left.removeprefix(", ")
        if done.public_loss is not None:
            self._loss = done.public_loss if self._loss is None else 0.95 * self._loss + 0.05 * done.public_loss
        loss = "" if self._loss is None else f", public loss {self._loss:.3f}"
        spent = "" if done.epsilon is None else f", epsilon {done.epsilon:.3g} spent"
        passed = now - self._began
        speed = f"{self._tokens / passed:,.0f} tokens/s" if passed > 0 else "begun"
        return f"{speed}{left}{loss}{spent}"


_LONGEST_NUMBER = 24  # characters of a cell that is not wrapped
_STYLES = {
    "plain": "",
    "strong": "bold",
    "dim": "dim",
    "good": "bold green",
    "warning": "bold yellow",
    "bad": "bold white on red",
}


def show(result: Result, as_json: bool, *written: str) -> None:
    """Print any result: as JSON and nothing else, or its tables, and below them what was `written` where."""
    if as_json:
        typer.echo(json.dumps(result.to_json(), indent=2))
        return
    console = Console(highlight=False)
    for part in result.tables():
        print_part(console, part)
    for line in written:
        console.print(Text(line), soft_wrap=True)


def print_part(console: Console, part: "Table | Note") -> None:
    """A table or a note, and an empty line below it. Never markup: the text may contain anything."""
    if isinstance(part, Note):
        console.print(Text(part.text, _STYLES[part.tone]), soft_wrap=not console.is_terminal)
    else:
        console.print(rich_table(part))
    console.print("")


def rich_table(table: Table) -> Group:
    """A table of a result, as a terminal shows it: words to the left, numbers to the right and never broken."""
    drawn = RichTable(box=None, pad_edge=False, show_header=bool(table.head))
    for place, head in enumerate(table.head):
        longest = max((len(line) for row in table.rows for line in row[place].split("\n")), default=0)
        is_number = place > 0 and longest <= _LONGEST_NUMBER
        drawn.add_column(Text(head), justify="right" if place else "left", min_width=longest if is_number else None)
    for row in table.rows:
        drawn.add_row(*(Text(cell, "" if place or table.head else "dim") for place, cell in enumerate(row)))
    above = [Text(table.title, style="italic")] if table.title else []
    return Group(*above, drawn, *([Text(table.more, style="dim")] if table.more else []))


def flags_for(declared: Iterable[Setting]) -> list[inspect.Parameter]:
    """One option per setting; nothing given is None."""
    return [
        inspect.Parameter(
            name_of(one),
            inspect.Parameter.KEYWORD_ONLY,
            default=typer.Option(None, f"--{name_of(one).replace('_', '-')}", help=_help(one)),
            annotation=one.type | None,
        )
        for one in declared
    ]


def name_of(one: Setting) -> str:
    """What the flag of a setting is called."""
    return one.flag or one.name.split(".")[-1]


def with_flags(verb: Callable[..., None], declared: Iterable[Setting]) -> Callable[..., None]:
    """`verb` with a flag for each setting; its parameter `flags` receives those that were given, by full name."""
    chosen = tuple(declared)

    def command(**options: Any) -> None:  # noqa: ANN401  (typer reads the signature set below)
        given = {one.name: options.pop(name_of(one)) for one in chosen}
        verb(**options, flags={name: value for name, value in given.items() if value is not None})

    hints = get_type_hints(verb, include_extras=True)
    fixed = [
        one.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[one.name])
        for one in inspect.signature(verb).parameters.values()
        if one.name != "flags"
    ]
    signature = inspect.Signature([*fixed, *flags_for(chosen)])
    command.__signature__ = signature  # type: ignore[attr-defined]
    command.__annotations__ = {name: one.annotation for name, one in signature.parameters.items()}
    command.__doc__, command.__name__ = verb.__doc__, verb.__name__
    return command


def field_names(flags: Mapping[str, str]) -> FieldNames:
    """The flags of `FIELDS` that were given, as keywords of `tacit.api`."""
    return cast(FieldNames, {name.split(".")[-1]: value for name, value in flags.items()})


def _help(one: Setting) -> str:
    default = one.auto if one.default is None else one.default
    if one.name.startswith("lora."):  # without it, there are no adapters
        return one.help
    return one.help if default is None or default is MISSING else f"{one.help} Default: {default}."
