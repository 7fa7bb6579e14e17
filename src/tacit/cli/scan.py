"""`tacit scan`: what is secret in a corpus, printed and written to a page.

`tacit policy`: what policies do on a corpus, side by side.

`tacit label`: draw a sample of a corpus for a person to label, and read from the labels what a policy misses.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from tacit import api
from tacit.cli.output import FIELDS, AsJson, CorpusPath, Processes, field_names, show, watching, with_flags
from tacit.common.serialize import LARGEST_SEED
from tacit.config.setting import SegmentBy
from tacit.errors import ConfigError

if TYPE_CHECKING:
    from tacit.policies.marking import Excerpt

_STYLES = ("blue", "yellow", "green", "magenta", "cyan", "red", "bright_blue", "bright_green")
PolicyName = Annotated[str, typer.Option(help="A policy's name, names with commas (any of them), or a YAML file.")]


def scan(
    *,
    corpus: CorpusPath,
    policy: PolicyName,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for scan.html, scan.json and quarantine.jsonl.", show_default="scan-CORPUS"),
    ] = None,
    show_secrets: Annotated[
        bool, typer.Option("--show-secrets", help="Print secrets, and write them to the page and the JSON file.")
    ] = False,
    sample: Annotated[int, typer.Option(help="How many records to show.")] = 5,
    stability: Annotated[int, typer.Option(help="On how many records to measure mask stability.")] = 200,
    no_stability: Annotated[
        bool, typer.Option("--no-stability", help="Leave mask stability out, which takes a slow policy long.")
    ] = False,
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
            stability=0 if no_stability else stability,
            processes=processes,
            out=out,
            observe=observe,
            **field_names(flags),
        )
    show(result, as_json)
    if not as_json:
        _print_sample(result.sample, result.shows_secrets)
        _print_places(out, "scan", result.quarantined)


scan_command = with_flags(scan, FIELDS)


def _print_sample(sample: "tuple[Excerpt, ...]", shows_secrets: bool) -> None:
    console = Console(highlight=False)
    kinds = sorted({piece.kind for shown in sample for piece in shown.pieces})
    styles = {kind: _STYLES[at % len(_STYLES)] for at, kind in enumerate(kinds)}
    for shown in sample:
        console.print(Text(f"record {shown.record:,}" + (f": {shown.id}" if shown.id else ""), style="bold"))
        console.print(_marked(shown, styles), "", sep="\n")
    if sample:
        legend = "missed: labeled secret, not found; again: text of a secret where nothing marks it"
        hidden = "" if shows_secrets else "secrets hidden (--show-secrets shows them); "
        console.print(Text(f"{hidden}{legend}", style="dim"))


def _marked(shown: "Excerpt", styles: dict[str, str]) -> Text:
    """A record with its secrets marked by color and by word. Never markup: the text may contain anything."""
    text = Text("… " if shown.cut_before else "")
    for piece in shown.pieces:
        if piece.state == "plain":
            text.append(piece.text or "")
            continue
        style = "bold red" if piece.state == "missed" else styles[piece.kind]
        text.append(f"[{piece.label()} {piece.shown}]", style=f"{style} reverse")
    text.rstrip()
    return text.append(" …") if shown.cut_after else text


def _print_places(out: Path, name: str, quarantined: Mapping[str, int]) -> None:
    if quarantined:
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in quarantined.items())
        typer.echo(f"set aside: {reasons}; listed in {out / 'quarantine.jsonl'}")
    typer.echo(f"page {out / f'{name}.html'}, data {out / f'{name}.json'}")


policy = typer.Typer(help="Compare policies: what each marks, misses and costs.", no_args_is_help=True)


@policy.callback()
def _policy() -> None:
    """So that the command is `tacit policy compare`, though it is the only one."""


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
    names = [name.strip() for name in [*(policies.split(",") if policies is not None else ()), *(policy or ())]]
    if not names:
        way_out = "name some, such as --policies digits,pii, or --policy for one made of several or from a file"
        raise ConfigError("policies to compare", "none", way_out)
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ConfigError("each policy once", f"{twice!r} twice", "leave one of them out")
    out = out or Path(f"policies-{corpus.name.split('.')[0] or 'corpus'}")
    with watching() as observe:
        result = api.compare_policies(
            corpus, names, processes=processes, out=out, observe=observe, **field_names(flags)
        )
    show(result, as_json)
    if not as_json:
        _print_places(out, "policies", result.quarantined)


policy.command("compare")(with_flags(compare, FIELDS))

label = typer.Typer(
    help="Measure what a policy misses: draw a sample of the corpus, label it, read the labels.", no_args_is_help=True
)

Conservative = Annotated[
    str | None,
    typer.Option(help="The policy that clears records for training without protection (crt), as for --policy."),
]


def draw(
    *,
    corpus: CorpusPath,
    policy: PolicyName,
    out: Annotated[Path, typer.Option(help="New file for the sample. It contains secrets, and only you can read it.")],
    conservative: Conservative = None,
    records: Annotated[int, typer.Option(min=1, help="How many records (turns, sentences) to draw.")] = 200,
    segment_by: Annotated[
        SegmentBy, typer.Option(help="What to draw and label: as data.segment_by when you train.")
    ] = "record",
    seed: Annotated[
        int | None, typer.Option(min=0, max=LARGEST_SEED, help="Same seed, same sample.", show_default="random")
    ] = None,
    gold: Annotated[bool, typer.Option("--gold", help="Use the corpus's gold spans as labels.")] = False,
    show_found: Annotated[
        bool, typer.Option("--show-found", help="Show what the policies found while labeling, which biases people.")
    ] = False,
    draft: Annotated[
        Path | None,
        typer.Option(
            help="Let the causal language model in this folder draft labels, which biases people: its drafts are under "
            "`draft`, to be checked and copied.",
            show_default="no drafts",
        ),
    ] = None,
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
        draft=draft,
        segment_by=segment_by,
        **field_names(flags),
    )
    again = f" --conservative {conservative}" if conservative is not None else ""
    show(sample, as_json, f"Then: tacit label read {out} --policy {policy}{again}")


label.command("draw")(with_flags(draw, FIELDS))


def read(
    *,
    sample: Annotated[Path, typer.Argument(help="The labeled sample.")],
    policy: PolicyName,
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
    show(counts, as_json, *([] if out is None else [f"Counts in {out}."]))


label.command("read")(with_flags(read, FIELDS))
