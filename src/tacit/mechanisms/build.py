"""The price before training (the command `plan`), what plan.json contains, and the conclusion from it.

G1 (as spent). The guarantee is concluded from the ledger's counts, not from the plan; from whichever is dearer where
   the run chose when to stop.
G2 (from files). Everything the conclusion depends on is in plan.json, ledger.jsonl and the evidence of guarantee.json:
   `verify` concludes it again from `release/` alone.
   A run that began with the model of another has that run's plan and counts in its plan.json, too (theory, section 11).
G3 (labels). A claim of a classifier states that the classes are public, and whether a label is protected with its
   record or is public annotation (theory, section 1: what is not owned by a unit is public).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from tacit.common.charts import Note, Result, Table
from tacit.common.formatting import rounded_up
from tacit.common.serialize import json_values, read_yaml
from tacit.config.load import load
from tacit.config.plan_schema import PlanConfig, PlanRequest
from tacit.errors import ConfigError
from tacit.mechanisms.advice import Advice
from tacit.mechanisms.earlier import (
    apart,
    check_composable,
    check_deltas,
    check_left,
    composed,
    earlier_price,
    same_delta,
)
from tacit.mechanisms.mechanism import Mechanism, PrivateSteps, Spent, calibrated, concluded, planned, with_private
from tacit.mechanisms.registry import Described, build_mechanism, rebuild
from tacit.mechanisms.settings import MeasuredCounts
from tacit.privacy.account import quick_account
from tacit.privacy.events import Composition, Event, Unbounded
from tacit.privacy.guarantee import Condition, Evidence, Guarantee, MeasuredUtility, Status, to_markdown
from tacit.privacy.noisy_utility import HELD_OUT, HELD_OUT_ALONE, NOT_READ, STEP, measured_utility, price
from tacit.privacy.plan import Neighbors, Plain, Plan, ShuffledPass, Step, Unit, cost

CURVE_POINTS = 6
BAR_WIDTH = 40
PUBLIC_CLASSES = Condition("the list of classes is public, and was not collected from the corpus", Status.ASSUMED)
PUBLIC_LABELS = Condition(
    "for secrets, labels are public annotation: what a marked span says does not decide a label", Status.ASSUMED
)
OWN_LABELS = Condition(
    "for records, users and entities, a record's label is part of the record and protected with it", Status.MET
)
EXPOSED_LABELS = "labels of the records that plain steps read"


@dataclass(frozen=True, slots=True)
class Planned(Result):
    """A mechanism with all its numbers, its plan, and the guarantee that will be true after it.

    before: what earlier runs, whose model it begins with, have spent of the headline.
    advice: what to change first, where somebody asked before training.
    """

    mechanism: Mechanism
    plan: Plan
    guarantee: Guarantee
    settings: Mapping[str, Any] = field(default_factory=dict, compare=False)
    before: Composition = ()
    advice: Advice | None = None

    def tables(self) -> Iterator[Table | Note]:
        """The price, the sentence that will be true with its conditions, epsilon over private steps, and advice."""
        yield Table((), tuple(self._price()))
        yield Note(self.guarantee.sentence(), "strong")
        conditions = [f"  holds if {one.text} ({one.status})" for one in self.guarantee.holds_if]
        yield Note("\n".join([*conditions, *(f"  does not protect {one}" for one in self.guarantee.not_protected)]))
        if curve := self.curve():
            top = max(epsilon for _, epsilon in curve) or 1.0
            bars = (
                (f"{done:,}", rounded_up(epsilon, 4), "█" * max(1, round(BAR_WIDTH * epsilon / top)))
                for done, epsilon in curve
            )
            yield Table(("private steps", "epsilon", ""), tuple(bars))
        if self.advice is not None:
            yield from self.advice.tables()

    def _price(self) -> Iterator[tuple[str, str]]:
        for step, times in self.plan.priced().items():
            yield f"{step.name} steps", f"{times:,} x {step.update.kind} on the {step.view} text of {step.pool}"
        private = self.mechanism.private
        if private is not None:
            yield "noise multiplier", rounded_up(private.noise_multiplier, 4)
            if not any(isinstance(step.draw, ShuffledPass) for step in self.plan.executions()):
                units = f"{private.expected_batch:g} of {private.population:,}"
                yield "sampling rate", f"{private.sampling_rate:.4g} ({units})"
            yield "clip norm", f"{private.clip_norm:g}"
        for figure in self.guarantee.figures:
            epsilon, delta = rounded_up(figure.epsilon, 4), rounded_up(figure.delta, 3)
            yield str(figure.neighbors), f"epsilon {epsilon} at delta {delta}"

    def certificate(self) -> str:
        return to_markdown(self.guarantee)

    def to_json(self) -> dict[str, Any]:
        """Settings as they were given, claim, plan, guarantee, and epsilon over private steps."""
        given = {name: str(value) if isinstance(value, Path) else value for name, value in self.settings.items()}
        priced = {"plan": json_values(self.plan), "guarantee": json_values(self.guarantee), "curve": self.curve()}
        advice = {} if self.advice is None else {"advice": json_values(self.advice)}
        return {"settings": given, "sentence": self.guarantee.sentence(), **priced, **advice}

    def curve(self) -> tuple[tuple[int, float], ...]:
        """Private steps done, and the headline's epsilon then."""
        private = self.mechanism.private
        if private is None:
            return ()
        headline = self.mechanism.notions()[0]
        marks = sorted({round(private.steps * part / CURVE_POINTS) for part in range(1, CURVE_POINTS + 1)} - {0})
        partial = ((done, with_private(self.mechanism, replace(private, steps=done))) for done in marks)
        spent = ((done, (*self.before, *one.plan().spend(headline))) for done, one in partial)
        return tuple((done, quick_account(all_of_it).epsilon(private.delta)) for done, all_of_it in spent)


def plan(
    asked: PlanConfig | Mapping[str, Any],
    evidence: Evidence | None = None,
    measured: MeasuredCounts | None = None,
    earlier: "EarlierRun | None" = None,
) -> Planned:
    """Price what is asked for: `plan({"mechanism": "selective", "epsilon": 2, "records": 9800})`.

    `measured` counts what nobody gave, when there is a corpus to count in. `earlier`: whose model training begins with.
    """
    request = PlanRequest(asked) if isinstance(asked, PlanConfig) else load(PlanRequest, asked)
    known, disjoint, epsilon = evidence or Evidence(), request.plan.disjoint_from_model, request.plan.epsilon
    if disjoint and earlier is None:
        way_out = "leave it out: a model from elsewhere is an assumption of every claim"
        raise ConfigError("a model of an earlier run with disjoint_from_model", "another model", way_out)
    mechanism = build_mechanism(request.plan, measured, request.counts)
    before: Spent = dict.fromkeys(mechanism.notions(), ())
    if earlier is not None and not disjoint and before:
        for claim in earlier.guarantees():
            check_composable(mechanism, known, claim)
        if mechanism.private is not None:
            mechanism = with_private(mechanism, same_delta(mechanism.private, earlier.private_steps()))
        before = {neighbors: earlier.spent(neighbors) for neighbors in before}
        check_left(mechanism, before, epsilon)
    headline = next(iter(before.values()), ())
    if epsilon is not None:
        mechanism = calibrated(mechanism, epsilon, headline)
    spent = {neighbors: (*before[neighbors], *done) for neighbors, done in planned(mechanism).items()}
    guarantee = built_on(concluded(mechanism, spent, known), earlier, disjoint)
    given = {} if isinstance(asked, PlanConfig) else dict(asked)
    return Planned(mechanism, mechanism.plan(), guarantee, given, headline)


def read_plan_file(path: Path) -> dict[str, Any]:
    """The settings under `plan:` and `counts:` of a YAML file."""
    content = read_yaml(path)
    if not isinstance(content, dict) or not isinstance(content.get("plan"), dict):
        raise ConfigError(f"settings under a top key `plan:` in {path}", "none", "plan: {mechanism: selective, ...}")
    return {**content["plan"], **(content.get("counts") or {})}


def read_plan_model(path: Path) -> str | None:
    """The model under `model:` of a YAML file."""
    content = read_yaml(path)
    model = content.get("model") if isinstance(content, dict) else None
    return model if isinstance(model, str) else None


@dataclass(frozen=True, slots=True)
class Measuring:
    """How utility is released: over so many held-out records, with this noise. chose: they also chose the model."""

    records: int
    noise_multiplier: float
    chose: bool = False


@dataclass(frozen=True, slots=True)
class EarlierRun:
    """The run whose model training began with, as its `release/` has it; its terms name the run before it, if any.

    digest: SHA-256 over the files that its training sealed, its ledger among them.
    """

    terms: "Terms"
    charges: dict[str, int]
    evidence: Evidence
    digest: str

    def guarantee(self) -> Guarantee:
        """What the run claims for its own corpus."""
        return self.terms.conclude(self.charges, self.evidence)

    def guarantees(self) -> tuple[Guarantee, ...]:
        """What this run claims, and what those before it do whose corpora were declared disjoint from the next one's.

        The claims of all others are part of these; a declaration is no word about the corpus of a still later run.
        """
        apart = (older for later, older in pairwise(self.chain()) if later.terms.disjoint)
        return (self.guarantee(), *(older.guarantee() for older in apart))

    def spent(self, neighbors: Neighbors) -> Composition:
        """What this run, and all before it, cost the unit of a later claim: it may be in each of their corpora."""
        before = () if self.terms.earlier is None else self.terms.earlier.spent(neighbors)
        return (*before, *earlier_price(self.terms.rebuilt(), self.terms.executed(self.charges), neighbors))

    def chain(self) -> "tuple[EarlierRun, ...]":
        """This run and all before it."""
        return (self, *(() if self.terms.earlier is None else self.terms.earlier.chain()))

    def private_steps(self) -> Iterator[PrivateSteps]:
        """The private steps of each run that has some."""
        found = (one.terms.rebuilt().private for one in self.chain())
        return (private for private in found if private is not None)


@dataclass(frozen=True, slots=True)
class Terms:
    """All that will be done, and by which mechanism.

    chooses: models seen on the way decide when training stops, so the whole plan is charged.
    measuring: what comes after training; none where nothing is measured.
    earlier: whose model training began with, if it is that of a run; disjoint: they share no unit, by declaration.
    """

    mechanism: Described
    plan: Plan
    classifies: bool = False
    chooses: bool = False
    measuring: Measuring | None = None
    earlier: EarlierRun | None = None
    disjoint: bool = False

    def rebuilt(self) -> Mechanism:
        """The mechanism, refused when the plan does not follow from it."""
        return rebuild(self.mechanism, self.plan)

    def prices(self) -> dict[str, dict[str, Event]]:
        """What one execution of each step costs each kind of neighbors, as a ledger declares it."""
        notions = self.rebuilt().notions()
        prices = {step.name: {str(one): cost(step, one) for one in notions} for step in self.plan.priced()}
        measuring = self.measuring
        if measuring is not None:
            training = Unbounded("the model was chosen on held-out records") if measuring.chose else NOT_READ
            prices = {step: {**known, HELD_OUT: training} for step, known in prices.items()}
            alone = dict.fromkeys(map(str, notions), HELD_OUT_ALONE)
            prices[STEP] = {**alone, HELD_OUT: price(measuring.noise_multiplier)}
        return prices

    def planned(self) -> dict[str, int]:
        """How often each step takes place when the plan is executed to its end."""
        measured = {} if self.measuring is None else {STEP: 1}
        return {step.name: times for step, times in self.plan.priced().items()} | measured

    def executed(self, charges: Mapping[str, int]) -> dict[Step, int]:
        """How often each step counts, by a ledger with these counts."""
        planned = self.plan.priced().items()
        return {step: max(charges.get(step.name, 0), times if self.chooses else 0) for step, times in planned}

    def spent(self, charges: Mapping[str, int]) -> Spent:
        """What a ledger with these counts has spent, and earlier runs before it."""
        executed = self.executed(charges)
        return {
            neighbors: (
                *self.before(neighbors),
                *((cost(step, neighbors), count) for step, count in executed.items() if count),
            )
            for neighbors in self.rebuilt().notions()
        }

    def before(self, neighbors: Neighbors) -> Composition:
        """What earlier runs have spent of this unit, which may be in their corpora."""
        return () if self.disjoint or self.earlier is None else self.earlier.spent(neighbors)

    def conclude(self, charges: Mapping[str, int], evidence: Evidence) -> Guarantee:
        """The guarantee that is true after a ledger has counted `charges`."""
        mechanism, measuring = self.rebuilt(), self.measuring
        if self.earlier is not None and not self.disjoint and mechanism.notions():
            for claim in self.earlier.guarantees():
                check_composable(mechanism, evidence, claim)
            if mechanism.private is not None:
                check_deltas(mechanism.private, self.earlier.private_steps())
        guarantee = concluded(mechanism, self.spent(charges), evidence)
        if self.classifies and guarantee.figures:
            guarantee = _with_labels(guarantee, self.plan)
        guarantee = built_on(guarantee, self.earlier, self.disjoint)
        if measuring is None:
            return guarantee
        if measuring.chose:
            exposed = "held-out records, which chose the model"
            return replace(guarantee, not_protected=(*guarantee.not_protected, exposed))
        return replace(guarantee, utility=self._measured(measuring, charges))

    def _measured(self, measuring: Measuring, charges: Mapping[str, int]) -> MeasuredUtility:
        """What a held-out record has, which may have been held out in the earlier runs, too."""
        shared = () if self.disjoint or self.earlier is None else self.earlier.chain()
        earlier = ((one.terms.measuring, one.charges) for one in shared)
        released = [(measuring, charges), *((of, counts) for of, counts in earlier if of is not None)]
        composition = tuple((price(of.noise_multiplier), counts.get(STEP, 0)) for of, counts in released)
        return measured_utility(composition, measuring.records, 1 + len(shared))


def built_on(guarantee: Guarantee, earlier: EarlierRun | None, disjoint: bool) -> Guarantee:
    """`guarantee` with what it means that training began with the model of `earlier`."""
    if earlier is None or not guarantee.figures:
        return guarantee
    if disjoint:
        return apart(guarantee, earlier.guarantee())
    before = earlier.spent(guarantee.figures[0].neighbors)
    return composed(guarantee, earlier.guarantees(), before, len(earlier.chain()))


def _with_labels(guarantee: Guarantee, plan: Plan) -> Guarantee:
    """`guarantee` with what it means for classes and labels."""
    units = {figure.neighbors.unit for figure in guarantee.figures}
    public = (PUBLIC_LABELS,) if Unit.SECRETS in units else ()
    own = (OWN_LABELS,) if units - {Unit.SECRETS} else ()
    exposed = any(isinstance(step.update, Plain) and times for step, times in plan.executions().items())
    return replace(
        guarantee,
        holds_if=(*guarantee.holds_if, PUBLIC_CLASSES, *public, *own),
        not_protected=(*guarantee.not_protected, *((EXPOSED_LABELS,) if exposed else ())),
    )
