"""What a claim means for an attacker, and how it was spent: numbers for pictures.

G1 (sound). Every point of `allowed` is at least what any attack on the claimed unit can reach: it is the lower envelope
   of lines TPR <= delta + e^epsilon FPR and TPR <= 1 - e^-epsilon (1 - delta - FPR), each from an (epsilon, delta) that
   the claim implies (Kairouz, Oh, Viswanath 2015).
   Straight lines between the places of `frontier` are the envelope itself; between others they would cut corners.
G2 (as spent). The last point of `spending` prices exactly what the ledger counted.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tacit.common.charts import Axis, ChartRule, Region, ScatterChart, Series, Table
from tacit.common.formatting import number, percent
from tacit.privacy.account import quick_account
from tacit.privacy.events import Composition, Event, ExposedGaussian, Free, Gaussian, SampledGaussian, Unbounded
from tacit.privacy.guarantee import Figure
from tacit.privacy.ledger_lines import Entries
from tacit.privacy.plan import Noisy, Plan, Step
from tacit.privacy.profile import GaussianLaw

_GRID = 60
_STEEPEST = 700.0
POINTS = 20


def implied(figure: Figure) -> list[tuple[float, float]]:
    """(epsilon, delta) pairs that the figure implies: those it holds, and its mu-GDP as far as the profile reaches."""
    points = [(figure.epsilon, figure.delta), *figure.profile, *figure.curve]
    pairs = [(epsilon, delta) for epsilon, delta in points if math.isfinite(epsilon)]
    if pairs and 0 < figure.mu < math.inf:
        epsilons = np.linspace(0.0, max(epsilon for epsilon, _ in pairs), _GRID)
        pairs += list(zip(epsilons.tolist(), GaussianLaw(figure.mu).deltas(epsilons).tolist(), strict=True))
    return pairs


def allowed(figure: Figure, false_rates: Sequence[float]) -> list[float]:
    """The largest true-positive rate that the claim allows at each false-positive rate."""
    pairs = implied(figure)
    return [min([1.0, *(_most(epsilon, delta, rate) for epsilon, delta in pairs)]) for rate in false_rates]


def frontier(figure: Figure, lowest: float = 0.0) -> list[tuple[float, float]]:
    """Where the allowed true-positive rate bends, from the false-positive rate `lowest` to 1."""
    lines = [(0.0, 1.0)]
    for epsilon, delta in implied(figure):
        if epsilon <= _STEEPEST:
            lines += [(math.exp(epsilon), delta), (math.exp(-epsilon), 1 - math.exp(-epsilon) * (1 - delta))]
    rates = [lowest, *(rate for rate in _bends(lines) if lowest < rate < 1), 1.0]
    return list(zip(rates, allowed(figure, rates), strict=True))


def _bends(lines: list[tuple[float, float]]) -> list[float]:
    """Where the lowest of lines (slope, height at 0) changes, going to the right."""
    hull: list[tuple[float, float]] = []
    for slope, height in sorted(lines, key=lambda line: (-line[0], line[1])):
        if hull and hull[-1][0] == slope:
            continue
        while len(hull) > 1 and _meet(hull[-2], (slope, height)) <= _meet(hull[-2], hull[-1]):
            hull.pop()
        hull.append((slope, height))
    return [_meet(left, right) for left, right in pairwise(hull)]


def _meet(steep: tuple[float, float], flat: tuple[float, float]) -> float:
    return (flat[1] - steep[1]) / (steep[0] - flat[0])


def _most(epsilon: float, delta: float, false_rate: float) -> float:
    steep = math.inf if epsilon > _STEEPEST else delta + math.exp(epsilon) * false_rate
    return min(steep, 1 - math.exp(-epsilon) * max(0.0, 1 - delta - false_rate))


def tradeoff_chart(
    key: str, title: str, figure: Figure | None, series: tuple[Series, ...], table: Table, lowest: float = 0.0
) -> ScatterChart:
    """True over false alarms of attacks, beside what the claim allows; with a `lowest` rate on logarithmic axes."""
    regions: tuple[Region, ...] = ()
    described = [one.tip.replace("\n", ", ") for one in series if one.tip]
    if figure is not None:
        named = f"what the claim allows ({figure.neighbors})"
        regions = (Region(named, f"{key}-allowed", (*frontier(figure, lowest), (lowest, lowest))),)
        described.append(f"at 1 % false alarms the claim allows {percent(allowed(figure, [0.01])[0])} true ones")
    return ScatterChart(
        key,
        title,
        "; ".join(described) + ".",
        Axis("False-positive rate", lowest, 1.0, lowest > 0),
        Axis("True-positive rate", lowest, 1.0, lowest > 0),
        series,
        table,
        regions,
        (ChartRule((lowest, lowest), (1.0, 1.0), "chance"),),
    )


def best_guess(figure: Figure) -> float:
    """How often a guess between two equally probable worlds is right, at most: half of 1 + max(TPR - FPR)."""
    most = max(most - rate for rate, most in frontier(figure))
    return float(min(1.0, 0.5 + most / 2))


@dataclass(frozen=True, slots=True)
class Spending:
    """Epsilon at `delta` for one kind of neighbors after that many steps of any kind."""

    neighbors: str
    delta: float
    points: tuple[tuple[int, float], ...]


def spending(plan: Plan, ledger: Entries, figure: Figure, before: Composition = ()) -> Spending | None:
    """The epsilon of `figure` as it grew; none where nothing was spent or the ledger does not price it.

    before: what earlier runs had spent already.
    """
    notion = str(figure.neighbors)
    priced = all(notion in prices for prices in ledger.prices.values()) and bool(ledger.prices)
    if not priced or not 0 < figure.delta < 1:
        return None
    total = sum(ledger.counts.values())
    places = sorted({round(total * at / POINTS) for at in range(1, POINTS + 1)} - {0})
    points = [(0, quick_account(before).epsilon(figure.delta))]
    for place in places:
        counts = ledger.counts if place == total else _counts_at(plan, ledger, place)
        spent_then = (*before, *ledger.composition(notion, counts))
        points.append((place, quick_account(spent_then).epsilon(figure.delta)))
    spent = [epsilon for _, epsilon in points]
    if not all(math.isfinite(epsilon) for epsilon in spent) or not any(spent):
        return None
    return Spending(notion, figure.delta, tuple(points))


def _counts_at(plan: Plan, ledger: Entries, place: int) -> dict[str, int]:
    """How often each step occurs among the first `place` of the plan, at most as often as the ledger counts."""
    counts = dict.fromkeys(ledger.counts, 0)
    if plan.forms is not None:
        counts[plan.forms.name] = ledger.counts.get(plan.forms.name, 0)  # before the first step
    left = place
    for phase in plan.phases:
        a_round = sum(times for _, times in phase.turns)
        whole = min(phase.rounds, left // a_round) if a_round else 0
        left -= whole * a_round
        for step, times in phase.turns:
            partly = min(times, left) if whole < phase.rounds else 0
            counts[step.name] = counts.get(step.name, 0) + whole * times + partly
            left -= partly
    return {name: min(count, ledger.counts[name]) for name, count in counts.items() if name in ledger.counts}


def price_words(event: Event) -> str:
    match event:
        case Free():
            return f"free: {event.reason}"
        case Unbounded():
            return f"no bound: {event.reason}"
        case SampledGaussian():
            seen = f"drawn with probability {number(event.sampling_rate)}, unseen"
        case ExposedGaussian():
            seen = f"drawn with probability {number(event.sampling_rate)}, in sight"
        case Gaussian():
            seen = "surely takes part"
    copies = "" if isinstance(event, ExposedGaussian) or event.copies == 1 else f", {event.copies} records"
    return f"Gaussian noise {number(event.noise_multiplier, 4)} × clip norm; {seen}{copies}"


def deed_words(step: Step) -> str:
    """What a step does, in words."""
    update = step.update
    noise = f", clipped to {number(update.clip_norm)}" if isinstance(update, Noisy) else ""
    targets = "" if step.targets == "all" else f", {step.targets} tokens alone"
    return f"{update.kind} update{noise} on the {step.view} text of {step.pool}{targets}; {step.draw.kind}"
