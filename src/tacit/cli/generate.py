"""`tacit generate`: talk to a trained model."""

from pathlib import Path
from typing import Annotated

import typer

from tacit.documents import LARGEST_SEED


def generate(
    run: Annotated[Path, typer.Argument(help="A finished run folder.")],
    prompt: Annotated[str, typer.Option(help="What the text begins with.")] = "",
    tokens: Annotated[int, typer.Option(min=1, help="How many tokens to add at most.")] = 100,
    temperature: Annotated[float, typer.Option(min=0.0, help="0 takes the likeliest token always.")] = 1.0,
    seed: Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="Same seed, same text.")] = 0,
) -> None:
    """Continue a prompt with the model of a run."""
    from tacit import verbs

    typer.echo(verbs.generate(run, prompt, tokens, temperature, seed))
