"""`tacit sweep`: many runs from one recipe, as one growing table."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from tacit.progress import Progress
    from tacit.sweeping.processes import Outcome, Told
    from tacit.sweeping.table import Board

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
    from tacit.sweeping import read_recipe
    from tacit.sweeping import sweep as go
    from tacit.sweeping.driver import MIXED, TUNING
    from tacit.sweeping.recipe import variations
    from tacit.sweeping.table import Board

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
    from tacit.sweeping.table import HEADS

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

    def told(self, name: str, news: "Progress | Outcome") -> None:
        from tacit.progress import Progress
        from tacit.sweeping.table import how_far, row_of

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
