"""`tacit train`, `tacit prepare` and `tacit config`: a model from a corpus, with progress, utility and guarantee.

`tacit plan`: the price before training. Its flags are the settings of a plan, and the counts of a corpus.
"""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from tacit import api
from tacit.cli.output import FIELDS, AsJson, field_names, is_quiet, print_part, show, watching, with_flags
from tacit.cli.processes import divide
from tacit.common.charts import Table
from tacit.common.ranks import prints
from tacit.config.load import parse_set, to_yaml
from tacit.config.plan_schema import CorpusCounts, PlanConfig
from tacit.config.schema import Config
from tacit.config.setting import every_setting
from tacit.errors import ConfigError

if TYPE_CHECKING:
    from tacit.api import Run
    from tacit.common.progress import Observer
    from tacit.common.progress import Progress as Done

Source = Annotated[Path | None, typer.Argument(help="A corpus file, or a YAML file with all settings.")]
FLAGS = tuple(one for one in every_setting(Config) if one.flag)
_OF_STEPS = ("plan.epsilon", "plan.epochs", "plan.expected_batch_size", "lora.rank", "lora.base_name")


Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set", help="Any setting by its name: model_config.hidden_size=300, trainable=head, private.optimizer=sgd."
    ),
]


NoCanaries = Annotated[
    bool, typer.Option("--no-canaries", help="Plant no made-up records; an audit then cannot measure epsilon.")
]


Store = Annotated[
    Path | None, typer.Option(help="A store that `tacit prepare` made: corpus, policy and tokenizer come from it.")
]


def config(
    *,
    source: Source = None,
    prepared: Store = None,
    settings: Sets = None,
    no_canaries: NoCanaries = False,
    flags: dict[str, Any],
) -> None:
    """Print the settings that `tacit train` would use with the same arguments."""
    typer.echo(to_yaml(_asked(source, _planting(flags, no_canaries), settings or [], prepared)), nl=False)


def train(
    *,
    context: typer.Context,
    source: Source = None,
    out: Annotated[Path | None, typer.Option(help="The run folder.", show_default="run-MECHANISM")] = None,
    resume: Annotated[Path | None, typer.Option(help="Resume the run in this folder.")] = None,
    prepared: Store = None,
    processes: Annotated[
        int | None, typer.Option(min=1, help="Train in so many processes of this machine.", show_default="one")
    ] = None,
    settings: Sets = None,
    no_canaries: NoCanaries = False,
    as_json: AsJson = False,
    flags: dict[str, Any],
) -> None:
    """Train a model; the guarantee that is true of it is printed at the end."""
    flags = _planting(flags, no_canaries)
    if resume is None:
        asked = _asked(source, flags, settings or [], prepared)
        folder = out or Path(f"run-{asked.plan.mechanism}")
    elif source or out or settings or flags or prepared:
        raise ConfigError(
            "--resume alone", "other settings", "a run resumes with the settings it began with: leave these out"
        )
    divide(context, processes)
    if resume is None:
        run = _watched(folder, lambda observe: _begin(asked, folder, prepared, observe))
    else:
        folder = resume
        run = _watched(folder, lambda observe: api.resume(resume, observe=observe))
    if prints():
        show(run, as_json, f"run {folder}")


def prepare(
    *,
    source: Source = None,
    out: Annotated[Path, typer.Option(help="The folder of the store. It contains the corpus: keep it private.")],
    settings: Sets = None,
    no_canaries: NoCanaries = False,
    as_json: AsJson = False,
    flags: dict[str, Any],
) -> None:
    """Mark, tokenize and split a corpus once, for many runs: `tacit train --prepared STORE`."""
    asked = _asked(source, {"plan.mechanism": "plain", **_planting(flags, no_canaries)}, settings or [])
    with watching() as report:
        prepared = api.prepare_config(asked, out, observe=report)
    show(prepared, as_json, f"store {out}")


config_command, train_command = with_flags(config, FLAGS), with_flags(train, FLAGS)
prepare_command = with_flags(prepare, (one for one in FLAGS if one.name not in _OF_STEPS))


def _planting(flags: dict[str, Any], no_canaries: bool) -> dict[str, Any]:
    return {**flags, "audit.canaries": []} if no_canaries else flags


def _begin(asked: Config, folder: Path, prepared: Path | None, observe: "Observer") -> "Run":
    if not is_quiet():
        Console(stderr=True).print(to_yaml(asked), markup=False, highlight=False, style="dim")
    return api.train_config(asked, folder, prepared=prepared, observe=observe)


def _asked(source: Path | None, flags: dict[str, Any], settings: list[str], prepared: Path | None = None) -> Config:
    if source is None and prepared is None:
        raise ConfigError(
            "a corpus or a YAML file", "neither", "tacit train corpus.jsonl --mechanism selective --epsilon 2"
        )
    given = {name: value for setting in settings for name, value in parse_set(setting).items()}
    return api.config(source, prepared=prepared, settings={**flags, **given})


def _watched(folder: Path, work: "Callable[[Observer], Run]") -> "Run":
    """Work with progress; Ctrl-C ends it after the step under way, with a checkpoint; a second one ends it at once."""
    asked = False

    def ask(*_: object) -> None:
        nonlocal asked
        asked = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = signal.signal(signal.SIGINT, ask)
    try:
        with watching() as report:

            def observe(done: "Done") -> None:
                report(done)
                if asked:
                    raise KeyboardInterrupt

            return work(observe)
    except KeyboardInterrupt:
        if prints():
            Console(stderr=True).print(f"stopped; resume with: tacit train --resume {folder}", markup=False)
        raise
    finally:
        signal.signal(signal.SIGINT, before)


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
    corpus: Annotated[Path | None, typer.Option(help="A corpus to count in, instead of --records etc.")] = None,
    policy: Annotated[str, typer.Option(help="What is secret in it, where the mechanism depends on that.")] = "pii",
    conservative_policy: Annotated[str | None, typer.Option(help="The second policy of crt.")] = None,
    model: Annotated[
        str | None, typer.Option(help="The model to begin with: what a run has spent is part of the price.")
    ] = None,
    flags: dict[str, Any],
) -> None:
    """Print the price before training: noise, rate, steps, and the sentence that will be true."""
    if json_ and certificate:
        raise ConfigError("--json or --certificate", "both", "ask for one of them")
    if list_:
        print_part(Console(highlight=False), Table(("mechanism", "what it does"), tuple(api.mechanisms().items())))
        return
    with Console(stderr=True, quiet=is_quiet()).status("pricing"):
        names = field_names({one.name: flags.pop(one.name) for one in FIELDS if one.name in flags})
        planned = api.plan(
            corpus=corpus,
            policy=policy,
            conservative_policy=conservative_policy,
            model=model,
            settings=flags,
            file=file,
            **names,
        )
    if certificate:
        typer.echo(planned.certificate(), nl=False)
    else:
        show(planned, json_)


plan_command = with_flags(plan, (*PLAN_FLAGS, *FIELDS))
