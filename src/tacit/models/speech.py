"""What every model shares in speaking: losses of targets, sampled text, log-probabilities of continuations."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional

from tacit.errors import ModelError
from tacit.models.base import Speaker
from tacit.models.batch import Batch, TokenLosses


def losses_of(logits: Tensor, batch: Batch) -> TokenLosses:
    """The loss of every target under `logits`, in float32."""
    losses = functional.cross_entropy(logits.float().flatten(0, 1), batch.targets.flatten(), reduction="none")
    return TokenLosses(losses.view_as(batch.weights), batch.weights)


@contextmanager
def speaking(module: nn.Module) -> Iterator[None]:
    """Dropout off and no gradients for a while; afterwards every part of `module` is in the mode it was in."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for part, mode in modes:
            part.training = mode


def generate(
    speaker: Speaker, prompt: Tensor, length: int, generator: torch.Generator, temperature: float = 1.0
) -> Tensor:
    """`length` tokens after each row of `prompt` (rows, >= 1), sampled; temperature 0 takes the most probable."""
    if temperature < 0:
        raise ModelError("a temperature of 0 or more", str(temperature), "0 is greedy, 1 samples from the model")
    said = []
    reading = speaker.begin(prompt)
    for index in range(length):
        scores = reading.next_log_probabilities
        if temperature:
            token = torch.multinomial(torch.softmax(scores / temperature, dim=-1), 1, generator=generator)[:, 0]
        else:
            token = scores.argmax(dim=-1)
        said.append(token)
        if index + 1 < length:
            reading = reading.read(token)
    return torch.stack(said, dim=1) if said else prompt[:, :0]


def continuation_log_probabilities(speaker: Speaker, prefix: Tensor, continuations: Tensor) -> Tensor:
    """(rows,): total log-probability of each row of `continuations` after the same `prefix` (length >= 1)."""
    rows = torch.cat([prefix.expand(len(continuations), -1), continuations], dim=1)
    return speaker.log_probabilities(Batch.of_tokens(rows))[:, len(prefix) - 1 :].sum(dim=1)
