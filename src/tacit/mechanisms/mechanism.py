"""What mechanisms share: conditions of their claims, the two kinds of steps they schedule, and their contract."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from tacit.common.formatting import rounded_up
from tacit.config.model_schema import OptimizerConfig
from tacit.config.setting import Duplicates, PublicView
from tacit.errors import ConfigError
from tacit.privacy.account import account, average_case, calibrate_noise, default_delta
from tacit.privacy.events import Composition
from tacit.privacy.guarantee import (
    BY_POLICY,
    COVERAGE_INSIDE,
    COVERAGE_NOT_MEASURED,
    Condition,
    Coverage,
    Evidence,
    Figure,
    Guarantee,
    Status,
    average_rates,
    figure,
)
from tacit.privacy.plan import (
    ClipStyle,
    Neighbors,
    Noisy,
    Phase,
    Plain,
    Plan,
    PoissonRecords,
    Pool,
    ShuffledBatch,
    Step,
    Targets,
    TrainablePart,
    View,
    WholePool,
)

FRESH_DRAW = Condition(
    "by the plan, each private draw is a fresh Poisson draw that reaches the model through its noisy sum alone",
    Status.MET,
)
CONSTANT_DIVISOR = Condition("sampling rate, clip norm and divisor are public constants", Status.MET)
PUBLIC_COUNT = Condition("the number of units is treated as public", Status.ASSUMED)
PUBLIC_TOKENIZER = Condition(
    "tokenizer, length limits, schedules and model choice depend on public data only", Status.ASSUMED
)
FROZEN_MARKS = Condition(
    "public text, and where marked spans stand and of which kind, are treated as public", Status.ASSUMED
)
LEARNED_ELSEWHERE = "trained on public or disjoint data"
FROZEN_DETECTOR = Condition(
    f"the detector or model behind the marks was {LEARNED_ELSEWHERE} and frozen", Status.ASSUMED
)
FOREIGN_BASE = Condition("the base model was not trained on this corpus", Status.ASSUMED)
OWN_LOOP = Condition(
    "outside private steps the loop reads no record: its own updates and schedules, and what it keeps, stops at or"
    " prints, depend on public data and on the model",
    Status.ASSUMED,
)
STOP_DECIDED = Condition("the number of steps was chosen before the first, not by looking at the model", Status.ASSUMED)
UNCOMPARED_DEVICE = Condition(
    "no row changes what the accelerator computes for another: neighbours were compared on processors alone",
    Status.ASSUMED,
)
TRUSTED_MACHINES = Condition("the machines and the network between them are trusted", Status.ASSUMED)
KNOWN_SEED = Condition(
    "nobody can repeat the randomness (a research run: no guarantee against anyone who knows or guesses the seed)",
    Status.UNMET,
)
INVENTED = Condition("what was invented for secrets comes from their kinds and from public examples", Status.ASSUMED)
INVENTED_BY_KIND = Condition("what was invented for secrets comes from their kinds alone", Status.MET)
FORMS_COUNTED = Condition(
    "what was invented for secrets is a function of the public text and of counts of their form, released once with"
    " noise that is part of the figures",
    Status.MET,
)
LABELED = Condition(
    "labels of a random sample of this corpus are right; secrets whose redaction is not stable count as missed",
    Status.MEASURED,
)
FLOAT32 = Condition(
    "rounding of float32 numbers stays within the margin of clipping, and their last digits reveal nothing",
    Status.ASSUMED,
)
NOISY_CONDITIONS = (FRESH_DRAW, CONSTANT_DIVISOR, PUBLIC_COUNT, PUBLIC_TOKENIZER, FLOAT32)
_LARGEST_POWER = 700.0

Spent = Mapping[Neighbors, Composition]
"""What was done, priced for each kind of neighbors a mechanism claims about: from its plan, or from a ledger."""


@dataclass(frozen=True, slots=True)
class PublicSteps:
    """Plain updates on shuffled batches. invents: where secrets are left out, an invented one is read and learned.

    form_noise: the noise multiplier of counts of their form, by which they are invented; None: by fixed rules.
    """

    batch_size: int
    steps: int
    invents: bool = False
    form_noise: float | None = None

    def __post_init__(self) -> None:
        _require(self.batch_size >= 1, "a batch size of at least 1", self.batch_size)
        _require(self.steps >= 0, "0 steps or more", self.steps)

    def step(self, view: View, pool: Pool, targets: Targets = Targets.ALL) -> Step:
        """The plain step that reads `view` of `pool`."""
        return Step("public", view, pool, ShuffledBatch(self.batch_size), Plain(), "public", targets)

    def without_secrets(self) -> Step:
        """The plain step on all but secrets; placeholders are no targets, as private steps learn what is there."""
        invented = View.INVENTED if self.form_noise is None else View.LEARNED
        return self.step(invented if self.invents else View.REDACTED, Pool.EVERY, Targets.PUBLIC)

    def forms(self) -> Step | None:
        """The counting of forms, if there is one."""
        if self.form_noise is None:
            return None
        return Step("forms", View.FULL, Pool.WITH_SECRETS, WholePool(), Noisy(self.form_noise, 1.0, 1.0), "public")

    def conditions(self, evidence: Evidence) -> tuple[Condition, ...]:
        """What the claim needs because of `invents`."""
        if not self.invents:
            return ()
        by_rules = INVENTED_BY_KIND if evidence.examples_given is False else INVENTED
        if self.form_noise is None:
            return (by_rules,)
        return (FORMS_COUNTED, *((by_rules,) if by_rules is INVENTED else ()))


@dataclass(frozen=True, slots=True)
class PrivateSteps:
    """Noisy updates on Poisson draws from `population` public units (records, or users), `expected_batch` per draw.

    The divisor is `expected_batch` and the rate is their ratio: public constants, whatever is drawn.
    """

    population: int
    expected_batch: float
    steps: int
    noise_multiplier: float
    clip_norm: float = 1.0
    chosen_delta: float | None = None
    clip_style: ClipStyle = "flat"
    trainable: TrainablePart = "all"

    def __post_init__(self) -> None:
        _require(self.population >= 1, "a population of at least 1 unit", self.population)
        fits = 0 < self.expected_batch <= self.population
        _require(fits, f"an expected batch between 0 and the population of {self.population}", self.expected_batch)
        _require(self.steps >= 0, "0 steps or more", self.steps)
        _require(self.noise_multiplier > 0, "a noise multiplier above 0", self.noise_multiplier)
        _require(self.clip_norm > 0, "a clip norm above 0", self.clip_norm)

    @property
    def sampling_rate(self) -> float:
        """The probability with which each unit is drawn."""
        return self.expected_batch / self.population

    @property
    def delta(self) -> float:
        """The delta of the claim: the chosen one, or a tenth of one over the number of units."""
        return default_delta(self.population) if self.chosen_delta is None else self.chosen_delta

    def step(self, view: View, pool: Pool, targets: Targets = Targets.ALL) -> Step:
        """The noisy step that draws records of `pool`."""
        draw = PoissonRecords(self.sampling_rate)
        update = Noisy(self.noise_multiplier, self.clip_norm, self.expected_batch, self.clip_style)
        return Step("private", view, pool, draw, update, "private", targets, self.trainable)

    def figures(self, spent: Spent) -> tuple[Figure, ...]:
        """What each kind of neighbors has, at the delta of the claim."""
        return tuple(figure(done, neighbors, self.delta, self.population) for neighbors, done in spent.items())


@dataclass(frozen=True, slots=True)
class Needs:
    """What a mechanism asks for beyond a corpus and a policy.

    settings: those of the plan that it may use; None where nobody declared them, and its builder alone knows.
    conservative: a second policy may route records to the protected set.
    users, entities: whose each record is, and which listed entities occur in it.
    duplicates, public_view: what holds unless a person chooses otherwise.
    tasks, models: those it is defined for; of models, none listed means all.
    private_rule: how its private steps move, if that is fixed but for the learning rate.
    """

    settings: frozenset[str] | None = None
    conservative: bool = False
    users: bool = False
    entities: bool = False
    duplicates: Duplicates = "keep"
    public_view: PublicView = "redacted"
    tasks: tuple[str, ...] = ("language", "classification")
    models: tuple[str, ...] = ()
    private_rule: OptimizerConfig | None = None


class Mechanism(Protocol):
    """A way of training: which steps, and what may be said afterwards. The first of `notions` is the headline."""

    @property
    def name(self) -> str:
        """Its name in the registry."""

    @property
    def private(self) -> PrivateSteps | None:
        """Its private steps; None when it has no noise to set."""

    def plan(self) -> Plan:
        """The steps, in order."""

    def notions(self) -> tuple[Neighbors, ...]:
        """The kinds of neighbors its guarantee is about."""

    def conclude(self, spent: Spent, evidence: Evidence) -> Guarantee:
        """The guarantee that is true after `spent`."""


def concluded(mechanism: Mechanism, spent: Spent, evidence: Evidence) -> Guarantee:
    """What `mechanism` concludes, under conditions on what was trained elsewhere, and on its randomness."""
    guarantee = mechanism.conclude(spent, evidence)
    said = any(LEARNED_ELSEWHERE in condition.text for condition in guarantee.holds_if)
    by_policy = any(one.neighbors.unit in BY_POLICY for one in guarantee.figures)
    more = {
        KNOWN_SEED: evidence.repeatable,
        FROZEN_DETECTOR: evidence.detector_data is not None and by_policy and not said,
        FOREIGN_BASE: evidence.pretrained and bool(guarantee.figures),
        UNCOMPARED_DEVICE: evidence.accelerated and bool(guarantee.figures),
        TRUSTED_MACHINES: evidence.distributed and bool(guarantee.figures),
    }
    coverage = guarantee.coverage
    if evidence.coverage_inside:
        coverage = tuple(COVERAGE_INSIDE if line == COVERAGE_NOT_MEASURED else line for line in coverage)
    holds_if = (*guarantee.holds_if, *(one for one, needed in more.items() if needed))
    return replace(guarantee, holds_if=holds_if, coverage=coverage)


def planned(mechanism: Mechanism) -> Spent:
    """What the whole plan of `mechanism` will have spent."""
    plan = mechanism.plan()
    return {neighbors: plan.spend(neighbors) for neighbors in mechanism.notions()}


def with_private(mechanism: Mechanism, private: PrivateSteps) -> Mechanism:
    """`mechanism` with other private steps."""
    changed: Mechanism = replace(mechanism, private=private)  # type: ignore[type-var]
    return changed


def calibrated(mechanism: Mechanism, epsilon: float, before: Composition = ()) -> Mechanism:
    """`mechanism` with the least noise that keeps its headline within `epsilon`, with what was spent `before` it."""
    private = mechanism.private
    if private is None:
        raise ConfigError(
            expected=f"no epsilon for {mechanism.name}, which has no noise to set",
            found=f"epsilon {epsilon}",
            way_out="leave the epsilon out, or choose a mechanism with private steps (tacit plan --list)",
        )

    def noisier(noise: float) -> Mechanism:
        return with_private(mechanism, replace(private, noise_multiplier=noise))

    def spent(noise: float) -> Composition:
        return (*before, *noisier(noise).plan().spend(mechanism.notions()[0]))

    return noisier(calibrate_noise(spent, epsilon, private.delta))


def interleaved(public: Step, public_steps: int, private: Step, private_steps: int) -> Plan:
    """Both kinds of step in turn, spread evenly; left-over public steps come first, left-over private ones last."""
    rounds = min(public_steps, private_steps)
    if rounds == 0:
        return one_after_the_other(public, public_steps, private, private_steps)
    turns = ((public, public_steps // rounds), (private, private_steps // rounds))
    first, last = one_after_the_other(public, public_steps % rounds, private, private_steps % rounds).phases
    return Plan((first, Phase(turns, rounds), last))


def one_after_the_other(public: Step, public_steps: int, private: Step, private_steps: int) -> Plan:
    """All public steps, then all private ones."""
    return Plan((Phase(((public, public_steps),)), Phase(((private, private_steps),))))


def average_lines(
    spent: Composition, replaced: Figure, among_secrets: tuple[Coverage, Coverage] | None
) -> tuple[str, ...]:
    """S1, S2 and S3 of theory, section 10, each with the attacker it is about; the two rates share the doubt."""
    if among_secrets is None:
        return ()
    confidence = min(rate.confidence for rate in among_secrets)
    missed, cleared = average_rates(among_secrets)
    case = average_case(account(spent), replaced.delta, missed, cleared)
    delta = rounded_up(case.delta, 3)
    factor = rounded_up(math.exp(case.amplified) if case.amplified < _LARGEST_POWER else math.inf, 4)
    return (
        f"On average over this corpus's records with secrets, with {confidence:.0%} confidence, the model is "
        f"({rounded_up(case.epsilon, 4)}, {delta})-close to one trained with that record's secrets masked, even for an "
        "attacker who knows the secret and all other text: a mean advantage of at most "
        f"{rounded_up(case.advantage, 3)}.",
        f"A single missed record has {replaced} if it is protected (one record replaced), otherwise no guarantee.",
        "An attacker who tests for known secrets, with a false-alarm probability of at most phi for each of them, "
        f"detects on average at most a share {factor} phi + {delta} of them (same confidence).",
        f"For an attacker who knows everything but one secret, and for whom the policy misses it with probability at "
        f"most {rounded_up(missed, 3)} and both policies with probability at most {rounded_up(cleared, 3)} (assumed: a "
        f"measured share does not imply it), the model is ({rounded_up(case.amplified, 4)}, {delta})-close to one "
        "trained with it masked.",
    )


def _require(holds: bool, expected: str, found: float) -> None:
    if not holds:
        raise ConfigError(expected=expected, found=str(found), way_out="correct the number")
