"""A guarantee: a sentence that is true, with everything it depends on. A bare epsilon is never a result.

On paper it is Markdown for people, and a record in the shape of the DP Deployments Registry for catalogs. What has to
be stated follows section 5.3 of "How to DP-fy ML" (Ponomareva et al. 2023) and NIST SP 800-226: setting and trust, data
accesses, what is released, unit and adjacency, accountant, assumptions, profile, what is not protected.
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from importlib.metadata import version

import yaml
from scipy.special import ndtri

from tacit.common.formatting import rounded_up, upper_bound
from tacit.errors import ClaimRefused
from tacit.privacy.account import account, check_delta
from tacit.privacy.events import Composition
from tacit.privacy.plan import Neighbors, Unit

SETTING = "central: one trusted curator trains, and releases the model and all its checkpoints"
ACCESSES = "every training step, by its ledger entry; evaluation and tuning only as stated"
_OF_NOISE = 0.2  # the share of the doubt that noise in the counts takes; chance in drawing the sample has the rest


class Status(StrEnum):
    """How a condition is known to hold."""

    MET = "met"  # by construction of the plan, and checked by the code
    ASSUMED = "assumed"  # by the reader, or it does not hold
    MEASURED = "measured"  # on a sample, with a confidence bound
    UNMET = "not met"  # it does not hold, and neither does the claim where it is needed


@dataclass(frozen=True, slots=True)
class Condition:
    """Something that must be so for the claim to be true."""

    text: str
    status: Status


@dataclass(frozen=True, slots=True)
class Figure:
    """(epsilon, delta) for one kind of neighbors, backed by the whole privacy profile.

    profile: at fixed deltas, so that two figures compare. curve: more pairs that are true too, for pictures.
    """

    neighbors: Neighbors
    epsilon: float
    delta: float
    mu: float
    accountant: str
    profile: tuple[tuple[float, float], ...]
    curve: tuple[tuple[float, float], ...] = ()

    def __str__(self) -> str:
        return f"({rounded_up(self.epsilon, 4)}, {rounded_up(self.delta, 3)})"


@lru_cache(maxsize=256)
def figure(composition: Composition, neighbors: Neighbors, delta: float, units: int) -> Figure:
    """What `composition` costs at `delta`, among `units` public units; refused when no finite epsilon is true."""
    check_delta(delta, units)
    profile = account(composition)
    epsilon = profile.epsilon(delta)
    if not math.isfinite(epsilon):
        raise ClaimRefused(
            expected="a finite epsilon",
            found=f"steps that read the protected content of {neighbors.unit} without noise",
            way_out="use a mechanism that protects this unit (tacit plan --list), or claim nothing",
        )
    return Figure(neighbors, epsilon, delta, profile.mu(), profile.accountant, profile.curve(), profile.fine())


def unused(composition: Composition, neighbors: Neighbors) -> Figure:
    """The figure (0, 0) of content that no step read; refused when one did."""
    profile = account(composition)
    if profile.delta(0.0) > 0:
        raise ClaimRefused("steps that never read the content", "one that does", "price them with `figure`")
    return Figure(neighbors, 0.0, 0.0, 0.0, profile.accountant, profile.curve())


@dataclass(frozen=True, slots=True)
class Coverage:
    """How many of `sampled` labeled units had a secret that the frozen policy missed (theory, section 7).

    noise: the deviation of the Gaussian noise in `missed`, and in `sampled` if `noisy_sample`: rounded up, and down.
    """

    sampled: int
    missed: int
    confidence: float = 0.95
    policy: str = "the policy"
    noise: float = 0.0
    noisy_sample: bool = False

    @property
    def miss_rate(self) -> float:
        """The upper confidence bound on the share of missed units: never a point estimate."""
        return self.miss_rate_at(self.confidence)

    def miss_rate_at(self, confidence: float) -> float:
        """The bound at another confidence, as when two policies share the doubt."""
        if self.noise == 0:
            return upper_bound(self.missed, self.sampled, confidence)
        doubt = 1 - confidence
        reach = self.noise * float(ndtri(1 - doubt * _OF_NOISE / (1 + self.noisy_sample)))
        sampled = math.floor(self.sampled - reach) if self.noisy_sample else self.sampled
        missed = max(0, math.ceil(self.missed + reach))
        return 1.0 if missed >= sampled else upper_bound(missed, sampled, 1 - doubt * (1 - _OF_NOISE))

    def __str__(self) -> str:
        if self.noise == 0:
            counted = f"{self.missed} of {self.sampled} sampled records had a missed secret"
        else:
            sampled = "records" if self.noisy_sample else f"{self.sampled} records"
            counted = f"{sampled} sampled, counted with noise of standard deviation {self.noise:.3g}"
        return (
            f"audited miss rate of {self.policy} <= {rounded_up(self.miss_rate, 3)} "
            f"({self.confidence:.0%} confidence, {counted})"
        )


def average_rates(among_secrets: tuple[Coverage, Coverage]) -> tuple[float, float]:
    """g1 and g2 of theory, section 10: bounds that hold at once, so each has half of the doubt."""
    missed, cleared = (rate.miss_rate_at((1 + rate.confidence) / 2) for rate in among_secrets)
    return missed, cleared


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known from outside the plan; None is printed as "not measured" or "not stated", never omitted.

    among_secrets: what the policy misses or redacts unstably, and what no policy finds, of records with secrets.
    planted: how many records were made up for audits.
    """

    policy_id: str | None = None
    policy_hash: str | None = None
    coverage: Coverage | None = None
    conservative_id: str | None = None
    conservative_coverage: Coverage | None = None
    among_secrets: tuple[Coverage, Coverage] | None = None
    dropped_share: float | None = None
    entity_list_hash: str | None = None
    detector_data: str | None = None
    user_origin: str | None = None
    record_is: str | None = None
    examples_given: bool | None = None
    pretrained: bool = False
    accelerated: bool = False
    repeatable: bool = False
    distributed: bool = False
    coverage_inside: bool = False
    planted: int = 0
    tuning: str = "not covered: settings were chosen outside this accounting"


@dataclass(frozen=True, slots=True)
class Published:
    """The number a paper's formula gives for its algorithm as printed, which is not a proof."""

    epsilon: float
    delta: float
    formula: str
    reasons: tuple[str, ...]

    def lines(self) -> list[str]:
        """The number, and why it does not hold, in Markdown."""
        number = f"{self.formula}: epsilon = {self.epsilon:.4g} at delta {self.delta:.3g}."
        return [f"{number} Why it does not hold:", "", *(f"- {reason}" for reason in self.reasons)]


@dataclass(frozen=True, slots=True)
class MeasuredUtility:
    """What each of `records` held-out records has against the release of the model's utility.

    runs: whose measurements are counted together, as a record may have been held out in all of them.
    """

    epsilon: float
    delta: float
    records: int
    runs: int = 1

    def __str__(self) -> str:
        price = f"({rounded_up(self.epsilon, 2)}, {rounded_up(self.delta, 3)})"
        said = f"Utility was measured with {price}-differential privacy for each held-out record"
        if self.runs == 1:
            return f"{said}."
        return (
            f"{said} that no earlier run used for training or for choosing its model, the measurements of {self.runs} "
            "runs together; a record that one run trained on and another measured with has both prices, added."
        )


@dataclass(frozen=True, slots=True)
class Guarantee:
    """What may be claimed of a run, and under which conditions. The first figure is the headline."""

    mechanism: str
    claim: str
    figures: tuple[Figure, ...]
    holds_if: tuple[Condition, ...]
    not_protected: tuple[str, ...]
    evidence: Evidence
    coverage: tuple[str, ...] = ()
    published: Published | None = None
    average_case: Neighbors | None = None  # whose price bounds the mean over records with secrets (theory, section 10)
    utility: MeasuredUtility | None = None
    earlier: str | None = None  # the runs that it builds on, in words (theory, section 11)
    code_version: str = version("tacit")

    def sentence(self) -> str:
        """The claim for people, with what its words mean here, coverage, and every condition that is not met."""
        evidence = self.evidence
        meant = [f"A record is {evidence.record_is}."] if evidence.record_is else []
        about_users = any(figure.neighbors.unit in _WITH_USERS for figure in self.figures)
        meant += [f"Users: {evidence.user_origin}."] if evidence.user_origin and about_users else []
        unmet = [f"Not met: {one.text}." for one in self.holds_if if one.status == Status.UNMET]
        measured = [] if self.utility is None else [str(self.utility)]
        before = [] if self.earlier is None else [self.earlier]
        return " ".join((self.claim, *meant, *before, *self.coverage, *measured, *unmet))


_WITH_USERS = {Unit.USER, Unit.USER_AND_ENTITY}
COVERAGE_INSIDE = (
    "Coverage: how many secrets the policy misses was measured; whoever trained the model can tell the bound, and what"
    " the policy misses has no guarantee."
)
COVERAGE_NOT_MEASURED = (
    "Coverage: how many secrets the policy misses was not measured; what it misses has no guarantee."
)
BY_POLICY = {Unit.SECRETS, Unit.FLAGGED_RECORD, Unit.ENTITY, Unit.USER_AND_ENTITY}


def coverage_lines(covered: Figure, coverage: Coverage | None) -> tuple[str, ...]:
    """The three true statements about an imperfect policy that decides who is covered (theory, section 7)."""
    if coverage is None:
        return (COVERAGE_NOT_MEASURED,)
    rate = coverage.miss_rate
    who, otherwise = _COVERED[covered.neighbors.unit]
    mean = f"({rounded_up(covered.epsilon, 4)}, {rounded_up(min(1.0, covered.delta + rate), 3)})"
    return (
        f"Coverage: {who} have {covered}, worst case.",
        f"With {coverage.confidence:.0%} confidence at most a share {rounded_up(rate, 3)} of records is not covered "
        f"and has no guarantee ({coverage}).",
        f"With the same confidence, for a record that is drawn uniformly and known, the model is {mean}-"
        f"indistinguishable from one trained {otherwise}: a mean over all records, which no single record has as a "
        "guarantee.",
    )


_COVERED = {
    Unit.SECRETS: ("records whose secrets the policy found", "with the secrets of that record blanked"),
    Unit.FLAGGED_RECORD: (
        "records with secrets that were routed to the protected set",
        "without that record if it has a secret",
    ),
}
"""Of a unit that a policy chooses: who is covered, and the other world."""


class Order(StrEnum):
    """How one guarantee compares with another."""

    BETTER = "better"
    WORSE = "worse"
    EQUAL = "equal"
    NOT_COMPARABLE = "not comparable"


@dataclass(frozen=True, slots=True)
class GuaranteeComparison:
    """The answer of `compare`, with its reason."""

    order: Order
    reason: str


def compare(a: Guarantee, b: Guarantee) -> GuaranteeComparison:
    """Whether `a` promises more than `b`; often they promise different things, and then neither does."""
    if not a.figures or not b.figures:
        if bool(a.figures) == bool(b.figures):
            return GuaranteeComparison(Order.EQUAL, "neither has a guarantee")
        return GuaranteeComparison(Order.BETTER if a.figures else Order.WORSE, "one of them has no guarantee at all")
    reason = _why_not_comparable(a, b)
    if reason is not None:
        return GuaranteeComparison(Order.NOT_COMPARABLE, reason)
    profiles = zip(a.figures[0].profile, b.figures[0].profile, strict=True)
    pairs = [(ours, theirs) for (ours, _), (theirs, _) in profiles]
    not_worse = _assumed(a) <= _assumed(b) and all(ours <= theirs for ours, theirs in pairs)
    not_better = _assumed(a) >= _assumed(b) and all(ours >= theirs for ours, theirs in pairs)
    if not_worse and not_better:
        return GuaranteeComparison(Order.EQUAL, "same unit, same assumptions, same privacy profile")
    if not_worse:
        return GuaranteeComparison(Order.BETTER, "same unit; no more assumptions, and no larger epsilon at any delta")
    if not_better:
        return GuaranteeComparison(Order.WORSE, "same unit; no fewer assumptions, and no smaller epsilon at any delta")
    return GuaranteeComparison(
        Order.NOT_COMPARABLE, "each is better at some delta, or one assumes less and spends more"
    )


def _why_not_comparable(a: Guarantee, b: Guarantee) -> str | None:
    ours, theirs = a.figures[0].neighbors, b.figures[0].neighbors
    if ours != theirs:
        return f"they protect different things: {ours} against {theirs}"
    if ours.unit in BY_POLICY and (a.evidence.policy_hash is None or a.evidence.policy_hash != b.evidence.policy_hash):
        return "what is protected is what the policy marks, and the policies differ or are not stated"
    if not (_assumed(a) <= _assumed(b) or _assumed(a) >= _assumed(b)):
        return "they rest on different assumptions"
    return None


def _assumed(guarantee: Guarantee) -> set[str]:
    """What is not known to hold: a condition that is not met counts as one more assumption."""
    return {one.text for one in guarantee.holds_if if one.status in (Status.ASSUMED, Status.UNMET)}


def _planted(records: int) -> list[str]:
    if not records:
        return []
    return [f"- Canaries: {records:,} of the training records were made up for audits; they count like all others."]


def to_markdown(guarantee: Guarantee) -> str:
    """The certificate for people."""
    evidence, published = guarantee.evidence, guarantee.published
    head = ("| neighbors | epsilon | delta | mu-GDP | accountant |", "|---|---|---|---|---|")
    rows = [
        f"| {one.neighbors} | {rounded_up(one.epsilon, 4)} | {rounded_up(one.delta, 3)} | {rounded_up(one.mu, 4)} | "
        f"{one.accountant} |"
        for one in guarantee.figures
    ]
    assumed = {Status.ASSUMED: "assumed by the reader"}
    sections = {
        "Figures": [*head, *rows] if rows else [],
        "Holds if": [f"- {one.text} ({assumed.get(one.status, one.status)})" for one in guarantee.holds_if],
        "Not protected": [f"- {text}" for text in guarantee.not_protected],
        "Published formula": published.lines() if published is not None else [],
        "Setting": [
            f"- Trust: {SETTING}",
            f"- Data accesses covered: {ACCESSES}",
            f"- Tuning: {evidence.tuning}",
            f"- Policy: {evidence.policy_id or 'not stated'} ({evidence.policy_hash or 'no hash'})",
            *_planted(evidence.planted),
            f"- Made by tacit {guarantee.code_version}",
        ],
    }
    parts = [f"## {title}\n\n" + "\n".join(lines) for title, lines in sections.items() if lines]
    return "\n\n".join((f"# Privacy guarantee: {guarantee.mechanism}", guarantee.sentence(), *parts)) + "\n"


def to_registry_yaml(guarantee: Guarantee, name: str, description: str) -> str:
    """The record for a registry of DP deployments."""
    figures = guarantee.figures
    record = {
        "name": name,
        "description": description,
        "data_product_type": "machine learning model (language model)",
        "dp_flavor": {
            "name": "approximate differential privacy" if figures else "none",
            "unprotected_quantities": list(guarantee.not_protected),
        },
        "privacy_unit": [{"unit": str(one.unit), "details": str(one)} for one in (f.neighbors for f in figures)],
        "privacy_parameters": [
            {
                "unit": str(figure.neighbors),
                "epsilon": float(rounded_up(figure.epsilon, 6)),
                "delta": figure.delta,
                "mu_gdp": float(rounded_up(figure.mu, 6)),
            }
            for figure in figures
        ],
        "deployment_model": SETTING,
        "composition": figures[0].accountant if figures else "none",
        "hyperparameter_tuning": guarantee.evidence.tuning,
        "mechanisms": [guarantee.mechanism],
        "justification": {
            "statement": guarantee.sentence(),
            "holds_if": [{"condition": c.text, "status": str(c.status)} for c in guarantee.holds_if],
        },
        "software": f"tacit {guarantee.code_version}",
    }
    return yaml.safe_dump(record, sort_keys=False, allow_unicode=True, width=110)
