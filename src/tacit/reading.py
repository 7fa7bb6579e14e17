"""From rows of the prepared store to what a model learns from: one view, one choice of targets.

G1 (one accessor). Secrets are read here and nowhere else in training, and only for a step whose view is FULL.
G2 (fixed frame). Every row begins and ends with the end token, so that its first token is a target too.
"""

from collections.abc import Sequence

import numpy as np

from tacit.models.batch import Batch
from tacit.plan import Targets, View
from tacit.prepare import Prepared


class RowReader:
    """Reads rows of one store; `longest` is the public constant at which the full view of a row ends."""

    def __init__(self, store: Prepared, end: int, longest: int) -> None:
        self._store = store
        self._end = end
        self._longest = longest

    def batch(self, rows: Sequence[int] | np.ndarray, view: View, targets: Targets) -> Batch:
        """The rows as a batch; with private targets, only secret tokens count."""
        if view == View.REDACTED:
            return Batch.of_rows([self._framed(self._store.redacted(int(row))) for row in rows])
        read = [self._store.full(int(row)) for row in rows]
        framed = [self._framed(one.tokens) for one in read]
        if targets == Targets.ALL:
            return Batch.of_rows(framed)
        return Batch.of_rows(framed, [self.private_weights(one.private) for one in read])

    def private_weights(self, private: np.ndarray) -> list[float]:
        """1 for each target that is a secret token; the closing end token is public."""
        kept = private[: self._longest]
        return [*kept.astype(float).tolist(), 0.0]

    def _framed(self, tokens: np.ndarray) -> list[int]:
        return [self._end, *tokens[: self._longest].tolist(), self._end]
