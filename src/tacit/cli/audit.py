"""`tacit audit`: attack the model of a run, or one from elsewhere, and show what it finds; no secret unless asked.

`tacit report`: one page from one run or several.

`tacit verify`: whether a run is as it was sealed, and its claim follows from what was done.
"""

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from tacit import api
from tacit.cli.output import AsJson, print_part, show, watching
from tacit.cli.processes import divide
from tacit.common.charts import Note, Table
from tacit.common.files import open_file, write_bytes
from tacit.common.formatting import about
from tacit.common.ranks import prints
from tacit.common.serialize import LARGEST_SEED
from tacit.errors import ConfigError


def audit(
    context: typer.Context,
    run: Annotated[Path | None, typer.Argument(help="A finished run folder, with its private part.")] = None,
    model: Annotated[Path | None, typer.Option(help="Instead of a run: a local Hugging Face causal model.")] = None,
    candidates: Annotated[
        str | None,
        typer.Option(
            help="Rows of each side to attack; with --model, a file of secrets: one JSON object per line with id, "
            "template and value, or id, before, after, candidates and value.",
            show_default="500",
        ),
    ] = None,
    reference: Annotated[
        Path | None, typer.Option(help="A run with the same tokenizer that did not see the records.")
    ] = None,
    shadow_models: Annotated[
        int,
        typer.Option(
            min=0,
            max=2,
            help="Train 1 or 2 models like the run on other halves of its corpus first, for stronger attacks on "
            "membership; they stay in RUN/private/shadows.",
        ),
    ] = 0,
    attacks: Annotated[
        str | None, typer.Option(help="Attacks to make, separated by commas: exposure,membership.", show_default="all")
    ] = None,
    checkpoints: Annotated[
        bool | None,
        typer.Option("--checkpoints", help="Also attack the models saved during training (training.save_steps)."),
    ] = None,
    confidence: Annotated[
        float | None, typer.Option(help="Confidence level for intervals and verdict.", show_default="0.95")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, max=LARGEST_SEED, help="Same seed, same candidates.", show_default="0")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="With --model: where to write the result as JSON.")] = None,
    show_secrets: Annotated[bool, typer.Option("--show-secrets", help="Print the values of canaries.")] = False,
    processes: Annotated[
        int | None, typer.Option(min=1, help="Divide the work among so many processes.", show_default="one")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Attack a trained model as an outsider would; exit code 3 when the findings contradict the claim."""
    if (run is None) == (model is None):
        raise ConfigError(
            "a run folder, or --model with --candidates",
            "neither" if run is None else "both",
            "tacit audit RUN, or tacit audit --model FOLDER --candidates candidates.jsonl",
        )
    if run is not None:
        _refuse(out is not None, "--out with --model", f"leave it out: the result is {run}/release/tacit/audit.json")
        asked = {"candidates": _rows(candidates), "confidence": confidence, "seed": seed, "checkpoints": checkpoints}
        divide(context, processes)
        _announce(run, shadow_models)
        _audit_run(run, asked, attacks, reference, shadow_models, show_secrets, as_json)
    elif model is not None:
        of_runs = (reference, checkpoints, confidence, attacks) != (None, None, None, None) or shadow_models > 0
        _refuse(
            of_runs,
            "--attacks, --shadow-models, --reference, --checkpoints and --confidence with a run",
            "leave them out",
        )
        divide(context, processes)
        _audit_model(model, candidates, seed or 0, out, show_secrets, as_json)


def _announce(run: Path, shadow_models: int) -> None:
    """How long the training of shadow models takes, before it begins."""
    seconds = api.shadow_seconds(run, shadow_models) if shadow_models else 0.0
    if seconds != 0 and prints():
        takes = "an unknown time" if seconds is None else about(seconds)
        Console(stderr=True, highlight=False).print(f"training of shadow models: {takes}; resumed if interrupted")


def _audit_run(
    folder: Path,
    asked: dict[str, Any],
    attacks: str | None,
    reference: Path | None,
    shadow_models: int,
    show_secrets: bool,
    as_json: bool,
) -> None:
    settings = {name: value for name, value in asked.items() if value is not None}
    names = None if attacks is None else [name.strip() for name in attacks.split(",")]
    with watching() as observe:
        found = api.audit(
            folder, attacks=names, reference=reference, settings=settings, shadow_models=shadow_models, observe=observe
        )
    if not prints():
        return
    console, run = Console(highlight=False), api.load(folder)
    if not as_json:
        print_part(console, Note(run.guarantee.sentence()))
    charts = [chart for finding in found.canaries for chart in finding.charts] if show_secrets else []
    for chart in charts:
        print_part(console, _with_values(chart.table, run.canary_values))
    written, kept = (folder / part / "audit.json" for part in ("release/tacit", "private"))
    show(found, as_json, f"written to {written}: what canaries showed; and to {kept}: everything")
    raise typer.Exit(found.verdict.exit_code)


def _audit_model(
    folder: Path, candidates: str | None, seed: int, out: Path | None, show_secrets: bool, as_json: bool
) -> None:
    if candidates is None:
        raise ConfigError(
            "--candidates FILE with --model", "none", "name the secrets to look for, one JSON object per line"
        )
    with watching() as observe:
        found = api.audit_model(folder, candidates, seed=seed, observe=observe)
    if not prints():
        return
    if out is not None:
        write_bytes(out, json.dumps(found.to_json(), indent=2).encode())
    if show_secrets and not as_json:
        table = Table(("id", "value"), tuple(_named_values(Path(candidates)).items()))
        print_part(Console(highlight=False), table)
    show(found, as_json, *([] if out is None else [f"written to {out}"]))


def _named_values(candidates: Path) -> dict[str, str]:
    with io.TextIOWrapper(open_file(candidates), encoding="utf-8") as file:
        secrets = [json.loads(line) for line in file if line.strip()]
    return {one["id"]: one["value"] for one in secrets}


def _rows(candidates: str | None) -> int | None:
    if candidates is not None and not candidates.isdecimal():
        raise ConfigError(
            "--candidates NUMBER with a run", "something else", "a file of candidates goes with --model FOLDER"
        )
    return None if candidates is None else int(candidates)


def _refuse(wrong: bool, expected: str, way_out: str) -> None:
    if wrong:
        raise ConfigError(expected, "options that do not go together", way_out)


def _with_values(table: Table, values: Mapping[str, str]) -> Table:
    """With what is behind each id."""
    rows = tuple((first, values.get(first, ""), *rest) for first, *rest in table.rows)
    return Table((table.head[0], "value", *table.head[1:]), rows, table.more, table.title)


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders that `tacit train` made.", metavar="RUN...")],
    out: Annotated[
        Path | None,
        typer.Option(help="The page.", show_default="RUN/release/tacit/report.html; several runs: comparison.html"),
    ] = None,
    sample: Annotated[
        int | None,
        typer.Option(
            min=1, help="Show this many training records, secrets hidden: RUN/private/report.html, not for release."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write one self-contained page: the claim of a run, its price and what attacks found; or several runs compared."""
    private = [] if sample is None else ["not for release: it shows text of training records"]
    show(api.report(runs, out=out, sample=sample), as_json, *private)


def verify(
    run: Annotated[Path, typer.Argument(help="A run folder, or a copy of its release/ under any name.")],
    as_json: AsJson = False,
) -> None:
    """Recompute the claim of a run and compare every released file with the manifest; exit code 1 if a check fails."""
    verified = api.verify(run)
    show(verified, as_json)
    raise typer.Exit(0 if verified.holds else 1)
