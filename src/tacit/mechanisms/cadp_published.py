"""CADP-LM's Algorithm 1 as printed: both parts of one minibatch are used (arXiv 2301.12288).

| paper | here |
|---|---|
| T | passes over the corpus, `private.steps`: the epochs |
| N_S, |B| | `private.population`, `private.expected_batch` |
| gamma | `recall` |
| sigma, C | `noise_multiplier`, `clip_norm` |
| eta, of DP-SGD and SGD | `learning_rate` of the private optimiser: one rate, plain SGD, no decay |
| B_S empty, B_NS empty: not said | nothing happens, no noise either: which batches have flagged records is public |
"""

import math
from dataclasses import dataclass
from typing import ClassVar

from tacit.guarantee import Evidence, Guarantee, Published
from tacit.mechanisms.base import PUBLIC_COUNT, PrivateSteps, Spent, published_guarantee
from tacit.mechanisms.cadp import NOT_PROTECTED, ROUTED
from tacit.plan import Neighbours, Phase, Plan, Pool, ShuffledPass, SplitBatch, Step, Unit, View


@dataclass(frozen=True, slots=True)
class CADPPublished:
    """Algorithm 1 as printed: each minibatch is split, its flagged part updates with noise, the rest exactly.

    `private.steps` counts passes over the corpus (T), in each of which every record takes part once.
    """

    name: ClassVar[str] = "cadp-published"
    private: PrivateSteps
    recall: float

    def plan(self) -> Plan:
        """T shuffled passes; in each batch the flagged records update with noise, the others exactly."""
        noise, norm, batch = self.private.noise_multiplier, self.private.clip_norm, self.private.expected_batch
        split = SplitBatch(noise, norm, batch, by="records")
        step = Step("private", View.FULL, Pool.EVERY, ShuffledPass(round(batch)), split, "private")
        return Plan((Phase(((step, self.private.steps),)),))

    def notions(self) -> tuple[Neighbours, ...]:
        """A flagged record, zero-out: that it was flagged, and which batch it is in, is not hidden."""
        return (Neighbours(Unit.FLAGGED_RECORD),)

    def conclude(self, spent: Spent, evidence: Evidence) -> Guarantee:
        """What Theorem 1 prints, and what holds: one unsampled Gaussian a pass."""
        figures = self.private.figures(spent)
        delta = max(1 - self.recall, self.private.delta)
        # T N_S eps/|B| + log(1/delta)/(alpha - 1) with eps = alpha / (2 sigma^2), at the best order alpha.
        slope = self.private.steps / self.private.sampling_rate / (2 * self.private.noise_multiplier**2)
        published = Published(
            epsilon=slope + 2 * math.sqrt(slope * math.log(1 / delta)),
            delta=delta,
            formula="T N_S eps / |B| + log(1/delta) / (alpha - 1), Theorem 1",
            reasons=(
                "delta must exceed 1 - recall, which is no guarantee",
                "a deterministic detector misses a secret always or never: its recall is not a failure probability",
                "both parts of a minibatch are used, so who was drawn is visible and nothing is amplified",
                "N_S / |B| is not the number of times a record takes part",
            ),
        )
        return published_guarantee(self.name, published, figures, (PUBLIC_COUNT, ROUTED), NOT_PROTECTED, evidence)
