"""DP-SGD on whole records (Abadi et al. 2016, arXiv 1607.00133v2), the baseline of all four papers.

| paper | here |
|---|---|
| sigma | `noise_multiplier` |
| C | `clip_norm` |
| q = L/N, lot size L | `sampling_rate`, `expected_batch` |
| moments accountant | PLD, with RDP as a cross-check |

Where we differ: Poisson draws in the code as in the proof; the divisor is the expected batch, never the drawn one.
"""

from dataclasses import dataclass
from typing import ClassVar

from tacit.mechanisms.mechanism import NOISY_CONDITIONS, Needs, PrivateSteps, Spent
from tacit.mechanisms.settings import OF_PRIVATE_STEPS, MechanismEntry
from tacit.privacy.guarantee import Evidence, Guarantee
from tacit.privacy.plan import Neighbors, Phase, Plan, Pool, Unit, View


@dataclass(frozen=True, slots=True)
class DPSGD:
    """Noisy steps on the full text, Poisson over records."""

    name: ClassVar[str] = "dpsgd"
    private: PrivateSteps

    def plan(self) -> Plan:
        return Plan((Phase(((self.private.step(View.FULL, Pool.EVERY), self.private.steps),)),))

    def notions(self) -> tuple[Neighbors, ...]:
        return (Neighbors(Unit.RECORD),)

    def conclude(self, spent: Spent, evidence: Evidence) -> Guarantee:
        figures = self.private.figures(spent)
        return Guarantee(
            mechanism=self.name,
            claim=f"Each training record has {figures[0]}-differential privacy, zero-out: the released model is this "
            "close in distribution to one trained with that record left empty. All checkpoints are covered; the number "
            "of records is public.",
            figures=figures,
            holds_if=NOISY_CONDITIONS,
            not_protected=("what several records of one person say together", "the number of records"),
            evidence=evidence,
        )


ENTRY = MechanismEntry(
    DPSGD.name,
    "noise on everything: hides whether a record was used",
    lambda settings: DPSGD(settings.private(settings.need("records"))),
    DPSGD,
    (Unit.RECORD,),
    Needs(OF_PRIVATE_STEPS),
)
