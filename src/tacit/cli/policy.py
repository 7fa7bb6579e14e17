"""`tacit policy`: what policies do on a corpus, side by side."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tacit.cli.scan import (
    NAMES,
    AsJson,
    CorpusPath,
    IdField,
    LabelField,
    Processes,
    SpansField,
    TextField,
    TurnsField,
    UserField,
    make_folder,
    reading_progress,
    share_cell,
)
from tacit.corpus.shape import Fields
from tacit.errors import ConfigError
from tacit.private_files import write_private

if TYPE_CHECKING:
    from tacit.scan.compare import ComparedPolicy, Comparison

_MOST_KINDS = 20
_NOT_MEASURED = "–"

policy = typer.Typer(help="Compare policies: what each covers, misses and costs.", no_args_is_help=True)


@policy.callback()
def _policy() -> None:
    """So that the verb is written out, `tacit policy compare`, though it is the only one."""


@policy.command("compare")
def compare(
    corpus: CorpusPath,
    policies: Annotated[
        str | None, typer.Option(help="Names of policies with commas between them, each by itself: digits,pii.")
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            help="One more policy, as for `tacit scan`: a name, names with commas (any of them), or a YAML file."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for policies.html, policies.json and quarantine.jsonl.", show_default="policies-CORPUS"
        ),
    ] = None,
    processes: Processes = None,
    json_: AsJson = False,
    text_field: TextField = NAMES.text,
    id_field: IdField = NAMES.id,
    user_field: UserField = NAMES.user,
    label_field: LabelField = NAMES.label,
    spans_field: SpansField = NAMES.spans,
    turns_field: TurnsField = NAMES.turns,
) -> None:
    """Put policies side by side on one corpus: what each marks, finds and misses, its speed, where they agree."""
    from tacit.corpus.read import read
    from tacit.policy.registry import parse_policy
    from tacit.report.policies_page import policies_page
    from tacit.scan.compare import compare_policies

    chosen = {words: parse_policy(words) for words in _words(policies, policy or [])}
    fields = Fields(text_field, id_field, user_field, label_field, spans_field, turns_field)
    read(corpus, fields)  # refuses what cannot be read before a folder is made for the result
    out = out or Path(f"policies-{corpus.name.split('.')[0] or 'corpus'}")
    make_folder(out)
    reader = read(corpus, fields, out / "quarantine.jsonl")
    with reading_progress(reader) as progress:
        result = compare_policies(reader, chosen, processes=processes, progress=progress)
    as_json = json.dumps(result.to_json(), indent=2) + "\n"
    write_private(out / "policies.json", as_json.encode())
    write_private(out / "policies.html", policies_page(result).encode())
    if json_:
        typer.echo(as_json, nl=False)
    else:
        _print(result, Console(highlight=False), out)


def _words(policies: str | None, more: list[str]) -> list[str]:
    """Each policy as it was asked for, once."""
    words = [name.strip() for name in policies.split(",")] if policies is not None else []
    words += [one.strip() for one in more]
    if not words:
        raise ConfigError(
            expected="policies to compare",
            found="none",
            way_out="name some, such as --policies digits,pii, or --policy for one made of several or from a file",
        )
    twice = next((one for one in words if words.count(one) > 1), None)
    if twice is not None:
        raise ConfigError("each policy once", f"{twice!r} twice", "leave one of them out")
    return words


def _print(result: "Comparison", console: Console, out: Path) -> None:
    from tacit.scan.excerpt import printable

    labelled = f", {result.labelled:,} of them with labels" if result.labelled else ", without labels"
    console.print(Text(f"{printable(result.corpus)}: {result.records:,} records{labelled}"), "", sep="\n")
    if any(one.card for one in result.policies):
        _show(console, "against the labels, with 95 % intervals", _quality(result))
    _show(console, "coverage, speed and mask stability", _cost(result))
    if result.kinds:
        _show(console, "recall by kind, %", _kinds(result))
    if len(result.policies) > 1:
        _show(console, "of the characters that the row finds, the share that the column finds too", _agreement(result))
    if result.quarantined:
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in result.quarantined.items())
        console.print(Text(f"set aside: {reasons}; listed in {out / 'quarantine.jsonl'}"), soft_wrap=True)
    console.print(Text(f"page {out / 'policies.html'}, data {out / 'policies.json'}"), soft_wrap=True)


def _show(console: Console, title: str, table: Table) -> None:
    console.print(Text(title, style="italic"), table, "", sep="\n")


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column(first, overflow="fold")
    for name in others:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _quality(result: "Comparison") -> Table:
    table = _table("policy", "recall %", "precision %", "F2 %", "records\nmissed", "at most %\n(if chosen)")
    for one in result.policies:
        if one.card is None:
            table.add_row(_name(one), *[_NOT_MEASURED] * 5)
            continue
        quality, counts, chosen = one.card.overall, one.card.counts, result.chosen_bound(one.card)
        table.add_row(
            _name(one),
            *(share_cell(share, "\n") for share in (quality.recall, quality.precision, quality.f2)),
            f"{counts.missed_records:,} of\n{counts.records:,}",
            Text.assemble(_ceiling(one.card.miss_bound), (f"\n({_ceiling(chosen)})", "dim")),
        )
    return table


def _cost(result: "Comparison") -> Table:
    from tacit.report.words import floor, number, percent

    table = _table("policy", "tokens", "records", "findings", "records/s\na core", "mask\nmoved", "redaction\nstable")
    for one in result.policies:
        table.add_row(
            _name(one),
            percent(one.share_of_tokens),
            percent(one.share_of_records),
            f"{one.secrets:,}",
            number(one.records_a_second),
            percent(one.mask_moved),
            floor(one.redaction_stable),
        )
    return table


def _kinds(result: "Comparison") -> Table:
    from tacit.report.policies_page import kind_rows
    from tacit.scan.excerpt import short

    table = _table("kind", "labels", *(short(one.name) for one in result.policies))
    rows = kind_rows(result)
    for row in rows[:_MOST_KINDS]:
        cells = [Text(_NOT_MEASURED) if share is None else share_cell(share, "\n") for share in row.recalls]
        table.add_row(Text(short(row.kind)), f"{row.labels:,}", *cells)
    if len(rows) > _MOST_KINDS:
        table.add_row(Text(f"and {len(rows) - _MOST_KINDS:,} more kinds", style="dim"))
    return table


def _agreement(result: "Comparison") -> Table:
    from tacit.report.policies_page import agreement_rows
    from tacit.scan.excerpt import short

    names = [short(one.name) for one in result.policies]
    table = _table("", *names)
    for one, cells in zip(result.policies, agreement_rows(result), strict=True):
        table.add_row(_name(one), *cells)
    return table


def _ceiling(bound: float) -> str:
    from tacit.report.words import ceiling

    return ceiling(bound).removesuffix(" %")


def _name(one: "ComparedPolicy") -> Text:
    from tacit.scan.excerpt import short

    return Text(short(one.name))
