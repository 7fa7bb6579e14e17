"""`tacit report`: one page from one run or several.

`tacit verify`: whether a run is as it was sealed, and its claim follows from what was done.
"""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tacit import api
from tacit.cli.output import AsJson, print_json


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders that `tacit train` made.", metavar="RUN...")],
    out: Annotated[
        Path | None,
        typer.Option(help="The page.", show_default="RUN/release/report.html; several runs: comparison.html"),
    ] = None,
    sample: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Show this many training records, secrets hidden: RUN/private/report.html, not for release.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write one self-contained page: the claim of a run, its price and what attacks found; or several runs compared."""
    written = api.report(runs, out=out, sample=sample)
    if as_json:
        print_json(written)
        return
    console = Console(highlight=False)
    console.print(Text(f"page {written.page}"), soft_wrap=True)
    for path in written.beside:
        console.print(Text(f"  and {path}", style="dim"), soft_wrap=True)
    if sample is not None:
        console.print(Text("not for release: it shows text of training records"), soft_wrap=True)
    if written.kept is not None:
        console.print(Text(f"left as it is: {written.kept}, which somebody else wrote"), soft_wrap=True)


def verify(
    run: Annotated[Path, typer.Argument(help="A run folder, or a copy of its release/ under any name.")],
    as_json: AsJson = False,
) -> None:
    """Recompute the claim of a run and compare every released file with the manifest; exit code 1 if a check fails."""
    verified = api.verify(run)
    if as_json:
        print_json(verified)
        raise typer.Exit(0 if verified.holds else 1)
    table = Table(box=None, show_header=False, pad_edge=False)
    for one in verified.checks:
        table.add_row(Text("holds", "green") if one.holds else Text("does not hold", "bold red"), one.name)
        if not one.holds:
            table.add_row("", Text(f"{one.why}. Way out: {one.way_out}.", "red"))
    console = Console(highlight=False)
    console.print(table)
    console.print(
        Text(verified.sentence or "Not verified: the claim of this run is not repeated here."), soft_wrap=True
    )
    raise typer.Exit(0 if verified.holds else 1)
