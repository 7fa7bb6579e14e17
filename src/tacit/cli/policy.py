"""`tacit policy`: what policies do on a corpus, side by side.

`tacit label`: draw a sample of a corpus for a person to label, and read from the labels what a policy misses.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tacit import api
from tacit.cli.options import FIELDS, field_names, with_flags
from tacit.cli.output import AsJson, print_json, share_cell, watching
from tacit.cli.scan import CorpusPath, Processes
from tacit.common.serialize import LARGEST_SEED
from tacit.errors import ConfigError

if TYPE_CHECKING:
    from tacit.policies.compare import ComparedPolicy, PolicyComparison
    from tacit.policies.coverage import CoverageCounts

_MOST_KINDS = 20
_NOT_MEASURED = "–"
policy = typer.Typer(help="Compare policies: what each marks, misses and costs.", no_args_is_help=True)


@policy.callback()
def _policy() -> None:
    """So that the verb is written out, `tacit policy compare`, though it is the only one."""


def compare(
    *,
    corpus: CorpusPath,
    policies: Annotated[
        str | None, typer.Option(help="Names of policies to compare, separated by commas: digits,pii.")
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
    as_json: AsJson = False,
    flags: dict[str, str],
) -> None:
    """Put policies side by side on one corpus: what each marks, finds and misses, its speed, where they agree."""
    words = _words(policies, policy or [])
    out = out or Path(f"policies-{corpus.name.split('.')[0] or 'corpus'}")
    with watching() as observe:
        result = api.compare_policies(
            corpus, words, processes=processes, out=out, observe=observe, **field_names(flags)
        )
    if as_json:
        print_json(result)
    else:
        _print(result, Console(highlight=False), out)


policy.command("compare")(with_flags(compare, FIELDS))


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


def _print(result: "PolicyComparison", console: Console, out: Path) -> None:
    from tacit.common.formatting import printable

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


def _quality(result: "PolicyComparison") -> Table:
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


def _cost(result: "PolicyComparison") -> Table:
    from tacit.common.formatting import floor, number, percent

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


def _kinds(result: "PolicyComparison") -> Table:
    from tacit.common.formatting import short

    table = _table("kind", "labels", *(short(one.name) for one in result.policies))
    rows = result.kind_rows()
    for row in rows[:_MOST_KINDS]:
        cells = [Text(_NOT_MEASURED) if share is None else share_cell(share, "\n") for share in row.recalls]
        table.add_row(Text(short(row.kind)), f"{row.labels:,}", *cells)
    if len(rows) > _MOST_KINDS:
        table.add_row(Text(f"and {len(rows) - _MOST_KINDS:,} more kinds", style="dim"))
    return table


def _agreement(result: "PolicyComparison") -> Table:
    from tacit.common.formatting import short

    names = [short(one.name) for one in result.policies]
    table = _table("", *names)
    for one, cells in zip(result.policies, result.agreement_rows(), strict=True):
        table.add_row(_name(one), *cells)
    return table


def _ceiling(bound: float) -> str:
    from tacit.common.formatting import ceiling

    return ceiling(bound).removesuffix(" %")


def _name(one: "ComparedPolicy") -> Text:
    from tacit.common.formatting import short

    return Text(short(one.name))


label = typer.Typer(
    help="Measure what a policy misses: draw a sample of the corpus, label it, read the labels.", no_args_is_help=True
)

PolicyWords = Annotated[str, typer.Option(help="A policy's name, names with commas (any of them), or a YAML file.")]

Conservative = Annotated[
    str | None,
    typer.Option(help="The policy that clears records for training without protection (crt), as for --policy."),
]


def draw(
    *,
    corpus: CorpusPath,
    policy: PolicyWords,
    out: Annotated[Path, typer.Option(help="New file for the sample. It contains secrets, and only you can read it.")],
    conservative: Conservative = None,
    records: Annotated[int, typer.Option(min=1, help="How many records (turns, sentences) to draw.")] = 200,
    segment_by: Annotated[
        Literal["record", "turn", "sentence"],
        typer.Option(help="What to draw and label: as data.segment_by when you train."),
    ] = "record",
    seed: Annotated[
        int | None, typer.Option(min=0, max=LARGEST_SEED, help="Same seed, same sample.", show_default="random")
    ] = None,
    gold: Annotated[bool, typer.Option("--gold", help="Use the corpus's gold spans as labels.")] = False,
    show_found: Annotated[
        bool, typer.Option("--show-found", help="Show what the policies found while labeling, which biases people.")
    ] = False,
    as_json: AsJson = False,
    flags: dict[str, str],
) -> None:
    """Draw records uniformly at random for a person to label."""
    sample = api.label_draw(
        corpus,
        policy,
        out,
        conservative=conservative,
        records=records,
        seed=seed,
        gold=gold,
        show_found=show_found,
        segment_by=segment_by,
        **field_names(flags),
    )
    if as_json:
        print_json(sample)
        return
    header = sample.header
    typer.echo(f"{records:,} of {header.population.records:,} {segment_by}s drawn with seed {header.seed} into {out}.")
    typer.echo("The file holds secrets: it was made readable by you alone (0600). Delete it when you are done with it.")
    if gold:
        typer.echo("Labels: the corpus's gold spans.")
    else:
        typer.echo(header.how_to_label)
    again = f" --conservative {conservative}" if conservative is not None else ""
    typer.echo(f"Then: tacit label read {out} --policy {policy}{again}")


label.command("draw")(with_flags(draw, FIELDS))


def read(
    *,
    sample: Annotated[Path, typer.Argument(help="The labeled sample.")],
    policy: PolicyWords,
    conservative: Conservative = None,
    corpus: Annotated[
        Path | None, typer.Option(help="Check that the sample is from this corpus.", show_default="not checked")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="File for the counts; an existing one is replaced.", show_default="none")
    ] = None,
    as_json: AsJson = False,
    flags: dict[str, str],
) -> None:
    """Compute an upper bound on how often the policy misses a secret, from a labeled sample."""
    names = field_names(flags)
    counts = api.label_read(sample, policy, conservative=conservative, corpus=corpus, out=out, **names)
    if as_json:
        print_json(counts)
        return
    _print_coverage(counts)
    if out is not None:
        typer.echo(f"Counts in {out}.")


label.command("read")(with_flags(read, FIELDS))


def _print_coverage(result: "CoverageCounts") -> None:
    from tacit.common.formatting import rounded_up

    population = result.population
    typer.echo(
        f"{result.sampled:,} of the corpus's {population.records:,} {population.segment_by}s, labels: {result.labels}; "
        f"{result.with_secrets:,} of them hold a secret."
    )
    typer.echo(_capital(str(result.coverage)))
    typer.echo(_capital(str(result.coverage_of_secrets)))
    cleared, rates = result.conservative_coverage, result.average_rates
    if cleared is not None and rates is not None:
        typer.echo(f"Records with a secret in which neither policy finds anything: {cleared}")
        missed, lost = (rounded_up(rate, 3) for rate in rates)
        typer.echo(
            f"Both at once, with {cleared.confidence:.0%} confidence, among records with secrets: at most {missed} "
            f"missed or not redacted stably, and at most {lost} in which neither policy finds anything"
        )


def _capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]
