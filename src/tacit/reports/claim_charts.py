"""Charts of a claim, of how it was spent and what it is worth: utility, timeline, epsilon over steps, privacy profile,
average-case epsilon, and how well the policy did on labeled held-out records.

Average case, as in figures 3 to 6 of CRT: what a policy that misses little makes of a record's epsilon on average. The
curve is epsilon~ of theory, section 10, over the miss rate g1 at the run's delta, as if the conservative policy missed
nothing. The point is the run's own, where both miss rates were measured among records with secrets; both are upper
confidence bounds, which share the doubt. All follow from the price of replacing a protected record.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tacit.common.charts import (
    Axis,
    Bar,
    Chart,
    ChartRow,
    Dot,
    LegendItem,
    Mark,
    Point,
    RowChart,
    ScatterChart,
    Series,
    Table,
    Whisker,
    axis_for,
)
from tacit.common.formatting import interval, name, number, percent, rounded_up
from tacit.policies.card import PolicyCard, PolicyQuality, ShareOf
from tacit.privacy.account import AverageCase, account, average_case, quick_account
from tacit.privacy.events import Event, Free, Unbounded
from tacit.privacy.guarantee import Figure, average_rates
from tacit.privacy.noisy_utility import Estimate, ReleasedUtility
from tacit.privacy.plan import Plan, Step, cost
from tacit.privacy.profile import Profile
from tacit.privacy.tradeoff import allowed, deed_words, price_words, spending, tradeoff_chart
from tacit.reports.drawing import COLORS
from tacit.reports.finished_run import Finished
from tacit.runs.utility import LabelQuality, Utility

_MOST_CURVES = 6
_MOST_BARS = 60
_MOST_STEPS = 12
_MOST_ROWS = 12
_MISS_RATES = tuple(10 ** (-3 + 3 * at / 48) for at in range(49))
_TABLE_RATES = (0.001, 0.01, 0.05, 0.1, 0.2, 0.5, 1.0)
PRICES = {"free": "costs the protected content nothing", "paid": "noisy, and priced", "open": "plain, without a price"}


def utility_chart(run: Finished) -> Chart:
    """How well held-out text, or the labels of held-out records, are predicted: as released, or exact inside."""
    if run.utility is None:
        return _released_chart(run.released)
    return _label_chart(run.utility.labels) if run.utility.labels is not None else _text_chart(run.utility)


def _released_chart(utility: ReleasedUtility) -> Chart:
    named: dict[str, tuple[Estimate, Callable[[float], str]]]
    if utility.classifies:
        named = {"Error rate": (utility.error_rate, percent)}
        lowest, highest, title = 0.0, 1.0, "How well it predicts the labels of held-out records"
    else:
        named = {"Perplexity": (utility.perplexity, number), "First guess right": (utility.accuracy, percent)}
        lowest, highest, title = 1.0, max(2.0, 1.1 * utility.perplexity.high), "How well it predicts held-out text"
    drawn, (estimate, written) = next(iter(named.items()))
    axis = Axis(f"{drawn} (lower is better)", lowest, highest, highest > 20)
    tip = f"{drawn} {written(estimate.value)}\nbetween {written(estimate.low)} and {written(estimate.high)}"
    marks = (Bar(lowest, estimate.value, "bar", tip), Whisker(estimate.low, estimate.high))
    row = ChartRow(f"All held-out records: {written(estimate.value)}", marks)
    table = Table(
        ("Held-out records", "With noise", "95 % interval"),
        tuple((key, show(one.value), f"{show(one.low)} to {show(one.high)}") for key, (one, show) in named.items()),
    )
    cut = f", cut to {utility.longest} tokens of at most {number(utility.most_nats)} nats" if utility.longest else ""
    note = f"One sum over {utility.records:,} held-out records{cut}, with noise that hides any one of them."
    return RowChart("utility", title, f"{drawn}: {row.name}.", axis, (row,), table, note=note)


def _text_chart(utility: Utility) -> Chart:
    parts = {"All tokens": utility.overall, "Public tokens": utility.public, "Private tokens": utility.private}
    known = {part: quality.perplexity for part, quality in parts.items() if quality.tokens}
    highest = max([2.0, *known.values()])
    logarithmic = highest > 20
    axis = Axis("Perplexity (lower is better)", 1.0, highest * (1.4 if logarithmic else 1.08), logarithmic)
    rows = tuple(
        ChartRow(f"{part}: {number(value)}", (Bar(1.0, value, "bar", f"{part}\nperplexity {number(value, 4)}"),))
        for part, value in known.items()
    )
    table = Table(
        ("Held-out text", "Tokens", "Perplexity", "First guess right"),
        tuple(
            (part, f"{quality.tokens:,}", number(quality.perplexity, 4), percent(quality.accuracy))
            for part, quality in parts.items()
        ),
    )
    described = "; ".join(row.name for row in rows) or "nothing was held out"
    note = f"Over all tokens {number(utility.nats_a_character)} nats per character, whatever the tokenizer."
    title = "How well it predicts held-out text"
    return RowChart("utility", title, f"Perplexity: {described}.", axis, rows, table, note=note)


def _label_chart(labels: LabelQuality) -> Chart:
    parts = {
        "All records": labels.overall,
        "Records without secrets": labels.without_secrets,
        "Records with secrets": labels.with_secrets,
    }
    rows = tuple(
        ChartRow(
            f"{part}: {percent(rate.share)}",
            (Bar(0.0, rate.share, "bar", f"{part}\n{rate.errors:,} of {rate.records:,} wrong"), Whisker(*ends)),
        )
        for part, rate in parts.items()
        if rate.records and (ends := rate.interval())
    )
    table = Table(
        ("Held-out records", "Records", "Errors", "Error rate", "95 % interval"),
        tuple(
            (part, f"{rate.records:,}", f"{rate.errors:,}", percent(rate.share), interval(rate.interval()))
            for part, rate in {**parts, "Always the commonest class": labels.commonest}.items()
        ),
    )
    commonest = labels.commonest
    described = f"Error rates: {'; '.join(row.name for row in rows)}. "
    described += f"Always the commonest class: {percent(commonest.share)}."
    marks = (Mark(commonest.share, "always the commonest class"),) if commonest.records else ()
    axis = Axis("Test error rate (lower is better)", 0.0, 1.0)
    return RowChart("utility", "How often it is wrong", described, axis, rows, table, marks)


def timeline_chart(run: Finished) -> Chart | None:
    """Which steps took place when, by the plan; None if there are none."""
    plan, ledger = run.plan, run.ledger
    executions = plan.priced()
    steps = [step for step, times in executions.items() if times][:_MOST_STEPS]
    total = sum(plan.executions().values())
    if not steps or total <= 0:
        return None
    prices = {step.name: _price(run, step) for step in steps}
    kinds = {step: _price_kind(price) for step, price in prices.items()}
    rows = tuple(
        ChartRow(f"{step.name}: {executions[step]:,} steps", _segments(plan, step, kinds[step.name])) for step in steps
    )
    table = Table(
        ("Step", "What it does", "Planned", "Counted in the ledger", "Price of one"),
        tuple(
            (
                step.name,
                deed_words(step),
                f"{executions[step]:,}",
                f"{ledger.counts.get(step.name, 0):,}",
                "none: nothing is claimed" if (price := prices[step.name]) is None else price_words(price),
            )
            for step in steps
        ),
    )
    torn = f" {ledger.torn} torn lines were counted as charges." if ledger.torn else ""
    described = "; ".join(f"{step.name}, {PRICES[kinds[step.name]]}" for step in steps)
    legend = tuple(LegendItem(PRICES[kind], Bar(0.0, 1.0, kind)) for kind in PRICES if kind in kinds.values())
    axis = Axis("Step of the training", 0.0, float(total))
    note = f"The ledger was written before each step took effect.{torn}"
    return RowChart("timeline", "What was done, and when", f"{described}.", axis, rows, table, legend=legend, note=note)


def _price(run: Finished, step: Step) -> Event | None:
    """What one step costs the unit of the headline."""
    prices = run.ledger.prices.get(step.name, {})
    return None if run.headline is None else prices.get(str(run.headline.neighbors))


def _price_kind(event: Event | None) -> str:
    if event is None or isinstance(event, Unbounded):
        return "open"
    return "free" if isinstance(event, Free) else "paid"


def _segments(plan: Plan, step: Step, kind: str) -> tuple[Bar, ...]:
    found: list[tuple[int, int]] = []
    start = 0
    for phase in plan.phases:
        a_round = sum(times for _, times in phase.turns)
        of_it = sum(times for other, times in phase.turns if other == step)
        if of_it and phase.rounds > _MOST_BARS:
            found.append((start, start + a_round * phase.rounds))
        elif of_it:
            for round_ in range(phase.rounds):
                at = start + round_ * a_round
                for other, times in phase.turns:
                    if other == step and times:
                        found.append((at, at + times))
                    at += times
        start += a_round * phase.rounds
    tip = f"{step.name}\n{deed_words(step)}"
    return tuple(Bar(float(low), float(high), kind, tip) for low, high in found[: 4 * _MOST_BARS])


def spending_chart(run: Finished) -> Chart | None:
    """Epsilon over steps for the headline; None if nothing is spent."""
    spent = None if run.headline is None else spending(run.plan, run.ledger, run.headline, run.before)
    if spent is None:
        return None
    final = spent.points[-1]
    delta = rounded_up(spent.delta, 3)
    points = tuple(Point(float(step), epsilon) for step, epsilon in spent.points)
    tip = f"{spent.neighbors}\nepsilon {number(final[1], 4)} at delta {delta}, after {final[0]:,} steps"
    curve = Series(spent.neighbors, points, 0, "spent", markers=False, tip=tip)
    end = Series("in the end", (Point(float(final[0]), final[1], tip),), 0, "spent", lines=False)
    table = Table(("Steps", "Epsilon"), tuple((f"{step:,}", number(epsilon, 4)) for step, epsilon in spent.points))
    return ScatterChart(
        "spending",
        "How the price grew",
        f"Epsilon grows from {number(spent.points[0][1], 4)} to {number(final[1], 4)} in {final[0]:,} steps.",
        Axis("Step of the training", 0.0, float(final[0]) * 1.04),
        axis_for(f"Epsilon at delta {delta}", [0.0, final[1]], logarithmic=False),
        (curve, end),
        table,
        legend=False,
        note=f"For {spent.neighbors}, priced from the ledger."
        + (" It begins with what the earlier runs spent, whose model it began with." if run.before else ""),
    )


def allowed_chart(figure: Figure) -> Chart:
    """What the claim allows an attacker of its unit."""
    rates = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5)
    rows = tuple((percent(rate), percent(most)) for rate, most in zip(rates, allowed(figure, rates), strict=True))
    table = Table(("False-positive rate", "True-positive rate, at most"), rows)
    return tradeoff_chart("allowed", "What the claim allows an attacker", figure, (), table)


def profile_chart(figures: tuple[Figure, ...]) -> Chart | None:
    """delta over epsilon for each kind of neighbors; None if nothing is spent."""
    spent = [figure for figure in figures[:_MOST_CURVES] if any(0 < one < math.inf for one, _ in figure.profile)]
    if not spent:
        return None
    series = tuple(part for look, figure in enumerate(spent) for part in _profile_series(figure, look))
    deltas = sorted({delta for figure in spent for _, delta in figure.profile}, reverse=True)
    known = [{delta: rounded_up(epsilon, 4) for epsilon, delta in reversed(figure.profile)} for figure in spent]
    table = Table(
        ("Delta", *(str(figure.neighbors) for figure in spent)),
        tuple((rounded_up(delta, 3), *(epsilons.get(delta, "–") for epsilons in known)) for delta in deltas),
    )
    widest = [epsilon for figure in spent for epsilon, _ in figure.profile if math.isfinite(epsilon)]
    return ScatterChart(
        "profile",
        "The whole privacy profile",
        "The probability delta with which the loss may exceed epsilon, for each kind of neighbors.",
        axis_for("Epsilon", [0.0, *widest], logarithmic=False, least=0.0),
        Axis("Delta", min(deltas) / 2, 1.0, True),
        series,
        table,
        note="Each point of a curve is a true (epsilon, delta). The marker is the one that the claim states.",
    )


def _profile_series(figure: Figure, look: int) -> tuple[Series, ...]:
    """The curve, and the point of it that is claimed."""
    lowest = min((delta for _, delta in figure.profile), default=0.0)
    fine = [(epsilon, delta) for epsilon, delta in figure.curve if delta >= lowest]
    claimed = [(figure.epsilon, figure.delta)] if figure.delta > 0 else []
    known = [(epsilon, delta) for epsilon, delta in (*figure.profile, *fine) if math.isfinite(epsilon) and delta > 0]
    known = sorted(known + claimed, key=lambda point: (-point[1], point[0]))
    unit = str(figure.neighbors)
    tip = f"{unit}\nclaimed: epsilon {rounded_up(figure.epsilon, 4)}, delta {rounded_up(figure.delta, 3)}"
    curve = Series(unit, tuple(Point(*place) for place in known), look, f"profile-{look}", markers=False, tip=tip)
    marked = tuple(Point(*place, tip) for place in claimed)
    return curve, Series(unit, marked, look, f"profile-{look}", lines=False)


@dataclass(frozen=True, slots=True)
class _Priced:
    """A run, what replacing a protected record costs in it, and its measured miss rates with what follows from them."""

    run: Finished
    figure: Figure
    prices: Profile
    measured: tuple[tuple[float, float], AverageCase] | None

    def at(self, missed: float) -> float:
        """The average-case epsilon for this miss rate of the redaction policy."""
        return average_case(self.prices, self.figure.delta, missed, 0.0).amplified

    def cells(self) -> tuple[str, str]:
        """The measured miss rates and what follows from them, as text."""
        if self.measured is None:
            return "not stated", "–"
        (missed, cleared), own = self.measured
        rates = f"at most {rounded_up(missed, 3)} and {rounded_up(cleared, 3)}"
        return rates, f"({rounded_up(own.amplified, 4)}, {rounded_up(own.delta, 3)})"


def average_case_chart(runs: Sequence[Finished], looks: Mapping[int, tuple[str, int]]) -> Chart | None:
    """One curve for each run that the theorem is about, None without one; looks: key and look of a run's series."""
    priced = [
        (run, figure)
        for run in runs
        for figure in run.guarantee.figures
        if figure.neighbors == run.guarantee.average_case
    ]
    shown = [_priced(run, figure) for run, figure in priced[:COLORS]]
    if not shown:
        return None
    alone = len(shown) == 1
    series: list[Series] = []
    for at, one in enumerate(shown):
        key, look = looks[one.run.at]
        series += _average_case_series(one, look if alone else at, key)
    described = "; ".join(f"{one.run.name}: {number(one.at(0.1))} at a miss rate of 0.1" for one in shown)
    table = Table(
        ("Run", *(f"Miss rate {rate:g}" for rate in _TABLE_RATES), "Measured miss rates", "Its figure"),
        tuple((one.run.name, *(rounded_up(one.at(rate), 4) for rate in _TABLE_RATES), *one.cells()) for one in shown),
        f"And {len(priced) - len(shown)} more runs." if len(priced) > len(shown) else "",
    )
    highest = max(one.figure.epsilon for one in shown)
    return ScatterChart(
        "chart-amplification",
        "What a policy that misses little is worth",
        f"Average-case epsilon over the miss rate of the redaction policy. {described}.",
        Axis("Miss rate among records with secrets", _MISS_RATES[0], 1.0, True),
        axis_for("Average-case epsilon", [0.0, highest], logarithmic=False, least=0.0),
        tuple(series),
        table,
        note="Of known secrets that an attacker tests for, with a false-alarm probability of at most phi for each, "
        "a share of at most e^epsilon phi + delta is detected on average; no single secret has this guarantee. "
        "Curves: as if the conservative policy missed nothing. A point: the bounds that were measured for both.",
        legend=not alone,
    )


def _priced(run: Finished, figure: Figure) -> _Priced:
    times = {step: max(count, run.ledger.counts.get(step.name, 0)) for step, count in run.plan.priced().items()}
    spent = tuple((cost(step, figure.neighbors), count) for step, count in times.items() if count)
    among = run.guarantee.evidence.among_secrets
    if among is None:
        return _Priced(run, figure, quick_account(spent), None)
    rates = average_rates(among)
    own = average_case(account(spent), figure.delta, *rates)  # by the accountant of the certificate
    return _Priced(run, figure, quick_account(spent), (rates, own))


def _average_case_series(one: _Priced, look: int, key: str) -> tuple[Series, ...]:
    called, figure = name(one.run.name), one.figure
    points = tuple(Point(rate, one.at(rate)) for rate in _MISS_RATES)
    tip = f"{called}\nepsilon {rounded_up(figure.epsilon, 4)} for {figure.neighbors} where a secret is missed"
    curve = Series(called, points, look, key, markers=False, tip=tip)
    if one.measured is None:
        return (curve,)
    (missed, _), own = one.measured
    at_delta = f"{rounded_up(own.amplified, 4)} at delta {rounded_up(own.delta, 3)}"
    tip = f"{called}\naverage-case epsilon {at_delta}\n{one.cells()[0]}"
    mark = Point(missed, own.amplified, tip, f"#{one.run.key}")
    return curve, Series(called, (mark,), look, key, lines=False)


def policy_chart(card: PolicyCard) -> Chart:
    """Recall of all kinds together, then of each kind that was labeled."""
    parts = [("All kinds", card.overall), *((name(kind), quality) for kind, quality in card.kinds.items())]
    labeled = [(kind, quality) for kind, quality in parts if quality.counts.gold]
    rows = tuple(_recall_row(kind, quality) for kind, quality in labeled[:_MOST_ROWS])
    table = Table(
        ("Kind", "Labeled", "Wholly found", "Recall", "95 % interval", "Marked", "Precision", "95 % interval"),
        tuple(
            (
                kind,
                f"{quality.counts.gold:,}",
                f"{quality.counts.covered:,}",
                *_share(quality.recall),
                f"{quality.counts.found:,}",
                *_share(quality.precision),
            )
            for kind, quality in parts
        ),
    )
    more = f" The table has {len(labeled) - len(rows)} more kinds." if len(labeled) > len(rows) else ""
    note = (
        f"Measured on {card.counts.records:,} held-out records, which were not trained on; "
        f"{card.counts.missed_records:,} of them "
        "contain a labeled secret that is not wholly marked. Spans of one record resemble each other: read the "
        "intervals as a guide. What a certificate may state about coverage comes only from records drawn for that "
        f"(tacit label).{more}"
    )
    described = "Recall: " + "; ".join(row.name for row in rows) + "."
    axis = Axis("Recall: labeled secrets that were wholly found", 0.0, 1.0)
    return RowChart("policy-card", "What the policy finds", described, axis, rows, table, note=note, band=16)


def _recall_row(kind: str, quality: PolicyQuality) -> ChartRow:
    counts, recall = quality.counts, quality.recall
    tip = f"{kind}\n{counts.covered:,} of {counts.gold:,} wholly found\n95 % interval {interval(recall.interval)}"
    marks = (Whisker(*recall.interval), Dot(recall.value or 0.0, 0, tip))
    return ChartRow(f"{kind}: {percent(recall.value)} of {counts.gold:,}", marks)


def _share(share: ShareOf) -> tuple[str, str]:
    return percent(share.value), "–" if share.value is None else interval(share.interval)
