"""A mechanism as somebody would add one to tacit: one file with its entry and needs, one line in the registry."""

from dataclasses import dataclass
from typing import ClassVar

from tacit.mechanisms.mechanism import FROZEN_MARKS, NOISY_CONDITIONS, Needs, PrivateSteps, Spent
from tacit.mechanisms.registry import REGISTRY
from tacit.mechanisms.settings import OF_PRIVATE_STEPS, MechanismEntry
from tacit.privacy.guarantee import Evidence, Guarantee
from tacit.privacy.plan import Neighbors, Phase, Plan, Pool, Targets, Unit, View


@dataclass(frozen=True, slots=True)
class Toy:
    """Noisy steps on records with secrets, and nothing else."""

    name: ClassVar[str] = "toy"
    private: PrivateSteps

    def plan(self) -> Plan:
        return Plan((Phase(((self.private.step(View.FULL, Pool.WITH_SECRETS, Targets.PRIVATE), self.private.steps),)),))

    def notions(self) -> tuple[Neighbors, ...]:
        return (Neighbors(Unit.SECRETS),)

    def conclude(self, spent: Spent, evidence: Evidence) -> Guarantee:
        figures = self.private.figures(spent)
        claim = f"Marked spans have {figures[0]}-differential privacy, as a toy has it."
        conditions = (*NOISY_CONDITIONS, FROZEN_MARKS)
        return Guarantee(self.name, claim, figures, conditions, ("unmarked text",), evidence)


ENTRY = MechanismEntry(
    Toy.name,
    "noise on secrets, and nothing else is learned",
    lambda words: Toy(words.private(words.need("secret_records"))),
    Toy,
    (Unit.SECRETS,),
    Needs(OF_PRIVATE_STEPS, duplicates="exact"),
)


def register() -> None:
    """The line in the registry."""
    REGISTRY[Toy.name] = "toy_mechanism:ENTRY"
