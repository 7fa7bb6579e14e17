"""Text classification: labeled rows of the prepared store as batches, and how often a classifier errs.

G1 (one accessor). Rows are read by `viewed.tokens_of`: secrets only for a step whose view is FULL.
G2 (fixed frame). Every row begins with a special token: none is empty, and a model has a first state to read.
G3 (labels first). Every label is looked up before the first batch; one that is no class stops a run before it spends.
"""

from collections.abc import Sequence

import numpy as np

from tacit.config.model_schema import class_numbers
from tacit.data.batches import LabeledBatch
from tacit.data.store import PreparedCorpus
from tacit.data.viewed import Inventions, tokens_of
from tacit.errors import ConfigError
from tacit.privacy.plan import Plan, SplitBatch, Targets, View

_NO_CLASS = -1


class LabelReader:
    """Reads rows of one store with the classes of their records; pieces of a record are rows with the same class.

    longest: the public constant at which a row ends. classes: names in the order of their numbers, a public list.
    begin: what a row begins with where it also ends with `end`, as encoders expect; without it, rows begin with `end`.
    """

    def __init__(
        self,
        store: PreparedCorpus,
        end: int,
        longest: int,
        classes: Sequence[str],
        inventions: Inventions | None = None,
        begin: int | None = None,
    ) -> None:
        self.store = store
        self._inventions = inventions
        self._frame = ([end], []) if begin is None else ([begin], [end])
        self._longest = longest
        self.longest = longest + sum(map(len, self._frame))
        self.labels = _numbered(store, classes)

    def batch(self, rows: Sequence[int] | np.ndarray, view: View, targets: Targets = Targets.ALL) -> LabeledBatch:
        """The rows as a batch. A label is public, so that steps on public targets learn it too."""
        if targets == Targets.PRIVATE:
            raise ConfigError(
                expected="steps that learn labels",
                found="steps whose targets are secrets alone, which a label never is",
                way_out="targets: all, or another mechanism",
            )
        read = (tokens_of(self.store, int(row), view, self._inventions)[0] for row in rows)
        before, behind = self._frame
        framed = [[*before, *tokens[: self._longest].tolist(), *behind] for tokens in read]
        return LabeledBatch.of_rows(framed, [int(self.labels[int(row)]) for row in rows])

    def lengths(self, rows: np.ndarray) -> np.ndarray:
        """How many tokens of each row are read, by its redacted view."""
        return self.store.lengths(rows).clip(max=self._longest)


def check_learns_labels(plan: Plan) -> None:
    """Refuse a plan with steps that have no meaning for labels, before anything is spent."""
    for step in plan.executions():
        if step.targets == Targets.PRIVATE:
            found, way_out = "private steps that learn secrets alone", "plan.targets: all, or another mechanism"
        elif isinstance(step.update, SplitBatch):
            found, way_out = "an algorithm printed for language models", "its sound form: cadp, or selective"
        else:
            continue
        raise ConfigError("steps that can learn labels", found, way_out)


def _numbered(store: PreparedCorpus, classes: Sequence[str]) -> np.ndarray:
    numbers = dict[str | None, int](class_numbers(classes).items())
    labels = np.fromiter((numbers.get(store.label(row), _NO_CLASS) for row in range(len(store))), np.int64, len(store))
    if not len(store) and store.header.counts.records:
        raise ConfigError(
            expected=f"records with a label in {store.folder.name}",
            found=f"{store.header.counts.records} records, none with a label",
            way_out="put each record's class into the field `label`",
        )
    strange = np.flatnonzero(labels == _NO_CLASS)
    if len(strange):
        what = "no label" if store.label(int(strange[0])) is None else "another label"
        more = f", and {len(strange) - 1} more such rows" if len(strange) > 1 else ""
        raise ConfigError(
            expected=f"a label of every record among the {len(classes)} classes",
            found=f"{what} in row {strange[0]} of {store.folder.name}{more}",
            way_out="add the class to the list, correct the labels, or leave such records out",
        )
    return labels
