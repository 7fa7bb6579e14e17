"""How well a model predicts held-out text as it was written (overall, on public tokens and on private ones), or the
labels of held-out records.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from tacit.classify import LabelQuality
from tacit.models.base import Learner
from tacit.models.batch import Trainable
from tacit.models.speech import speaking
from tacit.plan import Targets, View
from tacit.prepare import Prepared
from tacit.reading import Reader, RowReader

_ROWS = 64


@dataclass(frozen=True, slots=True)
class Quality:
    """Sums over some tokens; `perplexity` and `accuracy` are what people read."""

    tokens: int = 0
    nats: float = 0.0
    right: int = 0

    def __add__(self, other: "Quality") -> "Quality":
        return Quality(self.tokens + other.tokens, self.nats + other.nats, self.right + other.right)

    @property
    def perplexity(self) -> float:
        """e to the mean nats a token; not a number without tokens."""
        return math.exp(min(self.nats / self.tokens, 700.0)) if self.tokens else math.nan

    @property
    def accuracy(self) -> float:
        """The share of tokens that were the model's first guess."""
        return self.right / self.tokens if self.tokens else math.nan


@dataclass(frozen=True, slots=True)
class Utility:
    """What a model is worth on one held-out store. Nats a character compare models with different tokenizers.

    `labels` is a classifier's, which predicts no token.
    """

    public: Quality
    private: Quality
    characters: int
    labels: LabelQuality | None = None

    @property
    def overall(self) -> Quality:
        """All tokens."""
        return self.public + self.private

    @property
    def nats_a_character(self) -> float:
        """Total nats over the characters of the text."""
        return self.overall.nats / self.characters if self.characters else math.nan


@torch.no_grad()
def evaluate(
    learner: Learner, store: Prepared, reader: RowReader, characters: int, observe: Callable[[int], None]
) -> Utility:
    """Read every row of a held-out store in full; `observe` hears how many rows are done."""
    public, private = Quality(), Quality()
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
            observe(rows.stop)
    return Utility(public, private, characters)


@torch.no_grad()
def mean_nats(learner: Trainable[Any], store: Prepared, reader: Reader, view: View, targets: Targets) -> float:
    """Nats a target (a token, or a label) of one view of a store: what a choice among models looks at."""
    nats, tokens = 0.0, 0.0
    with speaking(learner.module):
        for start in range(0, len(store), _ROWS):
            batch = reader.batch(range(start, min(start + _ROWS, len(store))), view, targets).to(_device(learner))
            losses = learner.token_losses(batch)
            nats, tokens = nats + float(losses.total), tokens + float(batch.weights.sum())
    return nats / max(tokens, 1.0)


def _device(learner: Trainable[Any]) -> torch.device:
    return next(learner.module.parameters()).device


def _quality(losses: torch.Tensor, right: torch.Tensor, chosen: torch.Tensor) -> Quality:
    return Quality(int(chosen.sum()), float(losses[chosen].double().sum()), int((right & chosen).sum()))
