"""The papers' algorithms as printed, each with the number it printed and the number that holds.

Selective-DPSGD, Algorithm 1 (Shi et al., NAACL 2022): alternating segments, noisy hidden states.

| paper | here |
|---|---|
| random batch B, N/|B| batches per epoch | `private`: its population, expected batch and number of batches |
| (B_np,i, B_p,i), tuples of a batch | `events_per_batch`, on average over a batch |
| private updates of one record in a batch | `segments_per_record` |
| h_i, c_i, clipped and noised | `noised_states` of them after each private segment |

CADP-LM, Algorithm 1 (arXiv 2301.12288): both parts of one minibatch are used.

| paper | here |
|---|---|
| T | passes over the corpus, `private.steps`: the epochs |
| N_S, |B| | `private.population`, `private.expected_batch` |
| gamma | `recall` |
| eta, of DP-SGD and SGD | `learning_rate` of the private optimizer: one rate, plain SGD, no decay |
| B_S empty, B_NS empty: unspecified | nothing happens, no noise either: which batches have flagged records is public |

UeDP-Alg, Algorithm 1, with the estimators f_E and f_E+ (Lai et al., IEEE Big Data 2022); its draw is described in
`papers/algorithms.py`. The share of sensitive samples is `sensitive_share`, z = sigma / S(f) is `noise_multiplier`,
beta is `clip_norm` and T is `steps`.

Both published accountants are the Renyi divergence of the Poisson-sampled Gaussian (Mironov, Talwar, Zhang 2019), the
orders of their time, and the old conversion epsilon = divergence + log(1/delta) / (order - 1) (Mironov 2017,
proposition 3), which is the moments accountant of Abadi et al. 2016 for whole orders.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tacit.mechanisms.cadp import NOT_PROTECTED, ROUTED
from tacit.mechanisms.mechanism import FROZEN_MARKS, PUBLIC_COUNT, Needs, PrivateSteps, Spent
from tacit.mechanisms.settings import AS_PRINTED, OF_PRINTED_STEPS, OF_PRIVATE_STEPS, MechanismEntry, PlanSettings
from tacit.mechanisms.uedp import LISTED
from tacit.mechanisms.user import USERS_KNOWN
from tacit.privacy.dominating_pairs import directions
from tacit.privacy.events import Relation, SampledGaussian
from tacit.privacy.guarantee import Condition, Evidence, Guarantee, Published, Status
from tacit.privacy.plan import (
    Draw,
    Neighbors,
    Phase,
    Plan,
    PoissonRecords,
    Pool,
    ShuffledPass,
    SplitBatch,
    Step,
    Unit,
    Update,
    UsersAndEntities,
    View,
)
from tacit.privacy.renyi import log_moments


def _guarantee(
    mechanism: "CADPPublished | SelectivePublished | UeDPPublished",
    spent: Spent,
    published: Published,
    holds_if: tuple[Condition, ...],
    not_protected: tuple[str, ...],
    evidence: Evidence,
) -> Guarantee:
    """The formula's number, the number that holds, and why they differ."""
    figures = mechanism.private.figures(spent)
    claim = (
        f"Published formula: epsilon = {published.epsilon:.4g} at delta = {published.delta:.3g} (not a proof). "
        f"What holds for the algorithm as printed, under its conditions: {figures[0]} for {figures[0].neighbors}. "
        f"Reasons: {'; '.join(published.reasons)}."
    )
    return Guarantee(mechanism.name, claim, figures, holds_if, not_protected, evidence, published=published)


def _plan(private: PrivateSteps, draw: Draw, update: Update) -> Plan:
    """One kind of step on all full records."""
    step = Step("private", View.FULL, Pool.EVERY, draw, update, "private", trainable=private.trainable)
    return Plan((Phase(((step, private.steps),)),))


@dataclass(frozen=True, slots=True)
class CADPPublished:
    """Algorithm 1 as printed: each minibatch is split, its flagged part updates with noise, the rest exactly.

    `private.steps` counts passes over the corpus (T), in each of which every record takes part once.
    """

    name: ClassVar[str] = "cadp-published"
    private: PrivateSteps
    recall: float

    def plan(self) -> Plan:
        """T shuffled passes; in each batch the flagged records update with noise, the others exactly."""
        private = self.private
        split = SplitBatch(private.noise_multiplier, private.clip_norm, private.expected_batch, by="records")
        return _plan(private, ShuffledPass(round(private.expected_batch)), split)

    def notions(self) -> tuple[Neighbors, ...]:
        """A flagged record, zero-out: that it was flagged, and which batch it is in, is not hidden."""
        return (Neighbors(Unit.FLAGGED_RECORD),)

    def conclude(self, spent: Spent, evidence: Evidence) -> Guarantee:
        """What Theorem 1 prints, and what holds: one unsampled Gaussian per pass."""
        delta = max(1 - self.recall, self.private.delta)
        # T N_S eps/|B| + log(1/delta)/(alpha - 1) with eps = alpha / (2 sigma^2), at the best order alpha.
        slope = self.private.steps / self.private.sampling_rate / (2 * self.private.noise_multiplier**2)
        published = Published(
            epsilon=slope + 2 * math.sqrt(slope * math.log(1 / delta)),
            delta=delta,
            formula="T N_S eps / |B| + log(1/delta) / (alpha - 1), Theorem 1",
            reasons=(
                "delta must exceed 1 - recall, which is no guarantee",
                "a deterministic detector misses a secret always or never: its recall is not a failure probability",
                "both parts of a minibatch are used, so who was drawn is visible and nothing is amplified",
                "N_S / |B| is not the number of times a record takes part",
            ),
        )
        return _guarantee(self, spent, published, (PUBLIC_COUNT, ROUTED), NOT_PROTECTED, evidence)


SDP_ORDERS: tuple[float, ...] = (*(1 + k / 10 for k in range(1, 100)), *(float(k) for k in range(12, 64)))
UEDP_ORDERS: tuple[float, ...] = tuple(float(k) for k in range(2, 65))


def published_epsilon(
    sampling_rate: float, noise_multiplier: float, steps: int, delta: float, orders: Sequence[float]
) -> float:
    """The epsilon a paper would print."""
    grid = np.asarray(orders, dtype=np.float64)
    removal, *_ = directions(SampledGaussian(noise_multiplier, sampling_rate, 1, Relation.ZERO_OUT))
    divergences = steps * log_moments(removal, grid) / (grid - 1)
    return float(np.min(divergences + math.log(1 / delta) / (grid - 1)))


SELECTIVE_REASONS = (
    "the noise of the hidden states is not counted",
    "several queries share one batch but are accounted as independent subsamples",
    "exact public gradients on the same batch show who is in it, so nothing is amplified",
    "the definition replaces values, which moves a sum by 2C, but C is accounted",
)

STATES = Condition(
    "every hidden state that leaves a private segment is one of the noised states, or is reset", Status.ASSUMED
)


@dataclass(frozen=True, slots=True)
class SelectivePublished:
    """Each drawn batch is split into public segments (exact updates) and private ones (noisy updates)."""

    name: ClassVar[str] = "selective-published"
    private: PrivateSteps
    events_per_batch: float
    segments_per_record: int = 1
    noised_states: int = 2

    def plan(self) -> Plan:
        private = self.private
        queries = self.segments_per_record * (1 + self.noised_states)
        split = SplitBatch(private.noise_multiplier, private.clip_norm, private.expected_batch, "segments", queries)
        return _plan(private, PoissonRecords(private.sampling_rate), split)

    def notions(self) -> tuple[Neighbors, ...]:
        """A record's secrets, blanked, and replaced as in the paper's definition."""
        return (Neighbors(Unit.SECRETS), Neighbors(Unit.SECRETS, Relation.REPLACE))

    def conclude(self, spent: Spent, evidence: Evidence) -> Guarantee:
        """The printed number and the one that holds with the batch in plain sight."""
        private, updates = self.private, round(self.private.steps * self.events_per_batch)
        rate, noise = private.sampling_rate, private.noise_multiplier
        published = Published(
            epsilon=published_epsilon(rate, noise, updates, private.delta, SDP_ORDERS),
            delta=private.delta,
            formula="moments accountant over all private updates as independent subsamples, Theorem 2",
            reasons=SELECTIVE_REASONS,
        )
        not_protected = ("unmarked text", "that a record was used", "where secrets stand and of which kind")
        return _guarantee(self, spent, published, (PUBLIC_COUNT, FROZEN_MARKS, STATES), not_protected, evidence)


UEDP_REASONS = (
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
        draw = UsersAndEntities(self.private.sampling_rate, self.entity_rate, self.other_rate)
        return _plan(self.private, draw, self.private.step(View.FULL, Pool.EVERY).update)

    def notions(self) -> tuple[Neighbors, ...]:
        return (Neighbors(Unit.USER_AND_ENTITY),)

    def conclude(self, spent: Spent, evidence: Evidence) -> Guarantee:
        share = self.sensitive_share if self.other_rate > 0 else 1.0
        rate = self.private.sampling_rate * self.entity_rate * share
        published = Published(
            epsilon=published_epsilon(
                rate, self.private.noise_multiplier, self.private.steps, self.private.delta, UEDP_ORDERS
            ),
            delta=self.private.delta,
            formula="moments accountant with q = q_u q_e (sensitive sentences / sentences)",
            reasons=UEDP_REASONS,
        )
        holds_if = (FIXED_SIZE, LISTED, USERS_KNOWN)
        return _guarantee(self, spent, published, holds_if, ("aliases and unlisted names",), evidence)


def _selective(settings: PlanSettings) -> SelectivePublished:
    segments, states = settings.take("segments_per_record"), settings.take("noised_states")
    private = settings.private(settings.need("records"), as_printed=True)
    return SelectivePublished(private, settings.need("events_per_batch"), segments, states)


SELECTIVE_PUBLISHED = MechanismEntry(
    SelectivePublished.name,
    "Selective-DPSGD as printed, with the number that holds",
    _selective,
    SelectivePublished,
    (Unit.SECRETS,),
    Needs(
        OF_PRINTED_STEPS | {"noised_states", "events_per_batch"},
        tasks=("language",),
        models=("lstm",),
        private_rule=AS_PRINTED,
    ),
)
CADP_PUBLISHED = MechanismEntry(
    CADPPublished.name,
    "CADP-LM as printed, with the number that holds",
    lambda settings: CADPPublished(settings.passes(settings.need("flagged")), settings.need("recall")),
    CADPPublished,
    (Unit.FLAGGED_RECORD,),
    Needs(OF_PRINTED_STEPS | {"recall"}, tasks=("language",), private_rule=AS_PRINTED),
)


def _uedp(settings: PlanSettings) -> UeDPPublished:
    private, share = settings.private(settings.need("users")), settings.need("sensitive_share")
    return UeDPPublished(private, settings.need("entity_rate"), share, settings.take("other_rate"))


UEDP_PUBLISHED = MechanismEntry(
    UeDPPublished.name,
    "UeDP-Alg as printed, with the number that holds",
    _uedp,
    UeDPPublished,
    (Unit.USER_AND_ENTITY,),
    Needs(OF_PRIVATE_STEPS | {"entity_rate", "other_rate"}, users=True, entities=True),
)
