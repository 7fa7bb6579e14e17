"""Functions about finished runs: audit, report, verify; and sweeps."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.api.training import Run, folder_of, load
from tacit.common.progress import logged, unwatched
from tacit.errors import ConfigError

if TYPE_CHECKING:
    from tacit.audits.audit import ForeignAudit
    from tacit.audits.findings import Audit
    from tacit.common.progress import Observer, Progress
    from tacit.reports.write import Reported
    from tacit.runs.verify import Verified
    from tacit.sweeps.scheduler import RunOutcome
    from tacit.sweeps.sweep import Board, Swept
    from tacit.training.group import Group


def audit(
    run: str | Path | Run,
    *,
    attacks: Sequence[str] | None = None,
    reference: str | Path | Run | None = None,
    settings: Mapping[str, Any] | None = None,
    shadow_models: int = 0,
    observe: "Observer" = unwatched,
) -> "Audit":
    """Attack a run's model and compare the findings with its claim.

    Under torchrun, its processes divide the work, and the first of them writes.

    Args:
        run: a finished run with its private part. `release/tacit/audit.json` gets what canaries showed, `private/` has
            everything.
        attacks: names of the attacks to make, such as ["exposure", "membership"]; all by default.
        reference: a run with the same tokenizer that did not see the records.
        settings: how hard to attack, such as {"candidates": 100, "confidence": 0.99}, over the settings under `audit`
            that the run was trained with.
        shadow_models: train so many models (1 or 2) like the run on other halves of its corpus, for stronger attacks on
            membership. They are kept in `private/shadows/`, and resumed there.
        observe: called with progress events.

    Examples:
        >>> import tacit
        >>> found = tacit.audit("run", attacks=["membership"], settings={"candidates": 10})
        >>> found.verdict.exit_code
        0
    """
    from tacit.audits.audit import audit as attack
    from tacit.config.audit_schema import AuditConfig
    from tacit.config.load import load as load_settings

    other = None if reference is None else folder_of(reference)
    trained_with = {name: value for name, value in load(run).config.get("audit", {}).items() if name != "canaries"}
    config = load_settings(AuditConfig, trained_with, settings or {})
    shadows: tuple[Path, ...] = ()
    if shadow_models:
        from tacit.training.shadows import train_shadows

        shadows = train_shadows(folder_of(run), shadow_models, logged(observe))
    with _audited_together(load(run).config) as ranks:
        return attack(folder_of(run), config, logged(observe), other, attacks, shadows, ranks)


def _audited_together(config: Mapping[str, Any]) -> "AbstractContextManager[Group]":
    """The processes that torchrun started, or this one alone; attacks compute on processors."""
    from datetime import timedelta

    from tacit.config.load import load as load_settings
    from tacit.config.schema import ExecutionConfig
    from tacit.training.group import joined

    execution = load_settings(ExecutionConfig, config.get("execution", {}), {})
    return joined("cpu", timedelta(minutes=execution.timeout_minutes))


def shadow_seconds(run: str | Path | Run, shadow_models: int) -> float | None:
    """About how long `audit(run, shadow_models=...)` will train models; None where nothing tells."""
    from tacit.training.shadows import seconds_for

    return seconds_for(folder_of(run), shadow_models)


def audit_model(
    model: str | Path, candidates: str | Path, *, seed: int = 0, observe: "Observer" = unwatched
) -> "ForeignAudit":
    """`tacit audit --model`: how exposed the secrets of a file are in any local Hugging Face causal model."""
    from tacit.audits.audit import audit_model as attack

    with _audited_together({}) as ranks:
        return attack(Path(model), Path(candidates), seed, logged(observe), ranks=ranks)


def report(
    runs: str | Path | Run | Sequence[str | Path | Run], *, out: str | Path | None = None, sample: int | None = None
) -> "Reported":
    """Write one page for a run, or one page that compares several.

    Args:
        runs: run folders or runs. With one, its certificate and model card are written too.
        out: the page; by default in `release/` of the run, and comparison.html for several.
        sample: show so many training records, secrets hidden; that page goes to `private/` and must stay there.

    Examples:
        >>> import tacit
        >>> tacit.report("run").page.name
        'report.html'
    """
    from tacit.reports.write import report as write
    from tacit.reports.write import report_inside

    folders = [folder_of(run) for run in ([runs] if isinstance(runs, str | Path | Run) else runs)]
    if sample is None:
        return write(folders, None if out is None else Path(out))
    if len(folders) != 1 or out is not None:
        raise ConfigError(
            expected="one run and no --out with --sample",
            found=f"{len(folders)} runs" if len(folders) != 1 else "--out",
            way_out="tacit report RUN --sample 5 writes RUN/private/report.html: text of a corpus stays there",
        )
    return report_inside(folders[0], sample)


def verify(run: str | Path | Run) -> "Verified":
    """Recompute a run's claim from its ledger, plan and files.

    Args:
        run: a run, or a copy of its `release/` under any name.

    Examples:
        >>> import tacit
        >>> tacit.verify("run").holds
        True
    """
    from tacit.runs.verify import verify as check

    return check(folder_of(run))


def export(run: str | Path | Run, merged: str | Path, *, base: str | Path | None = None) -> Path:
    """Write the model of a run as a new Hugging Face folder with all its weights; adapters are merged into them.

    The folder is a release of the run: its claim comes along, and `verify`, `load` and `train` take it as the run.

    Args:
        run: a finished run of a `gpt` or of a model from a folder, or a copy of its `release/`.
        merged: the folder to write; it must not exist.
        base: the folder of the base model, for adapters in a copy of `release/`.
    """
    from tacit.models.saving import export_merged
    from tacit.runs.folder import RunFolder

    opened = load(run, base=base)  # anew: its model is used up
    export_merged(RunFolder.view(opened.folder), opened.model, Path(merged))
    return Path(merged)


def sweep(
    recipe: str | Path,
    *,
    out: str | Path | None = None,
    results: str | Path | None = None,
    data: str | Path | None = None,
    scale: float = 1.0,
    jobs: int = 1,
    audit: bool = True,
    observe: "Callable[[str, Progress | RunOutcome], None] | None" = None,
) -> "Swept":
    """Train, attack and report every run of a recipe; called again, it resumes. `observe` gets the name of a run."""
    from tacit.sweeps.sweep import sweep as go

    return go(recipe, out, results, data, scale, jobs, audit, observe)


def sweep_slurm(
    recipe: str | Path,
    folder: str | Path,
    *,
    out: str | Path | None = None,
    results: str | Path | None = None,
    data: str | Path | None = None,
    scale: float = 1.0,
    audit: bool = True,
) -> Path:
    """Write every run of a recipe as a job of Slurm into a new folder; the script that submits them is returned."""
    from tacit.sweeps.sweep import write_slurm

    return write_slurm(recipe, folder, out, results, data, scale, audit)


def sweep_board(recipe: str | Path, scale: float = 1.0) -> "Board":
    """The table of a sweep that is about to begin; its `observe` is an `observe` of `sweep`."""
    from tacit.sweeps.sweep import Board

    return Board.of(Path(recipe), scale)
