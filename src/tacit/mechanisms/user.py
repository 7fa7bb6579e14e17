"""User-level privacy: DP-FedAvg, and records with a cap per user. The baseline of UeDP.

McMahan et al., "Learning Differentially Private Recurrent Language Models" (ICLR 2018, arXiv 1710.06963v3).

| paper | here |
|---|---|
| q, C-tilde users a round | `sampling_rate` over users, `expected_batch` users |
| S, clipping of a user's update | `clip_norm` |
| w_k = min(n_k / w-hat, 1) | weight with the public `weight_cap` |
| z | `noise_multiplier` |
| K (records a user) | `records_per_user`, enforced on the incidence graph |

Where we differ: the divisor is a public constant (the paper's fixed-denominator estimator); the second form draws
records, each clipped alone, and prices a user's K records by the mixture of Gaussians.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from tacit.mechanisms.mechanism import NOISY_CONDITIONS, Needs, PrivateSteps, Spent
from tacit.mechanisms.settings import OF_PRIVATE_STEPS, MechanismEntry, PlanSettings
from tacit.privacy.guarantee import Condition, Evidence, Guarantee, Status
from tacit.privacy.plan import Neighbors, Phase, Plan, PoissonUsers, Pool, Unit, View

DEALT_USERS = "invented: records were dealt at random, about 15 to each"
USERS_KNOWN = Condition("it is public, and right, which record belongs to which user", Status.ASSUMED)


@dataclass(frozen=True, slots=True)
class UserLevel:
    """Noisy steps on users' whole updates (`records_per_user` None), or on records capped a user."""

    name: ClassVar[str] = "user"
    private: PrivateSteps
    weight_cap: int = 1
    local_epochs: int = 1
    records_per_user: int | None = None

    def plan(self) -> Plan:
        """Poisson over users, or over the records that the cap kept."""
        step = self.private.step(View.FULL, Pool.EVERY if self.records_per_user is None else Pool.CAPPED)
        if self.records_per_user is None:
            draw = PoissonUsers(self.private.sampling_rate, self.weight_cap, self.local_epochs)
            step = replace(step, draw=draw)
        return Plan((Phase(((step, self.private.steps),)),))

    def notions(self) -> tuple[Neighbors, ...]:
        return (Neighbors(Unit.USER, copies=self.records_per_user or 1),)

    def conclude(self, spent: Spent, evidence: Evidence) -> Guarantee:
        figures = self.private.figures(spent)
        cap = "" if self.records_per_user is None else f", at most {self.records_per_user} records per user"
        capped = self.records_per_user is not None and evidence.dropped_share is not None
        dropped = f" The cap dropped {evidence.dropped_share:.2%} of records." if capped else ""
        return Guarantee(
            mechanism=self.name,
            claim=f"Each user has {figures[0]}-differential privacy (user-level{cap}), zero-out: the released model is "
            "this close in distribution to one trained with all records of that user left empty. All checkpoints are "
            f"covered; who wrote which record is public.{dropped}",
            figures=figures,
            holds_if=(*NOISY_CONDITIONS, USERS_KNOWN),
            not_protected=("what several users say together", "the number of users and of each user's records"),
            evidence=evidence,
        )


def _build(settings: PlanSettings) -> UserLevel:
    cap = settings.take("user_cap")
    if cap is not None:
        return UserLevel(settings.private(settings.need("records")), records_per_user=cap)
    private = settings.private(settings.need("users"))
    return UserLevel(private, settings.take("weight_cap"), settings.take("local_epochs"))


ENTRY = MechanismEntry(
    UserLevel.name,
    "hides whether a user took part: DP-FedAvg, or records capped a user (user-level)",
    _build,
    UserLevel,
    (Unit.USER,),
    Needs(OF_PRIVATE_STEPS | {"user_cap", "weight_cap", "local_epochs"}, users=True),
    ("user-level",),  # UeDP, section 5: McMahan et al.
)
