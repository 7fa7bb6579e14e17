"""`tacit scan`: what is secret in a corpus, printed and written to a page."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tacit import api
from tacit.cli.options import FIELDS, field_names, with_flags
from tacit.cli.output import AsJson, print_json, share_cell, share_value, watching

if TYPE_CHECKING:
    from tacit.policies.card import PolicyCard
    from tacit.policies.marking import Excerpt
    from tacit.policies.scan import Scan

_STYLES = ("blue", "yellow", "green", "magenta", "cyan", "red", "bright_blue", "bright_green")
_MOST_KINDS = 20
CorpusPath = Annotated[Path, typer.Argument(help="jsonl, csv, txt (also .gz, .xz, .zst), parquet, or a saved dataset.")]
Processes = Annotated[int | None, typer.Option(help="How many processes.", show_default="all cores")]


def scan(
    *,
    corpus: CorpusPath,
    policy: Annotated[str, typer.Option(help="A policy's name, names with commas (any of them), or a YAML file.")],
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for scan.html, scan.json and quarantine.jsonl.", show_default="scan-CORPUS"),
    ] = None,
    show_secrets: Annotated[
        bool, typer.Option("--show-secrets", help="Print secrets, and write them to the page and the JSON file.")
    ] = False,
    sample: Annotated[int, typer.Option(help="How many records to show.")] = 5,
    stability: Annotated[
        int, typer.Option(help="On how many records to measure mask stability; 0 if a slow policy takes too long.")
    ] = 200,
    processes: Processes = None,
    as_json: AsJson = False,
    flags: dict[str, str],
) -> None:
    """Show what is secret in a corpus and, if the corpus has gold spans, how well the policy finds it."""
    out = out or Path(f"scan-{corpus.name.split('.')[0] or 'corpus'}")
    with watching() as observe:
        result = api.scan(
            corpus,
            policy,
            sample=sample,
            show_secrets=show_secrets,
            stability=stability,
            processes=processes,
            out=out,
            observe=observe,
            **field_names(flags),
        )
    if as_json:
        print_json(result)
    else:
        _print(result, Console(highlight=False), out)


scan_command = with_flags(scan, FIELDS)


def _print(result: "Scan", console: Console, out: Path) -> None:
    console.print(_numbers(result), "", _kinds(result), "", sep="\n")
    if result.card is not None:
        console.print(_card(result.card), Text(result.card.sentence()), "", sep="\n")
    styles = {kind: _STYLES[at % len(_STYLES)] for at, kind in enumerate(sorted(_kinds_shown(result)))}
    for shown in result.sample:
        console.print(Text(f"record {shown.record:,}" + (f": {shown.id}" if shown.id else ""), style="bold"))
        console.print(_text(shown, styles), "", sep="\n")
    if result.sample:
        console.print(Text(_legend(result.shows_secrets), style="dim"))
    if result.quarantined:
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in result.quarantined.items())
        console.print(Text(f"set aside: {reasons}; listed in {out / 'quarantine.jsonl'}"), soft_wrap=True)
    console.print(Text(f"page {out / 'scan.html'}, data {out / 'scan.json'}"), soft_wrap=True)


def _numbers(result: "Scan") -> Table:
    from tacit.common.formatting import floor, percent, printable

    table = Table(show_header=False, box=None, pad_edge=False)
    speed = result.characters / max(result.seconds, 1e-9)
    rows = {
        "corpus": result.corpus,
        "policy": f"{printable(result.policy_id)} ({result.policy_hash[:12]})",
        "records": f"{result.records:,}",
        "  with a secret": f"{result.records_with_secrets:,} ({percent(result.share_of_records)})",
        "  set aside": f"{sum(result.quarantined.values()):,}",
        "users": f"{result.users:,}" if result.users else "not given",
        f"tokens ({result.token_unit})": f"{result.tokens:,}",
        "  sensitive": f"{result.sensitive_tokens:,} ({percent(result.share_of_tokens)})",
        "secrets": f"{result.secrets:,}",
        "time": f"{result.seconds:.1f} s ({speed:,.0f} characters/s)",
    }
    if stability := result.stability.spans:
        changed = percent(result.stability.rest_changed / stability)
        stable = floor(result.stability.redaction_stable / stability)
        rows["mask stability"] = (
            f"of {stability:,} secrets: rest of the mask changed with {changed}, redaction stable for {stable}"
        )
    for name, value in rows.items():
        table.add_row(Text(name, style="dim"), Text(value))
    return table


def _kinds(result: "Scan") -> Table:
    from tacit.common.formatting import short

    table = Table(title="secrets by kind", title_justify="left", box=None, pad_edge=False)
    for name in ("kind", "secrets", "records"):
        table.add_column(name, justify="left" if name == "kind" else "right")
    order = sorted(result.kinds.items(), key=lambda entry: (-entry[1].secrets, entry[0]))
    for kind, total in order[:_MOST_KINDS]:
        table.add_row(Text(short(kind)), f"{total.secrets:,}", f"{total.records:,}")
    if len(order) > _MOST_KINDS:
        table.add_row(Text(f"and {len(order) - _MOST_KINDS:,} more kinds", style="dim"))
    return table


def _card(card: "PolicyCard") -> Table:
    from tacit.common.formatting import short

    table = Table(title="policy card, with 95 % intervals", title_justify="left", box=None, pad_edge=False)
    for name in ("kind", "recall %", "precision %", "F2 %", "labelled", "found"):
        table.add_column(name, justify="left" if name == "kind" else "right", no_wrap=name != "kind")
    rows = [("all kinds", card.overall), *((short(kind), quality) for kind, quality in card.kinds.items())]
    for kind, quality in rows[: _MOST_KINDS + 1]:
        cells = (share_cell(quality.recall), share_cell(quality.precision), share_value(quality.f2))
        table.add_row(Text(kind), *cells, f"{quality.counts.gold:,}", f"{quality.counts.found:,}")
    if len(rows) > _MOST_KINDS + 1:
        table.add_row(Text(f"and {len(rows) - _MOST_KINDS - 1:,} more kinds", style="dim"))
    return table


def _text(shown: "Excerpt", styles: dict[str, str]) -> Text:
    """A record with its secrets marked by colour and by word. Never markup: the text may hold anything."""
    text = Text("… " if shown.cut_before else "")
    for piece in shown.pieces:
        if piece.state == "plain":
            text.append(piece.text or "")
            continue
        style = "bold red" if piece.state == "missed" else styles[piece.kind]
        text.append(f"[{piece.label()} {piece.shown}]", style=f"{style} reverse")
    text.rstrip()
    return text.append(" …") if shown.cut_after else text


def _kinds_shown(result: "Scan") -> set[str]:
    return {piece.kind for shown in result.sample for piece in shown.pieces}


def _legend(shows_secrets: bool) -> str:
    marks = "missed: labelled secret, not found; again: text of a secret where nothing marks it"
    return marks if shows_secrets else f"secrets hidden (--show-secrets shows them); {marks}"
