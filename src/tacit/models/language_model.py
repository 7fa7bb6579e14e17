"""What attacks and trainers may ask of a model. Protocols hold no code.

What every model shares in speaking: losses of targets, sampled text, log-probabilities of continuations.
"""

import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from tacit.data.batches import Examples, TextBatch, TokenLosses, wide
from tacit.errors import ModelError


class DecoderState(Protocol):
    """A model's state after some rows of equal length: what it expects next, and how to continue."""

    @property
    def next_log_probabilities(self) -> Tensor:
        """(rows, vocabulary): log-probabilities of the next token of each row."""

    def select(self, rows: Tensor) -> Self:
        """The reading of these rows, in this order, repeated where an index is: branches of a prefix tree."""

    def read(self, tokens: Tensor) -> Self:
        """The state after one more token per row, (rows,)."""

    def branch(self, rows: Tensor, tokens: Tensor) -> Self:
        """`select(rows).read(tokens)`, at less cost."""

    @property
    def bytes_a_row(self) -> int:
        """The memory that one row takes."""


class Speaker(Protocol):
    """A model as an attacker sees it: it returns the probability of text, and continues text."""

    @property
    def vocabulary_size(self) -> int:
        """The number of tokens it knows."""

    @property
    def context(self) -> int:
        """How many tokens it can read at a time."""

    def log_probabilities(self, batch: TextBatch) -> Tensor:
        """(rows, time): log-probability of every target given the tokens before it. No gradient."""

    def begin(self, tokens: Tensor) -> DecoderState:
        """The reading after the rows of `tokens`, (rows, length >= 1)."""


class Learner(Speaker, Protocol):
    """A Speaker that can be trained."""

    @property
    def module(self) -> nn.Module:
        """Its parameters, and the layers that use them."""

    @property
    def head(self) -> nn.Module:
        """The linear layer whose output is `logits`, unchanged; called once a pass."""

    def logits(self, tokens: Tensor) -> Tensor:
        """(rows, time, vocabulary): unnormalized log-probabilities of the next token; rows are independent."""

    def token_losses(self, batch: TextBatch) -> TokenLosses:
        """The loss of every target, with its gradient graph."""

    def description(self) -> dict[str, Any]:
        """What `build_model` needs to make the same model, but for its weights; fit for JSON."""


class ModuleModel:
    """What language models and classifiers around a module of torch have in common."""

    __slots__ = ()
    module: nn.Module

    @property
    def context(self) -> int:
        """How many tokens it can read at a time: no limit."""
        return sys.maxsize

    def logits(self, tokens: Tensor) -> Tensor:
        self.require_context(tokens)
        logits: Tensor = self.module(tokens)
        return logits

    def token_losses(self, batch: Examples) -> TokenLosses:
        return losses_of(self.logits(batch.inputs), batch)

    def log_probabilities(self, batch: Examples) -> Tensor:
        with speaking(self.module):
            return -self.token_losses(batch).losses

    def require_context(self, tokens: Tensor) -> None:
        """Refuse rows that are longer than the model can read."""
        if tokens.shape[1] > self.context:
            raise ModelError(f"rows of at most {self.context} tokens", str(tokens.shape[1]), "cut the records shorter")


def losses_of(logits: Tensor, batch: Examples) -> TokenLosses:
    """The loss of every target under `logits`, in float32 or better."""
    losses = functional.cross_entropy(wide(logits).flatten(0, 1), batch.targets.flatten(), reduction="none")
    return TokenLosses(losses.view_as(batch.weights), batch.weights)


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Dropout off for a while; afterwards every part of `module` is in the mode it was in."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode


@contextmanager
def speaking(module: nn.Module) -> Iterator[None]:
    """Dropout off and no gradients for a while."""
    with evaluating(module), torch.no_grad():
        yield


@dataclass(frozen=True, slots=True, eq=False)
class Rereading:
    """The reading of a model whose state cannot be kept: it reads the whole text anew at every token."""

    model: Learner
    tokens: Tensor
    next_log_probabilities: Tensor

    @classmethod
    def of(cls, model: Learner, tokens: Tensor) -> "Rereading":
        """The reading after the rows of `tokens`."""
        with speaking(model.module):
            logits = model.logits(tokens)[:, -1]
        return cls(model, tokens, torch.log_softmax(wide(logits), dim=-1))

    def select(self, rows: Tensor) -> "Rereading":
        return Rereading(self.model, self.tokens[rows], self.next_log_probabilities[rows])

    def read(self, tokens: Tensor) -> "Rereading":
        return Rereading.of(self.model, torch.cat([self.tokens, tokens[:, None]], dim=1))

    def branch(self, rows: Tensor, tokens: Tensor) -> "Rereading":
        return Rereading.of(self.model, torch.cat([self.tokens[rows], tokens[:, None]], dim=1))

    @property
    def bytes_a_row(self) -> int:
        """The memory that one row takes: its logits at every position."""
        return self.tokens.shape[1] * self.next_log_probabilities.nbytes // len(self.tokens)


_COLDEST = 1e-6
"""Below it, float32 would divide to infinity; the most probable token is all that is left there."""


def generate(
    speaker: Speaker, prompt: Tensor, length: int, generator: torch.Generator, temperature: float = 1.0
) -> Tensor:
    """`length` tokens after each row of `prompt` (rows, >= 1), sampled; temperature 0 takes the most probable."""
    if not 0 <= temperature < math.inf:
        raise ModelError("a finite temperature of 0 or more", str(temperature), "0 is greedy, 1 samples from the model")
    said = []
    reading = speaker.begin(prompt)
    for index in range(length):
        scores = reading.next_log_probabilities
        if scores.isnan().any():
            raise ModelError("a model that gives probabilities", "not-a-number", "its weights are damaged: train again")
        if temperature >= _COLDEST:
            token = torch.multinomial(torch.softmax(scores / temperature, dim=-1), 1, generator=generator)[:, 0]
        else:
            token = scores.argmax(dim=-1)
        said.append(token)
        if index + 1 < length:
            reading = reading.read(token)
    return torch.stack(said, dim=1) if said else prompt[:, :0]
