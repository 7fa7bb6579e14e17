"""From rows of the prepared store to what a model learns from: one view, one choice of targets.

G1 (one accessor). Secrets are read by `tokens_of` and nowhere else in training, and only for a step whose view is FULL.
G2 (fixed frame). Every row begins and ends with the end token, so that its first token is a target too.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from tacit.errors import PrepareError
from tacit.inventions import Inventions
from tacit.models.batch import Batch, Examples
from tacit.plan import Targets, View
from tacit.prepare import Prepared


class Reader(Protocol):
    """Rows of a store as what a model learns from: text, or text and labels."""

    @property
    def longest(self) -> int:
        """How many positions a row has at most: a public constant."""

    def batch(self, rows: Sequence[int] | np.ndarray, view: View, targets: Targets) -> Examples:
        """The rows as a batch."""


def tokens_of(store: Prepared, row: int, view: View, inventions: Inventions | None) -> tuple[np.ndarray, np.ndarray]:
    """A row in one view, and which of its tokens are secret; of what is invented, the placeholders that were left."""
    match view:
        case View.FULL:
            return store.full(row)[:2]
        case View.REDACTED:
            redacted = store.redacted(row)
            marks = np.zeros(len(redacted), dtype=np.bool_)
            marks[store.positions(row)] = True
            return redacted, marks
        case View.INVENTED:
            if inventions is None:
                raise PrepareError("inventions for the invented view", "none", "give the reader its inventions")
            return inventions.row(store, row)


class RowReader:
    """Reads rows of one store; `longest` is the public constant at which the full view of a row ends."""

    def __init__(self, store: Prepared, end: int, longest: int, inventions: Inventions | None = None) -> None:
        self._store = store
        self._end = end
        self._longest = longest
        self._inventions = inventions

    @property
    def longest(self) -> int:
        """How many positions a row has at most."""
        return self._longest + 1

    def batch(self, rows: Sequence[int] | np.ndarray, view: View, targets: Targets) -> Batch:
        """The rows as a batch; placeholders count as the secrets that they stand for, what is invented as public."""
        read = [tokens_of(self._store, int(row), view, self._inventions) for row in rows]
        framed = [self._framed(tokens) for tokens, _ in read]
        if targets == Targets.ALL:
            return Batch.of_rows(framed)
        return Batch.of_rows(framed, [self._weights(secret, targets == Targets.PRIVATE) for _, secret in read])

    def marked(self, row: int) -> tuple[list[int], list[bool]]:
        """The full view of a row, and which of its tokens are secret."""
        tokens, secret = self._store.full(row)[:2]
        return self._framed(tokens), [False, *secret[: self._longest].tolist(), False]

    def _weights(self, secret: np.ndarray, private: bool) -> list[float]:
        """1 for each target that is secret, or for each that is not; the closing end token is public."""
        counts = secret[: self._longest] == private
        return [*counts.astype(float).tolist(), 0.0 if private else 1.0]

    def _framed(self, tokens: np.ndarray) -> list[int]:
        return [self._end, *tokens[: self._longest].tolist(), self._end]
