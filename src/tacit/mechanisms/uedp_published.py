"""UeDP-Alg, Algorithm 1 as printed, with the estimators f_E and f_E+ (Lai et al., IEEE Big Data 2022).

| paper | here |
|---|---|
| q_u, q_e, q_s | `user_rate`, `entity_rate`, `other_rate` |
| f_E, f_E+ | `other_rate` 0, above 0 |
| share of sensitive samples | `sensitive_share` |
| z = sigma / S(f) | `noise_multiplier` |
| beta | `clip_norm` |
| T | `steps` |
"""

from dataclasses import dataclass
from typing import ClassVar

from tacit.accounting import UEDP_ORDERS, published_epsilon
from tacit.guarantee import Condition, Evidence, Guarantee, Published, Status
from tacit.mechanisms.base import PrivateSteps, Spent, published_guarantee
from tacit.mechanisms.uedp import LISTED
from tacit.mechanisms.user import USERS_KNOWN
from tacit.plan import Neighbours, Phase, Plan, Pool, Step, Unit, UsersAndEntities, View

REASONS = (
    "the pair changes the output when the user, the entity or any entity beside it in a sentence is drawn, not when "
    "user and entity both are: no rate below 1 is true of every corpus",
    "the share of sensitive sentences is data, and does not lower the chance of being drawn",
    "Lemmas 1 and 2 miss a factor 2: a clipped update becomes another one",
    "small printed values are the floor ln(1/delta)/64 of a truncated grid of orders",
)
FIXED_SIZE = Condition("no round uses more users than the sensitivity counts (q_u |U| + 1)", Status.MET)


@dataclass(frozen=True, slots=True)
class UeDPPublished:
    """Rounds of users' clipped updates on sentences with drawn entities, and on others with `other_rate`."""

    name: ClassVar[str] = "uedp-published"
    private: PrivateSteps
    entity_rate: float
    sensitive_share: float
    other_rate: float = 1.0

    def plan(self) -> Plan:
        """One two-level draw a round."""
        draw = UsersAndEntities(self.private.sampling_rate, self.entity_rate, self.other_rate)
        step = Step("private", View.FULL, Pool.EVERY, draw, self.private.noisy(), "private", moves=self.private.moves)
        return Plan((Phase(((step, self.private.steps),)),))

    def notions(self) -> tuple[Neighbours, ...]:
        """A user and an entity, removed together."""
        return (Neighbours(Unit.USER_AND_ENTITY),)

    def conclude(self, spent: Spent, evidence: Evidence) -> Guarantee:
        """The printed number and the one that holds."""
        share = self.sensitive_share if self.other_rate > 0 else 1.0
        rate = self.private.sampling_rate * self.entity_rate * share
        published = Published(
            epsilon=published_epsilon(
                rate, self.private.noise_multiplier, self.private.steps, self.private.delta, UEDP_ORDERS
            ),
            delta=self.private.delta,
            formula="moments accountant with q = q_u q_e (sensitive sentences / sentences)",
            reasons=REASONS,
        )
        return published_guarantee(
            self.name,
            published,
            self.private.figures(spent),
            (FIXED_SIZE, LISTED, USERS_KNOWN),
            ("aliases and unlisted names",),
            evidence,
        )
