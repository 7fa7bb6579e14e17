"""What attacks are and what they find: a `Finding` is pure data that pages, sweeps and the command line show as it is.

    TOY = Attack("toy", run)                       # in a file of its own, and a line in tacit.audits.attacks

    def run(target, config, observe):
        return Finding("toy", sentence="The toy attack found nothing.", figures={"toy rate": 0.5})

A finding is about training records by default, and then stays in `private/`; only what canaries showed, which are
made up, may leave (`outside`). It contains ids and numbers, never a text.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from tacit.common.charts import Chart, Note, Result, Table

if TYPE_CHECKING:
    from tacit.audits.target import Target
    from tacit.common.progress import Observer
    from tacit.config.audit_schema import AuditConfig


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
        return 3 if self.outcome is Outcome.CONTRADICTED else 0


class About(StrEnum):
    """What a finding is about: only what was made up may leave."""

    CANARIES = "canaries"
    TRAINING_RECORDS = "training records"


@dataclass(frozen=True, slots=True)
class Compared:
    """How runs are compared by a number: a cell under `column`, and a point in a chart of `value` over perplexity.

    meaning: what the column contains. chance: what guessing reaches.
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
    """A number that people look at first, with what to compare it with."""

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
        """Sorted by what they are about."""
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
        yield from (Note(finding.sentence) for finding in self.canaries if finding.sentence)
        for finding in self.findings:
            yield from finding.tables
            warnings = [Note(finding.warning, "warning"), Note(finding.inside or "", "warning")]
            said = "" if finding.about == About.CANARIES else finding.sentence
            notes = [*warnings, Note(said, "dim"), Note(finding.hint)]
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
    """A number by which sweeps compare runs. label: its axis. least: where that begins. chance: what guessing reaches.

    in_tables: otherwise it can only be charted. at_checkpoints: it is measured on models kept on the way, too.
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
    """An attack. columns: those that its figures may fill. at_checkpoint: quick figures of a model kept on the way."""

    name: str
    run: "Callable[[Target, AuditConfig, Observer], Finding | None]"
    columns: tuple[Column, ...] = ()
    at_checkpoint: "Callable[[Target, AuditConfig], Mapping[str, float]] | None" = None


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
