"""`tacit quickstart`: the whole way on simulated dialogs, or on a corpus of yours."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tacit.cli.output import watching
from tacit.errors import ConfigError


def quickstart(
    corpus: Annotated[Path | None, typer.Option(help="A corpus of yours instead of simulated dialogs.")] = None,
    out: Annotated[Path, typer.Option(help="A new folder for corpus, runs and page.")] = Path("quickstart"),
) -> None:
    """Train in five ways, attack each, compare them on one page: minutes on two cores."""
    # Models take seconds to load, which no other verb should wait for.
    from tacit.quickstart import compare
    from tacit.quickstart import quickstart as go

    if out.exists():
        raise ConfigError("a new folder", f"{out}, which exists", "choose another with --out, or remove it")
    console = Console(highlight=False)
    ways = []
    for way in go(out, corpus, watching):
        ways.append(way)
        console.print(way.line(), markup=False, soft_wrap=True)
    if not any(way.trained for way in ways):
        raise ConfigError("a corpus that some way can train on", "none could", "see the reasons above")
    page = compare(out, ways)
    console.print(f"\npage {page}", markup=False, soft_wrap=True)
