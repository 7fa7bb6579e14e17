"""How well a model predicts held-out text as it was written (overall, on public tokens and on private ones), or the
labels of held-out records.

Where several processes hold the model, each reads a part of the records, and all have the result.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from tacit.data.batches import BatchReader, LabeledBatch, RowReader, Trainable
from tacit.data.labels import LabelReader
from tacit.data.store import PreparedCorpus
from tacit.models.classifier import Classifier
from tacit.models.language_model import Learner, speaking
from tacit.privacy.noisy_utility import LONGEST, Contributions
from tacit.privacy.plan import Targets, View
from tacit.runs.utility import ErrorRate, LabelQuality, TokenQuality, Utility

_ROWS = 64


class Readers(Protocol):
    """The processes that read a part of the records each."""

    @property
    def rank(self) -> int:
        """The number of this one, from 0 on."""

    @property
    def size(self) -> int:
        """How many there are."""

    def sum_(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its sum over all processes."""

    def finish_passes(self, idle: Callable[[], object]) -> None:
        """Take part in passes of processes that have more to read, if they need this one; `idle` is such a pass."""


@dataclass(frozen=True, slots=True)
class OneReader:
    """A process that reads everything."""

    rank: int = 0
    size: int = 1

    def sum_(self, tensors: Sequence[Tensor]) -> None:
        """They are the sums already."""

    def finish_passes(self, idle: Callable[[], object]) -> None:
        """There are no others."""


_ALONE = OneReader()


def rows_of_part(store: PreparedCorpus, readers: Readers) -> range:
    """The rows of a store that this process reads: whole records, whose pieces are next to each other."""
    starts = np.flatnonzero(np.diff(store.records, prepend=store.records[:1] + 1))
    parts = (len(store) * part // readers.size for part in (readers.rank, readers.rank + 1))
    first, last = (
        int(starts[index]) if index < len(starts) else len(store) for index in np.searchsorted(starts, [*parts])
    )
    return range(first, last)


@torch.no_grad()
def evaluate(
    learner: Learner,
    store: PreparedCorpus,
    reader: RowReader,
    characters: int,
    observe: Callable[[int], None],
    readers: Readers = _ALONE,
) -> tuple[Utility, Contributions]:
    """Evaluate every row of a held-out store in full; `observe` receives the number of rows done.

    Returns, besides the exact sums, what each record contributes to the released ones.
    """
    public, private = TokenQuality(), TokenQuality()
    records = _Records(store)
    part = rows_of_part(store, readers)
    with speaking(learner.module):
        for start in part[::_ROWS]:
            rows = range(start, min(start + _ROWS, part.stop))
            everything = reader.batch(rows, View.FULL, Targets.ALL).to(_device(learner))
            secret = reader.batch(rows, View.FULL, Targets.PRIVATE).to(_device(learner)).weights != 0
            logits = learner.logits(everything.inputs).float()
            losses = torch.nn.functional.cross_entropy(logits.transpose(1, 2), everything.targets, reduction="none")
            right = logits.argmax(dim=2) == everything.targets
            counts = everything.weights != 0
            public += _quality(losses, right, counts & ~secret)
            private += _quality(losses, right, counts & secret)
            records.add(rows, losses, right, counts)
            observe(min(len(store), (rows.stop - part.start) * readers.size))
        readers.finish_passes(lambda: _idle_pass(learner))
    totals = torch.tensor([astuple(public), astuple(private)], dtype=torch.float64)
    readers.sum_([totals, records.sums])
    public, private = (TokenQuality(int(tokens), nats, int(right)) for tokens, nats, right in totals.tolist())
    return Utility(public, private, characters), records.contributions()


class _Records:
    """Sums over the first tokens of each record, whose pieces are rows one after the other."""

    def __init__(self, store: PreparedCorpus) -> None:
        self._number = np.unique(store.records, return_inverse=True)[1]
        self._sums = np.zeros((int(self._number.max(initial=-1)) + 1, 3))
        self._most_nats = math.log(store.header.facts.vocabulary_size)

    @property
    def sums(self) -> Tensor:
        """(records, 3): what was added so far, not a copy."""
        return torch.from_numpy(self._sums)

    def add(self, rows: range, losses: torch.Tensor, right: torch.Tensor, counts: torch.Tensor) -> None:
        """Nats, tokens and right guesses of these rows, as far as their records are not full."""
        for row, nats, guessed, counted in zip(rows, losses, right, counts, strict=True):
            sums = self._sums[self._number[row]]
            first = counted.nonzero()[: LONGEST - int(sums[1]), 0]
            capped = nats[first].double().nan_to_num(self._most_nats).clamp(0.0, self._most_nats)
            sums += (float(capped.sum()), len(first), int(guessed[first].sum()))

    def contributions(self) -> Contributions:
        vectors = self._sums / (self._most_nats * LONGEST, LONGEST, LONGEST)
        return Contributions(vectors.clip(0.0, 1.0), LONGEST, self._most_nats)


@torch.no_grad()
def mean_nats(
    learner: Trainable[Any],
    store: PreparedCorpus,
    reader: BatchReader,
    view: View,
    targets: Targets,
    readers: Readers = _ALONE,
) -> float:
    """Nats per target (a token, or a label) of one view of a store: the criterion for choosing among models."""
    totals = torch.zeros(2, dtype=torch.float64)
    part = rows_of_part(store, readers)
    with speaking(learner.module):
        for start in part[::_ROWS]:
            batch = reader.batch(range(start, min(start + _ROWS, part.stop)), view, targets).to(_device(learner))
            losses = learner.token_losses(batch)
            totals += torch.tensor([float(losses.total), float(batch.weights.sum())], dtype=torch.float64)
        readers.finish_passes(lambda: _idle_pass(learner))
    readers.sum_([totals])
    nats, tokens = totals.tolist()
    return float(nats / max(tokens, 1.0))


def _idle_pass(learner: Trainable[Any]) -> None:
    """A pass of one token that is nobody's."""
    with speaking(learner.module):
        learner.logits(torch.zeros(1, 1, dtype=torch.int64, device=_device(learner)))


def _device(learner: Trainable[Any]) -> torch.device:
    return next(learner.module.parameters()).device


def _quality(losses: torch.Tensor, right: torch.Tensor, chosen: torch.Tensor) -> TokenQuality:
    return TokenQuality(int(chosen.sum()), float(losses[chosen].double().sum()), int((right & chosen).sum()))


def label_quality(
    classifier: Classifier, reader: LabelReader, observe: Callable[[int], None], readers: Readers = _ALONE
) -> tuple[LabelQuality, Contributions]:
    """Predict the class of every record of a store from its full text; `observe` receives the number of rows done.

    The pieces of a record are read as if they were independent: it gets the class with the largest product of
    probabilities, and counts once. Also returns what each record contributes to the released counts.
    """
    records, first, number = np.unique(reader.store.records, return_index=True, return_inverse=True)
    summed = torch.zeros(len(records), len(classifier.settings.classes), dtype=torch.float64)
    part = rows_of_part(reader.store, readers)
    for start in part[::_ROWS]:
        rows = range(start, min(start + _ROWS, part.stop))
        scores = _log_probabilities(classifier, reader.batch(rows, View.FULL))
        summed.index_add_(0, torch.from_numpy(number[rows.start : rows.stop]), scores)
        observe(min(len(reader.store), (rows.stop - part.start) * readers.size))
    readers.finish_passes(lambda: _idle_pass(classifier))
    readers.sum_([summed])
    labels = reader.labels[first]
    secret = np.bincount(number, reader.store.span_counts(), len(records)) > 0
    wrong = summed.argmax(dim=1).numpy() != labels
    commonest = int(np.bincount(labels).max(initial=0))
    quality = LabelQuality(
        ErrorRate(int(wrong[secret].sum()), int(secret.sum())),
        ErrorRate(int(wrong[~secret].sum()), int((~secret).sum())),
        ErrorRate(len(records) - commonest, len(records)),
    )
    return quality, Contributions(wrong[:, None].astype(np.float64))


def _log_probabilities(classifier: Classifier, batch: LabeledBatch) -> Tensor:
    """(rows, classes), in float64."""
    with speaking(classifier.module):
        return torch.log_softmax(classifier.logits(batch.inputs.to(_device(classifier)))[:, 0].double(), dim=1).cpu()
