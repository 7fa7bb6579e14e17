"""Text classification: labelled rows of the prepared store as batches, and how often a classifier errs.

G1 (one accessor). Secrets are read here only for a step whose view is FULL.
G2 (fixed frame). Every row begins with the end token: none is empty, and a model has a first state to read.
G3 (labels first). Every label is looked up before the first batch; one that is no class stops a run before it spends.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from tacit.errors import ConfigError
from tacit.intervals import Interval, exact_interval
from tacit.models.batch import LabelledBatch
from tacit.models.classifier import Classifier, class_numbers
from tacit.plan import Targets, View
from tacit.prepare import Prepared

_ROWS = 64


class LabelReader:
    """Reads rows of one store with the classes of their records; pieces of a record are rows with the same class.

    longest: the public constant at which a row ends. classes: names in the order of their numbers, a public list.
    """

    def __init__(self, store: Prepared, end: int, longest: int, classes: Sequence[str]) -> None:
        self._store = store
        self._end = end
        self._longest = longest
        self._labels = _numbered(store, classes)

    def batch(self, rows: Sequence[int] | np.ndarray, view: View, targets: Targets = Targets.ALL) -> LabelledBatch:
        """The rows as a batch. A label is public, so that steps on public targets learn it too."""
        if targets == Targets.PRIVATE:
            raise ConfigError(
                expected="steps that learn labels",
                found="steps whose targets are secrets alone, which a label never is",
                way_out="targets: all, or another mechanism",
            )
        tokens = [self._framed(int(row), view) for row in rows]
        return LabelledBatch.of_rows(tokens, [int(self._labels[int(row)]) for row in rows])

    def batches(self, view: View) -> Iterator[LabelledBatch]:
        """All rows in their order, a few at a time."""
        for start in range(0, len(self._store), _ROWS):
            yield self.batch(range(start, min(start + _ROWS, len(self._store))), view)

    def _framed(self, row: int, view: View) -> list[int]:
        tokens = self._store.redacted(row) if view == View.REDACTED else self._store.full(row).tokens
        return [self._end, *tokens[: self._longest].tolist()]


class ErrorRate(NamedTuple):
    """How many of `rows` rows were given a wrong class."""

    errors: int
    rows: int

    @property
    def share(self) -> float:
        """The test error rate; not a number without rows."""
        return self.errors / self.rows if self.rows else float("nan")

    def interval(self, confidence: float = 0.95) -> Interval:
        """The exact two-sided interval for rows like these."""
        return exact_interval(self.errors, self.rows, confidence)


def error_rate(classifier: Classifier, batches: Iterable[LabelledBatch]) -> ErrorRate:
    """Errors of the classifier's first guesses."""
    device = next(classifier.module.parameters()).device
    errors, rows = 0, 0
    for batch in batches:
        here = batch.to(device)
        errors += int((classifier.predict(here) != here.targets[:, 0]).sum())
        rows += len(batch)
    return ErrorRate(errors, rows)


def _numbered(store: Prepared, classes: Sequence[str]) -> np.ndarray:
    numbers = class_numbers(classes)
    labels = np.empty(len(store), dtype=np.int64)
    for row in range(len(store)):
        label = store.label(row)
        if label is None or label not in numbers:
            raise ConfigError(
                expected=f"a label of every record among the {len(classes)} classes",
                found=f"{'no label' if label is None else 'another label'} in row {row} of {store.folder.name}",
                way_out="add the class to the list, name the label's column, or leave such records out",
            )
        labels[row] = numbers[label]
    return labels
