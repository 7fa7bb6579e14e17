"""Membership of secrets: which of two values was in this place? By the probability the model gives them there.

This is the attack that claims about the content of secrets are about (S-DP, CRT): the attacker knows the text before a
secret and two values of the same kind and form. One was there; the other belongs to somebody whose records were held
out. The value that is more probable after this text is guessed. Groups: the sum over `group_size` places decides which
half of their values was there.

| beside it | what it shows |
|---|---|
| form alone | the same guess by a classifier that sees the two values and no model: chance is 50 % |
| held-out places | the same attack where the model read neither value: what the context gives away |
| the claim allows | how often any attack on a value in one record is right, at most, if the claim is true |

The coins were flipped over users of the corpus, not by us, and a value may fit the text around it. So what is measured
here stays in `private/`, and a rate above what the claim allows is a warning; verdicts come from canaries.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tacit.audits.findings import Attack, Column, Compared, Finding, Highlight
from tacit.audits.passages import Blind, Passage, blind, log_probabilities
from tacit.audits.sample_sizes import ENOUGH, FEWEST_FOR_THOUSANDTHS, shown
from tacit.audits.statistics import Floats, MeasuredRate, RateAt, Scores, judged, rate_at
from tacit.audits.target import Target
from tacit.audits.values import ValuePair, held_out_pairs, value_pairs
from tacit.common.charts import ChartRow, Dot, LegendItem, Mark, RowChart, Table, Whisker, axis_for
from tacit.common.formatting import exact_interval, interval, percent
from tacit.common.progress import Observer, Progress
from tacit.config.audit_schema import FEWEST, AuditConfig
from tacit.models.language_model import Speaker
from tacit.privacy.events import Relation
from tacit.privacy.guarantee import Guarantee
from tacit.privacy.plan import Neighbors, Unit
from tacit.privacy.tradeoff import best_guess

FEW_VALUES = (
    f"Membership of secrets was not attacked: it takes {FEWEST} marked values on each side that one user alone has, of "
    "the same kind and form. Raise held_out, or check that the policy marks secrets."
)
_MEANING = "how often the value that was there is recognized; chance is 0.5"


@dataclass(frozen=True, slots=True)
class Told:
    """`right` of `of` guesses between two values; ties count half, and against the interval."""

    right: float
    of: int
    confidence: float

    @classmethod
    def by(cls, margins: Floats, confidence: float) -> "Told":
        """margins: how much more probable the value that was there is."""
        return cls(float((margins > 0).sum() + (margins == 0).sum() / 2), len(margins), confidence)

    @property
    def rate(self) -> MeasuredRate:
        """With its exact interval."""
        counts = math.floor(self.right), math.ceil(self.right)
        low, high = (exact_interval(count, self.of, self.confidence) for count in counts)
        return MeasuredRate(self.right / self.of if self.of else 0.5, low._replace(high=high.high))

    def __str__(self) -> str:
        return shown(self.rate, self.of)


@dataclass(frozen=True, slots=True)
class SecretsResult:
    """Margins of places, by id, and what they show.

    in_one_record: of values that one record alone contains, which is what a claim about a record's secrets is about.
    """

    scores: Scores
    inside: dict[str, bool]
    single: Told
    in_one_record: Told
    groups: Told
    group_size: int
    held_out: Told
    blind: Blind
    low: tuple[RateAt, ...]
    allowed: float | None


def secrets_told(target: Target, config: AuditConfig, observe: Observer) -> SecretsResult | None:
    """None where there are too few values."""
    most = max(config.candidates, ENOUGH * config.group_size)
    sides = target.members, target.held_out
    pairs = value_pairs(*sides, most, config.seed)
    if len(pairs) < FEWEST:
        return None
    margins = value_margins(target.learner, pairs)
    observe(Progress("secrets", 1, 2))
    control = held_out_pairs(*sides, most, config.seed)
    others = value_margins(target.learner, control) if control else np.zeros(0)
    observe(Progress("secrets", 2, 2))
    alone = np.array([pair.place.records == 1 for pair in pairs])
    confidence = config.confidence
    scores, inside, texts = as_candidates(pairs, margins)
    truth = judged(scores, inside)
    false_rates = (0.01, 0.001) if len(pairs) > FEWEST_FOR_THOUSANDTHS else (0.01,)
    return SecretsResult(
        scores,
        inside,
        Told.by(margins, confidence),
        Told.by(margins[alone], confidence),
        Told.by(_group_sums(margins, config), confidence),
        config.group_size,
        Told.by(others, confidence),
        blind(texts, inside, confidence),
        tuple(rate_at(truth, rate, confidence) for rate in false_rates),
        _allowed(target.guarantee),
    )


def value_margins(speaker: Speaker, pairs: Sequence[ValuePair]) -> Floats:
    """How much more probable the value of each place is there than the other one, in nats."""
    passages = []
    for number, pair in enumerate(pairs):
        for which, value in (("own", pair.place.tokens), ("other", pair.other.tokens)):
            passages.append(Passage(f"{number}/{which}", [*pair.place.prompt, *value], len(pair.place.prompt)))
    totals = np.zeros(len(passages))
    for place, said in log_probabilities(speaker, passages):
        totals[place] = said.sum()
    return np.asarray(totals[::2] - totals[1::2], dtype=np.float64)


def as_candidates(pairs: Sequence[ValuePair], margins: Floats) -> tuple[Scores, dict[str, bool], dict[str, str]]:
    """Both values of each pair as candidates, each scored by how much it is ahead of the other."""
    scores, inside, texts = {}, {}, {}
    order = np.random.default_rng(len(pairs)).permutation(2 * len(pairs))  # names must not reveal the side
    for number, (pair, margin) in enumerate(zip(pairs, margins.tolist(), strict=True)):
        for place, value, score, there in ((0, pair.place, margin, True), (1, pair.other, -margin, False)):
            name = f"value-{order[2 * number + place]}"
            scores[name], inside[name], texts[name] = score, there, value.text
    return Scores(scores), inside, texts


def _group_sums(margins: Floats, config: AuditConfig) -> Floats:
    """Of disjoint groups; places that are left over are in none."""
    size = config.group_size
    return np.asarray(margins[: len(margins) // size * size].reshape(-1, size).sum(axis=1), dtype=np.float64)


def _allowed(guarantee: Guarantee) -> float | None:
    """How often a guess about the value in one record is right, at most; None where nothing is claimed about it."""
    neighbors = [Neighbors(unit, Relation.REPLACE, 1) for unit in (Unit.SECRETS, Unit.RECORD)]
    figures = [figure for one in neighbors for figure in guarantee.figures if figure.neighbors == one]
    return best_guess(figures[0]) if figures else None


def secrets_finding(found: SecretsResult) -> Finding:
    """How often the value that was there is recognized."""
    single = found.single.rate
    figures = {"secrets told, without the model": found.blind.rates.cut.accuracy.value}
    for name, told in (("", found.single), (", groups", found.groups), (", held out", found.held_out)):
        if told.of >= ENOUGH:
            figures[f"secrets told{name}"] = told.rate.value
    highlights: tuple[Highlight, ...] = ()
    if found.single.of >= ENOUGH:
        control = percent(found.held_out.rate.value) if found.held_out.of >= ENOUGH else "–"
        detail = f"of {found.single.of:,} true values recognized; chance 50 %; on held-out records {control}"
        compared = Compared(
            "Secrets told",
            percent(single.value),
            _MEANING,
            "secrets-told",
            "Telling which value was there",
            "Accuracy",
            single.value,
            "A true value against one of the same kind and form; its interval is on the page of the run.",
            0.5,
        )
        highlights = (Highlight("Secrets told", percent(single.value), detail, compared),)
    return Finding(
        "secrets",
        warning=_warning(found),
        tables=(_summary(found),),
        charts=(_chart(found),),
        highlights=highlights,
        figures=figures,
    )


def _warning(found: SecretsResult) -> str:
    if found.blind.flagged:
        return "The values alone tell which were trained on: no figure about membership of secrets means anything."
    if found.held_out.of >= ENOUGH and found.held_out.rate.interval.low > 0.5:
        return (
            "Context alone tells true values from others in held-out records: only what is above that rate is a leak."
        )
    if found.allowed is not None and found.in_one_record.rate.interval.low > found.allowed:
        return (
            f"Values of one record are told in {percent(found.in_one_record.rate.value)} of cases, and the claim "
            f"allows {percent(found.allowed)} at most: check policy and mechanism."
        )
    return ""


def _rows(found: SecretsResult) -> list[tuple[str, Told]]:
    return [
        ("single values", found.single),
        ("of one record alone", found.in_one_record),
        (f"groups of {found.group_size}", found.groups),
        ("held-out places", found.held_out),
    ]


def _summary(found: SecretsResult) -> Table:
    rows = [(name, str(told), _allowed_for(name, found)) for name, told in _rows(found)]
    form = found.blind.rates
    rows.append(("form alone, no model", shown(form.cut.accuracy, form.members), ""))
    for low in found.low:
        head = f"found at {100 * low.false_rate:g} % false alarms"
        rows.append((head, shown(low.found, found.single.of), ""))
    confidence = 100 * found.single.confidence
    title = f"membership of secrets: true values recognized, in %, with {confidence:.4g} % intervals"
    return Table(("attack", "right", "the claim allows"), tuple(rows), title=title)


def _allowed_for(name: str, found: SecretsResult) -> str:
    if name != "of one record alone":
        return ""
    return "–" if found.allowed is None else f"{100 * found.allowed:.1f}"


def _chart(found: SecretsResult) -> RowChart:
    form = found.blind.rates.cut.accuracy
    measured = [(name, told.rate, told.of) for name, told in _rows(found)]
    measured.append(("form alone, no model", form, found.blind.rates.members))
    kept = [one for one in measured if one[2] >= ENOUGH]
    rows = tuple(
        ChartRow(f"{name}: {percent(rate.value)} of {count:,}", (Whisker(*rate.interval), Dot(rate.value, 3, name)))
        for name, rate, count in kept
    )
    cells = tuple((name, percent(rate.value), interval(rate.interval), f"{count:,}") for name, rate, count in kept)
    marks = [Mark(0.5, "chance")]
    if found.allowed is not None:
        marks.append(Mark(found.allowed, f"the claim allows {percent(found.allowed)} for a value in one record"))
    return RowChart(
        "secrets",
        "Which value was there?",
        "; ".join(row.name for row in rows) + "." if rows else "Too few values to measure anything.",
        axis_for("Share of right guesses between two values", [0.0, 1.0], logarithmic=False),
        rows,
        Table(("What is compared", "Right", "95 % interval", "n"), cells),
        tuple(marks),
        (LegendItem("right guesses", Dot(0.0, 3)),),
        "True values against values of held-out people, of the same kind and form, after the same text.",
    )


def _run(target: Target, config: AuditConfig, observe: Observer) -> Finding:
    found = secrets_told(target, config, observe)
    return Finding("secrets", hint=FEW_VALUES) if found is None else secrets_finding(found)


SECRETS = Attack(
    "secrets",
    _run,
    (
        Column("secrets told", "Secrets told, accuracy", _MEANING, chance=0.5),
        Column("secrets told, groups", "Groups of secrets told, accuracy", chance=0.5, in_tables=False),
        Column("secrets told, held out", chance=0.5, in_tables=False),
        Column("secrets told, without the model", chance=0.5, in_tables=False),
    ),
)
