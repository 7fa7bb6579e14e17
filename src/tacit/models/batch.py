"""What a model learns from in one go: token rows of any lengths, and how much each target counts.

In text every token but the first is a target (`Batch`); in classification a row has one target (`LabelledBatch`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, Self, TypeVar

import torch
from torch import Tensor, nn

from tacit.errors import ModelError

_PAD = 0  # any valid token: a causal model never looks at what follows, and padding weighs nothing
PADDING = -1  # in the inputs of a labelled batch, whose models must know where a row ends


def wide_type(dtype: torch.dtype) -> torch.dtype:
    """The precision of losses, norms and sums: float32, or float64 for what is computed in it."""
    return torch.promote_types(dtype, torch.float32)


def wide(values: Tensor) -> Tensor:
    """In that precision; whoever reads a tensor for a norm or for a sum reads the same numbers."""
    return values.to(wide_type(values.dtype))


class Examples(Protocol):
    """What gradients ask of a batch: one row a unit, and some places a row, each with a target that counts or not."""

    @property
    def inputs(self) -> Tensor:
        """(rows, time): what the model reads."""

    @property
    def targets(self) -> Tensor:
        """(rows, places): which of the head's outputs is right; time places for text, one for a class."""

    @property
    def weights(self) -> Tensor:
        """(rows, places): how much each target's loss counts."""

    def __len__(self) -> int:
        """The number of rows."""

    def rows(self, index: Tensor) -> Self:
        """The rows of `index`, without padding that none of them needs."""

    def micro_batches(self, positions: int | None) -> Iterator[tuple[Tensor, Self]]:
        """Parts of at most `positions` padded positions, and which rows they hold."""

    def to(self, device: torch.device) -> Self:
        """The same on `device`."""


BatchKind = TypeVar("BatchKind", bound=Examples)
_BatchKind = TypeVar("_BatchKind", bound=Examples, contravariant=True)


class Trainable(Protocol[_BatchKind]):
    """What gradients ask of a model; a Learner is one for `Batch`, a classifier one for `LabelledBatch`."""

    @property
    def module(self) -> nn.Module:
        """Its parameters, and the layers that use them."""

    @property
    def head(self) -> nn.Module:
        """The linear layer whose output is `logits`, unchanged; called once a pass."""

    def logits(self, tokens: Tensor) -> Tensor:
        """(rows, places, outputs) from a batch's inputs; rows do not mix."""

    def token_losses(self, batch: _BatchKind) -> "TokenLosses":
        """The loss of every target, with its gradient graph."""


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
        for index in _parts(self.reach, positions):
            yield index, self.rows(index)

    def to(self, device: torch.device) -> "Batch":
        """The same batch on `device`."""
        return Batch(self.tokens.to(device), self.weights.to(device))


@dataclass(frozen=True, slots=True, eq=False)
class LabelledBatch:
    """Rows of tokens, one row a unit, and the class of each; `weights[b, 0]` multiplies the loss of row b.

    inputs: (rows, time), int64, PADDING after the last token of a row. targets: (rows, 1), int64. weights: (rows, 1).
    """

    inputs: Tensor
    targets: Tensor
    weights: Tensor

    def __post_init__(self) -> None:
        shapes = tuple(tuple(tensor.shape) for tensor in (self.inputs, self.targets, self.weights))
        rows = len(self.inputs)
        whole = self.inputs.dtype == self.targets.dtype == torch.int64
        if self.inputs.dim() != 2 or shapes[1:] != ((rows, 1), (rows, 1)) or not whole:
            raise ModelError(
                expected="int64 inputs (rows, time) and classes (rows, 1) with weights (rows, 1)",
                found=f"{self.inputs.dtype} {shapes[0]}, {self.targets.dtype} {shapes[1]}, weights {shapes[2]}",
                way_out="make the batch with LabelledBatch.of_rows",
            )
        real = self.inputs != PADDING
        if rows and (not real[:, :1].all() or real.shape[1] == 0 or (real[:, 1:] & ~real[:, :-1]).any()):
            raise ModelError(
                expected="rows of at least one token, padded after the last",
                found="an empty row, or padding before a token",
                way_out="begin every row with the end token",
            )

    @classmethod
    def of_rows(
        cls, rows: Sequence[Sequence[int]], labels: Sequence[int], weights: Sequence[float] | None = None
    ) -> Self:
        """Rows of any lengths above 0, the number of each row's class, and how much each row counts."""
        inputs = torch.full((len(rows), max((len(row) for row in rows), default=1)), PADDING, dtype=torch.int64)
        for index, row in enumerate(rows):
            inputs[index, : len(row)] = torch.tensor(row, dtype=torch.int64)
        counts = torch.ones(len(rows)) if weights is None else torch.tensor(weights, dtype=torch.float32)
        return cls(inputs, torch.tensor(labels, dtype=torch.int64)[:, None], counts[:, None])

    @property
    def lengths(self) -> Tensor:
        """(rows,): tokens of each row."""
        return (self.inputs != PADDING).sum(dim=1)

    def __len__(self) -> int:
        return int(self.inputs.shape[0])

    def rows(self, index: Tensor) -> "LabelledBatch":
        """The rows of `index`, cut to the longest among them."""
        time = int(self.lengths[index].amax()) if len(index) else 1
        return LabelledBatch(self.inputs[index, :time], self.targets[index], self.weights[index])

    def micro_batches(self, positions: int | None) -> Iterator[tuple[Tensor, "LabelledBatch"]]:
        """Parts as those of `Batch`; rows that do not count are left out."""
        for index in _parts(self.lengths * (self.weights[:, 0] != 0), positions):
            yield index, self.rows(index)

    def to(self, device: torch.device) -> "LabelledBatch":
        """The same batch on `device`."""
        return LabelledBatch(self.inputs.to(device), self.targets.to(device), self.weights.to(device))


def _parts(lengths: Tensor, positions: int | None) -> Iterator[Tensor]:
    """Rows of a length above 0, long first, in parts of at most `positions` padded positions."""
    order = torch.argsort(lengths, descending=True, stable=True)
    sizes = lengths[order].tolist()
    end = sum(size > 0 for size in sizes)
    start = 0
    while start < end:
        room = end - start if positions is None else max(1, positions // sizes[start])
        yield order[start : min(start + room, end)]
        start += room


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
