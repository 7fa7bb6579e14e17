"""What attacks and trainers may ask of a model. Protocols hold no code.

What every model shares in speaking: losses of targets, sampled text, log-probabilities of continuations.
"""

import math
import sys
from collections.abc import Callable, Iterator
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
    return continued(speaker.begin(prompt), length, generator, temperature, _drawn)


def continued(
    reading: DecoderState,
    length: int,
    generator: torch.Generator,
    temperature: float = 1.0,
    draw: Callable[[Tensor, torch.Generator], Tensor] | None = None,
) -> Tensor:
    """The same after what was read already. draw: how a token is drawn from each row; quickly for many rows if None."""
    if not 0 <= temperature < math.inf:
        raise ModelError("a finite temperature of 0 or more", str(temperature), "0 is greedy, 1 samples from the model")
    said = [torch.zeros(len(reading.next_log_probabilities), 0, dtype=torch.int64)]
    for index in range(length):
        scores = _checked(reading.next_log_probabilities)
        if temperature >= _COLDEST:
            token = (draw or _drawn_from_sums)(torch.softmax(scores / temperature, dim=-1), generator)
        else:
            token = scores.argmax(dim=-1)
        said.append(token[:, None])
        if index + 1 < length:
            reading = reading.read(token)
    return torch.cat(said, dim=1)


def _drawn(chances: Tensor, generator: torch.Generator) -> Tensor:
    return torch.multinomial(chances, 1, generator=generator)[:, 0]


def _drawn_from_sums(chances: Tensor, generator: torch.Generator) -> Tensor:
    """By a uniform number among the cumulated probabilities: for many rows in a fifth of the time."""
    sums = chances.double().cumsum(dim=-1)
    places = torch.rand(len(sums), 1, dtype=torch.float64, generator=generator).to(sums.device) * sums[:, -1:]
    return torch.searchsorted(sums, places, right=True)[:, 0].clamp_max(chances.shape[-1] - 1)


def _checked(scores: Tensor) -> Tensor:
    if scores.isnan().any():
        raise ModelError("a model that gives probabilities", "not-a-number", "its weights are damaged: train again")
    return scores


@dataclass(frozen=True, slots=True, eq=False)
class Beams:
    """Continuations of each prompt, the most probable first: tokens (rows, width, length), totals (rows, width)."""

    tokens: Tensor
    totals: Tensor


def beam_search(speaker: Speaker, prompt: Tensor, length: int, width: int) -> Beams:
    """The best `width` continuations of `length` tokens that a beam search finds for each row of `prompt` (rows, >= 1).

    After each token the `width` most probable beginnings of a row are kept. If `width` is as large as the number of all
    continuations, these are the most probable ones of all; otherwise some may be missed, as in every beam search.
    """
    if length < 1 or width < 1:
        raise ModelError("a length and a width of at least 1", f"{length} and {width}", "raise them")
    *_, found = growing_beams(speaker.begin(prompt), length, width)
    return found


def growing_beams(reading: DecoderState, length: int, width: int) -> Iterator[Beams]:
    """The beams after each token: those after n tokens are what a search for n tokens ends with."""
    rows, vocabulary = reading.next_log_probabilities.shape
    totals, tokens = torch.zeros(rows, 1, dtype=torch.float64), torch.zeros(rows, 1, 0, dtype=torch.int64)
    for index in range(length):
        scores = _checked(reading.next_log_probabilities).view(rows, -1, vocabulary)
        best, places = scores.topk(min(width, vocabulary), dim=2)  # no other token of a beam can be among the best
        sums = (totals[..., None] + best.double().cpu()).flatten(1)
        totals, chosen = sums.topk(min(width, sums.shape[1]), dim=1)
        parents = chosen // best.shape[2]
        new = places.cpu().flatten(1).gather(1, chosen)
        tokens = torch.cat([tokens.gather(1, parents[..., None].expand(-1, -1, index)), new[..., None]], dim=2)
        yield Beams(tokens, totals)
        if index + 1 < length:
            before = torch.arange(rows)[:, None] * scores.shape[1] + parents
            reading = reading.branch(before.flatten(), new.flatten())
