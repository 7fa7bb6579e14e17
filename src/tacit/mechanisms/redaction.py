"""Redaction, then ordinary training: De-Identification in UeDP, data anonymisation in Selective DP.

`invented` is the same with made-up secrets: what `selective` would be without its private steps.

| paper | here |
|---|---|
| `<num>`, `<MASK>`, masked entity | the one placeholder of the redacted view |
| pseudonyms, surrogates | `invented` |
| perfect policy, S-DP with epsilon = 0 | epsilon 0 for marked spans, nothing for unmarked text |
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from tacit.mechanisms.mechanism import FROZEN_MARKS, PUBLIC_TOKENIZER, Needs, PublicSteps, Spent
from tacit.mechanisms.settings import OF_PUBLIC_STEPS, MechanismEntry, PlanSettings
from tacit.privacy.guarantee import Evidence, Guarantee, coverage_lines, unused
from tacit.privacy.plan import Neighbors, Phase, Plan, Pool, Unit, View

SECRETS = Neighbors(Unit.SECRETS)


@dataclass(frozen=True, slots=True)
class Redaction:
    """Exact gradients on the redacted or on the invented view."""

    private: ClassVar[None] = None
    public: PublicSteps

    @property
    def name(self) -> str:
        return "invented" if self.public.invents else "redaction"

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


def _build(settings: PlanSettings, invents: bool) -> Redaction:
    return Redaction(replace(settings.public(settings.need("records")), invents=invents))


REDACTION = MechanismEntry(
    "redaction",
    "marked spans removed, then ordinary training (de-identification, anonymisation)",
    lambda settings: _build(settings, invents=False),
    Redaction,
    (Unit.SECRETS,),
    Needs(OF_PUBLIC_STEPS),
    (
        "de-identification",  # UeDP, section 5: listed entities are masked; the policy says which
        "anonymisation",  # S-DP, section 5.4: all that the policy finds, there digits, becomes <num>
    ),
)
INVENTED = MechanismEntry(
    "invented",
    "marked spans replaced by made-up ones of their kind, then ordinary training: selective without private steps",
    lambda settings: _build(settings, invents=True),
    Redaction,
    (Unit.SECRETS,),
    Needs(OF_PUBLIC_STEPS, public_view="invented"),
)
