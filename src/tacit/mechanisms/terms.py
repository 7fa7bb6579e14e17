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

from tacit.mechanisms.mechanism import Mechanism, Spent, concluded
from tacit.mechanisms.registry import Described, describe, rebuild
from tacit.privacy.events import Event, Unbounded
from tacit.privacy.guarantee import Condition, Evidence, Guarantee, Status
from tacit.privacy.noisy_utility import HELD_OUT, HELD_OUT_ALONE, NOT_READ, STEP, measured_utility, price
from tacit.privacy.plan import Plain, Plan, Unit, cost

PUBLIC_CLASSES = Condition("the list of classes is public, and was not collected from the corpus", Status.ASSUMED)

PUBLIC_LABELS = Condition(
    "for secrets, labels are public annotation: what a marked span says does not decide a label", Status.ASSUMED
)

OWN_LABELS = Condition(
    "for records, users and entities, a record's label is part of the record and protected with it", Status.MET
)

EXPOSED_LABELS = "labels of the records that plain steps read"


@dataclass(frozen=True, slots=True)
class Measuring:
    """How utility is released: over so many held-out records, with this noise. chose: they also chose the model."""

    records: int
    noise_multiplier: float
    chose: bool = False

    @property
    def of_training(self) -> Event:
        """What a training step costs a held-out record."""
        return Unbounded("the model was chosen on held-out records") if self.chose else NOT_READ


@dataclass(frozen=True, slots=True)
class Terms:
    """All that will be done, and by which mechanism.

    chooses: models seen on the way decide when training stops, so the whole plan is charged.
    measuring: what comes after training; none where nothing is measured.
    """

    mechanism: Described
    plan: Plan
    classifies: bool = False
    chooses: bool = False
    measuring: Measuring | None = None

    @classmethod
    def of(
        cls,
        mechanism: Mechanism,
        *,
        classifies: bool = False,
        chooses: bool = False,
        measuring: Measuring | None = None,
    ) -> "Terms":
        """The terms of a run of `mechanism`."""
        return cls(describe(mechanism), mechanism.plan(), classifies, chooses, measuring)

    def rebuilt(self) -> Mechanism:
        """The mechanism, refused when the plan does not follow from it."""
        return rebuild(self.mechanism, self.plan)

    def prices(self) -> dict[str, dict[str, Event]]:
        """What one execution of each step costs each kind of neighbours, as a ledger declares it."""
        notions = self.rebuilt().notions()
        prices = {step.name: {str(one): cost(step, one) for one in notions} for step in self.plan.executions()}
        measuring = self.measuring
        if measuring is None:
            return prices
        of_step = {step: {**known, HELD_OUT: measuring.of_training} for step, known in prices.items()}
        return {
            **of_step,
            STEP: {**{str(one): HELD_OUT_ALONE for one in notions}, HELD_OUT: price(measuring.noise_multiplier)},
        }

    def planned(self) -> dict[str, int]:
        """How often each step takes place when the plan is executed to its end."""
        measured = {} if self.measuring is None else {STEP: 1}
        return {step.name: times for step, times in self.plan.executions().items()} | measured

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
        if self.classifies:
            guarantee = with_labels(guarantee, self.plan)
        return guarantee if self.measuring is None else with_utility(guarantee, self.measuring, charges.get(STEP, 0))


def with_utility(guarantee: Guarantee, measuring: Measuring, times: int) -> Guarantee:
    """`guarantee` with what held-out records have after so many releases of utility."""
    if measuring.chose:
        return replace(guarantee, not_protected=(*guarantee.not_protected, "held-out records, which chose the model"))
    return replace(guarantee, utility=measured_utility(measuring.noise_multiplier, times, measuring.records))


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
