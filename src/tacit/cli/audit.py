"""`tacit audit`: attack the model of a run, or one from elsewhere, and say what came out; never a secret unasked.

What an audit found, as tables for people: ids, templates and numbers; values only where they are asked for.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tacit.audits.findings import Audit, CanaryFinding, ExtractedShare, Finding, TwoStageFinding, Verdict, figure_for
from tacit.audits.statistics import MeasuredRate, Rates
from tacit.cli.output import watching
from tacit.common.formatting import rounded_up
from tacit.common.serialize import LARGEST_SEED
from tacit.errors import ConfigError
from tacit.privacy.guarantee import Guarantee

if TYPE_CHECKING:
    from tacit.audits.named_secrets import ForeignAudit
    from tacit.runs.canaries import Planted


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
    from tacit.audits.audit import audit as attack
    from tacit.config.audit_schema import AuditConfig
    from tacit.privacy.guarantee import Guarantee
    from tacit.runs.canaries import planted_canaries
    from tacit.runs.files import PrivateFile, ReleaseFile
    from tacit.runs.folder import RunFolder

    usual = AuditConfig()
    settings = AuditConfig(
        candidates=usual.candidates if rows is None else rows,
        confidence=usual.confidence if confidence is None else confidence,
        seed=seed,
        checkpoints=checkpoints,
    )
    with watching() as observe:
        found = attack(folder, settings, observe, reference)
    console, view = Console(highlight=False), RunFolder.view(folder)
    print_audit(found, view.read_json(Guarantee, PrivateFile.GUARANTEE), console)
    if show_secrets and found.canaries:
        console.print(secrets_table(found, planted_canaries(view).planted), "", sep="\n")
    written, kept = folder / "release" / ReleaseFile.AUDIT, folder / "private" / PrivateFile.AUDIT
    console.print(Text(f"written to {written}: what canaries showed; and to {kept}: everything"), soft_wrap=True)
    raise typer.Exit(found.verdict.exit_code)


def _audit_model(folder: Path, candidates: str | None, seed: int, out: Path | None, show_secrets: bool) -> None:
    from tacit.audits.named_secrets import audit_model, read_named
    from tacit.common.files import write_bytes
    from tacit.common.serialize import to_json
    from tacit.config.audit_schema import ExposureConfig

    if candidates is None:
        raise ConfigError(
            "--candidates FILE with --model", "none", "name the secrets to look for, one JSON object a line"
        )
    secrets = read_named(Path(candidates))
    with watching() as observe:
        found = audit_model(folder, secrets, ExposureConfig(), seed, observe)
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


_COLOURS = {
    Finding.CONSISTENT: "bold green",
    Finding.CONTRADICTED: "bold white on red",
    Finding.NOT_COMPARABLE: "bold yellow",
}

NO_CANARIES = """\
No canaries were planted with this run, so neither exposure nor epsilon was measured. Plant some in its YAML file:
  canaries:
    - {template: "My ID is {6 digits}", count: 200, repetitions: 1}
    - {template: "My code is {6 digits}", count: 20, repetitions: 10, known: false}"""

WHICH_CANARIES = """\
Canaries measure a claim about secrets with known: true, repetitions: 1 and inside_probability: 1.0 (a coin chose each
value); one about records or users with inside_probability: 0.5 (a coin chose whether there is one)."""

FEW_ROWS = "Membership was not attacked: one side of the corpus has fewer than 10 records. Raise held_out."
NO_SECRETS = "Extraction was not tried: one side of the corpus has no marked secrets."


def print_audit(found: Audit, guarantee: Guarantee, console: Console) -> None:
    """The claim, the verdict, and everything behind it."""
    console.print(Text(guarantee.sentence()), "", sep="\n")
    console.print(_sentence(found.verdict), "", sep="\n")
    parts: list[Table | Text] = []
    parts += [_exposure_table(found.canaries)] if found.canaries else [Text(NO_CANARIES)]
    parts += [_bound_table(found, guarantee)] if found.bounds else []
    if found.canaries and guarantee.figures and found.verdict.finding is Finding.NOT_COMPARABLE:
        parts.append(Text(WHICH_CANARIES))
    parts += _membership(found)
    parts += [_extraction_table(found)] if found.extraction else [Text(NO_SECRETS)]
    parts += [_curve_table(found)] if found.curve else []
    for part in parts:
        console.print(part, "", sep="\n")


def _sentence(verdict: Verdict) -> Text:
    return Text(verdict.sentence, style=_COLOURS[verdict.finding])


def _exposure_table(canaries: Sequence[CanaryFinding]) -> Table:
    table = _table(
        "exposure of planted canaries in bits, in brackets that of values held out",
        ("template", "policy", "planted", "median", "best", "at most", "p all", "p best"),
    )
    for one in canaries:
        result, excess = one.exposure, one.exposure.excess
        head = (Text(one.template), "knows" if one.known else "does not")
        if excess is None:
            table.add_row(*head, "none")
            continue
        median = f"{excess.median_inside:.1f} ({excess.median_held_out:.1f})"
        best = f"{excess.best_inside:.1f} ({excess.best_held_out:.1f})"
        most = "" if result.draws is not None else f"{math.log2(result.space):.1f}"
        chances = (_chance(excess.p_all), "" if result.best_chance is None else _chance(result.best_chance))
        table.add_row(*head, _planted(one, excess.inside), median, best, most, *chances)
    return table


def _planted(canaries: CanaryFinding, inside: int) -> str:
    left_out = f", {canaries.left_out} left out as duplicates" if canaries.left_out else ""
    return f"{inside} x {canaries.repetitions}{left_out}"


def _bound_table(found: Audit, guarantee: Guarantee) -> Table:
    confidence = f"{100 * found.bounds[0].bound.confidence:.4g}"
    table = _table(
        f"epsilon, with {confidence} % confidence",
        ("canaries", "what differs", "at least", "claimed", "delta", "finding"),
    )
    table.columns[1].no_wrap = False
    for one in found.bounds:
        figure = figure_for(guarantee, one.measured)
        table.add_row(
            Text(one.template),
            str(one.measured),
            f"{one.bound.epsilon:.3f}",
            "nothing" if figure is None else rounded_up(figure.epsilon, 4),
            f"{one.bound.delta:.2g}",
            Text(one.verdict.finding, style=_COLOURS[one.verdict.finding]),
        )
    return table


def _membership(found: Audit) -> list[Table | Text]:
    if found.blind is None:
        return [Text(FEW_ROWS)]
    level = f"{100 * found.blind.rates.confidence:.4g}"
    sides = f"{found.blind.rates.members:,} members and {found.blind.rates.others:,} others"
    table = _table(
        f"membership in %, with {level} % intervals: {sides}",
        ("attack", "accuracy", "AUC", "TPR at 1 % FPR", "at 0.1 % FPR"),
    )
    table.add_row("text alone", *_rates(found.blind.rates), style="dim")
    for one in found.membership:
        table.add_row(one.attack, *_rates(one.rates))
    parts: list[Table | Text] = [table]
    if found.blind.flagged:
        chance = _chance(found.blind.chance)
        warning = f"The texts alone tell members from others (p = {chance}): no figure of membership means anything."
        parts.append(Text(warning, style="bold yellow"))
    groups = [(one.attack, one.group_size, one.groups) for one in found.membership if one.groups is not None]
    if groups:
        table = _table(f"membership of groups of {groups[0][1]}", ("attack", "groups", "accuracy", "AUC"))
        for attack, _, figures in groups:
            count = figures.members + figures.others
            table.add_row(attack, f"{count:,}", _measured(figures.cut.accuracy), _measured(figures.auc))
        parts.append(table)
    if found.two_stage is not None:
        parts.append(Text(two_stage_sentence(found.two_stage), style="dim"))
    return parts


def two_stage_sentence(found: TwoStageFinding) -> str:
    """The figure of S-DP's appendix A.5 with what it is worth."""
    return (
        f"The two-stage attack of S-DP is right about {found.accuracy:.1%} of {found.candidates:,}, and with random "
        f"scores about {found.of_noise:.1%}: the truth chose whom it keeps, so it measures nothing."
    )


def _extraction_table(found: Audit) -> Table:
    assert found.extraction is not None
    trained, held_out = found.extraction.trained, found.extraction.held_out
    table = _table("secrets that came out word for word, with 95 % intervals", ("way", "trained on", "held out"))
    rows = [("most probable text", trained.greedy, held_out.greedy)]
    rows += [(f"one of {trained.tries} samples", trained.sampled, held_out.sampled)]
    for own, other in zip(trained.discoverable, held_out.discoverable, strict=True):
        rows.append((f"one of {own.tries:,} with probability {own.probability:g}", own.share, other.share))
    for way, own_share, other_share in rows:
        table.add_row(way, _share(own_share), _share(other_share))
    return table


def _curve_table(found: Audit) -> Table:
    heads = [f"{'known' if one.known else 'hidden'}: {one.template}" for one in found.curve[0].exposures]
    table = _table("models on the way: median / best exposure", ("step", "perplexity", *heads, "membership %"))
    for point in found.curve:
        bits = [
            "" if one.excess is None else f"{one.excess.median_inside:.1f} / {one.excess.best_inside:.1f}"
            for one in point.exposures
        ]
        accuracy = "" if point.membership is None else _measured(point.membership.cut.accuracy)
        table.add_row(f"{point.step:,}", f"{point.perplexity:.4g}", *bits, accuracy)
    return table


def secrets_table(found: Audit, planted: "Sequence[Planted]") -> Table:
    """What the canaries say, most exposed first."""
    values = {canary.id: canary.value for one in planted for canary in one.canaries}
    table = _table("canaries", ("id", "value", "planted", "exposure", "rank", "twin's exposure"))
    canaries = [one for finding in found.canaries for one in finding.exposure.canaries]
    for one in sorted(canaries, key=lambda canary: (-canary.own.bits, canary.id)):
        rank = "" if one.own.rank is None else f"{one.own.rank:,g}"
        cells = ("yes" if one.inside else "no", f"{one.own.bits:.2f}", rank, f"{one.twin.bits:.2f}")
        table.add_row(one.id, Text(values[one.id]), *cells)
    return table


def named_table(found: "ForeignAudit", values: Mapping[str, str] | None) -> Table:
    """Exposure by id; with `values`, what each secret is."""
    table = _table("exposure, in bits", ("id", *(["value"] if values else []), "exposure", "rank", "of", "p"))
    for one in found.secrets:
        exposure = one.exposure
        rank = "" if exposure.rank is None else f"{exposure.rank:,.10g}"
        error = f" ± {exposure.standard_error:.2f}" if exposure.standard_error else ""
        value = [Text(values[one.id])] if values else []
        chance = "" if exposure.chance is None else _chance(exposure.chance)
        table.add_row(Text(one.id), *value, f"{exposure.bits:.2f}{error}", rank, f"{one.space:,}", chance)
    return table


def _rates(figures: Rates) -> list[str]:
    low = [_measured(one.found) for one in figures.low]
    return [_measured(figures.cut.accuracy), _measured(figures.auc), *low]


def _measured(figure: MeasuredRate) -> str:
    return f"{100 * figure.value:.1f} ({100 * figure.interval.low:.0f}-{100 * figure.interval.high:.0f})"


def _share(share: ExtractedShare) -> str:
    low, high = share.interval
    return f"{share.count:,} of {share.of:,} ({low:.1%}-{high:.1%})"


def _chance(chance: float) -> str:
    return f"{chance:.2g}"


def _table(title: str, heads: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for place, head in enumerate(heads):
        table.add_column(head, justify="right" if place else "left", no_wrap=place > 0)
    return table
