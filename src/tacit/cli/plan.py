"""`tacit plan`: the price before training. Its flags are the settings of a plan, and the counts of a corpus."""

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tacit import api
from tacit.cli.output import is_quiet, print_json
from tacit.common.formatting import rounded_up
from tacit.config.plan_schema import CorpusCounts, PlanConfig
from tacit.config.setting import every_setting
from tacit.errors import ConfigError

if TYPE_CHECKING:
    from tacit.mechanisms.build import Planned

BAR_WIDTH = 40
FLAGS = {one.name: one for kind in (PlanConfig, CorpusCounts) for one in every_setting(kind)}
FILE = typer.Argument(None, help="YAML file with settings under `plan:`; flags take precedence.")
LIST = typer.Option(False, "--list", help="List the mechanisms and stop.")
JSON = typer.Option(False, "--json", help="Print settings, plan and guarantee as JSON.")
CERTIFICATE = typer.Option(False, "--certificate", help="Print the whole certificate as Markdown.")


def plan(file: Path | None, list_: bool, json_: bool, certificate: bool, flags: dict[str, Any]) -> None:
    """Print the price before training: noise, rate, steps, and the sentence that will be true."""
    if json_ and certificate:
        raise ConfigError("--json or --certificate", "both", "ask for one of them")
    console = Console(highlight=False)
    if list_:
        console.print(_mechanism_table())
        return
    given = {word: value for word, value in flags.items() if value is not None}
    with Console(stderr=True, quiet=is_quiet()).status("pricing"):
        planned = api.plan(given.pop("mechanism", None), settings=given, file=file)
    if json_:
        print_json(planned)
    elif certificate:
        print(planned.certificate(), end="")
    else:
        _print_for_people(console, planned)


def plan_command(**options: Any) -> None:  # noqa: ANN401  (typer reads the signature set below)
    flags = {word: options[word] for word in FLAGS}
    plan(options["file"], options["list_"], options["json_"], options["certificate"], flags)


def _signature() -> inspect.Signature:
    """One flag per setting of a plan, so that nothing has to be kept in sync by hand."""
    kind = inspect.Parameter.KEYWORD_ONLY
    fixed = [
        inspect.Parameter("file", kind, default=FILE, annotation=Path | None),
        inspect.Parameter("list_", kind, default=LIST, annotation=bool),
        inspect.Parameter("json_", kind, default=JSON, annotation=bool),
        inspect.Parameter("certificate", kind, default=CERTIFICATE, annotation=bool),
    ]
    words = [
        inspect.Parameter(
            name,
            kind,
            default=typer.Option(None, f"--{name.replace('_', '-')}", help=one.help),
            annotation=one.type if name != "mechanism" else str | None,
        )
        for name, one in FLAGS.items()
    ]
    return inspect.Signature([*fixed, *words])


plan_command.__signature__ = _signature()  # type: ignore[attr-defined]
plan_command.__annotations__ = {name: p.annotation for name, p in _signature().parameters.items()}
plan_command.__doc__ = plan.__doc__


def _mechanism_table() -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("mechanism", style="bold")
    table.add_column("what it does")
    for name, summary in api.mechanisms().items():
        table.add_row(name, summary)
    return table


def _print_for_people(console: Console, planned: "Planned") -> None:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim")
    table.add_column()
    for step, times in planned.plan.executions().items():
        table.add_row(f"{step.name} steps", f"{times:,} x {step.update.kind} on the {step.view} text of {step.pool}")
    private = planned.mechanism.private
    if private is not None:
        table.add_row("noise multiplier", rounded_up(private.noise_multiplier, 4))
        if planned.draws_at_random:
            units = f"{private.expected_batch:g} of {private.population:,}"
            table.add_row("sampling rate", f"{private.sampling_rate:.4g} ({units})")
        table.add_row("clip norm", f"{private.clip_norm:g}")
    for figure in planned.guarantee.figures:
        table.add_row(
            f"{figure.neighbours}", f"epsilon {rounded_up(figure.epsilon, 4)} at delta {rounded_up(figure.delta, 3)}"
        )
    console.print(table)
    console.print()
    console.print(escape(planned.guarantee.sentence()), style="bold")
    console.print()
    for condition in planned.guarantee.holds_if:
        console.print(f"  holds if {condition.text} [dim]({condition.status})[/dim]")
    for text in planned.guarantee.not_protected:
        console.print(f"  does not protect {text}")
    _print_curve(console, planned.curve())


def _print_curve(console: Console, curve: tuple[tuple[int, float], ...]) -> None:
    """Epsilon over private steps, as bars."""
    if not curve:
        return
    console.print("\n[dim]epsilon over private steps[/dim]")
    top = max(epsilon for _, epsilon in curve) or 1.0
    for done, epsilon in curve:
        console.print(f"  {done:>9,}  {rounded_up(epsilon, 4):>8}  {'█' * max(1, round(BAR_WIDTH * epsilon / top))}")
