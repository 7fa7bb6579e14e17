"""No protection: the baseline that shows what leaks; papers call it SGD, "No-DP" or "Noiseless"."""

from dataclasses import dataclass
from typing import ClassVar

from tacit.mechanisms.mechanism import Needs, PublicSteps, Spent
from tacit.mechanisms.settings import OF_PUBLIC_STEPS, MechanismEntry
from tacit.privacy.guarantee import Evidence, Guarantee
from tacit.privacy.plan import Neighbors, Phase, Plan, Pool, View


@dataclass(frozen=True, slots=True)
class PlainTraining:
    """Exact gradients on the text as written."""

    name: ClassVar[str] = "plain"
    private: ClassVar[None] = None
    public: PublicSteps

    def plan(self) -> Plan:
        return Plan((Phase(((self.public.step(View.FULL, Pool.EVERY), self.public.steps),)),))

    def notions(self) -> tuple[Neighbors, ...]:
        return ()

    def conclude(self, spent: Spent, evidence: Evidence) -> Guarantee:
        return Guarantee(self.name, "No guarantee.", (), (), ("everything in the corpus",), evidence)


ENTRY = MechanismEntry(
    PlainTraining.name,
    "ordinary training: no guarantee (noiseless)",
    lambda settings: PlainTraining(settings.public(settings.need("records"))),
    PlainTraining,
    (),
    Needs(OF_PUBLIC_STEPS),
    ("noiseless",),  # UeDP, section 5: "trained without any privacy-preserving mechanisms"; No-DP in S-DP
)
