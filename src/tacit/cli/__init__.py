"""The command line: parse, call, print. One file a verb."""

import sys
from importlib.metadata import version as package_version

import typer
from rich.console import Console

from tacit.errors import TacitError

app = typer.Typer(
    name="tacit",
    help="Train language models that learn from a corpus without saying its secrets, and prove it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def _root(version: bool = typer.Option(False, "--version", help="Print the version and stop.")) -> None:
    if version:
        print(package_version("tacit"))
        raise typer.Exit


def main() -> None:
    """Run the command line; an error a person can mend is printed in its three parts, without a traceback."""
    try:
        app()
    except TacitError as error:
        console = Console(stderr=True, highlight=False)
        console.print("[bold red]expected[/]", error.expected, sep="  ", markup=True)
        console.print("   [bold]found[/]", error.found, sep="  ")
        console.print(" [bold green]way out[/]", error.way_out, sep="  ")
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
