"""What a lower bound says about a claim, in one sentence. An audit can refute; it cannot certify.

G1. "contradicted" iff the bound, at its confidence, exceeds what the claim allows: epsilon at the same delta, or at a
    smaller one; or, for one run, any point of the claimed profile (the same guesses, the same doubt).
G2. "not comparable" when the attack measured another unit, relation or number of copies than the claim protects, or the
    claim has no figure: then no number is put beside another.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from tacit.audit.bounds import LowerBound
from tacit.events import Relation
from tacit.guarantee import Figure, Guarantee
from tacit.plan import Neighbours, Unit
from tacit.rounding import rounded_up


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


def judge(guarantee: Guarantee, measured: Neighbours, bound: LowerBound) -> Verdict:
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


def figure_for(guarantee: Guarantee, measured: Neighbours) -> Figure | None:
    """The tightest figure that covers what was measured: at most as many copies as it allows for."""
    covering = [
        figure
        for figure in guarantee.figures
        if (figure.neighbours.unit, figure.neighbours.relation) == (measured.unit, measured.relation)
        and figure.neighbours.copies >= measured.copies
    ]
    return min(covering, key=lambda figure: figure.neighbours.copies, default=None)


def _why_not(guarantee: Guarantee, measured: Neighbours) -> str:
    if not guarantee.figures:
        return f"{guarantee.mechanism} claims no figure that an attack on {measured} could contradict"
    protected = " and ".join(str(figure.neighbours) for figure in guarantee.figures)
    return f"the attack measured {measured}; the claim protects {protected}"


def _said(bound: LowerBound, measured: Neighbours) -> str:
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


def measured_by(guarantee: Guarantee, known: bool, replaced: bool, copies: int) -> Neighbours:
    """What canaries measure, in the words of the claim where it has them.

    known: the policy marks their values. replaced: a coin chose between two values; otherwise whether there is one at
    all, which a claim about secrets alone does not hide. copies: records of each, all of one user.
    """
    relation = Relation.REPLACE if replaced else Relation.ZERO_OUT
    units = (Unit.USER, *[Unit.SECRETS] * (known and replaced), *[Unit.FLAGGED_RECORD] * known, Unit.RECORD)
    for unit in units:
        for figure in guarantee.figures:
            if (figure.neighbours.unit, figure.neighbours.relation) == (unit, relation):
                return Neighbours(unit, relation, figure.neighbours.copies if unit == Unit.USER else copies)
    return Neighbours(Unit.RECORD, relation, copies)
