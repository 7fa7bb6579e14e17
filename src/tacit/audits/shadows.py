"""Scores against reference models that were trained on other halves of the corpus (`tacit.training.shadows`).

| score | what it is | from |
|---|---|---|
| likelihood ratio | loss minus the mean loss under models that did not read it | Carlini et al. 2022, 2112.03570 |
| rmia | share of other candidates whose p / mean p of the references is lower | Zarifzadeh et al. 2024, 2312.03262 |

p is the probability of a token, as the geometric mean over a text. With two references, of each text one has read it
and one has not, so that their mean needs no correction. With one, only texts that it has not read are attacked, and the
mean is that of RMIA's offline form, ((1 + a) p + (1 - a)) / 2 with a = .3. RMIA's gamma is 1, and its population are
the candidates themselves, without their truth.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tacit.audits.passages import Passage, check_reference, loss_scores
from tacit.audits.statistics import Scores
from tacit.data.store import PreparedCorpus
from tacit.models.language_model import Learner, Speaker
from tacit.models.loading import load
from tacit.runs.folder import RunFolder
from tacit.runs.release import PrivateFile

_OFFLINE = 0.3


@dataclass(frozen=True, slots=True, eq=False)
class Shadow:
    """A reference model, and the ids of the records that it has read."""

    learner: Learner
    records: frozenset[str]

    @classmethod
    def of(cls, folder: Path) -> "Shadow":
        """Of the finished run in `folder`."""
        learner = load(folder)[0]
        learner.module.eval()
        run = RunFolder.view(folder)
        place = run.path(PrivateFile.MEMBERS)
        store = PreparedCorpus(place if place.exists() else run.path(PrivateFile.PREPARED))
        return cls(learner, frozenset(store.record_id(row) for row in range(len(store))))


def shadow_scores(
    speaker: Speaker, shadows: Sequence[Shadow], passages: Sequence[Passage], records: Mapping[str, str]
) -> dict[str, Scores]:
    """Both scores, of candidates that at least one reference did not read. records: the record of each candidate."""
    outside = [[records[one.id] not in shadow.records for shadow in shadows] for one in passages]
    kept = [at for at, flags in enumerate(outside) if any(flags)]
    chosen = [passages[at] for at in kept]
    if not chosen:
        return {}
    for shadow in shadows:
        check_reference(speaker, shadow.learner)
    own = loss_scores(speaker, chosen).by_id
    others = [loss_scores(shadow.learner, chosen).by_id for shadow in shadows]
    ratios, margins = {}, {}
    for at, one in zip(kept, chosen, strict=True):
        losses = [other[one.id] for other in others]
        margins[one.id] = own[one.id] - float(
            np.mean([loss for loss, out in zip(losses, outside[at], strict=True) if out])
        )
        ratios[one.id] = own[one.id] - math.log(_mean(losses))
    return {"likelihood ratio": Scores(margins), "rmia": Scores(_shares_below(ratios))}


def _mean(losses: Sequence[float]) -> float:
    """Of the references' probabilities."""
    if len(losses) > 1:
        return float(np.mean(np.exp(losses)))
    return ((1 + _OFFLINE) * math.exp(losses[0]) + (1 - _OFFLINE)) / 2


def _shares_below(ratios: Mapping[str, float]) -> dict[str, float]:
    values = np.sort(list(ratios.values()))
    return {name: float(np.searchsorted(values, value)) / len(values) for name, value in ratios.items()}
