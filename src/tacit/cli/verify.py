"""`tacit verify`: whether a run is as it was sealed, and its claim follows from what was done."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text


def verify(
    run: Annotated[Path, typer.Argument(help="A run folder, or a copy of its release/ under any name.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the checks as JSON.")] = False,
) -> None:
    """Recompute the claim of a run and compare every released file with the manifest; exit code 1 if a check fails."""
    # Accounting takes a moment to load, which no other verb should wait for.
    from tacit.codec import to_json
    from tacit.verifying import verify as check

    verified = check(run)
    if as_json:
        typer.echo(to_json(verified))
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
