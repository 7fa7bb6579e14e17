"""`tacit plan`: the price before training. Its flags are the settings of a plan, and the counts of a corpus."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tacit import api
from tacit.cli.options import with_flags
from tacit.cli.output import is_quiet, print_json
from tacit.common.formatting import rounded_up
from tacit.config.plan_schema import CorpusCounts, PlanConfig
from tacit.config.setting import every_setting
from tacit.errors import ConfigError

if TYPE_CHECKING:
    from tacit.mechanisms.build import Planned

BAR_WIDTH = 40
FLAGS = tuple(one for kind in (PlanConfig, CorpusCounts) for one in every_setting(kind))
File = Annotated[Path | None, typer.Argument(help="YAML file with settings under `plan:`; flags take precedence.")]
List = Annotated[bool, typer.Option("--list", help="List the mechanisms and stop.")]
Json = Annotated[bool, typer.Option("--json", help="Print settings, plan and guarantee as JSON.")]
Certificate = Annotated[bool, typer.Option("--certificate", help="Print the whole certificate as Markdown.")]


def plan(
    *,
    file: File = None,
    list_: List = False,
    json_: Json = False,
    certificate: Certificate = False,
    flags: dict[str, Any],
) -> None:
    """Print the price before training: noise, rate, steps, and the sentence that will be true."""
    if json_ and certificate:
        raise ConfigError("--json or --certificate", "both", "ask for one of them")
    console = Console(highlight=False)
    if list_:
        console.print(_mechanism_table())
        return
    with Console(stderr=True, quiet=is_quiet()).status("pricing"):
        planned = api.plan(flags.pop("mechanism", None), settings=flags, file=file)
    if json_:
        print_json(planned)
    elif certificate:
        print(planned.certificate(), end="")
    else:
        _print_for_people(console, planned)


plan_command = with_flags(plan, FLAGS)


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
