"""Confidentially redacted training (Zhao et al., "Provably Confidential Language Modelling", NAACL 2022).

| paper | here |
|---|---|
| pi, redaction policy | the policy of the redacted view |
| pi_c, conservative policy | what routes a record to the protected set, with every record that holds a placeholder |
| D_pri, D_pub | the flagged and the cleared pool, both without marked spans: redacted, or with invented ones |
| (eps', delta)-DP of DP-SGD | the headline figure |
| gamma, delta_2: miss rates of pi and pi_c | `Evidence.among_secrets`: upper bounds |

Where we differ: redaction comes first and duplicates are exact hashes of the redacted text; replace-one is priced
beside zero-out, as masking a secret replaces its record; every record with a placeholder is protected, whether or not
its redaction is stable; groups count surviving records; the average case is priced once, for replacing (theory, 10).
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from tacit.mechanisms.mechanism import (
    FROZEN_MARKS,
    LABELED,
    NOISY_CONDITIONS,
    Needs,
    PrivateSteps,
    PublicSteps,
    Spent,
    average_lines,
)
from tacit.mechanisms.settings import OF_PRIVATE_STEPS, OF_PUBLIC_STEPS, MechanismEntry, PlanSettings, routed_steps
from tacit.privacy.events import Relation
from tacit.privacy.guarantee import Condition, Evidence, Guarantee, Status, coverage_lines
from tacit.privacy.plan import Neighbors, Phase, Plan, Pool, Unit, View

REPLACED = Neighbors(Unit.FLAGGED_RECORD, Relation.REPLACE)
IN_GROUPS = tuple(Neighbors(Unit.FLAGGED_RECORD, copies=copies) for copies in (2, 5, 10))
NOTIONS = (Neighbors(Unit.FLAGGED_RECORD), REPLACED, *IN_GROUPS, Neighbors(Unit.SECRETS))
EXACT_DUPLICATES = Condition("duplicates are found by an exact hash of the redacted text", Status.ASSUMED)
ROUTED = Condition("both policies are frozen, local and public; each record's routing is public", Status.ASSUMED)


@dataclass(frozen=True, slots=True)
class CRT:
    """Epochs of plain steps on cleared records and noisy steps on protected ones, in turn; none reads a marked span."""

    name: ClassVar[str] = "crt"
    public: PublicSteps
    private: PrivateSteps
    epochs: int = 1

    def plan(self) -> Plan:
        """`epochs` rounds; the steps that do not divide evenly come in a last round of their own."""
        public = self.public.step(View.REDACTED, Pool.CLEARED), *divmod(self.public.steps, self.epochs)
        view = View.INVENTED if self.public.invents else View.REDACTED
        private = self.private.step(view, Pool.FLAGGED), *divmod(self.private.steps, self.epochs)
        rounds = Phase(tuple((step, each) for step, each, _ in (public, private)), self.epochs)
        return Plan((rounds, Phase(tuple((step, rest) for step, _, rest in (public, private)))))

    def notions(self) -> tuple[Neighbors, ...]:
        """A protected record: zero-out, replaced, in a group; and the redacted spans themselves."""
        return NOTIONS

    def conclude(self, spent: Spent, evidence: Evidence) -> Guarantee:
        """Redacted spans are unused; protected sentences have record-level differential privacy."""
        figures = self.private.figures(spent)
        policies = " and ".join(name for name in (evidence.policy_id, evidence.conservative_id) if name is not None)
        instead = " and invented ones were read in their place" if self.public.invents else ""
        claim = (
            f"Redacted spans were not used in training{instead}; spans whose redaction is not stable are covered as "
            f"records. Protected sentences have {figures[0]} record-level differential privacy (zero-out: that "
            "sentence left empty; how many there are, and which, is public). Sentences trained without protection were "
            f"cleared by {policies or 'policies that are not stated'}."
        )
        return Guarantee(
            mechanism=self.name,
            claim=claim,
            figures=figures,
            holds_if=(
                *NOISY_CONDITIONS,
                EXACT_DUPLICATES,
                ROUTED,
                *((FROZEN_MARKS, *self.public.conditions(evidence)) if self.public.invents else ()),
                *((LABELED,) if evidence.among_secrets else ()),
            ),
            not_protected=("secrets in sentences that both policies cleared", "which sentences were cleared"),
            evidence=evidence,
            average_case=REPLACED,
            coverage=(
                *coverage_lines(figures[0], evidence.conservative_coverage),
                *average_lines(spent[REPLACED], figures[1], evidence.among_secrets),
            ),
        )


def _build(settings: PlanSettings) -> CRT:
    public, private = routed_steps(settings)
    public = replace(public, invents=settings.invents())
    return CRT(public, private, max(1, round(private.steps * private.sampling_rate)))


ENTRY = MechanismEntry(
    CRT.name,
    "marked spans replaced, equal records left out; noise on all that may hold a missed secret",
    _build,
    CRT,
    (Unit.FLAGGED_RECORD, Unit.SECRETS),
    Needs(
        OF_PRIVATE_STEPS | OF_PUBLIC_STEPS | {"public_view"},
        conservative=True,
        duplicates="exact",
        public_view="invented",
    ),
)
