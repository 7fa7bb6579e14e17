"""Picture of CRT's figures 3 to 6: what a policy that misses little makes of a record's epsilon, on average.

Curve: Proposition 6, log(1 + g (e^epsilon - 1)) over the miss rate g, with the epsilon that the run spent and g times
its delta, as if the conservative policy missed nothing. Point: the run's own figure, where both miss rates were
measured; both are upper confidence bounds, which share the doubt (`tacit.confidentiality`, Theorem 8.3).
"""

from collections.abc import Mapping, Sequence

from tacit.confidentiality import amplified
from tacit.guarantee import Coverage, Figure
from tacit.report.charts import COLOURS, Chart, Point, Series, Sketch, Table, draw
from tacit.report.runs import Finished
from tacit.report.scales import Axis, axis_for
from tacit.report.words import name, number
from tacit.rounding import rounded_up

_MECHANISM = "crt"
_RATES = tuple(10 ** (-3 + 3 * at / 48) for at in range(49))
_SHOWN = (0.001, 0.01, 0.05, 0.1, 0.2, 0.5, 1.0)


def amplification_chart(runs: Sequence[Finished], looks: Mapping[int, tuple[str, int]]) -> Chart | None:
    """One curve for each run that the theorem is about, none without one; `looks`: key and look of a run's series."""
    of_it = [(run, run.headline) for run in runs if run.guarantee.mechanism == _MECHANISM and run.headline is not None]
    if not of_it:
        return None
    shown = of_it[:COLOURS]
    alone = len(shown) == 1
    series = [
        part
        for at, (run, figure) in enumerate(shown)
        for part in _series(run, figure, looks[run.at][1] if alone else at, looks[run.at][0])
    ]
    highest = max(figure.epsilon for _, figure in shown)
    said = "; ".join(
        f"{run.name}: {number(amplified(figure.epsilon, 0.1))} at a miss rate of 0.1" for run, figure in shown
    )
    table = Table(
        ("Run", *(f"Miss rate {rate:g}" for rate in _SHOWN), "Measured miss rates", "Its figure"),
        tuple(
            (run.name, *(rounded_up(amplified(figure.epsilon, rate), 4) for rate in _SHOWN), *_cells(run, figure))
            for run, figure in shown
        ),
        f"And {len(of_it) - len(shown)} more runs." if len(of_it) > len(shown) else "",
    )
    return draw(
        Sketch(
            "chart-amplification",
            "What a policy that misses little is worth",
            f"Average-case epsilon over the miss rate of the redaction policy. {said}.",
            Axis("Miss rate of the redaction policy", _RATES[0], 1.0, True),
            axis_for("Average-case epsilon", [0.0, highest], logarithmic=False, least=0.0),
            tuple(series),
            table,
            note="For a secret drawn at random, not for each one. Curves: as if the conservative policy missed "
            "nothing. A point: the bounds that were measured for both.",
            legend=not alone,
        )
    )


def _series(run: Finished, figure: Figure, look: int, key: str) -> tuple[Series, ...]:
    points = tuple(Point(rate, amplified(figure.epsilon, rate)) for rate in _RATES)
    tip = f"{name(run.name)}\nepsilon {rounded_up(figure.epsilon, 4)} for {figure.neighbours} where a secret is missed"
    curve = Series(name(run.name), points, look, key, markers=False, tip=tip)
    rates = _measured(run)
    if rates is None:
        return (curve,)
    missed, cleared = rates
    own = amplified(figure.epsilon, missed)
    total = rounded_up(min(1.0, missed * figure.delta + cleared), 3)
    said = f"{name(run.name)}\naverage-case epsilon {rounded_up(own, 4)} at delta {total}\n{_rates(missed, cleared)}"
    return curve, Series(name(run.name), (Point(missed, own, said, f"#{run.key}"),), look, key, lines=False)


def _cells(run: Finished, figure: Figure) -> tuple[str, str]:
    rates = _measured(run)
    if rates is None:
        return "not measured", "–"
    total = min(1.0, rates[0] * figure.delta + rates[1])
    return _rates(*rates), f"({rounded_up(amplified(figure.epsilon, rates[0]), 4)}, {rounded_up(total, 3)})"


def _rates(missed: float, cleared: float) -> str:
    return f"at most {rounded_up(missed, 3)} and {rounded_up(cleared, 3)}"


def _measured(run: Finished) -> tuple[float, float] | None:
    evidence = run.guarantee.evidence
    if evidence.coverage is None or evidence.conservative_coverage is None:
        return None
    return _bound(evidence.coverage), _bound(evidence.conservative_coverage)


def _bound(policy: Coverage) -> float:
    return policy.miss_rate_at(1 - (1 - policy.confidence) / 2)
