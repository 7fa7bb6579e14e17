"""How well a model predicts held-out text as it was written (overall, on public tokens and on private ones), or the
labels of held-out records.
"""

from collections.abc import Callable
from typing import Any

import torch

from tacit.models.base import Learner
from tacit.models.batch import Trainable
from tacit.models.speech import speaking
from tacit.plan import Targets, View
from tacit.prepare import Prepared
from tacit.reading import Reader, RowReader
from tacit.utility import Quality, Utility

_ROWS = 64


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
