"""A mechanism of one's own: steps that a person lists; what may be claimed follows from their price.
`examples/own_mechanism.py` registers one.

G1 (priced). The figures are those of `plan.cost()`, from the ledger; steps without a finite price are refused.
G2 (one sentence). The sentence is written here, from the unit and the figures; nothing but an `Own` is registered, and
   its number of units is the corpus's own.
G3 (met). Steps for which the printed conditions would be false are refused: noisy ones draw by Poisson, and apart.
G4 (one record). Claims about users and entities, which rest on caps, are left to `user` and `uedp`.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from tacit.errors import ClaimRefused, ConfigError
from tacit.mechanisms.cadp import ROUTED
from tacit.mechanisms.mechanism import FROZEN_MARKS, NOISY_CONDITIONS, PrivateSteps, Spent
from tacit.privacy.events import Relation
from tacit.privacy.guarantee import Condition, Evidence, Guarantee, coverage_lines
from tacit.privacy.plan import Neighbors, Noisy, Plain, Plan, PoissonRecords, ShuffledBatch, Unit, View

_CLAIMS: dict[Unit, tuple[str, tuple[Condition, ...], tuple[str, ...]]] = {
    Unit.SECRETS: ("blanked", (FROZEN_MARKS,), ("unmarked text", "that a record was used", "a value in many records")),
    Unit.RECORD: ("left empty", (), ("what several records of one person say together", "the number of records")),
    Unit.FLAGGED_RECORD: ("left empty", (ROUTED,), ("sensitive records that were cleared", "which ones were flagged")),
}
"""Of each unit: its other world, what else the claim rests on, and what it leaves open."""
OWN_UNITS = tuple(_CLAIMS)


@dataclass(frozen=True, slots=True)
class Own:
    """`schedule` lists the steps, given private steps whose noise may still change; `unit` is who is protected."""

    name: str
    private: PrivateSteps
    schedule: Callable[[PrivateSteps], Plan]
    unit: Unit

    def __post_init__(self) -> None:
        if self.unit not in _CLAIMS:
            known = f"a claim about {', '.join(_CLAIMS)}"
            raise ClaimRefused(known, f"one about {self.unit}", "`user` and `uedp` have the caps such a claim needs")

    def plan(self) -> Plan:
        """The steps, in order; refused where a condition that the guarantee prints would be false."""
        plan = self.schedule(self.private)
        names = Counter(step.name for step in plan.executions())
        twice = [name for name, steps in names.items() if steps > 1]
        if twice:
            raise ConfigError("a name for each kind of step", f"two steps called {twice[0]}", "name them apart")
        for step in plan.priced():
            plain = isinstance(step.update, Plain) and isinstance(step.draw, ShuffledBatch)
            noisy = isinstance(step.update, Noisy) and isinstance(step.draw, PoissonRecords)
            if not (plain or noisy) or step.view == View.LEARNED:
                raise ClaimRefused(
                    expected="plain steps on shuffled batches, and noisy ones on Poisson draws of records",
                    found=f"a {step.update.kind} step on a {step.draw.kind} draw of the {step.view} view",
                    way_out="use PublicSteps.step and PrivateSteps.step",
                )
        return plan

    def notions(self) -> tuple[Neighbors, ...]:
        return (Neighbors(self.unit), Neighbors(self.unit, Relation.REPLACE))

    def conclude(self, spent: Spent, evidence: Evidence) -> Guarantee:
        """Differential privacy for the unit, as the ledger has it."""
        figures = self.private.figures(spent)
        removed, replaced = figures
        gone, holds_if, not_protected = _CLAIMS[self.unit]
        return Guarantee(
            mechanism=self.name,
            claim=f"Differential privacy for {self.unit}, all checkpoints: {removed} when it is {gone}, {replaced} "
            "when it is replaced. The steps are of somebody's own making; their price is not.",
            figures=figures,
            holds_if=(*NOISY_CONDITIONS, *holds_if),
            not_protected=not_protected,
            evidence=evidence,
            coverage=coverage_lines(removed, evidence.coverage) if self.unit != Unit.RECORD else (),
        )
