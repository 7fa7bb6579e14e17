"""What an audit found: ids and numbers, never a text; `tacit.common.serialize` writes and reads it as JSON.

What an exposure attack found: ids and bits, never a value.

What a lower bound says about a claim, in one sentence. An audit can refute; it cannot certify.

G1. "contradicted" iff the bound, at its confidence, exceeds what the claim allows: epsilon at the same delta, or at a
    smaller one; or, for one run, any point of the claimed profile (the same guesses, the same doubt).
G2. "not comparable" when the attack measured another unit, relation or number of copies than the claim protects, or the
    claim has no figure: then no number is put beside another.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from tacit.audits.epsilon_bounds import LowerBound
from tacit.audits.statistics import Excess, Rates
from tacit.common.formatting import Interval, exact_interval, rounded_up
from tacit.config.choices import Method
from tacit.privacy.events import Relation
from tacit.privacy.guarantee import Figure, Guarantee
from tacit.privacy.plan import Neighbors, Unit


@dataclass(frozen=True, slots=True)
class Exposure:
    """Of one value. rank: the middle one, where known; ties: other candidates that are as probable.

    chance: how probable so high a rank is, at most, for a uniform value that the model knows nothing of (equal
    candidates counted as above it); none where the rank is extrapolated.
    """

    bits: float
    standard_error: float
    rank: float | None
    ties: int
    chance: float | None


@dataclass(frozen=True, slots=True)
class CanaryExposure:
    """Of one canary, and of its twin that was never planted."""

    id: str
    inside: bool
    own: Exposure
    twin: Exposure


@dataclass(frozen=True, slots=True)
class ExposureResult:
    """`dataclasses.asdict` of it is JSON. fit_distance: the largest gap between the fit and the draws, as shares.

    excess: canaries inside against all values held out; none when no canary is inside. best_chance: of the best canary
    inside, times their number: a p-value that needs no values held out, but values drawn uniformly.
    """

    method: Method
    space: int
    draws: int | None
    fit_distance: float | None
    canaries: tuple[CanaryExposure, ...]
    excess: Excess | None
    best_chance: float | None


class Finding(StrEnum):
    """What an audit can end with."""

    CONSISTENT = "consistent"
    CONTRADICTED = "contradicted"
    NOT_COMPARABLE = "not comparable"


_CONTRADICTED = 3


@dataclass(frozen=True, slots=True)
class Verdict:
    """The finding, and why, in a sentence."""

    finding: Finding
    sentence: str

    @property
    def exit_code(self) -> int:
        """3 when contradicted, 0 otherwise: what cannot be compared is no failure (1 and 2 are for those)."""
        return _CONTRADICTED if self.finding is Finding.CONTRADICTED else 0


def judge(guarantee: Guarantee, measured: Neighbors, bound: LowerBound) -> Verdict:
    """The verdict on `guarantee` from a bound that an attack measured for the unit, relation and copies `measured`."""
    figure = figure_for(guarantee, measured)
    if figure is None:
        return Verdict(Finding.NOT_COMPARABLE, f"Not comparable: {_why_not(guarantee, measured)}.")
    claimed = _epsilon_at(figure, bound.delta)
    if claimed is None:
        return Verdict(
            Finding.NOT_COMPARABLE,
            f"Not comparable: the bound is for delta {bound.delta:.3g}, and the claim begins at {figure.delta:.3g}.",
        )
    said = _said(bound, measured)
    if bound.refutes(_points(figure)):
        why = _excess(figure, bound, claimed)
        return Verdict(Finding.CONTRADICTED, f"Contradicted: {said}, {why}.")
    return Verdict(
        Finding.CONSISTENT,
        f"Consistent: {said}, which does not exceed the claimed {figure}; a stronger attack might find more.",
    )


def _points(figure: Figure) -> tuple[tuple[float, float], ...]:
    return ((figure.epsilon, figure.delta), *figure.profile)


def _epsilon_at(figure: Figure, delta: float) -> float | None:
    """The least epsilon claimed at `delta` or below; a claim at a smaller delta is one at this delta, too."""
    return min((epsilon for epsilon, claimed in _points(figure) if claimed <= delta), default=None)


def figure_for(guarantee: Guarantee, measured: Neighbors) -> Figure | None:
    """The tightest figure that covers what was measured: at most as many copies as it allows for."""
    covering = [
        figure
        for figure in guarantee.figures
        if (figure.neighbours.unit, figure.neighbours.relation) == (measured.unit, measured.relation)
        and figure.neighbours.copies >= measured.copies
    ]
    return min(covering, key=lambda figure: figure.neighbours.copies, default=None)


def _why_not(guarantee: Guarantee, measured: Neighbors) -> str:
    if not guarantee.figures:
        return f"{guarantee.mechanism} claims no figure that an attack on {measured} could contradict"
    protected = " and ".join(str(figure.neighbours) for figure in guarantee.figures)
    return f"the attack measured {measured}; the claim protects {protected}"


def _said(bound: LowerBound, measured: Neighbors) -> str:
    return (
        f"with {100 * bound.confidence:.6g} % confidence epsilon for {measured} is at least "
        f"{_rounded_down(bound.epsilon)} at delta {bound.delta:.3g}"
    )


def _excess(figure: Figure, bound: LowerBound, claimed: float) -> str:
    if bound.epsilon > claimed:
        return f"and the claim is {rounded_up(claimed, 4)}"
    return f"and so many right guesses are too unlikely under the whole profile of the claimed {figure}"


def _rounded_down(value: float) -> str:
    return rounded_up(-value, 4).removeprefix("-")


def overall(verdicts: Sequence[Verdict]) -> Verdict:
    """The worst of several: one contradiction is enough; without any bound nothing can be said."""
    for finding in (Finding.CONTRADICTED, Finding.CONSISTENT, Finding.NOT_COMPARABLE):
        for verdict in verdicts:
            if verdict.finding == finding:
                return verdict
    return Verdict(
        Finding.NOT_COMPARABLE,
        "Not comparable: no canaries that training read were planted by fair coins, so epsilon was not measured.",
    )


def measured_by(guarantee: Guarantee, known: bool, replaced: bool, copies: int) -> Neighbors:
    """What canaries measure, in the words of the claim where it has them.

    known: the policy marks their values. replaced: a coin chose between two values; otherwise whether there is one at
    all, which a claim about secrets alone does not hide. copies: records of each, all of one user.
    """
    relation = Relation.REPLACE if replaced else Relation.ZERO_OUT
    units = (Unit.USER, *[Unit.SECRETS] * (known and replaced), *[Unit.FLAGGED_RECORD] * known, Unit.RECORD)
    for unit in units:
        for figure in guarantee.figures:
            if (figure.neighbours.unit, figure.neighbours.relation) == (unit, relation):
                return Neighbors(unit, relation, figure.neighbours.copies if unit == Unit.USER else copies)
    return Neighbors(Unit.RECORD, relation, copies)


@dataclass(frozen=True, slots=True)
class CanaryFinding:
    """Of the canaries of one plan. The template is public; what they say is not here.

    left_out: planted records that training did not read, as they were duplicates: then they bound no epsilon. None
    outside, where the number is not told.
    """

    template: str
    known: bool
    repetitions: int
    exposure: ExposureResult
    left_out: int | None = 0


@dataclass(frozen=True, slots=True)
class MembershipFinding:
    """Of one attack on single candidates, and on groups of `group_size`; the curve is (false rate, true rate)."""

    attack: str
    rates: Rates
    curve: tuple[tuple[float, float], ...]
    group_size: int
    groups: Rates | None


@dataclass(frozen=True, slots=True)
class TwoStageFinding:
    """S-DP's two-stage attack (appendix A.5), which is no measurement: the truth chooses whom the second stage attacks.

    of_noise: the accuracy of the same recipe on scores drawn at random.
    """

    attack: str
    candidates: int
    accuracy: float
    of_noise: float


@dataclass(frozen=True, slots=True)
class BlindFinding:
    """What the texts give away without a model. When `flagged`, no membership figure means anything."""

    rates: Rates
    chance: float
    flagged: bool


@dataclass(frozen=True, slots=True)
class ExtractedShare:
    """How many of how many, with an exact 95 % interval."""

    count: int
    of: int
    interval: Interval

    @classmethod
    def among(cls, count: int, of: int) -> "ExtractedShare":
        """With its interval."""
        return cls(count, of, exact_interval(count, of))


@dataclass(frozen=True, slots=True)
class Discoverable:
    """Secrets of which one of `tries` samples says the whole with probability at least `probability`."""

    tries: int
    probability: float
    share: ExtractedShare


@dataclass(frozen=True, slots=True)
class Extraction:
    """Secrets that came out word for word after what stood before them."""

    greedy: ExtractedShare
    tries: int
    sampled: ExtractedShare
    discoverable: tuple[Discoverable, ...]


@dataclass(frozen=True, slots=True)
class ExtractionFinding:
    """Of secrets of the training side; and of the held-out side, which come out by being easy to guess alone."""

    trained: Extraction
    held_out: Extraction


@dataclass(frozen=True, slots=True)
class BoundFinding:
    """What the canaries of one plan say about epsilon for `measured`, and the verdict on the claim."""

    template: str
    measured: Neighbors
    bound: LowerBound
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class CheckpointExposure:
    """Of the canaries of one plan in one model on the way; no excess when no canary is inside."""

    template: str
    known: bool
    excess: Excess | None


@dataclass(frozen=True, slots=True)
class CheckpointFinding:
    """The model after `step` steps: its perplexity on held-out text, and how far two attacks get.

    membership: ranking by perplexity; none where a side has too few candidates.
    """

    step: int
    perplexity: float
    exposures: tuple[CheckpointExposure, ...]
    membership: Rates | None


@dataclass(frozen=True, slots=True)
class Audit:
    """All findings, and the verdict over all bounds. curve: of models kept on the way, when they were asked for."""

    canaries: tuple[CanaryFinding, ...]
    blind: BlindFinding | None
    membership: tuple[MembershipFinding, ...]
    extraction: ExtractionFinding | None
    bounds: tuple[BoundFinding, ...]
    verdict: Verdict
    curve: tuple[CheckpointFinding, ...] = ()
    two_stage: TwoStageFinding | None = None


def audit_outside(audit: Audit, keeps_duplicates: bool) -> Audit:
    """The canaries of an audit, and the verdict from them alone."""
    bounds = audit.bounds if keeps_duplicates else ()
    canaries = tuple(replace(one, left_out=None) for one in audit.canaries)
    return Audit(canaries, None, (), None, bounds, overall([one.verdict for one in bounds]))
