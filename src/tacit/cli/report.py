"""`tacit report`: one page from one run or several.

`tacit verify`: whether a run is as it was sealed, and its claim follows from what was done.
"""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tacit.errors import ConfigError


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders that `tacit train` made.", metavar="RUN...")],
    out: Annotated[
        Path | None,
        typer.Option(help="The page.", show_default="RUN/release/report.html; several runs: comparison.html"),
    ] = None,
    sample: Annotated[
        int | None,
        typer.Option(min=1, help="Show so many training records, secrets hidden: RUN/private/report.html, to be kept."),
    ] = None,
) -> None:
    """Write one self-contained page: the claim of a run, its price and what attacks found; or several runs compared."""
    # Charts and accounting take a moment to load, which no other verb should wait for.
    from tacit.reports.write import report as write_report
    from tacit.reports.write import report_inside

    if sample is not None and (len(runs) != 1 or out is not None):
        raise ConfigError(
            expected="one run and no --out with --sample",
            found=f"{len(runs)} runs" if len(runs) != 1 else "--out",
            way_out="tacit report RUN --sample 5 writes RUN/private/report.html: text of a corpus stays there",
        )
    written = write_report(runs, out) if sample is None else report_inside(runs[0], sample)
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
    as_json: Annotated[bool, typer.Option("--json", help="Print the checks as JSON.")] = False,
) -> None:
    """Recompute the claim of a run and compare every released file with the manifest; exit code 1 if a check fails."""
    # Accounting takes a moment to load, which no other verb should wait for.
    from tacit.common.serialize import to_json
    from tacit.runs.verify import verify as check

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
