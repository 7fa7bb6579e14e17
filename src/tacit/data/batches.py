"""What a model learns from in one go: token rows of any lengths, from one view of the store, and their targets.

In text every token but the first is a target (`TextBatch`); in classification a row has one (`LabeledBatch`).

G1 (fixed frame). Every row begins and ends with the end token, so that its first token is a target too; chats have the
   frame of their template instead.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, Self, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from tacit.data.store import PreparedCorpus
from tacit.data.viewed import Inventions, ViewedRow, tokens_of
from tacit.errors import ModelError
from tacit.privacy.plan import Targets, View

_PAD = 0  # any valid token: a causal model never looks at what follows, and padding weighs nothing
PADDING = -1  # in the inputs of a labeled batch, whose models must know where a row ends


Sizes = tuple[tuple[int, int], ...]


def wide_type(dtype: torch.dtype) -> torch.dtype:
    """The precision of losses, norms and sums: float32, or float64 for what is computed in it."""
    return torch.promote_types(dtype, torch.float32)


def wide(values: Tensor) -> Tensor:
    """In that precision; whoever reads a tensor for a norm or for a sum reads the same numbers."""
    return values.to(wide_type(values.dtype))


class Examples(Protocol):
    """What gradients ask of a batch: one row per unit, and places per row, each with a target that counts or not."""

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

    @property
    def reach(self) -> Tensor:
        """(rows,): how many positions each row needs; 0 where no target counts."""

    @property
    def places(self) -> int:
        """How many targets count in a row at most."""

    def singles(self) -> Iterator[Self]:
        """Each row alone, without padding."""

    def micro_batches(self, positions: int | None) -> Iterator[tuple[Tensor, Self]]:
        """Parts of at most `positions` padded positions, and which rows they hold."""

    def to(self, device: torch.device) -> Self:
        """The same on `device`."""


BatchKind = TypeVar("BatchKind", bound=Examples)
_PartKind = TypeVar("_PartKind", bound=Examples, covariant=True)
_BatchKind = TypeVar("_BatchKind", bound=Examples, contravariant=True)


class RowsInParts(Protocol[_PartKind]):
    """What clipped sums ask of a draw: a batch is one, and so are rows that are read when their part is due."""

    def __len__(self) -> int:
        """The number of rows."""

    def micro_batches(self, positions: int | None) -> Iterator[tuple[Tensor, _PartKind]]:
        """Parts of at most `positions` padded positions, and which rows they contain."""


class Trainable(Protocol[_BatchKind]):
    """What gradients ask of a model; a Learner is one for `TextBatch`, a classifier one for `LabeledBatch`."""

    @property
    def module(self) -> nn.Module:
        """Its parameters, and the layers that use them."""

    @property
    def head(self) -> nn.Module:
        """The linear layer whose output is `logits`, unchanged; called once per pass."""

    def logits(self, tokens: Tensor) -> Tensor:
        """(rows, places, outputs) from a batch's inputs; rows do not mix."""

    def token_losses(self, batch: _BatchKind) -> "TokenLosses":
        """The loss of every target, with its gradient graph."""


@dataclass(frozen=True, slots=True, eq=False)
class TextBatch:
    """Rows of tokens, padded on the right, one row per unit; `weights[b, t]` multiplies the loss of `tokens[b, t + 1]`.

    tokens: (rows, time + 1), int64. weights: (rows, time), float32, zero on padding. sizes: of rows on another device,
    what the host would have to wait for: the reach of each, and how many of its targets count.
    """

    tokens: Tensor
    weights: Tensor
    sizes: Sizes | None = None

    def __post_init__(self) -> None:
        rows, time = self.weights.shape if self.weights.dim() == 2 else (-1, -1)
        if tuple(self.tokens.shape) != (rows, time + 1) or self.tokens.dtype != torch.int64:
            raise ModelError(
                expected="int64 tokens (rows, time + 1) with weights (rows, time)",
                found=f"{self.tokens.dtype} tokens {tuple(self.tokens.shape)}, weights {tuple(self.weights.shape)}",
                way_out="make the batch with TextBatch.of_rows or TextBatch.of_tokens",
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
        return self.tokens[:, :-1]

    @property
    def targets(self) -> Tensor:
        return self.tokens[:, 1:]

    @property
    def reach(self) -> Tensor:
        """(rows,): how many positions each row needs; the last target that counts stands there."""
        time = torch.arange(1, self.weights.shape[1] + 1, device=self.weights.device)
        return ((self.weights != 0) * time).amax(dim=1) if self.weights.shape[1] else time.new_zeros(len(self))

    def __len__(self) -> int:
        return int(self.tokens.shape[0])

    def rows(self, index: Tensor) -> "TextBatch":
        """The rows of `index`, cut to the longest reach among them."""
        return self._cut(index, int(self.reach[index].amax()) if len(index) else 0)

    def _cut(self, which: Tensor | slice, time: int, sizes: Sizes | None = None) -> "TextBatch":
        return TextBatch(self.tokens[which, : time + 1], self.weights[which, :time], sizes)

    def _sizes(self) -> Sizes:
        known = self.sizes
        return _listed(self.reach, (self.weights != 0).sum(dim=1)) if known is None else known

    @property
    def places(self) -> int:
        return max((count for _, count in self._sizes()), default=0)

    def singles(self) -> Iterator["TextBatch"]:
        for row, size in enumerate(self._sizes()):
            yield self._cut(slice(row, row + 1), size[0], (size,))

    def micro_batches(self, positions: int | None) -> Iterator[tuple[Tensor, "TextBatch"]]:
        """Parts of at most `positions` padded positions (at least one row each) and which rows they hold, long first.

        Rows without a target that counts are left out: their gradient is zero.
        """
        for index, sizes in parts_of(self._sizes(), positions, self.weights.device):
            yield index, self._cut(index, sizes[0][0], sizes)

    def to(self, device: torch.device) -> "TextBatch":
        return TextBatch(self.tokens.to(device), self.weights.to(device), self._sizes())


@dataclass(frozen=True, slots=True, eq=False)
class LabeledBatch:
    """Rows of tokens, one row per unit, and the class of each; `weights[b, 0]` multiplies the loss of row b.

    inputs: (rows, time), int64, PADDING after the last token of a row. targets: (rows, 1), int64. weights: (rows, 1).
    sizes: as those of `TextBatch`. What is on another device was checked here.
    """

    inputs: Tensor
    targets: Tensor
    weights: Tensor
    sizes: Sizes | None = None

    def __post_init__(self) -> None:
        shapes = tuple(tuple(tensor.shape) for tensor in (self.inputs, self.targets, self.weights))
        rows = len(self.inputs)
        whole = self.inputs.dtype == self.targets.dtype == torch.int64
        if self.inputs.dim() != 2 or shapes[1:] != ((rows, 1), (rows, 1)) or not whole:
            raise ModelError(
                expected="int64 inputs (rows, time) and classes (rows, 1) with weights (rows, 1)",
                found=f"{self.inputs.dtype} {shapes[0]}, {self.targets.dtype} {shapes[1]}, weights {shapes[2]}",
                way_out="make the batch with LabeledBatch.of_rows",
            )
        if self.inputs.device.type != "cpu":
            return
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

    def rows(self, index: Tensor) -> "LabeledBatch":
        """The rows of `index`, cut to the longest among them."""
        return self._cut(index, int(self.lengths[index].amax()) if len(index) else 1)

    def _cut(self, which: Tensor | slice, time: int, sizes: Sizes | None = None) -> "LabeledBatch":
        return LabeledBatch(self.inputs[which, :time], self.targets[which], self.weights[which], sizes)

    def _sizes(self) -> Sizes:
        known = self.sizes
        return _listed(self.reach, self.weights[:, 0] != 0) if known is None else known

    places = 1

    def singles(self) -> Iterator["LabeledBatch"]:
        for row, size in enumerate(self._sizes()):
            yield self._cut(slice(row, row + 1), max(1, size[0]), (size,))

    @property
    def reach(self) -> Tensor:
        return self.lengths * (self.weights[:, 0] != 0)

    def micro_batches(self, positions: int | None) -> Iterator[tuple[Tensor, "LabeledBatch"]]:
        """Parts as those of `TextBatch`; rows that do not count are left out."""
        for index, sizes in parts_of(self._sizes(), positions, self.weights.device):
            yield index, self._cut(index, sizes[0][0], sizes)

    def to(self, device: torch.device) -> "LabeledBatch":
        return LabeledBatch(self.inputs.to(device), self.targets.to(device), self.weights.to(device), self._sizes())


def _listed(reach: Tensor, counts: Tensor) -> Sizes:
    return tuple(zip(reach.tolist(), counts.int().tolist(), strict=True))


def parts_of(sizes: Sizes, positions: int | None, device: torch.device) -> Iterator[tuple[Tensor, Sizes]]:
    """Rows of a reach above 0, long first, in parts of at most `positions` padded positions; and their sizes."""
    order = sorted((row for row, size in enumerate(sizes) if size[0]), key=lambda row: -sizes[row][0])
    index = torch.tensor(order, dtype=torch.int64).to(device)
    start = 0
    while start < len(order):
        room = len(order) if positions is None else max(1, positions // sizes[order[start]][0])
        part = slice(start, min(start + room, len(order)))
        yield index[part], tuple(sizes[row] for row in order[part])
        start += room


@dataclass(frozen=True, slots=True, eq=False)
class TokenLosses:
    """Negative log-probabilities of every target in nats, and how much each counts: (rows, time)."""

    losses: Tensor
    weights: Tensor

    @property
    def per_row(self) -> Tensor:
        """(rows,): the weighted sum over each row."""
        counted = torch.where(self.weights != 0, self.losses, 0.0)  # a loss without weight need not be finite
        return (counted * self.weights).sum(dim=1)

    @property
    def total(self) -> Tensor:
        return self.per_row.sum()

    @property
    def mean(self) -> Tensor:
        """The weighted mean; zero when nothing counts."""
        weight = self.weights.sum()
        return self.total / weight if float(weight) else self.total


class BatchReader(Protocol):
    """Rows of a store as what a model learns from: text, or text and labels."""

    @property
    def longest(self) -> int:
        """How many positions a row has at most: a public constant."""

    def batch(self, rows: Sequence[int] | np.ndarray, view: View, targets: Targets) -> Examples:
        """The rows as a batch."""

    def lengths(self, rows: np.ndarray) -> np.ndarray:
        """How long each row is by what is public: about what it costs to compute."""


class RowReader:
    """Reads rows of one store; `longest` is the public constant at which the full view of a row ends.

    end: the token behind every row. begin: the one before it, by default the same.
    """

    def __init__(
        self,
        store: PreparedCorpus,
        end: int,
        longest: int,
        inventions: Inventions | None = None,
        begin: int | None = None,
    ) -> None:
        self._store = store
        self._begin, self._end = end if begin is None else begin, end
        self._longest = longest
        self.longest = longest + 1
        self._inventions = inventions

    def batch(self, rows: Sequence[int] | np.ndarray, view: View, targets: Targets) -> TextBatch:
        """The rows as a batch; placeholders count as the secrets they replace, inventions as public."""
        read = [tokens_of(self._store, int(row), view, self._inventions) for row in rows]
        framed = [self._framed(one.tokens) for one in read]
        if targets == Targets.ALL and self._store.header.facts.train_on == "all":
            return TextBatch.of_rows(framed)
        return TextBatch.of_rows(framed, [self._weights(one, targets) for one in read])

    def lengths(self, rows: np.ndarray) -> np.ndarray:
        return self._store.lengths(rows).clip(max=self._longest)

    def marked(self, row: int) -> tuple[list[int], list[bool]]:
        """The full view of a row, and which of its tokens are secret."""
        tokens, secret = self._store.full(row)[:2]
        marks = secret[: self._longest].tolist()
        return self._framed(tokens), [False, *marks, False] if self._store.framed else marks

    def _weights(self, row: ViewedRow, targets: Targets) -> list[float]:
        """1 for each target that counts; the closing end token is public, and learned where all of a row is."""
        counts = np.ones(len(row.tokens), dtype=np.bool_) if row.learned is None else row.learned.copy()
        if targets != Targets.ALL:
            counts &= row.secret == (targets == Targets.PRIVATE)
        weights: list[float] = counts[: self._longest].astype(float).tolist()
        if not self._store.framed:
            return weights[1:]  # what opens a chat is given
        return [*weights, 1.0 if targets != Targets.PRIVATE and row.learned is None else 0.0]

    def _framed(self, tokens: np.ndarray) -> list[int]:
        inside: list[int] = tokens[: self._longest].tolist()
        return [self._begin, *inside, self._end] if self._store.framed else inside
