"""Selective-DPSGD, Algorithm 1 as printed (Shi et al., NAACL 2022): alternating segments, noisy hidden states.

| paper | here |
|---|---|
| random batch B, N/|B| batches an epoch | `private`: its population, expected batch and number of batches |
| (B_np,i, B_p,i), tuples of a batch | `events_per_batch`, on average over a batch |
| private updates of one record in a batch | `segments_per_record` |
| h_i, c_i, clipped and noised | `noised_states` of them after each private segment |
"""

from dataclasses import dataclass
from typing import ClassVar

from tacit.accounting import SDP_ORDERS, published_epsilon
from tacit.events import Relation
from tacit.guarantee import Condition, Evidence, Guarantee, Published, Status
from tacit.mechanisms.base import FROZEN_MARKS, PUBLIC_COUNT, PrivateSteps, Spent, published_guarantee
from tacit.plan import Neighbours, Phase, Plan, PoissonRecords, Pool, SplitBatch, Step, Unit, View

REASONS = (
    "the noise of the hidden states is not counted",
    "several queries share one batch but are accounted as independent subsamples",
    "exact public gradients on the same batch show who is in it, so nothing is amplified",
    "the definition replaces values, which moves a sum by 2C, but C is accounted",
)
STATES = Condition(
    "every hidden state that leaves a private segment is one of the noised states, or is reset", Status.ASSUMED
)


@dataclass(frozen=True, slots=True)
class SelectivePublished:
    """Each drawn batch is split into public segments (exact updates) and private ones (noisy updates)."""

    name: ClassVar[str] = "selective-published"
    private: PrivateSteps
    events_per_batch: float
    segments_per_record: int = 1
    noised_states: int = 2

    def plan(self) -> Plan:
        """One split batch a step."""
        private = self.private
        queries = self.segments_per_record * (1 + self.noised_states)
        split = SplitBatch(private.noise_multiplier, private.clip_norm, private.expected_batch, "segments", queries)
        step = Step("private", View.FULL, Pool.EVERY, PoissonRecords(private.sampling_rate), split, "private")
        return Plan((Phase(((step, private.steps),)),))

    def notions(self) -> tuple[Neighbours, ...]:
        """A record's secrets, blanked, and replaced as in the paper's definition."""
        return (Neighbours(Unit.SECRETS), Neighbours(Unit.SECRETS, Relation.REPLACE))

    def conclude(self, spent: Spent, evidence: Evidence) -> Guarantee:
        """The printed number and the one that holds with the batch in plain sight."""
        published = Published(
            epsilon=published_epsilon(
                self.private.sampling_rate,
                self.private.noise_multiplier,
                round(self.private.steps * self.events_per_batch),
                self.private.delta,
                SDP_ORDERS,
            ),
            delta=self.private.delta,
            formula="moments accountant over all private updates as independent subsamples, Theorem 2",
            reasons=REASONS,
        )
        not_protected = ("unmarked text", "that a record was used", "where secrets stand and of which kind")
        holds_if = (PUBLIC_COUNT, FROZEN_MARKS, STATES)
        return published_guarantee(self.name, published, self.private.figures(spent), holds_if, not_protected, evidence)
