"""Picture of CRT's figures 3 to 6: what a policy that misses little makes of a record's epsilon, on average.

Curve: epsilon~ of theory, section 10, over the miss rate g1, at the run's delta, as if the conservative policy missed
nothing. Point: the run's own, where both miss rates were measured among records with secrets; both are upper confidence
bounds, which share the doubt. All from the price of replacing a protected record (`tacit.privacy.account`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tacit.common.charts import Axis, Chart, Point, ScatterChart, Series, Table, axis_for
from tacit.common.formatting import name, number, rounded_up
from tacit.privacy.account import AverageCase, Prices, account, average_case, quick_account
from tacit.privacy.guarantee import Figure, average_rates
from tacit.privacy.plan import cost
from tacit.reports.drawing import COLOURS
from tacit.reports.finished_run import Finished

_RATES = tuple(10 ** (-3 + 3 * at / 48) for at in range(49))
_SHOWN = (0.001, 0.01, 0.05, 0.1, 0.2, 0.5, 1.0)


@dataclass(frozen=True, slots=True)
class _Priced:
    """A run, what replacing a protected record costs in it, and its measured miss rates with what follows."""

    run: Finished
    figure: Figure
    prices: Prices
    rates: tuple[float, float] | None
    own: AverageCase | None

    def at(self, missed: float) -> float:
        """The average-case epsilon for this miss rate of the redaction policy."""
        return average_case(self.prices, self.figure.delta, missed, 0.0).amplified


def average_case_chart(runs: Sequence[Finished], looks: Mapping[int, tuple[str, int]]) -> Chart | None:
    """One curve for each run that the theorem is about, none without one; `looks`: key and look of a run's series."""
    of_it = [
        (run, figure)
        for run in runs
        for figure in run.guarantee.figures
        if figure.neighbors == run.guarantee.average_case
    ]
    shown = [_priced(run, figure) for run, figure in of_it[:COLOURS]]
    if not shown:
        return None
    alone = len(shown) == 1
    series = [
        part
        for at, one in enumerate(shown)
        for part in _series(one, looks[one.run.at][1] if alone else at, looks[one.run.at][0])
    ]
    highest = max(one.figure.epsilon for one in shown)
    said = "; ".join(f"{one.run.name}: {number(one.at(0.1))} at a miss rate of 0.1" for one in shown)
    table = Table(
        ("Run", *(f"Miss rate {rate:g}" for rate in _SHOWN), "Measured miss rates", "Its figure"),
        tuple((one.run.name, *(rounded_up(one.at(rate), 4) for rate in _SHOWN), *_cells(one)) for one in shown),
        f"And {len(of_it) - len(shown)} more runs." if len(of_it) > len(shown) else "",
    )
    return ScatterChart(
        "chart-amplification",
        "What a policy that misses little is worth",
        f"Average-case epsilon over the miss rate of the redaction policy. {said}.",
        Axis("Miss rate among records with secrets", _RATES[0], 1.0, True),
        axis_for("Average-case epsilon", [0.0, highest], logarithmic=False, least=0.0),
        tuple(series),
        table,
        note="Of known secrets that an attacker tests for, with a false-alarm probability of at most phi for each, "
        "a share of at most e^epsilon phi + delta is detected on average; no single secret has this guarantee. "
        "Curves: as if the conservative policy missed nothing. A point: the bounds that were measured for both.",
        legend=not alone,
    )


def _priced(run: Finished, figure: Figure) -> _Priced:
    times = {step: max(count, run.ledger.counts.get(step.name, 0)) for step, count in run.plan.executions().items()}
    spent = tuple((cost(step, figure.neighbors), count) for step, count in times.items() if count)
    among = run.guarantee.evidence.among_secrets
    if among is None:
        return _Priced(run, figure, quick_account(spent), None, None)
    rates = average_rates(among)
    own = average_case(account(spent), figure.delta, *rates)  # by the accountant of the certificate
    return _Priced(run, figure, quick_account(spent), rates, own)


def _series(one: _Priced, look: int, key: str) -> tuple[Series, ...]:
    called, figure = name(one.run.name), one.figure
    points = tuple(Point(rate, one.at(rate)) for rate in _RATES)
    tip = f"{called}\nepsilon {rounded_up(figure.epsilon, 4)} for {figure.neighbors} where a secret is missed"
    curve = Series(called, points, look, key, markers=False, tip=tip)
    if one.rates is None or one.own is None:
        return (curve,)
    epsilon, delta = rounded_up(one.own.amplified, 4), rounded_up(one.own.delta, 3)
    said = f"{called}\naverage-case epsilon {epsilon} at delta {delta}\n{_rates(*one.rates)}"
    mark = Point(one.rates[0], one.own.amplified, said, f"#{one.run.key}")
    return curve, Series(called, (mark,), look, key, lines=False)


def _cells(one: _Priced) -> tuple[str, str]:
    if one.rates is None or one.own is None:
        return "not stated", "–"
    return _rates(*one.rates), f"({rounded_up(one.own.amplified, 4)}, {rounded_up(one.own.delta, 3)})"


def _rates(missed: float, cleared: float) -> str:
    return f"at most {rounded_up(missed, 3)} and {rounded_up(cleared, 3)}"
