"""`tacit audit`: attack the model of a run, or one from elsewhere, and show what findings bring; no secret unasked.

`tacit report`: one page from one run or several.

`tacit verify`: whether a run is as it was sealed, and its claim follows from what was done.
"""

import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console, Group
from rich.table import Table as Grid
from rich.text import Text

from tacit import api
from tacit.cli.output import AsJson, print_json, rich_table, watching
from tacit.common.charts import Table
from tacit.common.files import open_file, write_bytes
from tacit.common.serialize import LARGEST_SEED
from tacit.errors import ConfigError

if TYPE_CHECKING:
    from tacit.audits.audit import ForeignAudit
    from tacit.audits.findings import Audit, Finding


def audit(
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
    checkpoints: Annotated[
        bool, typer.Option("--checkpoints", help="Also attack the models saved during training (training.save_steps).")
    ] = False,
    confidence: Annotated[
        float | None, typer.Option(help="Confidence level for intervals and verdict.", show_default="0.95")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="Same seed, same candidates.")] = 0,
    out: Annotated[Path | None, typer.Option(help="With --model: where to write the result as JSON.")] = None,
    show_secrets: Annotated[bool, typer.Option("--show-secrets", help="Print the values of canaries.")] = False,
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
        _refuse(out is not None, "--out with --model", f"leave it out: the result is {run}/release/audit.json")
        _audit_run(run, _rows(candidates), reference, checkpoints, confidence, seed, show_secrets, as_json)
    elif model is not None:
        of_runs = reference is not None or checkpoints or confidence is not None
        _refuse(of_runs, "--reference, --checkpoints and --confidence with a run", "leave them out")
        _audit_model(model, candidates, seed, out, show_secrets, as_json)


def _audit_run(
    folder: Path,
    rows: int | None,
    reference: Path | None,
    checkpoints: bool,
    confidence: float | None,
    seed: int,
    show_secrets: bool,
    as_json: bool,
) -> None:
    asked = {"candidates": rows, "confidence": confidence, "seed": seed, "checkpoints": checkpoints}
    settings = {name: value for name, value in asked.items() if value is not None}
    with watching() as observe:
        found = api.audit(folder, reference=reference, settings=settings, observe=observe)
    if as_json:
        print_json(found)
        raise typer.Exit(found.verdict.exit_code)
    console, run = Console(highlight=False), api.load(folder)
    print_audit(found, run.guarantee.sentence(), console)
    if show_secrets:
        for finding in found.canaries:
            for chart in finding.charts:
                console.print(rich_table(_with_values(chart.table, run.canary_values)), "", sep="\n")
    written, kept = (folder / part / "audit.json" for part in ("release", "private"))
    console.print(Text(f"written to {written}: what canaries showed; and to {kept}: everything"), soft_wrap=True)
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
    if out is not None:
        write_bytes(out, json.dumps(found.to_json(), indent=2).encode())
    if as_json:
        print_json(found)
        return
    console, table = Console(highlight=False), named_table(found)
    console.print(rich_table(_with_values(table, _named_values(Path(candidates))) if show_secrets else table))
    if found.best_chance is not None:
        console.print(f"so high a best rank has probability {found.best_chance:.2g} at most for values never seen")
    if out is not None:
        console.print(Text(f"written to {out}"), soft_wrap=True)


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


_COLOURS = {"consistent": "bold green", "contradicted": "bold white on red", "not comparable": "bold yellow"}


def print_audit(found: "Audit", claim: str, console: Console) -> None:
    """The claim, the verdict, and everything behind it."""
    console.print(Text(claim), "", sep="\n")
    console.print(Text(found.verdict.sentence, style=_COLOURS[str(found.verdict.outcome)]), "", sep="\n")
    for finding in found.findings:
        for part in _parts(finding):
            console.print(part, "", sep="\n")
    if found.checkpoints:
        console.print(rich_table(_checkpoint_table(found)), "", sep="\n")


def _parts(finding: "Finding") -> Iterator[Group | Text]:
    yield from (rich_table(table) for table in finding.tables)
    for words, style in (
        (finding.warning, "bold yellow"),
        (finding.inside, "bold yellow"),
        (finding.sentence, "dim"),
        (finding.hint, ""),
    ):
        if words:
            yield Text(words, style=style)


def _checkpoint_table(found: "Audit") -> Table:
    names = list(dict.fromkeys(name for point in found.checkpoints for name in point.figures))
    rows = tuple(
        (
            f"{point.step:,}",
            f"{point.perplexity:.4g}",
            *(f"{point.figures[name]:.3g}" if name in point.figures else "" for name in names),
        )
        for point in found.checkpoints
    )
    return Table(("step", "perplexity", *names), rows, title="models on the way")


def named_table(found: "ForeignAudit") -> Table:
    """Exposure by id."""
    rows = []
    for one in found.secrets:
        exposure = one.exposure
        rank = "" if exposure.rank is None else f"{exposure.rank:,.10g}"
        error = f" ± {exposure.standard_error:.2f}" if exposure.standard_error else ""
        chance = "" if exposure.chance is None else f"{exposure.chance:.2g}"
        rows.append((one.id, f"{exposure.bits:.2f}{error}", rank, f"{one.space:,}", chance))
    return Table(("id", "exposure", "rank", "of", "p"), tuple(rows), title="exposure, in bits")


def _with_values(table: Table, values: Mapping[str, str]) -> Table:
    """With what is behind each id."""
    rows = tuple((first, values.get(first, ""), *rest) for first, *rest in table.rows)
    return Table((table.head[0], "value", *table.head[1:]), rows, table.more, table.title)


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders that `tacit train` made.", metavar="RUN...")],
    out: Annotated[
        Path | None,
        typer.Option(help="The page.", show_default="RUN/release/report.html; several runs: comparison.html"),
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
    written = api.report(runs, out=out, sample=sample)
    if as_json:
        print_json(written)
        return
    console = Console(highlight=False)
    console.print(Text(f"page {written.page}"), soft_wrap=True)
    for path in written.beside:
        console.print(Text(f"  and {path}", style="dim"), soft_wrap=True)
    if sample is not None:
        console.print(Text("not for release: it shows text of training records"), soft_wrap=True)
    if written.kept is not None:
        console.print(Text(f"left as it is: {written.kept}, which somebody else wrote"), soft_wrap=True)


def verify(
    run: Annotated[Path, typer.Argument(help="A run folder, or a copy of its release/ under any name.")],
    as_json: AsJson = False,
) -> None:
    """Recompute the claim of a run and compare every released file with the manifest; exit code 1 if a check fails."""
    verified = api.verify(run)
    if as_json:
        print_json(verified)
        raise typer.Exit(0 if verified.holds else 1)
    table = Grid(box=None, show_header=False, pad_edge=False)
    for one in verified.checks:
        table.add_row(Text("holds", "green") if one.holds else Text("does not hold", "bold red"), one.name)
        if not one.holds:
            table.add_row("", Text(f"{one.why}. Way out: {one.way_out}.", "red"))
    console = Console(highlight=False)
    console.print(table)
    console.print(
        Text(verified.sentence or "Not verified: the claim of this run is not repeated here."), soft_wrap=True
    )
    raise typer.Exit(0 if verified.holds else 1)
