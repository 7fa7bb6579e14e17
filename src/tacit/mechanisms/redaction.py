"""Redaction, then ordinary training: De-Identification in UeDP, data anonymisation in Selective DP.

| paper | here |
|---|---|
| `<num>`, `<MASK>`, masked entity | the one placeholder of the redacted view |
| pseudonyms, surrogates | `public_view: invented` |
| perfect policy, S-DP with epsilon = 0 | epsilon 0 for marked spans, nothing for unmarked text |
"""

from dataclasses import dataclass
from typing import ClassVar

from tacit.mechanisms.mechanism import FROZEN_MARKS, PUBLIC_TOKENIZER, Needs, PublicSteps, Spent
from tacit.mechanisms.settings import OF_PUBLIC_STEPS, MechanismEntry
from tacit.privacy.guarantee import Evidence, Guarantee, coverage_lines, unused
from tacit.privacy.plan import Neighbors, Phase, Plan, Pool, Unit, View

SECRETS = Neighbors(Unit.SECRETS)


@dataclass(frozen=True, slots=True)
class Redaction:
    """Exact gradients on the redacted view."""

    name: ClassVar[str] = "redaction"
    private: ClassVar[None] = None
    public: PublicSteps

    def plan(self) -> Plan:
        """Plain steps on everything: on placeholders, which are targets as in the papers, or on what was invented."""
        public = self.public
        step = public.without_secrets() if public.invents else public.step(View.REDACTED, Pool.EVERY)
        return Plan((Phase(((step, public.steps),)),))

    def notions(self) -> tuple[Neighbors, ...]:
        return (SECRETS,)

    def conclude(self, spent: Spent, evidence: Evidence) -> Guarantee:
        """Marked spans were not used; an epsilon of 0 that holds for them alone."""
        figure = unused(spent[SECRETS], SECRETS)
        done = "replaced by invented ones" if self.public.invents else "removed"
        return Guarantee(
            mechanism=self.name,
            claim=f"Marked spans were {done} before training. No statement about unmarked text.",
            figures=(figure,),
            holds_if=(FROZEN_MARKS, PUBLIC_TOKENIZER, *self.public.conditions(evidence)),
            not_protected=("unmarked text", "that a record was used", "where secrets stand and of which kind"),
            evidence=evidence,
            coverage=coverage_lines(figure, evidence.coverage),
        )


ENTRY = MechanismEntry(
    Redaction.name,
    "marked spans removed, then ordinary training (de-identification, anonymisation)",
    lambda settings: Redaction(settings.without_secrets(settings.need("records"))),
    Redaction,
    (Unit.SECRETS,),
    Needs(OF_PUBLIC_STEPS | {"public_view"}),
    (
        "de-identification",  # UeDP, section 5: listed entities are masked; the policy says which
        "anonymisation",  # S-DP, section 5.4: all that the policy finds, there digits, becomes <num>
    ),
)
