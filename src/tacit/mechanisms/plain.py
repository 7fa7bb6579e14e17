"""No protection: the baseline that shows what leaks.

| paper | here |
|---|---|
| SGD, "No-DP", "Noiseless" | `plain` |
"""

from dataclasses import dataclass
from typing import ClassVar

from tacit.guarantee import Evidence, Guarantee
from tacit.mechanisms.base import PublicSteps, Spent
from tacit.plan import Neighbours, Phase, Plan, Pool, View


@dataclass(frozen=True, slots=True)
class PlainTraining:
    """Exact gradients on the text as written."""

    name: ClassVar[str] = "plain"
    private: ClassVar[None] = None
    public: PublicSteps

    def plan(self) -> Plan:
        """Plain steps on everything."""
        return Plan((Phase(((self.public.step(View.FULL, Pool.EVERY), self.public.steps),)),))

    def notions(self) -> tuple[Neighbours, ...]:
        """Nothing is claimed, so nothing is priced."""
        return ()

    def conclude(self, spent: Spent, evidence: Evidence) -> Guarantee:
        """That there is no guarantee."""
        return Guarantee(self.name, "No guarantee.", (), (), ("everything in the corpus",), evidence)
