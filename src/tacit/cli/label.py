"""`tacit label`: draw a sample of a corpus for a person to label, and read from the labels what a policy misses."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tacit.documents import LARGEST_SEED

if TYPE_CHECKING:
    from tacit.labelling import Measured

label = typer.Typer(
    help="Measure what a policy misses: draw a sample of the corpus, label it, read the labels.", no_args_is_help=True
)

PolicyWords = Annotated[str, typer.Option(help="A policy's name, names with commas (any of them), or a YAML file.")]
Conservative = Annotated[
    str | None,
    typer.Option(help="The policy that clears records for training without protection (crt), as for --policy."),
]


@label.command("draw")
def draw(
    corpus: Annotated[Path, typer.Argument(help="jsonl, csv, txt (also .gz, .xz, .zst), parquet, or a saved dataset.")],
    policy: PolicyWords,
    out: Annotated[Path, typer.Option(help="New file for the sample, which holds secrets: only you may read it.")],
    conservative: Conservative = None,
    records: Annotated[int, typer.Option(min=1, help="How many records (or other pieces) to draw.")] = 200,
    pieces: Annotated[
        Literal["record", "turn", "sentence"],
        typer.Option(help="What is drawn and labelled: give what you will set as `pieces` when you train."),
    ] = "record",
    seed: Annotated[
        int | None, typer.Option(min=0, max=LARGEST_SEED, help="Same seed, same sample.", show_default="random")
    ] = None,
    gold: Annotated[bool, typer.Option("--gold", help="Take the corpus's gold spans for labels.")] = False,
    show_found: Annotated[
        bool, typer.Option("--show-found", help="Show the labeller what the policies found, which sways people.")
    ] = False,
) -> None:
    """Draw records at random, each as likely as any other, for a person to label."""
    from tacit import verbs
    from tacit.labelling.sample import HOW_TO_LABEL

    header = verbs.label_draw(
        corpus,
        policy,
        out,
        conservative=conservative,
        records=records,
        seed=seed,
        gold=gold,
        show_found=show_found,
        pieces=pieces,
    ).header
    typer.echo(f"{records:,} of {header.population.records:,} {pieces}s drawn with seed {header.seed} into {out}.")
    typer.echo("The file holds secrets: it was made readable by you alone (0600). Delete it when you are done with it.")
    if gold:
        typer.echo("Labels: the corpus's gold spans.")
    else:
        typer.echo(HOW_TO_LABEL)
    again = f" --conservative {conservative}" if conservative is not None else ""
    typer.echo(f"Then: tacit label read {out} --policy {policy}{again}")


@label.command("read")
def read_command(
    sample: Annotated[Path, typer.Argument(help="The labelled sample.")],
    policy: PolicyWords,
    conservative: Conservative = None,
    corpus: Annotated[
        Path | None, typer.Option(help="Check that the sample is from this corpus.", show_default="not checked")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="File for the counts; replaced when it is there.", show_default="none")
    ] = None,
) -> None:
    """Say how often the policy misses a secret at most, from a labelled sample."""
    from tacit import verbs

    _print(verbs.label_read(sample, policy, conservative=conservative, corpus=corpus, out=out))
    if out is not None:
        typer.echo(f"Counts in {out}.")


def _print(result: "Measured") -> None:
    from tacit.guarantee import average_rates
    from tacit.rounding import rounded_up

    population = result.population
    typer.echo(
        f"{result.sampled:,} of the corpus's {population.records:,} {population.pieces}s, labels: {result.labels}; "
        f"{result.with_secrets:,} of them hold a secret."
    )
    typer.echo(_capital(str(result.coverage)))
    typer.echo(_capital(str(result.coverage_of_secrets)))
    cleared, among = result.conservative_coverage, result.among_secrets
    if cleared is not None and among is not None:
        typer.echo(f"Records with a secret in which neither policy finds anything: {cleared}")
        missed, lost = (rounded_up(rate, 3) for rate in average_rates(among))
        typer.echo(
            f"Both at once, with {cleared.confidence:.0%} confidence, among records with secrets: at most {missed} "
            f"missed or not redacted stably, and at most {lost} in which neither policy finds anything"
        )


def _capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]
