"""The page an auditor reads: what a step may do, and the one place where that becomes a price.

A step is: which view of which pool of records it reads, how it draws from the pool, what update it applies. A plan
is a list of steps. The trainer executes `Plan.steps()`; `cost(step, neighbors)` prices each of them; the ledger
holds nothing else. Theorem and notation: docs/theory.md.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from tacit.errors import ClaimRefused
from tacit.privacy.events import (
    Composition,
    Event,
    ExposedGaussian,
    Free,
    Gaussian,
    NoisyEvent,
    Relation,
    SampledGaussian,
    Unbounded,
    joint,
)


class View(StrEnum):
    """Which text of a record is read."""

    FULL = "full"  # as written
    REDACTED = "redacted"  # every marked span replaced by one fixed placeholder: a function of the public part
    INVENTED = "invented"  # by a made-up secret of its kind: a function of the public part too
    LEARNED = "learned"  # of a form that was counted with noise: a function of the public part and of those counts


class Pool(StrEnum):
    """A set of records, fixed before training by public annotation."""

    EVERY = "every record"
    WITH_SECRETS = "the records with marked secrets"
    FLAGGED = "the records routed to the protected set"
    CLEARED = "the records cleared for plain training"
    CAPPED = "the records kept by the contribution caps"
    NO_ENTITY = "the records without a listed entity"


class Unit(StrEnum):
    """Whose protected content differs between two neighboring corpora."""

    SECRETS = "a record's secrets"
    RECORD = "a record"
    FLAGGED_RECORD = "a record of the protected set"
    USER = "a user"
    ENTITY = "an entity"
    USER_AND_ENTITY = "a user and an entity"


_OWNERS = (Unit.USER, Unit.ENTITY, Unit.USER_AND_ENTITY)
_SPLIT_PROTECTS = {"segments": Unit.SECRETS, "records": Unit.FLAGGED_RECORD}


@dataclass(frozen=True, slots=True)
class Neighbors:
    """Two corpora that differ in one unit, which owns protected content in at most `copies` records (theory's K)."""

    unit: Unit
    relation: Relation = Relation.ZERO_OUT
    copies: int = 1

    def __str__(self) -> str:
        owns = "" if self.copies == 1 else f" (up to {self.copies} records)"
        return f"{self.unit}{owns}, {self.relation}"


@dataclass(frozen=True, slots=True)
class ShuffledBatch:
    """The next batch of a shuffled pass. For plain updates only: it amplifies nothing and cannot be priced alone."""

    batch_size: int
    kind: Literal["shuffled batch"] = "shuffled batch"


@dataclass(frozen=True, slots=True)
class ShuffledPass:
    """A whole pass in shuffled batches, an update after each: every record is drawn exactly once."""

    batch_size: int
    kind: Literal["shuffled pass"] = "shuffled pass"


@dataclass(frozen=True, slots=True)
class WholePool:
    """Every record, exactly once: no gradients, but vectors that count the form of its secrets (theory, section 12)."""

    kind: Literal["whole pool"] = "whole pool"


@dataclass(frozen=True, slots=True)
class PoissonRecords:
    """Each record of the pool independently with probability `rate`, drawn afresh for every step."""

    rate: float
    rate_is_public: bool = True  # a constant that no protected content can change
    kind: Literal["poisson records"] = "poisson records"


@dataclass(frozen=True, slots=True)
class PoissonUsers:
    """Each user independently with probability `rate`; a user's whole local update is one clipped vector.

    It is weighted by min(records of the user / `weight_cap`, 1) <= 1, a public number.
    """

    rate: float
    weight_cap: int
    local_epochs: int = 1
    kind: Literal["poisson users"] = "poisson users"


@dataclass(frozen=True, slots=True)
class UsersAndEntities:
    """UeDP's draw: users, listed entities, sentences without any. Its noise is that of divisor + 1 users."""

    user_rate: float
    entity_rate: float
    other_rate: float
    kind: Literal["users and entities"] = "users and entities"


ClipStyle = Literal["flat", "automatic", "per parameter"]  # the sensitivity is the clip norm, whichever way
TrainablePart = Literal[
    "all", "head", "biases", "adapters"
]  # parameters of a step: its gradient and noise have no other


@dataclass(frozen=True, slots=True)
class Plain:
    """An exact gradient step."""

    kind: Literal["plain"] = "plain"


@dataclass(frozen=True, slots=True)
class Noisy:
    """The sum of clipped unit gradients plus N(0, (noise_multiplier x clip_norm)^2 I), over the public `divisor`."""

    noise_multiplier: float
    clip_norm: float
    divisor: float
    style: ClipStyle = "flat"
    kind: Literal["noisy"] = "noisy"


@dataclass(frozen=True, slots=True)
class SplitBatch:
    """As printed in two papers: one batch, its protected part updates with noise, the rest of it exactly.

    The exact part shows who was drawn. `queries`: noisy sums that one record enters in one draw.
    """

    noise_multiplier: float
    clip_norm: float
    divisor: float
    by: Literal["records", "segments"]
    queries: int = 1
    kind: Literal["split batch"] = "split batch"


Draw = ShuffledBatch | ShuffledPass | WholePool | PoissonRecords | PoissonUsers | UsersAndEntities
Update = Plain | Noisy | SplitBatch


class Targets(StrEnum):
    """Which tokens' losses are summed."""

    ALL = "all"
    PUBLIC = "public"  # neither secrets nor placeholders
    PRIVATE = "private"  # secrets alone


@dataclass(frozen=True, slots=True)
class Step:
    """View x pool x draw x update, which of the plan's optimizers applies it, and to which parameters."""

    name: str
    view: View
    pool: Pool
    draw: Draw
    update: Update
    optimizer: Literal["public", "private"]
    targets: Targets = Targets.ALL
    trainable: TrainablePart = "all"


@dataclass(frozen=True, slots=True)
class Phase:
    """Turns, each a step and how often in a row, taken one after the other, the whole `rounds` times."""

    turns: tuple[tuple[Step, int], ...]
    rounds: int = 1


@dataclass(frozen=True, slots=True)
class Plan:
    """All that training will do. What is executed is what is priced. `forms` comes once, before the first step."""

    phases: tuple[Phase, ...]
    forms: Step | None = None

    def steps(self) -> Iterator[Step]:
        """Every step in the order of execution."""
        for phase in self.phases:
            for _ in range(phase.rounds):
                for step, times in phase.turns:
                    yield from itertools.repeat(step, times)

    def executions(self) -> dict[Step, int]:
        """How often each step takes place."""
        counts: dict[Step, int] = {}
        for phase in self.phases:
            for step, times in phase.turns:
                counts[step] = counts.get(step, 0) + times * phase.rounds
        return counts

    def priced(self) -> dict[Step, int]:
        """How often everything takes place that reads the corpus."""
        return ({} if self.forms is None else {self.forms: 1}) | self.executions()

    def spend(self, neighbors: Neighbors) -> Composition:
        """What the whole plan costs a unit."""
        return tuple((cost(step, neighbors), times) for step, times in self.priced().items() if times)


def cost(step: Step, neighbors: Neighbors) -> Event:
    """The price of one execution of `step` for one unit. Nothing else in the product turns a step into a price."""
    if step.pool in (Pool.CAPPED, Pool.NO_ENTITY) and neighbors.unit not in _OWNERS:
        raise _refused(f"{neighbors.unit}, which decides about {step.pool}", "claim privacy of users or entities")
    free = _why_free(step, neighbors.unit)
    if free is not None:
        return Free(free)
    update = step.update
    if isinstance(update, Plain):
        return Unbounded(f"a plain update reads the {step.view} text of {step.pool}")
    if isinstance(update, SplitBatch):
        if neighbors.unit != _SPLIT_PROTECTS[update.by]:
            return Unbounded(f"the exact part of a batch split by {update.by} reads {neighbors.unit}")
        return joint([_visible_sum(update.noise_multiplier, step.draw, neighbors)] * update.queries)
    return _hidden_sum(update.noise_multiplier, step, neighbors)


def _why_free(step: Step, unit: Unit) -> str | None:
    """Why the step reads nothing the unit protects; None when it may."""
    if unit == Unit.SECRETS and step.view != View.FULL:
        more = " and of the noisy counts of forms" if step.view == View.LEARNED else ""
        return f"the {step.view} view is a function of the public part{more}"
    if unit == Unit.FLAGGED_RECORD and step.pool == Pool.CLEARED:
        return "no record of the protected set is in the cleared pool"
    if unit == Unit.ENTITY and step.pool == Pool.NO_ENTITY:
        return "no listed entity stands in the pool"
    return None


def _hidden_sum(noise: float, step: Step, neighbors: Neighbors) -> NoisyEvent:
    """One noisy sum of a draw that nothing else depends on."""
    unit, relation, copies = neighbors.unit, neighbors.relation, neighbors.copies
    draw = step.draw
    if isinstance(draw, PoissonUsers):
        if unit != Unit.USER:
            raise _refused(f"users drawn whole, priced for {unit}", "claim user-level privacy, or draw records")
        return SampledGaussian(noise, draw.rate, 1, relation)
    if isinstance(draw, UsersAndEntities):
        if unit != Unit.USER_AND_ENTITY or relation != Relation.ZERO_OUT:
            raise _refused(f"a two-level draw priced for {neighbors}", "price it for a user and an entity, zero-out")
        # A sentence with the entity is drawn with any of its other entities, so its draw hides nothing; and a clipped
        # update becomes another one: 2C, where Lemmas 1 and 2 of the paper count C (docs/theory.md, section 5).
        return Gaussian(noise / 2, 1, relation)
    if unit in _OWNERS and step.pool != Pool.CAPPED:
        raise _refused(f"{unit} whose records are not capped", "draw from the records kept by the contribution caps")
    if unit == Unit.SECRETS and step.targets != Targets.PRIVATE and step.pool != Pool.WITH_SECRETS:
        raise _refused("secrets beside records that have none", "count private targets, or draw records with secrets")
    if isinstance(draw, PoissonRecords):
        return SampledGaussian(noise, _public_rate(draw), copies, relation)
    return _whole_pass(noise, draw, neighbors)


def _visible_sum(noise: float, draw: Draw, neighbors: Neighbors) -> NoisyEvent:
    """One noisy sum of a draw that everybody sees: no amplification."""
    if isinstance(draw, PoissonRecords):
        if neighbors.copies > 1:
            raise _refused(f"a visible draw priced for {neighbors}", "price it for one record")
        return ExposedGaussian(noise, _public_rate(draw), neighbors.relation)
    return _whole_pass(noise, draw, neighbors)


def _whole_pass(noise: float, draw: Draw, neighbors: Neighbors) -> Gaussian:
    """A record takes part in exactly one batch of a pass, so the pass is one Gaussian (parallel composition)."""
    if isinstance(draw, WholePool) and neighbors.unit != Unit.SECRETS:
        raise _refused(f"counts over a domain that {neighbors.unit} decides about", "claim privacy of secrets")
    if isinstance(draw, ShuffledPass | WholePool):
        return Gaussian(noise, neighbors.copies, neighbors.relation)
    raise _refused(f"a noisy {draw.kind}", "draw records by Poisson, or a whole shuffled pass")


def _public_rate(draw: PoissonRecords) -> float:
    if not draw.rate_is_public:
        raise _refused("a sampling rate that depends on protected data", "use a rate that is a public constant")
    return draw.rate


def _refused(found: str, way_out: str) -> ClaimRefused:
    return ClaimRefused(expected="a step whose price has a proof", found=found, way_out=way_out)
