"""Pictures of a claim and of how it was spent: timeline, epsilon over steps, privacy profile, utility.

Picture of how well a policy did on labelled held-out records: recall a kind, with exact intervals.
"""

import math
from collections.abc import Callable

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
from tacit.policies.card import MeasuredPolicy, PolicyQuality, ShareOf
from tacit.privacy.events import Event, Free, Unbounded
from tacit.privacy.guarantee import Figure
from tacit.privacy.noisy_utility import Estimate, ReleasedUtility
from tacit.privacy.plan import Plan, Step
from tacit.privacy.tradeoff import allowed, deed_words, price_words, spending, tradeoff_chart
from tacit.reports.finished_run import Finished
from tacit.runs.utility import LabelQuality, Utility

_MOST_CURVES = 6
_MOST_BARS = 60
_MOST_STEPS = 12

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
    drawn, (estimate, words) = next(iter(named.items()))
    axis = Axis(f"{drawn} (lower is better)", lowest, highest, highest > 20)
    tip = f"{drawn} {words(estimate.value)}\nbetween {words(estimate.low)} and {words(estimate.high)}"
    marks = (Bar(lowest, estimate.value, "bar", tip), Whisker(estimate.low, estimate.high))
    row = ChartRow(f"All held-out records: {words(estimate.value)}", marks)
    table = Table(
        ("Held-out records", "With noise", "95 % interval"),
        tuple((name, said(one.value), f"{said(one.low)} to {said(one.high)}") for name, (one, said) in named.items()),
    )
    cut = f", cut to {utility.longest} tokens of at most {number(utility.most_nats)} nats" if utility.longest else ""
    note = f"One sum over {utility.records:,} held-out records{cut}, with noise that hides any one of them."
    return RowChart("utility", title, f"{drawn}: {row.name}.", axis, (row,), table, note=note)


def _text_chart(utility: Utility) -> Chart:
    parts = (("All tokens", utility.overall), ("Public tokens", utility.public), ("Private tokens", utility.private))
    known = [(name, quality) for name, quality in parts if quality.tokens]
    highest = max([2.0, *(quality.perplexity for _, quality in known)])
    logarithmic = highest > 20
    axis = Axis("Perplexity (lower is better)", 1.0, highest * (1.4 if logarithmic else 1.08), logarithmic)
    rows = tuple(
        ChartRow(
            f"{name}: {number(quality.perplexity)}",
            (Bar(1.0, quality.perplexity, "bar", f"{name}\nperplexity {number(quality.perplexity, 4)}"),),
        )
        for name, quality in known
    )
    table = Table(
        ("Held-out text", "Tokens", "Perplexity", "First guess right"),
        tuple(
            (name, f"{quality.tokens:,}", number(quality.perplexity, 4), percent(quality.accuracy))
            for name, quality in parts
        ),
    )
    said = "; ".join(row.name for row in rows) or "nothing was held out"
    note = f"Over all tokens {number(utility.nats_a_character)} nats per character, whatever the tokenizer."
    title = "How well it predicts held-out text"
    return RowChart("utility", title, f"Perplexity: {said}.", axis, rows, table, note=note)


def _label_chart(labels: LabelQuality) -> Chart:
    parts = (
        ("All records", labels.overall),
        ("Records without secrets", labels.without_secrets),
        ("Records with secrets", labels.with_secrets),
    )
    rows = tuple(
        ChartRow(
            f"{name}: {percent(rate.share)}",
            (Bar(0.0, rate.share, "bar", f"{name}\n{rate.errors:,} of {rate.records:,} wrong"), Whisker(*ends)),
        )
        for name, rate in parts
        if rate.records and (ends := rate.interval())
    )
    table = Table(
        ("Held-out records", "Records", "Errors", "Error rate", "95 % interval"),
        tuple(
            (name, f"{rate.records:,}", f"{rate.errors:,}", percent(rate.share), interval(rate.interval()))
            for name, rate in (*parts, ("Always the commonest class", labels.commonest))
        ),
    )
    said = f"Error rates: {'; '.join(row.name for row in rows)}. Always the commonest class: "
    dull = percent(labels.commonest.share)
    marks = (Mark(labels.commonest.share, "always the commonest class"),) if labels.commonest.records else ()
    axis = Axis("Test error rate (lower is better)", 0.0, 1.0)
    return RowChart("utility", "How often it is wrong", f"{said}{dull}.", axis, rows, table, marks)


def timeline_chart(run: Finished) -> Chart | None:
    """Which steps took place when, by the plan; none where there is no step."""
    plan, ledger = run.plan, run.ledger
    steps = [step for step, times in plan.executions().items() if times][:_MOST_STEPS]
    total = sum(plan.executions().values())
    if not steps or total <= 0:
        return None
    kinds = {step.name: _price_kind(_headline_price(run, step)) for step in steps}
    rows = tuple(
        ChartRow(f"{step.name}: {plan.executions()[step]:,} steps", _segments(plan, step, kinds[step.name]))
        for step in steps
    )
    table = Table(
        ("Step", "What it does", "Planned", "Counted in the ledger", "Price of one"),
        tuple(
            (
                step.name,
                deed_words(step),
                f"{plan.executions()[step]:,}",
                f"{ledger.counts.get(step.name, 0):,}",
                _price(_headline_price(run, step)),
            )
            for step in steps
        ),
    )
    torn = f" {ledger.torn} torn lines were counted as charges." if ledger.torn else ""
    said = "; ".join(f"{step.name}, {PRICES[kinds[step.name]]}" for step in steps)
    legend = tuple(LegendItem(PRICES[kind], Bar(0.0, 1.0, kind)) for kind in PRICES if kind in kinds.values())
    axis = Axis("Step of the training", 0.0, float(total))
    note = f"The ledger was written before each step took effect.{torn}"
    return RowChart("timeline", "What was done, and when", f"{said}.", axis, rows, table, legend=legend, note=note)


def _headline_price(run: Finished, step: Step) -> Event | None:
    prices = run.ledger.prices.get(step.name, {})
    return None if run.headline is None else prices.get(str(run.headline.neighbors))


def _price_kind(event: Event | None) -> str:
    if event is None or isinstance(event, Unbounded):
        return "open"
    return "free" if isinstance(event, Free) else "paid"


def _price(event: Event | None) -> str:
    return "none: nothing is claimed" if event is None else price_words(event)


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
    """Epsilon over steps for the headline; none where nothing is spent."""
    if run.headline is None:
        return None
    spent = spending(run.plan, run.ledger, run.headline)
    if spent is None:
        return None
    final = spent.points[-1]
    delta = rounded_up(spent.delta, 3)
    points = tuple(Point(float(step), epsilon) for step, epsilon in spent.points)
    tip = f"{spent.neighbors}\nepsilon {number(final[1], 4)} at delta {delta}, after {final[0]:,} steps"
    series = (Series(spent.neighbors, points, 0, "spent", markers=False, tip=tip),)
    ends = (Series("in the end", (Point(float(final[0]), final[1], tip),), 0, "spent", lines=False),)
    table = Table(("Steps", "Epsilon"), tuple((f"{step:,}", number(epsilon, 4)) for step, epsilon in spent.points))
    return ScatterChart(
        "spending",
        "How the price grew",
        f"Epsilon grows from 0 to {number(final[1], 4)} in {final[0]:,} steps.",
        Axis("Step of the training", 0.0, float(final[0]) * 1.04),
        axis_for(f"Epsilon at delta {delta}", [0.0, final[1]], logarithmic=False),
        series + ends,
        table,
        legend=False,
        note=f"For {spent.neighbors}, priced from the ledger.",
    )


def allowed_chart(figure: Figure) -> Chart:
    """What the claim allows whoever attacks its unit, and nothing beside it."""
    rates = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5)
    rows = tuple((percent(rate), percent(most)) for rate, most in zip(rates, allowed(figure, rates), strict=True))
    table = Table(("False-positive rate", "True-positive rate, at most"), rows)
    return tradeoff_chart("allowed", "What the claim allows an attacker", figure, (), table)


def profile_chart(figures: tuple[Figure, ...]) -> Chart | None:
    """delta over epsilon for each kind of neighbors; none where nothing is spent."""
    shown = [figure for figure in figures[:_MOST_CURVES] if _drawable(figure)]
    if not shown:
        return None
    series = tuple(part for look, figure in enumerate(shown) for part in _profile_series(figure, look))
    deltas = sorted({delta for figure in shown for _, delta in figure.profile}, reverse=True)
    table = Table(
        ("Delta", *(str(figure.neighbors) for figure in shown)),
        tuple((rounded_up(delta, 3), *(_epsilon_at(figure, delta) for figure in shown)) for delta in deltas),
    )
    widest = [epsilon for figure in shown for epsilon, _ in figure.profile if math.isfinite(epsilon)]
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


def _drawable(figure: Figure) -> bool:
    return any(epsilon > 0 and math.isfinite(epsilon) for epsilon, _ in figure.profile)


def _profile_series(figure: Figure, look: int) -> tuple[Series, ...]:
    """The curve, and the point of it that is claimed."""
    lowest = min((delta for _, delta in figure.profile), default=0.0)
    fine = [(epsilon, delta) for epsilon, delta in figure.curve if delta >= lowest]
    known = [(epsilon, delta) for epsilon, delta in (*figure.profile, *fine) if math.isfinite(epsilon) and delta > 0]
    known += [(figure.epsilon, figure.delta)] if figure.delta > 0 else []
    known.sort(key=lambda point: (-point[1], point[0]))
    said = str(figure.neighbors)
    tip = f"{said}\nclaimed: epsilon {rounded_up(figure.epsilon, 4)}, delta {rounded_up(figure.delta, 3)}"
    curve = Series(said, tuple(Point(*place) for place in known), look, f"profile-{look}", markers=False, tip=tip)
    stated = (Point(figure.epsilon, figure.delta, tip),) if figure.delta > 0 else ()
    return curve, Series(said, stated, look, f"profile-{look}", lines=False)


def _epsilon_at(figure: Figure, delta: float) -> str:
    return next((rounded_up(epsilon, 4) for epsilon, known in figure.profile if known == delta), "–")


_MOST_ROWS = 12


def policy_chart(found: MeasuredPolicy) -> Chart:
    """Recall of all kinds together, then of each kind that was labelled."""
    card = found.card()
    parts = [("All kinds", card.overall), *((name(kind), quality) for kind, quality in card.kinds.items())]
    labelled = [(said, quality) for said, quality in parts if quality.counts.gold]
    rows = tuple(_row(said, quality) for said, quality in labelled[:_MOST_ROWS])
    left = len(labelled) - len(rows)
    table = Table(
        ("Kind", "Labelled", "Wholly found", "Recall", "95 % interval", "Marked", "Precision", "95 % interval"),
        tuple((said, *_cells(quality)) for said, quality in parts),
    )
    missed, records = found.missed_records, found.records
    more = f" The table has {left} more kinds." if left else ""
    note = (
        f"Measured on {records:,} held-out records, which were not trained on; {missed:,} of them hold a labelled "
        "secret that is not wholly marked. Spans of one record resemble each other: read the intervals as a guide. "
        f"What a certificate may say of coverage comes from records drawn for that (tacit label) alone.{more}"
    )
    said = "Recall: " + "; ".join(row.name for row in rows) + "."
    axis = Axis("Recall: labelled secrets that were wholly found", 0.0, 1.0)
    return RowChart("policy-card", "What the policy finds", said, axis, rows, table, note=note, band=16)


def _row(said: str, quality: PolicyQuality) -> ChartRow:
    counts, recall = quality.counts, quality.recall
    value = recall.value or 0.0
    tip = f"{said}\n{counts.covered:,} of {counts.gold:,} wholly found\n95 % interval {interval(recall.interval)}"
    dot = Dot(value, 0, tip)
    return ChartRow(f"{said}: {percent(recall.value)} of {counts.gold:,}", (Whisker(*recall.interval), dot))


def _cells(quality: PolicyQuality) -> tuple[str, ...]:
    counts = quality.counts
    return (
        f"{counts.gold:,}",
        f"{counts.covered:,}",
        *_share(quality.recall),
        f"{counts.found:,}",
        *_share(quality.precision),
    )


def _share(share: ShareOf) -> tuple[str, str]:
    return percent(share.value), "–" if share.value is None else interval(share.interval)
