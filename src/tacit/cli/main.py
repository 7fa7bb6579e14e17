"""The command line: parse, call `tacit.api`, print."""

import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import typer
from rich.console import Console
from rich.markup import escape

from tacit.cli.audit import audit, report, verify
from tacit.cli.detector import detector
from tacit.cli.generate import context, export, generate
from tacit.cli.output import set_verbosity
from tacit.cli.quickstart import quickstart, simulate
from tacit.cli.scan import label, policy, scan_command
from tacit.cli.sweep import sweep
from tacit.cli.train import config_command, plan_command, prepare_command, train_command
from tacit.common.libraries import EXTRAS, missing_library
from tacit.common.ranks import prints
from tacit.errors import ConfigError, OutOfMemory, TacitError, failed, out_of_memory

UNEXPECTED = 70
"""The exit code of a fault in tacit itself, as sysexits.h has it."""

_PACKAGE = Path(__file__).parents[1]

app = typer.Typer(
    name="tacit",
    help="Train language models on sensitive text without reproducing its secrets, and state what is guaranteed.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def _root(
    version: bool = typer.Option(False, "--version", help="Print the version and stop."),
    quiet: bool = typer.Option(False, "--quiet", "-q", help="Print results and errors alone, no progress."),
    verbose: bool = typer.Option(False, "--verbose", "-v", help="Print the log, too, on standard error."),
) -> None:
    set_verbosity(quiet or not prints(), verbose)
    if version:
        from tacit import __version__  # a directory is searched for it

        typer.echo(__version__)
        raise typer.Exit


app.command()(quickstart)
app.command()(simulate)
app.command("scan")(scan_command)
app.command("plan")(plan_command)
app.command("config")(config_command)
app.command("prepare")(prepare_command)
app.command("train")(train_command)
app.command()(audit)
app.command()(report)
app.command()(generate)
app.command()(export)
app.command()(verify)
app.command()(sweep)
app.command()(context)
app.add_typer(policy, name="policy")
app.add_typer(label, name="label")
app.add_typer(detector, name="detector")


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line; an error a person can mend is printed in its three parts, without a traceback.

    Any other error is a fault of tacit: its place is printed, and TACIT_DEBUG=1 shows its traceback.
    """
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        app(given, obj=given)  # other processes may be given the same
    except TacitError as error:
        _fail(error)
    except OSError as error:
        _fail(failed("read or write files", error))
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        if out_of_memory(error):
            _fail(OutOfMemory())
        if isinstance(error, ModuleNotFoundError) and error.name in EXTRAS:
            _fail(missing_library(error.name, ConfigError))
        if os.environ.get("TACIT_DEBUG"):
            raise
        _fail(_unexpected(error), UNEXPECTED)
    sys.exit(0)


def _unexpected(error: Exception) -> TacitError:
    """Where tacit was when it failed; not what the error says, which may quote the corpus."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _PACKAGE in Path(frame.filename).parents]
    place = f" in {Path(frames[-1].filename).relative_to(_PACKAGE)}, line {frames[-1].lineno}" if frames else ""
    return TacitError(
        expected="no fault in tacit",
        found=f"{type(error).__name__}{place}",
        way_out="report this with the command; TACIT_DEBUG=1 shows the traceback, which may quote the corpus",
    )


def _fail(error: TacitError, code: int = 2) -> NoReturn:
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    console.print(f"[bold red]expected[/]  {escape(error.expected)}")
    console.print(f"   [bold]found[/]  {escape(error.found)}")
    console.print(f" [bold green]way out[/]  {escape(error.way_out)}")
    sys.exit(code)
