"""`tacit generate`: talk to a trained model."""

from pathlib import Path
from typing import Annotated

import typer


def generate(
    run: Annotated[Path, typer.Argument(help="A finished run folder.")],
    prompt: Annotated[str, typer.Option(help="What the text begins with.")] = "",
    tokens: Annotated[int, typer.Option(min=1, help="How many tokens to add at most.")] = 100,
    temperature: Annotated[float, typer.Option(min=0.0, help="0 takes the likeliest token always.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Same seed, same text.")] = 0,
) -> None:
    """Continue a prompt with the model of a run."""
    import torch

    from tacit.loading import load
    from tacit.models.speech import generate as continued

    learner, tokenizer = load(run)
    start = torch.tensor([[tokenizer.end, *tokenizer.encode(prompt)]])
    generator = torch.Generator().manual_seed(seed)
    said = continued(learner, start, tokens, generator, temperature)[0].tolist()
    said = said[: said.index(tokenizer.end)] if tokenizer.end in said else said
    typer.echo(prompt + tokenizer.decode([token for token in said if token < tokenizer.first_special]))
