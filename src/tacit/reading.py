"""From rows of the prepared store to what a model learns from: one view, one choice of targets.

G1 (one accessor). Secrets are read here and nowhere else in training, and only for a step whose view is FULL.
G2 (fixed frame). Every row begins and ends with the end token, so that its first token is a target too.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from tacit.models.batch import Batch, Examples
from tacit.plan import Targets, View
from tacit.prepare import Prepared


class Reader(Protocol):
    """Rows of a store as what a model learns from: text, or text and labels."""

    def batch(self, rows: Sequence[int] | np.ndarray, view: View, targets: Targets) -> Examples:
        """The rows as a batch."""


class RowReader:
    """Reads rows of one store; `longest` is the public constant at which the full view of a row ends."""

    def __init__(self, store: Prepared, end: int, longest: int) -> None:
        self._store = store
        self._end = end
        self._longest = longest

    def batch(self, rows: Sequence[int] | np.ndarray, view: View, targets: Targets) -> Batch:
        """The rows as a batch; placeholders count as the secrets that they stand for."""
        if view == View.REDACTED:
            read = [(self._store.redacted(int(row)), self._placeholders(int(row))) for row in rows]
        else:
            read = [self._store.full(int(row))[:2] for row in rows]
        framed = [self._framed(tokens) for tokens, _ in read]
        if targets == Targets.ALL:
            return Batch.of_rows(framed)
        return Batch.of_rows(framed, [self._weights(secret, targets == Targets.PRIVATE) for _, secret in read])

    def marked(self, row: int) -> tuple[list[int], list[bool]]:
        """The full view of a row, and which of its tokens are secret."""
        tokens, secret = self._store.full(row)[:2]
        return self._framed(tokens), [False, *secret[: self._longest].tolist(), False]

    def _placeholders(self, row: int) -> np.ndarray:
        marks = np.zeros(len(self._store.redacted(row)), dtype=np.bool_)
        marks[self._store.positions(row)] = True
        return marks

    def _weights(self, secret: np.ndarray, private: bool) -> list[float]:
        """1 for each target that is secret, or for each that is not; the closing end token is public."""
        counts = secret[: self._longest] == private
        return [*counts.astype(float).tolist(), 0.0 if private else 1.0]

    def _framed(self, tokens: np.ndarray) -> list[int]:
        return [self._end, *tokens[: self._longest].tolist(), self._end]
