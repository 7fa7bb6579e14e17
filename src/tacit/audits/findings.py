"""What attacks are and what they bring: a `Finding` is pure data that pages, sweeps and the command line show as it is.

    TOY = Attack("toy", run)                       # in a file of its own, and a line in tacit.audits.attacks

    def run(target, config, observe):
        return Finding("toy", sentence="The toy attack found nothing.", figures={"toy rate": 0.5})

A finding is about training records by default, and then stays in `private/`; only what canaries showed, which are
made up, may leave (`outside`). It holds ids and numbers, never a text.

The verdict of a lower bound on a claim, in one sentence. An audit can refute; it cannot certify.

G1. "contradicted" iff the bound, at its confidence, exceeds what the claim allows: epsilon at the same delta, or at a
    smaller one; or, for one run, any point of the claimed profile (the same guesses, the same doubt).
G2. "not comparable" when the attack measured another unit, relation or number of copies than the claim protects, or the
    claim has no figure: then no number is put beside another.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from tacit.audits.epsilon_bounds import LowerBound
from tacit.common.charts import Chart, Note, Result, Table
from tacit.common.formatting import rounded_up
from tacit.privacy.events import Relation
from tacit.privacy.guarantee import Figure, Guarantee
from tacit.privacy.plan import Neighbors, Unit

if TYPE_CHECKING:
    from tacit.audits.target import Target
    from tacit.common.progress import Observer
    from tacit.config.audit_schema import AuditConfig

_CONTRADICTED = 3


class Outcome(StrEnum):
    """What an audit can end with."""

    CONSISTENT = "consistent"
    CONTRADICTED = "contradicted"
    NOT_COMPARABLE = "not comparable"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome, and why, in a sentence."""

    outcome: Outcome
    sentence: str

    @property
    def exit_code(self) -> int:
        """3 when contradicted, 0 otherwise: what cannot be compared is no failure (1 and 2 are for those)."""
        return _CONTRADICTED if self.outcome is Outcome.CONTRADICTED else 0


class About(StrEnum):
    """What a finding tells of: only what was made up may leave."""

    CANARIES = "canaries"
    TRAINING_RECORDS = "training records"


@dataclass(frozen=True, slots=True)
class Compared:
    """How runs are compared by a number: a cell under `column`, and a point of a picture of `value` over perplexity.

    meaning: what the column holds. chance: what guessing reaches.
    """

    column: str
    cell: str
    meaning: str
    key: str
    title: str
    axis: str
    value: float
    note: str = ""
    chance: float | None = None


@dataclass(frozen=True, slots=True)
class Highlight:
    """A number that people look at first, with what it has to be held against."""

    name: str
    value: str
    detail: str
    compared: Compared | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """What one attack found.

    hint: what to do to learn more, for the screen. warning: why its numbers mean less than they seem. inside: a
    sentence that never leaves. figures: columns of sweeps. verdict: on the claim, where it was tested.
    """

    attack: str
    about: About = About.TRAINING_RECORDS
    sentence: str = ""
    hint: str = ""
    warning: str = ""
    inside: str | None = None
    tables: tuple[Table, ...] = ()
    charts: tuple[Chart, ...] = ()
    highlights: tuple[Highlight, ...] = ()
    figures: dict[str, float] = field(default_factory=dict)
    verdict: Verdict | None = None


def finite(figures: Mapping[str, float | None]) -> dict[str, float]:
    """Those that are numbers."""
    return {name: value for name, value in figures.items() if value is not None and math.isfinite(value)}


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model kept on the way: its perplexity on held-out text, and how far attacks get."""

    step: int
    perplexity: float
    figures: dict[str, float]


@dataclass(frozen=True, slots=True)
class Audit(Result):
    """All findings, by what they are about, and the verdict over all of them."""

    canaries: tuple[Finding, ...]
    training_records: tuple[Finding, ...]
    verdict: Verdict
    checkpoints: tuple[Checkpoint, ...] = ()

    @classmethod
    def of(cls, findings: Iterable[Finding], checkpoints: tuple[Checkpoint, ...] = ()) -> "Audit":
        """Of these findings, each in its place."""
        every = tuple(findings)
        canaries, records = (tuple(one for one in every if one.about == about) for about in About)
        verdict = overall([one.verdict for one in every if one.verdict is not None])
        return cls(canaries, records, verdict, checkpoints)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Those of canaries first."""
        return (*self.canaries, *self.training_records)

    @property
    def figures(self) -> dict[str, float]:
        """The numbers of all findings."""
        return {name: value for one in self.findings for name, value in one.figures.items()}

    def tables(self) -> Iterator[Table | Note]:
        """The verdict, and everything behind it."""
        contradicted = self.verdict.outcome is Outcome.CONTRADICTED
        fits = self.verdict.outcome is Outcome.CONSISTENT
        yield Note(self.verdict.sentence, "bad" if contradicted else "good" if fits else "warning")
        for finding in self.findings:
            yield from finding.tables
            warnings = [Note(finding.warning, "warning"), Note(finding.inside or "", "warning")]
            notes = [*warnings, Note(finding.sentence, "dim"), Note(finding.hint)]
            yield from (note for note in notes if note.text)
        if self.checkpoints:
            names = list(dict.fromkeys(name for point in self.checkpoints for name in point.figures))
            rows = (
                (
                    f"{point.step:,}",
                    f"{point.perplexity:.4g}",
                    *(f"{point.figures[name]:.3g}" if name in point.figures else "" for name in names),
                )
                for point in self.checkpoints
            )
            yield Table(("step", "perplexity", *names), tuple(rows), title="models saved during training")

    def outside(self) -> "Audit":
        """What may leave: what canaries showed, and the verdict from them alone."""
        return Audit.of(replace(one, inside=None) for one in self.canaries)


@dataclass(frozen=True, slots=True)
class Column:
    """A number by which sweeps know a run. label: its axis. least: where that begins. chance: what guessing reaches.

    in_tables: otherwise it can only be drawn. at_checkpoints: it is measured of models on the way, too.
    """

    name: str
    label: str = ""
    meaning: str = ""
    least: float | None = None
    chance: float | None = None
    in_tables: bool = True
    at_checkpoints: bool = False


@dataclass(frozen=True, slots=True)
class Attack:
    """An attack. columns: those that its figures may fill. at_checkpoint: quick figures of a model on the way."""

    name: str
    run: "Callable[[Target, AuditConfig, Observer], Finding | None]"
    columns: tuple[Column, ...] = ()
    at_checkpoint: "Callable[[Target, AuditConfig], Mapping[str, float]] | None" = None


def judge(guarantee: Guarantee, measured: Neighbors, bound: LowerBound) -> Verdict:
    """The verdict on `guarantee` from a bound that an attack measured for the unit, relation and copies `measured`."""
    figure = figure_for(guarantee, measured)
    if figure is None:
        return Verdict(Outcome.NOT_COMPARABLE, f"Not comparable: {_why_not(guarantee, measured)}.")
    claimed = epsilon_at(figure, bound.delta)
    if claimed is None:
        return Verdict(
            Outcome.NOT_COMPARABLE,
            f"Not comparable: the bound is for delta {bound.delta:.3g}, and the claim begins at {figure.delta:.3g}.",
        )
    said = _said(bound, measured)
    if bound.refutes(_points(figure)):
        why = _excess(figure, bound, claimed)
        return Verdict(Outcome.CONTRADICTED, f"Contradicted: {said}, {why}.")
    return Verdict(
        Outcome.CONSISTENT,
        f"Consistent: {said}, which does not exceed the claimed {figure}; a stronger attack might find more.",
    )


def _points(figure: Figure) -> tuple[tuple[float, float], ...]:
    return ((figure.epsilon, figure.delta), *figure.profile)


def epsilon_at(figure: Figure, delta: float) -> float | None:
    """The least epsilon claimed at `delta` or below; a claim at a smaller delta is one at this delta, too."""
    return min((epsilon for epsilon, claimed in _points(figure) if claimed <= delta), default=None)


def figure_for(guarantee: Guarantee, measured: Neighbors) -> Figure | None:
    """The tightest figure that covers what was measured: at most as many copies as it allows for."""
    covering = [
        figure
        for figure in guarantee.figures
        if (figure.neighbors.unit, figure.neighbors.relation) == (measured.unit, measured.relation)
        and figure.neighbors.copies >= measured.copies
    ]
    return min(covering, key=lambda figure: figure.neighbors.copies, default=None)


def _why_not(guarantee: Guarantee, measured: Neighbors) -> str:
    if not guarantee.figures:
        return f"{guarantee.mechanism} claims no figure that an attack on {measured} could contradict"
    protected = " and ".join(str(figure.neighbors) for figure in guarantee.figures)
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
    """The worst of several: one contradiction is enough; without any bound there is no verdict on the claim."""
    for outcome in (Outcome.CONTRADICTED, Outcome.CONSISTENT, Outcome.NOT_COMPARABLE):
        for verdict in verdicts:
            if verdict.outcome == outcome:
                return verdict
    return Verdict(
        Outcome.NOT_COMPARABLE,
        "Not comparable: epsilon was not measured. That takes the attack `epsilon`, and canaries that training "
        "read and that fair coins planted.",
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
            if (figure.neighbors.unit, figure.neighbors.relation) == (unit, relation):
                return Neighbors(unit, relation, figure.neighbors.copies if unit == Unit.USER else copies)
    return Neighbors(Unit.RECORD, relation, copies)
