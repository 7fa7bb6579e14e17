"""Context-aware DP: records a frozen detector flagged are trained with noise, the cleared ones plainly.

Dinh and Fioretto, "Context-Aware Differential Privacy for Language Modeling" (arXiv 2301.12288).

| paper | here |
|---|---|
| detector M_phi, psi | a frozen policy; its verdict on a record, the routing bit, is public annotation |
| D_S, N_S | the protected set, `population` |
| D_NS | the cleared records |
| gamma, recall of the detector | a coverage line; never a part of delta |
| T iterations over D | epochs |

Where we differ (`cadp`): flagged records are drawn by Poisson, apart from the cleared ones' batches, so the draw
amplifies. Theorem 1 needs delta > 1 - recall, which protects nobody in particular; a deterministic detector misses a
given secret in every epoch or in none; N_S / |B| is not how often a record takes part: it takes part in every pass.
"""

from dataclasses import dataclass
from typing import ClassVar

from tacit.mechanisms.mechanism import NOISY_CONDITIONS, Needs, PrivateSteps, PublicSteps, Spent, interleaved
from tacit.mechanisms.settings import OF_PRIVATE_STEPS, OF_PUBLIC_STEPS, MechanismEntry, routed_steps
from tacit.privacy.guarantee import Condition, Evidence, Guarantee, Status, coverage_lines
from tacit.privacy.plan import Neighbors, Plan, Pool, Unit, View

ROUTED = Condition(
    "the detector was trained on public or disjoint data and frozen; each record's routing is public", Status.ASSUMED
)

NOT_PROTECTED = ("sensitive records the detector cleared", "which records were flagged")


@dataclass(frozen=True, slots=True)
class CADP:
    """Noisy steps on flagged records, plain steps on cleared ones, batches drawn apart."""

    name: ClassVar[str] = "cadp"
    public: PublicSteps
    private: PrivateSteps

    def plan(self) -> Plan:
        public, private = self.public.step(View.FULL, Pool.CLEARED), self.private.step(View.FULL, Pool.FLAGGED)
        return interleaved(public, self.public.steps, private, self.private.steps)

    def notions(self) -> tuple[Neighbors, ...]:
        return (Neighbors(Unit.FLAGGED_RECORD),)

    def conclude(self, spent: Spent, evidence: Evidence) -> Guarantee:
        """Record-level differential privacy for the flagged records, with the detector's coverage beside it."""
        figures = self.private.figures(spent)
        claim = (
            f"Records routed to the protected set have {figures[0]} record-level differential privacy (zero-out: that "
            "record left empty; how many there are, and each record's routing, is public). Detector "
            f"{evidence.policy_hash or 'not stated'}, trained on {evidence.detector_data or 'data not stated'}. "
            "Undetected sensitive records are trained without protection."
        )
        lines = coverage_lines(figures[0], evidence.coverage)
        return Guarantee(self.name, claim, figures, (*NOISY_CONDITIONS, ROUTED), NOT_PROTECTED, evidence, lines)


ENTRY = MechanismEntry(
    CADP.name,
    "records a detector flagged with noise, the others plainly",
    lambda settings: CADP(*routed_steps(settings)),
    CADP,
    (Unit.FLAGGED_RECORD,),
    Needs(OF_PRIVATE_STEPS | OF_PUBLIC_STEPS),
)
