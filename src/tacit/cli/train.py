"""`tacit train` and `tacit config`: a model from a corpus, with progress, its utility and its guarantee."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from tacit.errors import ConfigError

if TYPE_CHECKING:
    from tacit.experiment import Experiment, Observer, Trained
    from tacit.train import Progress as Done

_SECONDS_BETWEEN_LINES = 10.0

Source = Annotated[Path | None, typer.Argument(help="A corpus file, or a YAML file with all settings.")]
Policy = Annotated[str | None, typer.Option(help="A policy's name, names with commas between them, or a YAML file.")]
Mechanism = Annotated[str | None, typer.Option(help="How to train; `tacit plan --list` lists the ways.")]
Epsilon = Annotated[float | None, typer.Option(help="Target; noise, rate and steps are derived from it.")]
Epochs = Annotated[float | None, typer.Option(help="Expected passes over the private units.")]
Batch = Annotated[float | None, typer.Option(help="Expected units in a private draw.")]
Model = Annotated[str | None, typer.Option(help="lstm or gpt.")]
Tokens = Annotated[str | None, typer.Option("--tokenizer", help="bytes or bpe.")]
Seed = Annotated[int | None, typer.Option(help="Seed of a research run.")]


def config(
    source: Source = None,
    policy: Policy = None,
    mechanism: Mechanism = None,
    epsilon: Epsilon = None,
    epochs: Epochs = None,
    batch: Batch = None,
    model: Model = None,
    tokenizer: Tokens = None,
    seed: Seed = None,
) -> None:
    """Print the settings that `tacit train` would use with the same words."""
    plan = {"mechanism": mechanism, "epsilon": epsilon, "epochs": epochs, "batch": batch}
    words = {"policy": policy, "model": model, "tokenizer": tokenizer, "seed": seed}
    experiment = _experiment(source, _given(words), _given(plan))
    typer.echo(yaml.safe_dump(experiment.model_dump(mode="json"), sort_keys=False), nl=False)


def train(
    source: Source = None,
    out: Annotated[Path | None, typer.Option(help="The run folder.", show_default="run-MECHANISM")] = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with the run in this folder.")] = None,
    policy: Policy = None,
    mechanism: Mechanism = None,
    epsilon: Epsilon = None,
    epochs: Epochs = None,
    batch: Batch = None,
    model: Model = None,
    tokenizer: Tokens = None,
    seed: Seed = None,
) -> None:
    """Train a model; the guarantee that is true of it is printed at the end."""
    from tacit.experiment import resume as go_on
    from tacit.experiment import train as begin

    plan = {"mechanism": mechanism, "epsilon": epsilon, "epochs": epochs, "batch": batch}
    words = {"policy": policy, "model": model, "tokenizer": tokenizer, "seed": seed}
    if resume is not None:
        if source or out or _given({**plan, **words}):
            raise ConfigError("--resume alone", "other settings beside it", "a run goes on as it began: leave them out")
        folder = resume
    else:
        experiment = _experiment(source, _given(words), _given(plan))
        folder = out or Path(f"run-{experiment.plan.get('mechanism')}")
    try:
        with _progress() as observe:
            result = go_on(folder, observe) if resume is not None else begin(experiment, folder, observe)
    except KeyboardInterrupt:
        Console(stderr=True).print(f"stopped; go on with: tacit train --resume {folder}", markup=False)
        raise
    _print(result)


def _experiment(source: Path | None, words: dict[str, Any], plan: dict[str, Any]) -> "Experiment":
    from tacit.codec import from_words
    from tacit.experiment import Experiment, read_experiment

    if source is None:
        raise ConfigError(
            "a corpus or a YAML file", "neither", "tacit train corpus.jsonl --mechanism selective --epsilon 2"
        )
    over = {**words, "plan": plan} if plan else words
    if source.suffix in (".yaml", ".yml"):
        return read_experiment(source, over)
    return from_words(Experiment, {"corpus": str(source), "plan": plan, **words})


def _given(words: dict[str, Any]) -> dict[str, Any]:
    return {word: value for word, value in words.items() if value is not None}


@contextmanager
def _progress() -> "Iterator[Observer]":
    """A bar on a terminal, a line now and then elsewhere; always on standard error."""
    console = Console(stderr=True, highlight=False)
    meter = _Meter()
    if not console.is_terminal:
        yield lambda done: meter.line(done, console)
        return
    columns = (BarColumn(), TextColumn("{task.completed}/{task.total} {task.description}"), TimeRemainingColumn())
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("preparing", total=None)

        def move(done: "Done") -> None:
            bar.update(task, completed=done.step, total=done.steps, description=meter.words(done))

        yield move


class _Meter:
    """Speed and smoothed public loss."""

    def __init__(self) -> None:
        self._began: float | None = None
        self._said = 0.0
        self._tokens = 0
        self._loss: float | None = None

    def words(self, done: "Done") -> str:
        now = time.monotonic()
        self._began = self._began or now
        self._tokens += done.tokens
        if done.public_loss is not None:
            self._loss = done.public_loss if self._loss is None else 0.95 * self._loss + 0.05 * done.public_loss
        loss = "" if self._loss is None else f" public loss {self._loss:.3f}"
        return f"{self._tokens / max(now - self._began, 1e-9):,.0f} tokens/s{loss}"

    def line(self, done: "Done", console: Console) -> None:
        words = self.words(done)
        if time.monotonic() - self._said > _SECONDS_BETWEEN_LINES or done.step == done.steps:
            self._said = time.monotonic()
            console.print(f"step {done.step:,} of {done.steps:,}, {words}", markup=False)


def _print(result: "Trained") -> None:
    console = Console(highlight=False)
    table = Table(box=None, pad_edge=False)
    for head in ("held-out text", "tokens", "perplexity", "accuracy"):
        table.add_column(head, justify="left" if head == "held-out text" else "right")
    utility = result.utility
    for name, quality in (("overall", utility.overall), ("public", utility.public), ("private", utility.private)):
        table.add_row(name, f"{quality.tokens:,}", f"{quality.perplexity:.4g}", f"{quality.accuracy:.1%}")
    console.print(table)
    console.print(f"nats a character {utility.nats_a_character:.4f}\n")
    console.print(result.guarantee.sentence(), style="bold", markup=False)
    console.print(f"\nrun {result.folder}", markup=False)
