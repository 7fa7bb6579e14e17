"""What a model learns from in one go: token rows of any lengths, and how much each target counts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from tacit.errors import ModelError

_PAD = 0  # any valid token: a causal model never looks at what follows, and padding weighs nothing


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Rows of tokens, padded on the right, one row a unit; `weights[b, t]` multiplies the loss of `tokens[b, t + 1]`.

    tokens: (rows, time + 1), int64. weights: (rows, time), float32, zero on padding.
    """

    tokens: Tensor
    weights: Tensor

    def __post_init__(self) -> None:
        rows, time = self.weights.shape if self.weights.dim() == 2 else (-1, -1)
        if tuple(self.tokens.shape) != (rows, time + 1) or self.tokens.dtype != torch.int64:
            raise ModelError(
                expected="int64 tokens (rows, time + 1) with weights (rows, time)",
                found=f"{self.tokens.dtype} tokens {tuple(self.tokens.shape)}, weights {tuple(self.weights.shape)}",
                way_out="make the batch with Batch.of_rows or Batch.of_tokens",
            )

    @classmethod
    def of_tokens(cls, tokens: Tensor) -> Self:
        """Rows of one length in which every target counts once."""
        return cls(tokens, torch.ones(tokens.shape[0], max(tokens.shape[1] - 1, 0), device=tokens.device))

    @classmethod
    def of_rows(cls, rows: Sequence[Sequence[int]], weights: Sequence[Sequence[float]] | None = None) -> Self:
        """Rows of any lengths; `weights[b]` has one number for each token of `rows[b]` but the first."""
        width = max((len(row) for row in rows), default=1)
        tokens = torch.full((len(rows), max(width, 1)), _PAD, dtype=torch.int64)
        counts = torch.zeros(len(rows), tokens.shape[1] - 1)
        for index, row in enumerate(rows):
            targets = max(len(row) - 1, 0)
            tokens[index, : len(row)] = torch.tensor(row, dtype=torch.int64)
            counts[index, :targets] = 1.0 if weights is None else torch.tensor(weights[index], dtype=torch.float32)
        return cls(tokens, counts)

    @property
    def inputs(self) -> Tensor:
        """(rows, time): all tokens but the last."""
        return self.tokens[:, :-1]

    @property
    def targets(self) -> Tensor:
        """(rows, time): all tokens but the first."""
        return self.tokens[:, 1:]

    @property
    def reach(self) -> Tensor:
        """(rows,): how many positions each row needs; the last target that counts stands there."""
        time = torch.arange(1, self.weights.shape[1] + 1, device=self.weights.device)
        return ((self.weights != 0) * time).amax(dim=1) if self.weights.shape[1] else time.new_zeros(len(self))

    def __len__(self) -> int:
        return int(self.tokens.shape[0])

    def rows(self, index: Tensor) -> "Batch":
        """The rows of `index`, cut to the longest reach among them."""
        weights = self.weights[index]
        chosen = Batch(self.tokens[index], weights)
        time = int(chosen.reach.amax()) if len(index) else 0
        return Batch(chosen.tokens[:, : time + 1], weights[:, :time])

    def micro_batches(self, positions: int | None) -> Iterator[tuple[Tensor, "Batch"]]:
        """Parts of at most `positions` padded positions (at least one row each) and which rows they hold, long first.

        Rows without a target that counts are left out: their gradient is zero.
        """
        reach = self.reach
        order = torch.argsort(reach, descending=True, stable=True)
        lengths = reach[order].tolist()
        end = sum(length > 0 for length in lengths)
        start = 0
        while start < end:
            room = end - start if positions is None else max(1, positions // lengths[start])
            index = order[start : min(start + room, end)]
            yield index, self.rows(index)
            start += room

    def to(self, device: torch.device) -> "Batch":
        """The same batch on `device`."""
        return Batch(self.tokens.to(device), self.weights.to(device))


@dataclass(frozen=True, slots=True, eq=False)
class TokenLosses:
    """Negative log-probabilities of every target in nats, and how much each counts: (rows, time)."""

    losses: Tensor
    weights: Tensor

    @property
    def per_row(self) -> Tensor:
        """(rows,): the weighted sum over each row."""
        return _weighted(self.losses, self.weights).sum(dim=1)

    @property
    def total(self) -> Tensor:
        """The weighted sum over everything."""
        return self.per_row.sum()

    @property
    def mean(self) -> Tensor:
        """The weighted mean; zero when nothing counts."""
        weight = self.weights.sum()
        return self.total / weight if float(weight) else self.total


def _weighted(losses: Tensor, weights: Tensor) -> Tensor:
    """The product, zero where the weight is zero even if the loss is not finite there."""
    return torch.where(weights != 0, losses, 0.0) * weights
