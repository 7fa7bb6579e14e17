"""`tacit train` and `tacit config`: a model from a corpus, with progress, its utility and its guarantee.

`tacit plan`: the price before training. Its flags are the settings of a plan, and the counts of a corpus.
"""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tacit import api
from tacit.cli.options import with_flags
from tacit.cli.output import AsJson, is_quiet, print_json, watching
from tacit.common.formatting import rounded_up
from tacit.config.load import parse_set, to_yaml
from tacit.config.plan_schema import CorpusCounts, PlanConfig
from tacit.config.schema import Config
from tacit.config.setting import every_setting
from tacit.errors import ConfigError

if TYPE_CHECKING:
    from tacit.api import Run
    from tacit.common.progress import Observer
    from tacit.common.progress import Progress as Done
    from tacit.mechanisms.build import Planned
    from tacit.runs.utility import LabelQuality, Utility

Source = Annotated[Path | None, typer.Argument(help="A corpus file, or a YAML file with all settings.")]


FLAGS = tuple(one for one in every_setting(Config) if one.flag)


Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set", help="Any setting by its name: model_config.hidden_size=300, trainable=head, private.optimizer=sgd."
    ),
]


def config(*, source: Source = None, settings: Sets = None, flags: dict[str, Any]) -> None:
    """Print the settings that `tacit train` would use with the same arguments."""
    typer.echo(to_yaml(_asked(source, flags, settings or [])), nl=False)


def train(
    *,
    source: Source = None,
    out: Annotated[Path | None, typer.Option(help="The run folder.", show_default="run-MECHANISM")] = None,
    resume: Annotated[Path | None, typer.Option(help="Resume the run in this folder.")] = None,
    settings: Sets = None,
    as_json: AsJson = False,
    flags: dict[str, Any],
) -> None:
    """Train a model; the guarantee that is true of it is printed at the end."""
    if resume is None:
        asked = _asked(source, flags, settings or [])
        folder = out or Path(f"run-{asked.plan.mechanism}")
        _show(_watched(folder, lambda observe: _begin(asked, folder, observe)), as_json)
        return
    if source or out or settings or flags:
        raise ConfigError("--resume alone", "other settings beside it", "a run goes on as it began: leave them out")
    _show(_watched(resume, lambda observe: api.resume(resume, observe=observe)), as_json)


config_command, train_command = with_flags(config, FLAGS), with_flags(train, FLAGS)


def _begin(asked: Config, folder: Path, observe: "Observer") -> "Run":
    if not is_quiet():
        Console(stderr=True).print(to_yaml(asked), markup=False, highlight=False, style="dim")
    return api.train_config(asked, folder, observe=observe)


def _asked(source: Path | None, flags: dict[str, Any], settings: list[str]) -> Config:
    if source is None:
        raise ConfigError(
            "a corpus or a YAML file", "neither", "tacit train corpus.jsonl --mechanism selective --epsilon 2"
        )
    given = {name: value for setting in settings for name, value in parse_set(setting).items()}
    return api.config(source, settings={**flags, **given})


def _watched(folder: Path, work: "Callable[[Observer], Run]") -> "Run":
    """Work with progress; Ctrl-C ends it after the step under way, with a checkpoint; a second one ends it at once."""
    asked = False

    def ask(*_: object) -> None:
        nonlocal asked
        asked = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = signal.signal(signal.SIGINT, ask)
    try:
        with watching() as show:

            def observe(done: "Done") -> None:
                show(done)
                if asked:
                    raise KeyboardInterrupt

            return work(observe)
    except KeyboardInterrupt:
        Console(stderr=True).print(f"stopped; go on with: tacit train --resume {folder}", markup=False)
        raise
    finally:
        signal.signal(signal.SIGINT, before)


def _show(result: "Run", as_json: bool) -> None:
    if as_json:
        print_json(result)
        return
    console = Console(highlight=False)
    utility = result.utility
    if utility.labels is None:
        console.print(_text_table(utility))
        console.print(f"nats per character {utility.nats_a_character:.4f}\n")
    else:
        console.print(_label_table(utility.labels), end="\n\n")
    if result.set_aside:
        console.print(f"{result.set_aside:,} records set aside; private/*/private/quarantine.jsonl has the reasons\n")
    if result.shared:
        console.print(f"{result.shared:,} held-out texts also occur in the training corpus: the model has seen them\n")
    console.print(result.guarantee.sentence(), style="bold", markup=False)
    console.print(f"\nrun {result.folder}", markup=False)


def _text_table(utility: "Utility") -> Table:
    table = _table("held-out text", "tokens", "perplexity", "accuracy")
    for name, quality in (("overall", utility.overall), ("public", utility.public), ("private", utility.private)):
        table.add_row(name, f"{quality.tokens:,}", f"{quality.perplexity:.4g}", f"{quality.accuracy:.1%}")
    return table


def _label_table(labels: "LabelQuality") -> Table:
    table = _table("held-out records", "records", "errors", "test error rate", "95 % interval")
    rows = {
        "overall": labels.overall,
        "without secrets": labels.without_secrets,
        "with secrets": labels.with_secrets,
        "always the commonest class": labels.commonest,
    }
    for name, rate in rows.items():
        low, high = rate.interval()
        table.add_row(name, f"{rate.records:,}", f"{rate.errors:,}", f"{rate.share:.1%}", f"{low:.1%} to {high:.1%}")
    return table


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column(first)
    for head in others:
        table.add_column(head, justify="right")
    return table


BAR_WIDTH = 40


PLAN_FLAGS = tuple(one for kind in (PlanConfig, CorpusCounts) for one in every_setting(kind))


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


plan_command = with_flags(plan, PLAN_FLAGS)


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
            f"{figure.neighbors}", f"epsilon {rounded_up(figure.epsilon, 4)} at delta {rounded_up(figure.delta, 3)}"
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
