"""Selective DP made sound: `selective`, and `twice` with all public steps first (JFT, section 6 of the paper).

Shi et al., "Selective Differential Privacy for Language Modeling" (NAACL 2022).

| paper | here |
|---|---|
| policy function F, bit matrix P | the policy's marked spans, frozen as public annotation |
| sigma, C | `noise_multiplier`, `clip_norm` |
| B_np, regular update | public step: the redacted or invented view, batches and optimizer of its own |
| B_p, private update | private step: a fresh Poisson draw over the records with secrets |
| F-neighbors | a record's secrets, zero-out: same length, mask and public tokens |

Where we differ: public and private steps share no batch, so the draw is hidden; a record's secrets have one gradient.
"""

from dataclasses import dataclass, replace

from tacit.common.formatting import rounded_up
from tacit.errors import ConfigError
from tacit.mechanisms.mechanism import (
    FROZEN_MARKS,
    NOISY_CONDITIONS,
    Needs,
    PrivateSteps,
    PublicSteps,
    Spent,
    interleaved,
    one_after_the_other,
)
from tacit.mechanisms.settings import OF_PRIVATE_STEPS, OF_PUBLIC_STEPS, MechanismEntry, PlanSettings
from tacit.privacy.events import Relation
from tacit.privacy.guarantee import Evidence, Figure, Guarantee, coverage_lines, figure
from tacit.privacy.plan import Neighbors, Plan, Pool, Targets, Unit, View, cost

COPIES = (2, 5, 10)

NOTIONS = (
    Neighbors(Unit.SECRETS),
    Neighbors(Unit.SECRETS, Relation.REPLACE),
    *(Neighbors(Unit.SECRETS, copies=copies) for copies in COPIES),
)


@dataclass(frozen=True, slots=True)
class Selective:
    """Plain steps on text without its secrets and noisy steps on records with some: in turn, or public ones first."""

    public: PublicSteps
    private: PrivateSteps
    targets: Targets = Targets.PRIVATE
    public_first: bool = False

    @property
    def name(self) -> str:
        return "twice" if self.public_first else "selective"

    def plan(self) -> Plan:
        """Public steps cost secrets nothing, so their order changes utility alone."""
        order = one_after_the_other if self.public_first else interleaved
        public = self.public.without_secrets()
        private = self.private.step(View.FULL, Pool.WITH_SECRETS, self.targets)
        steps = order(public, self.public.steps, private, self.private.steps)
        return replace(steps, forms=self.public.forms())

    def notions(self) -> tuple[Neighbors, ...]:
        """A record's secrets: blanked, replaced, and standing in several records."""
        return NOTIONS

    def conclude(self, spent: Spent, evidence: Evidence) -> Guarantee:
        figures = self.private.figures(spent)
        blanked, _, *copies = figures
        copies_words = ", ".join(f"{rounded_up(figure.epsilon, 4)} for {figure.neighbors.copies}" for figure in copies)
        return Guarantee(
            mechanism=self.name,
            claim="For each training record, the values of its protected spans are "
            f"{blanked}-differentially private: the released model is this close in distribution to one trained with "
            "those spans blanked. All checkpoints are covered. Public text, and where protected spans stand and of "
            "which kind, are treated as public; that the record was used is not hidden. A value that occurs in several "
            f"records has a larger epsilon: {copies_words} records. Values the policy did not mark are not "
            f"protected.{self._counted(blanked)}",
            figures=figures,
            holds_if=(*NOISY_CONDITIONS, FROZEN_MARKS, *self.public.conditions(evidence)),
            not_protected=("unmarked text", "that a record was used", "where secrets stand and of which kind"),
            evidence=evidence,
            coverage=coverage_lines(blanked, evidence.coverage),
        )

    def _counted(self, blanked: Figure) -> str:
        """What the counts of forms cost by themselves, in words."""
        step = self.public.forms()
        if step is None:
            return ""
        alone = figure(((cost(step, blanked.neighbors), 1),), blanked.neighbors, blanked.delta, self.private.population)
        return f" The form of secrets was counted once, with noise: {alone} by itself, and part of all figures."


def _build(settings: PlanSettings, public_first: bool) -> Selective:
    records = settings.need("records")
    with_secrets = settings.take("secret_records", records)
    if with_secrets > records:
        raise ConfigError("at most as many secret_records as records", f"{with_secrets} of {records}", "correct one")
    private = settings.private(with_secrets)
    public = settings.without_secrets(records, private.delta)
    return Selective(public, private, settings.take("targets", Targets.PRIVATE), public_first)


def _entry(name: str, summary: str) -> MechanismEntry:
    needs = Needs(
        OF_PRIVATE_STEPS | OF_PUBLIC_STEPS | {"public_view", "form_epsilon", "targets"}, public_view="invented"
    )
    return MechanismEntry(
        name, summary, lambda settings: _build(settings, name == "twice"), Selective, (Unit.SECRETS,), needs
    )


SELECTIVE = _entry("selective", "public text exactly, secrets with noise: hides what they say")
TWICE = _entry("twice", "as selective, all public steps first")
