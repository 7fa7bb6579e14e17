"""What plan.json holds, and the one conclusion from it: training states it, `verify` states it again.

G1 (as spent). The guarantee is concluded from the ledger's counts, not from the plan; from whichever is dearer where
   the run chose when to stop.
G2 (from files). Everything the conclusion depends on is in plan.json, ledger.jsonl and the evidence of guarantee.json:
   whoever has `release/` can draw it again.
G3 (labels). A claim of a classifier says that the classes are public, and whether a label is protected with its record
   or is public annotation (theory, section 1: what is not owned by a unit is public).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tacit.events import Event
from tacit.guarantee import Condition, Evidence, Guarantee, Status
from tacit.mechanisms import Described, describe, rebuild
from tacit.mechanisms.base import Mechanism, Spent, concluded
from tacit.plan import Plain, Plan, Unit, cost

PUBLIC_CLASSES = Condition("the list of classes is public, and was not collected from the corpus", Status.ASSUMED)
PUBLIC_LABELS = Condition(
    "for secrets, labels are public annotation: what a marked span says does not decide a label", Status.ASSUMED
)
OWN_LABELS = Condition(
    "for records, users and entities, a record's label is part of the record and protected with it", Status.MET
)
EXPOSED_LABELS = "labels of the records that plain steps read"


@dataclass(frozen=True, slots=True)
class Terms:
    """All that will be done, and by which mechanism.

    chooses: models seen on the way decide when training stops, so the whole plan is charged.
    """

    mechanism: Described
    plan: Plan
    classifies: bool = False
    chooses: bool = False

    @classmethod
    def of(cls, mechanism: Mechanism, *, classifies: bool = False, chooses: bool = False) -> "Terms":
        """The terms of a run of `mechanism`."""
        return cls(describe(mechanism), mechanism.plan(), classifies, chooses)

    def rebuilt(self) -> Mechanism:
        """The mechanism, refused when the plan does not follow from it."""
        return rebuild(self.mechanism, self.plan)

    def prices(self) -> dict[str, dict[str, Event]]:
        """What one execution of each step costs each kind of neighbours, as a ledger declares it."""
        notions = self.rebuilt().notions()
        return {step.name: {str(one): cost(step, one) for one in notions} for step in self.plan.executions()}

    def planned(self) -> dict[str, int]:
        """How often each step takes place when the plan is executed to its end."""
        return {step.name: times for step, times in self.plan.executions().items()}

    def spent(self, charges: Mapping[str, int]) -> Spent:
        """What a ledger with these counts has spent."""
        times = {
            step: max(charges.get(step.name, 0), planned if self.chooses else 0)
            for step, planned in self.plan.executions().items()
        }
        return {
            neighbours: tuple((cost(step, neighbours), count) for step, count in times.items() if count)
            for neighbours in self.rebuilt().notions()
        }

    def conclude(self, charges: Mapping[str, int], evidence: Evidence) -> Guarantee:
        """The guarantee that is true after a ledger has counted `charges`."""
        guarantee = concluded(self.rebuilt(), self.spent(charges), evidence)
        return with_labels(guarantee, self.plan) if self.classifies else guarantee


def with_labels(guarantee: Guarantee, plan: Plan) -> Guarantee:
    """`guarantee` with what it means for classes and labels; where nothing is claimed, nothing is added."""
    units = {figure.neighbours.unit for figure in guarantee.figures}
    if not units:
        return guarantee
    public = (PUBLIC_LABELS,) if Unit.SECRETS in units else ()
    own = (OWN_LABELS,) if units - {Unit.SECRETS} else ()
    exposed = any(isinstance(step.update, Plain) and times for step, times in plan.executions().items())
    return replace(
        guarantee,
        holds_if=(*guarantee.holds_if, PUBLIC_CLASSES, *public, *own),
        not_protected=(*guarantee.not_protected, *((EXPOSED_LABELS,) if exposed else ())),
    )
