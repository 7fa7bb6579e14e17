"""`tacit report`: one page from one run or several."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders that `tacit train` made.", metavar="RUN...")],
    out: Annotated[
        Path | None,
        typer.Option(help="The page.", show_default="RUN/release/report.html; several runs: comparison.html"),
    ] = None,
) -> None:
    """Write one self-contained page: the claim of a run, its price and what attacks found; or several runs compared."""
    # Charts and accounting take a moment to load, which no other verb should wait for.
    from tacit.report.writing import report as write_report

    written = write_report(runs, out)
    console = Console(highlight=False)
    console.print(Text(f"page {written.page}"), soft_wrap=True)
    for path in written.beside:
        console.print(Text(f"  and {path}", style="dim"), soft_wrap=True)
    if written.kept is not None:
        console.print(Text(f"left as it is: {written.kept}, which somebody else wrote"), soft_wrap=True)
