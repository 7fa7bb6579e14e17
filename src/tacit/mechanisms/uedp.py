"""User-entity DP made sound: sentences drawn by Poisson, capped for every user and every listed entity.

Lai et al., "User-Entity Differential Privacy in Learning Natural Language Models" (IEEE Big Data 2022).

| paper | here |
|---|---|
| user u, sensitive entity e | units that own at most `user_cap` and `entity_cap` sentences |
| sentence s | a record |
| beta, z | `clip_norm`, `noise_multiplier` |
| q_u, q_e | not needed: no credit is given for sampling entities |
| non-sensitive sentences, q_s | drawn with the others; plainly (`rest`) only when no user-level claim is made |

Where we differ: each sentence is clipped alone; caps are kept greedily on the fixed incidence graph, public annotation
(Ganesh et al. 2025, arXiv 2503.03622), so a pair owns at most user_cap + entity_cap sentences; a mixture of Gaussians
prices them.
"""

from dataclasses import dataclass
from typing import ClassVar

from tacit.mechanisms.mechanism import NOISY_CONDITIONS, Needs, PrivateSteps, PublicSteps, Spent, interleaved
from tacit.mechanisms.settings import OF_PRIVATE_STEPS, OF_PUBLIC_STEPS, MechanismEntry, PlanSettings
from tacit.mechanisms.user import USERS_KNOWN
from tacit.privacy.guarantee import Condition, Evidence, Guarantee, Status
from tacit.privacy.plan import Neighbors, Phase, Plan, Pool, Unit, View

LISTED = Condition("it is public, and right, which listed entity stands in which sentence", Status.ASSUMED)


@dataclass(frozen=True, slots=True)
class UeDP:
    """Noisy steps on capped sentences; `rest`, if given, trains sentences without entities plainly."""

    name: ClassVar[str] = "uedp"
    private: PrivateSteps
    user_cap: int
    entity_cap: int
    rest: PublicSteps | None = None

    def plan(self) -> Plan:
        """Noisy steps on the capped pool, with plain ones on the rest in between where no user is promised anything."""
        private = self.private.step(View.FULL, Pool.CAPPED)
        if self.rest is None:
            return Plan((Phase(((private, self.private.steps),)),))
        public = self.rest.step(View.FULL, Pool.NO_ENTITY)
        return interleaved(public, self.rest.steps, private, self.private.steps)

    def notions(self) -> tuple[Neighbors, ...]:
        """A user and an entity, a user, an entity; an entity alone where the rest is trained plainly."""
        entity = Neighbors(Unit.ENTITY, copies=self.entity_cap)
        if self.rest is not None:
            return (entity,)
        both = Neighbors(Unit.USER_AND_ENTITY, copies=self.user_cap + self.entity_cap)
        return (both, Neighbors(Unit.USER, copies=self.user_cap), entity)

    def conclude(self, spent: Spent, evidence: Evidence) -> Guarantee:
        figures = self.private.figures(spent)
        listed = "; ".join(f"{figure.neighbors.unit}: {figure}" for figure in figures)
        dropped = "not stated" if evidence.dropped_share is None else f"{evidence.dropped_share:.2%}"
        return Guarantee(
            mechanism=self.name,
            claim="Differential privacy, zero-out (the sentences of the unit left empty; who wrote which sentence, and "
            f"which listed entities are in it, is public), all checkpoints, for {listed}. Each user is limited to "
            f"{self.user_cap}, each listed entity to {self.entity_cap} sentences (share dropped: {dropped}). Entity = "
            f"a string of list {evidence.entity_list_hash or 'not stated'}; aliases and unlisted names are not "
            f"protected at entity level.",
            figures=figures,
            holds_if=(*NOISY_CONDITIONS, LISTED, USERS_KNOWN),
            not_protected=("aliases and unlisted names", *(("users",) if self.rest else ())),
            evidence=evidence,
        )


def _build(settings: PlanSettings) -> UeDP:
    """Plain steps on sentences without entities only where they are asked for: they leave users without a claim."""
    private = settings.private(settings.need("records"))
    rest = settings.public(settings.need("other_records")) if settings.given("public_epochs") else None
    return UeDP(private, settings.need("user_cap"), settings.need("entity_cap"), rest)


ENTRY = MechanismEntry(
    UeDP.name,
    "hides a user and a listed entity: sentences capped for both",
    _build,
    UeDP,
    (Unit.USER_AND_ENTITY, Unit.USER, Unit.ENTITY),
    Needs(OF_PRIVATE_STEPS | OF_PUBLIC_STEPS | {"user_cap", "entity_cap"}, users=True, entities=True),
)
