"""`tacit audit`: attack the model of a run, or one from elsewhere, and say what came out; never a secret unasked."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from tacit.cli.watching import watching
from tacit.documents import LARGEST_SEED
from tacit.errors import ConfigError


def audit(
    run: Annotated[Path | None, typer.Argument(help="A finished run folder, with its private part.")] = None,
    model: Annotated[Path | None, typer.Option(help="Instead of a run: a local Hugging Face causal model.")] = None,
    candidates: Annotated[
        str | None,
        typer.Option(
            help="Rows of each side to attack; with --model, a file of secrets: a JSON object a line with id, "
            "template and value, or id, before, after, candidates and value.",
            show_default="500",
        ),
    ] = None,
    reference: Annotated[
        Path | None, typer.Option(help="A run with the same tokenizer that did not see the records.")
    ] = None,
    checkpoints: Annotated[
        bool, typer.Option("--checkpoints", help="Attack the models that were kept on the way (keep_every), too.")
    ] = False,
    confidence: Annotated[
        float | None, typer.Option(help="Of intervals and of the verdict.", show_default="0.95")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="Same seed, same candidates.")] = 0,
    out: Annotated[Path | None, typer.Option(help="With --model: where to write the result as JSON.")] = None,
    show_secrets: Annotated[bool, typer.Option("--show-secrets", help="Print what the canaries say.")] = False,
) -> None:
    """Attack a trained model as an outsider would; exit code 3 when what it says contradicts the claim."""
    if (run is None) == (model is None):
        raise ConfigError(
            "a run folder, or --model with --candidates",
            "neither" if run is None else "both",
            "tacit audit RUN, or tacit audit --model FOLDER --candidates candidates.jsonl",
        )
    if run is not None:
        _refuse(out is not None, "--out with --model", f"leave it out: the result is {run}/release/audit.json")
        _audit_run(run, _rows(candidates), reference, checkpoints, confidence, seed, show_secrets)
    elif model is not None:
        of_runs = reference is not None or checkpoints or confidence is not None
        _refuse(of_runs, "--reference, --checkpoints and --confidence with a run", "leave them out")
        _audit_model(model, candidates, seed, out, show_secrets)


def _audit_run(
    folder: Path,
    rows: int | None,
    reference: Path | None,
    checkpoints: bool,
    confidence: float | None,
    seed: int,
    show_secrets: bool,
) -> None:
    # Models and statistics take seconds to load, which no other verb should wait for.
    from tacit.auditing import AuditSettings
    from tacit.auditing import audit as attack
    from tacit.cli.audit_tables import print_audit, secrets_table
    from tacit.guarantee import Guarantee
    from tacit.planting import planted_canaries
    from tacit.run import PrivateFile, ReleaseFile, Run

    usual = AuditSettings()
    settings = AuditSettings(
        candidates=usual.candidates if rows is None else rows,
        confidence=usual.confidence if confidence is None else confidence,
        seed=seed,
        checkpoints=checkpoints,
    )
    with watching() as observe:
        found = attack(folder, settings, observe, reference)
    console, view = Console(highlight=False), Run.view(folder)
    print_audit(found, view.read_json(Guarantee, PrivateFile.GUARANTEE), console)
    if show_secrets and found.canaries:
        console.print(secrets_table(found, planted_canaries(view).planted), "", sep="\n")
    written, kept = folder / "release" / ReleaseFile.AUDIT, folder / "private" / PrivateFile.AUDIT
    console.print(Text(f"written to {written}: what canaries showed; and to {kept}: everything"), soft_wrap=True)
    raise typer.Exit(found.verdict.exit_code)


def _audit_model(folder: Path, candidates: str | None, seed: int, out: Path | None, show_secrets: bool) -> None:
    from tacit.attacks import ExposureSettings
    from tacit.auditing.foreign import audit_model, read_named
    from tacit.cli.audit_tables import named_table
    from tacit.codec import to_json
    from tacit.run.files import write_bytes

    if candidates is None:
        raise ConfigError(
            "--candidates FILE with --model", "none", "name the secrets to look for, one JSON object a line"
        )
    secrets = read_named(Path(candidates))
    with watching() as observe:
        found = audit_model(folder, secrets, ExposureSettings(), seed, observe)
    console = Console(highlight=False)
    console.print(named_table(found, {one.id: one.value for one in secrets} if show_secrets else None))
    if found.best_chance is not None:
        console.print(f"so high a best rank has probability {found.best_chance:.2g} at most for values never seen")
    if out is not None:
        write_bytes(out, to_json(found).encode())
        console.print(Text(f"written to {out}"), soft_wrap=True)


def _rows(candidates: str | None) -> int | None:
    if candidates is not None and not candidates.isdecimal():
        raise ConfigError(
            "--candidates NUMBER with a run", "something else", "a file of candidates goes with --model FOLDER"
        )
    return None if candidates is None else int(candidates)


def _refuse(wrong: bool, expected: str, way_out: str) -> None:
    if wrong:
        raise ConfigError(expected, "options that do not go together", way_out)
