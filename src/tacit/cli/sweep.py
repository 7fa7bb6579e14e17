"""`tacit sweep`: many runs from one recipe, as one growing table.

A sweep as a table of words: a line a run, with how far it is, what it is worth and what is claimed.
"""

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tacit.common.formatting import rounded_up
from tacit.common.progress import Progress
from tacit.sweeps.result_columns import ResultLine, table_columns, written

if TYPE_CHECKING:
    from tacit.sweeps.scheduler import RunOutcome, Told

HEADS = ("run", "how far", "perplexity", "on secrets", "epsilon", "canaries", "seconds")
_WAITS = "waits"


@dataclass(slots=True)
class Board:
    """What is known of every run, in the order of the recipe."""

    names: tuple[str, ...]
    _news: dict[str, "Progress | RunOutcome"] = field(default_factory=dict)
    _began: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, names: Iterable[str]) -> "Board":
        """Of these runs, all of which wait."""
        return cls(tuple(names))

    def told(self, name: str, news: "Progress | RunOutcome") -> None:
        """Remember the latest of a run."""
        self._news[name] = news
        self._began.setdefault(name, time.monotonic())

    def rows(self) -> list[tuple[str, ...]]:
        """One a run, under HEADS."""
        return [self._row(name) for name in self.names]

    def _row(self, name: str) -> tuple[str, ...]:
        news = self._news.get(name)
        if news is None:
            return (name, _WAITS, "", "", "", "", "")
        if not isinstance(news, Progress):
            return row_of(news)
        spent = "" if news.epsilon is None else rounded_up(news.epsilon, 3)
        return (name, how_far(news), "", "", spent, "", f"{time.monotonic() - self._began[name]:.0f}")


def how_far(news: Progress) -> str:
    """A stage and its share."""
    if news.total is None:
        return f"{news.stage} {news.done:,}" if news.done else news.stage
    return f"{news.stage} {news.done / max(1, news.total):.0%}"


def row_of(outcome: "RunOutcome") -> tuple[str, ...]:
    """A run that ended, under HEADS."""
    figures, seconds = outcome.line["figures"], outcome.line["seconds"]
    passed = f"{sum(seconds.values()):.0f}" if seconds else ""
    if outcome.refused is not None:
        return (outcome.name, "failed", "", "", "", "", passed)
    if figures is None:
        return (outcome.name, "stopped", "", "", "", "", passed)
    state = "done before" if outcome.known else "done"
    if outcome.is_contradicted:
        state += ", CONTRADICTED"
    epsilon = _value(outcome.line, "epsilon")
    spent = "none" if epsilon is None else written("epsilon", epsilon)
    return (outcome.name, state, *_worth(outcome.line), spent, _canaries(outcome.line), passed)


def _worth(line: ResultLine) -> tuple[str, str]:
    if "labels" in line["figures"]["utility"]:
        return _wrong(line, "test error rate"), _wrong(line, "test error rate, with secrets")
    return _number(line, "perplexity"), _number(line, "private perplexity")


def _wrong(line: ResultLine, column: str) -> str:
    rate = _value(line, column)
    return "–" if rate is None else f"{rate:.1%} wrong"


def _canaries(line: ResultLine) -> str:
    """Exposure of canaries that the policy knows, and of those it does not; in brackets, of values not planted."""
    said = [
        f"{before}{_number(line, column)} ({_number(line, f'{column}, not planted')})"
        for before, column in (("", "exposure"), ("unknown ", "exposure, unknown"))
        if _value(line, column) is not None
    ]
    return f"{', '.join(said)} bits" if said else ""


def _value(line: ResultLine, column: str) -> float | None:
    return table_columns()[column](line)


def _number(line: ResultLine, column: str) -> str:
    value = _value(line, column)
    return "–" if value is None else written(column, value)


_SECONDS_BETWEEN_LINES = 10.0


def sweep(
    recipe: Annotated[Path, typer.Argument(help="A YAML file: what runs need, share and differ in.")],
    out: Annotated[Path | None, typer.Option(help="Folder of the runs.", show_default="RECIPE.runs")] = None,
    results: Annotated[
        Path | None, typer.Option(help="All figures as JSON.", show_default="RECIPE.results.json")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Where files of `needs` are.", show_default="data, beside the recipe")
    ] = None,
    scale: Annotated[float, typer.Option(help="Dial: multiplies what the recipe lists under `scales`.")] = 1.0,
    jobs: Annotated[int, typer.Option(min=1, help="Runs at a time, each a process with its share of threads.")] = 1,
    audit: Annotated[bool, typer.Option("--audit/--no-audit", help="Attack each model after training.")] = True,
) -> None:
    """Train, attack and report every run of a recipe; the same command goes on after a stop of any kind.

    Exit code 1 when a run failed, 3 when an audit contradicts a claim.
    """
    # Pages and statistics take a moment to load, which no other verb should wait for.
    from tacit.sweeps.recipe import read_recipe, variations
    from tacit.sweeps.sweep import MIXED, TUNING
    from tacit.sweeps.sweep import sweep as go

    console = Console(highlight=False)
    read = read_recipe(recipe, scale)
    board = Board.of(one.name for one in variations(read))
    stated = f": {read.states}" if read.states else ""
    Console(stderr=True, highlight=False).print(Text(f"{read.name}, {len(board.names)} runs{stated}", style="dim"))
    try:
        with _watching(board) as told:
            swept = go(recipe, out, results, data, scale, jobs, audit, told)
    except KeyboardInterrupt:
        Console(stderr=True).print("stopped; the same command goes on", markup=False)
        raise
    console.print(_table(board))
    for one in swept.outcomes:
        if one.refused is not None:
            console.print(Text(f"\n{one.name} failed: expected {one.refused['expected']}", style="bold red"))
            console.print(Text(f"  found {one.refused['found']}\n  way out: {one.refused['way_out']}"), soft_wrap=True)
    console.print(Text(f"\n{TUNING}", style="dim"), soft_wrap=True)
    if swept.is_mixed:
        console.print(Text(MIXED, style="yellow"), soft_wrap=True)
    console.print(Text(f"results {swept.results}"), soft_wrap=True)
    console.print(Text(f"page {swept.page}"), soft_wrap=True)
    if swept.compared is not None:
        console.print(Text(f"claims compared {swept.compared}"), soft_wrap=True)
    raise typer.Exit(swept.exit_code)


def _table(board: "Board") -> Table:

    table = Table(box=None, pad_edge=False)
    for place, head in enumerate(HEADS):
        table.add_column(head, justify="left" if place < 2 else "right", overflow="fold")
    for row in board.rows():
        table.add_row(*(Text(cell) for cell in row))
    return table


@contextmanager
def _watching(board: "Board") -> "Iterator[Told]":
    """The table as it grows on a terminal; a line now and then elsewhere; always on standard error."""
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        lines = _Lines(board, console)
        yield lines.told
        return
    with Live(get_renderable=lambda: _table(board), console=console, refresh_per_second=2, transient=True):
        yield board.told


class _Lines:
    """A line when a run begins, ends or goes to another stage, and every few seconds."""

    def __init__(self, board: "Board", console: Console) -> None:
        self._board, self._console, self._lock = board, console, threading.Lock()
        self._said: dict[str, tuple[str, float]] = {}

    def told(self, name: str, news: "Progress | RunOutcome") -> None:
        from tacit.common.progress import Progress

        with self._lock:
            self._board.told(name, news)
            now = time.monotonic()
            if isinstance(news, Progress):
                stage, since = self._said.get(name, ("", 0.0))
                if news.stage == stage and now - since < _SECONDS_BETWEEN_LINES:
                    return
                self._said[name] = news.stage, now
                self._console.print(f"{name}: {how_far(news)}", markup=False)
            else:
                self._console.print(f"{name}: {' '.join(filter(None, row_of(news)[1:]))}", markup=False)
