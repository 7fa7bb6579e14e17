"""`tacit quickstart`: the whole way on simulated dialogs, or on a corpus of yours.

`tacit simulate`: a simulated corpus with gold spans, written to a file.
"""

from pathlib import Path
from typing import Annotated

import typer

from tacit import api
from tacit.cli.output import AsJson, show, watching
from tacit.common.serialize import LARGEST_SEED


def quickstart(
    corpus: Annotated[Path | None, typer.Option(help="Your own corpus instead of simulated dialogs.")] = None,
    out: Annotated[Path, typer.Option(help="A new folder for corpus, runs and page.")] = Path("quickstart"),
    as_json: AsJson = False,
) -> None:
    """Train in five ways, attack each, compare them on one page: minutes on two cores."""
    result = api.quickstart(corpus, out, watch=watching)
    show(result, as_json, f"page {result.page}")


def simulate(
    simulator: Annotated[str, typer.Argument(help="Name of the simulator: customersim.")],
    dialogs: Annotated[int, typer.Option(help="How many dialogs.")] = 10_000,
    out: Annotated[
        Path | None,
        typer.Option(
            help="File to write: .jsonl, or .jsonl.gz, .xz, .zst. An older one is replaced.",
            show_default="SIMULATOR-SPLIT.jsonl",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="The same seed gives the same corpus.")] = 0,
    split: Annotated[str, typer.Option(help="train, validation or test: no person is in two of them.")] = "train",
    format: Annotated[str, typer.Option(help="text, or messages: chats of a user and an assistant.")] = "text",
    held_out_people: Annotated[
        Path | None,
        typer.Option(
            help="Also write as many dialogs of people who are in no split to this file, for membership tests."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a simulated corpus with gold spans."""
    out = out or Path(f"{simulator}-{split}.jsonl")
    with watching() as observe:
        corpus = api.simulate(
            simulator, dialogs, out, seed, split, format=format, held_out_people=held_out_people, observe=observe
        )
    people = (
        [] if held_out_people is None else [f"{corpus.summary.users:,} held-out people written to {held_out_people}"]
    )
    show(corpus, as_json, f"written to {out}", *people)
