"""The command line: parse, call, print. One file a verb."""

import sys
from importlib.metadata import version as package_version
from typing import NoReturn

import typer
from rich.console import Console
from rich.markup import escape

from tacit.cli.audit import audit
from tacit.cli.context import context
from tacit.cli.detector import detector
from tacit.cli.generate import generate
from tacit.cli.label import label
from tacit.cli.plan import plan_command
from tacit.cli.policy import policy
from tacit.cli.quickstart import quickstart
from tacit.cli.report import report
from tacit.cli.scan import scan
from tacit.cli.simulate import simulate
from tacit.cli.sweep import sweep
from tacit.cli.train import config, train
from tacit.cli.verify import verify
from tacit.errors import OutOfMemory, TacitError, failed, out_of_memory

app = typer.Typer(
    name="tacit",
    help="Train language models on a corpus without saying its secrets; state what is guaranteed, and attack it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def _root(version: bool = typer.Option(False, "--version", help="Print the version and stop.")) -> None:
    if version:
        print(package_version("tacit"))
        raise typer.Exit


app.command()(quickstart)
app.command()(simulate)
app.command()(scan)
app.command("plan")(plan_command)
app.command()(config)
app.command()(train)
app.command()(audit)
app.command()(report)
app.command()(generate)
app.command()(verify)
app.command()(sweep)
app.command()(context)
app.add_typer(policy, name="policy")
app.add_typer(label, name="label")
app.add_typer(detector, name="detector")


def main() -> None:
    """Run the command line; an error a person can mend is printed in its three parts, without a traceback."""
    try:
        app()
    except TacitError as error:
        _fail(error)
    except OSError as error:
        _fail(failed("read or write files", error))
    except (MemoryError, RuntimeError, SystemError, ImportError) as error:
        if not out_of_memory(error):
            raise
        _fail(OutOfMemory())
    except KeyboardInterrupt:
        sys.exit(130)


def _fail(error: TacitError) -> NoReturn:
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    console.print(f"[bold red]expected[/]  {escape(error.expected)}")
    console.print(f"   [bold]found[/]  {escape(error.found)}")
    console.print(f" [bold green]way out[/]  {escape(error.way_out)}")
    sys.exit(2)
