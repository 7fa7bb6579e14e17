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
from rich.text import Text

from tacit import api
from tacit.cli.output import SECONDS_BETWEEN_LINES, AsJson, is_quiet, print_part, rich_table, show
from tacit.common.charts import Table
from tacit.common.progress import Progress

if TYPE_CHECKING:
    from tacit.sweeps.scheduler import RunOutcome, SweepObserver
    from tacit.sweeps.sweep import Board


def sweep(
    recipe: Annotated[
        Path, typer.Argument(help="A YAML file with the inputs, the shared settings and the variations of the runs.")
    ],
    out: Annotated[Path | None, typer.Option(help="Folder of the runs.", show_default="RECIPE.runs")] = None,
    results: Annotated[
        Path | None, typer.Option(help="File for all results as JSON.", show_default="RECIPE.results.json")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Folder of the files in `needs`.", show_default="data, next to the recipe")
    ] = None,
    scale: Annotated[
        float, typer.Option(help="Multiply what the recipe lists under `scales`; use less than 1 for a quick try.")
    ] = 1.0,
    jobs: Annotated[
        int, typer.Option(min=1, help="Runs at a time, each in its own process; reduce if you run out of memory.")
    ] = 1,
    audit: Annotated[bool, typer.Option("--audit/--no-audit", help="Attack each model after training.")] = True,
    slurm: Annotated[
        Path | None, typer.Option(help="Start nothing; write a job of Slurm for each run into this new folder.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Train, attack and report every run of a recipe; after any stop, the same command resumes.

    Exit code 1 when a run failed, 3 when an audit contradicts a claim.
    """
    if slurm is not None:
        typer.echo(api.sweep_slurm(recipe, slurm, out=out, results=results, data=data, scale=scale, audit=audit))
        return
    board = api.sweep_board(recipe, scale)
    try:
        with _watching(board) as observe:
            swept = api.sweep(
                recipe, out=out, results=results, data=data, scale=scale, jobs=jobs, audit=audit, observe=observe
            )
    except KeyboardInterrupt:
        Console(stderr=True).print("stopped; the same command resumes", markup=False)
        raise
    if not as_json:
        print_part(Console(highlight=False), _table(board))
    show(swept, as_json)
    raise typer.Exit(swept.exit_code)


def _table(board: "Board") -> Table:
    return Table(board.HEADS, board.rows())


@contextmanager
def _watching(board: "Board") -> "Iterator[SweepObserver]":
    """The table as it grows on a terminal; a line now and then elsewhere; always on standard error."""
    if is_quiet():
        yield board.observe
        return
    console = Console(stderr=True, highlight=False)
    console.print(Text(board.title, style="dim"))
    if not console.is_terminal:
        lines = _Lines(board, console)
        yield lines.observe
        return
    with Live(get_renderable=lambda: rich_table(_table(board)), console=console, refresh_per_second=2, transient=True):
        yield board.observe


class _Lines:
    """A line when a run begins, ends or goes to another stage, and every few seconds."""

    def __init__(self, board: "Board", console: Console) -> None:
        self._board, self._console, self._lock = board, console, threading.Lock()
        self._said: dict[str, tuple[str, float]] = {}

    def observe(self, name: str, news: "Progress | RunOutcome") -> None:
        with self._lock:
            self._board.observe(name, news)
            now = time.monotonic()
            if isinstance(news, Progress):
                stage, since = self._said.get(name, ("", 0.0))
                if news.stage == stage and now - since < SECONDS_BETWEEN_LINES:
                    return
                self._said[name] = news.stage, now
            self._console.print(self._board.line(name), markup=False)
