"""How well a model predicts held-out text as it was written (overall, on public tokens and on private ones), or the
labels of held-out records."""

import math
from collections.abc import Callable
from typing import Any

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


@torch.no_grad()
def evaluate(
    learner: Learner, store: PreparedCorpus, reader: RowReader, characters: int, observe: Callable[[int], None]
) -> tuple[Utility, Contributions]:
    """Evaluate every row of a held-out store in full; `observe` receives the number of rows done.

    Returns, besides the exact sums, what each record contributes to the released ones.
    """
    public, private = TokenQuality(), TokenQuality()
    records = _Records(store)
    with speaking(learner.module):
        for start in range(0, len(store), _ROWS):
            rows = range(start, min(start + _ROWS, len(store)))
            everything = reader.batch(rows, View.FULL, Targets.ALL).to(_device(learner))
            secret = reader.batch(rows, View.FULL, Targets.PRIVATE).to(_device(learner)).weights != 0
            logits = learner.logits(everything.inputs).float()
            losses = torch.nn.functional.cross_entropy(logits.transpose(1, 2), everything.targets, reduction="none")
            right = logits.argmax(dim=2) == everything.targets
            counts = everything.weights != 0
            public += _quality(losses, right, counts & ~secret)
            private += _quality(losses, right, counts & secret)
            records.add(rows, losses, right, counts)
            observe(rows.stop)
    return Utility(public, private, characters), records.contributions()


class _Records:
    """Sums over the first tokens of each record, whose pieces are rows one after the other."""

    def __init__(self, store: PreparedCorpus) -> None:
        self._number = np.unique(store.records, return_inverse=True)[1]
        self._sums = np.zeros((int(self._number.max(initial=-1)) + 1, 3))
        self._most_nats = math.log(store.header.facts.vocabulary_size)

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
    learner: Trainable[Any], store: PreparedCorpus, reader: BatchReader, view: View, targets: Targets
) -> float:
    """Nats per target (a token, or a label) of one view of a store: the criterion for choosing among models."""
    nats, tokens = 0.0, 0.0
    with speaking(learner.module):
        for start in range(0, len(store), _ROWS):
            batch = reader.batch(range(start, min(start + _ROWS, len(store))), view, targets).to(_device(learner))
            losses = learner.token_losses(batch)
            nats, tokens = nats + float(losses.total), tokens + float(batch.weights.sum())
    return nats / max(tokens, 1.0)


def _device(learner: Trainable[Any]) -> torch.device:
    return next(learner.module.parameters()).device


def _quality(losses: torch.Tensor, right: torch.Tensor, chosen: torch.Tensor) -> TokenQuality:
    return TokenQuality(int(chosen.sum()), float(losses[chosen].double().sum()), int((right & chosen).sum()))


def label_quality(
    classifier: Classifier, reader: LabelReader, observe: Callable[[int], None]
) -> tuple[LabelQuality, Contributions]:
    """Predict the class of every record of a store from its full text; `observe` receives the number of rows done.

    The pieces of a record are read as if they were independent: it gets the class with the largest product of
    probabilities, and counts once. Also returns what each record contributes to the released counts.
    """
    scores: list[Tensor] = []
    done = 0
    for batch in reader.batches(View.FULL):
        scores.append(_log_probabilities(classifier, batch))
        done += len(batch)
        observe(done)
    records, first, number = np.unique(reader.store.records, return_index=True, return_inverse=True)
    summed = torch.zeros(len(records), len(classifier.settings.classes), dtype=torch.float64)
    summed.index_add_(0, torch.from_numpy(number), torch.cat([summed[:0], *scores]))
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
