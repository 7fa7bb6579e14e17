"""`tacit quickstart`: the whole way on simulated dialogs, or on a corpus of yours."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from tacit import api
from tacit.cli.output import AsJson, watching

if TYPE_CHECKING:
    from tacit.quickstart import Way


def quickstart(
    corpus: Annotated[Path | None, typer.Option(help="Your own corpus instead of simulated dialogs.")] = None,
    out: Annotated[Path, typer.Option(help="A new folder for corpus, runs and page.")] = Path("quickstart"),
    as_json: AsJson = False,
) -> None:
    """Train in five ways, attack each, compare them on one page: minutes on two cores."""
    console = Console(highlight=False)

    def show(way: "Way") -> None:
        if not as_json:
            console.print(way.line(), markup=False, soft_wrap=True)

    ways, page = api.quickstart(corpus, out, watch=watching, done=show)
    if as_json:
        typer.echo(json.dumps({"ways": [way.to_json() for way in ways], "page": str(page)}, indent=2))
    else:
        console.print(f"\npage {page}", markup=False, soft_wrap=True)
