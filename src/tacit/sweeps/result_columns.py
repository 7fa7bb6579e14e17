"""The columns of tables and charts over runs, by name, and what a recipe asks for under `draws:`.

A line is what a sweep writes about one run; a column takes a number from it, or None where there is none. Seeds are
averaged: the mean of the known values, and their sample deviation. If the recipe's `paper` has both numbers of a point,
they are drawn next to ours, at the epsilon that the paper prints.
"""

import math
import statistics
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeGuard

from pydantic import BaseModel, ConfigDict, Field

from tacit.audits.attacks import load_attacks
from tacit.audits.findings import Column as AttackColumn
from tacit.common.formatting import rounded_up
from tacit.common.serialize import from_words
from tacit.errors import ConfigError

ResultLine = Mapping[str, Any]
Column = Callable[[ResultLine], float | None]
RUN = "run"
EPSILONS = {"epsilon", "printed epsilon"}
_MOST_CHARTS = 30
_DIVERGED = 1e99  # perplexities end at exp(700)


def _at(*path: str) -> Column:
    """The value at a path of a line, None if the path ends early."""

    def found(line: ResultLine) -> float | None:
        value: Any = line
        for key in path:
            value = None if value is None else value.get(key)
        return value  # type: ignore[no-any-return]

    return found


def _perplexity(part: str) -> Column:
    """Per token of the common tokenizer if there is one, of the run's own otherwise."""

    def found(line: ResultLine) -> float | None:
        parts: Any = _at("figures", "utility", "normalised")(line) or _at("figures", "utility", "tokens")(line)
        return parts[part]["perplexity"] if parts else None

    return found


def _headline(line: ResultLine) -> float | None:
    figures: Any = _at("figures", "claim", "figures")(line)
    return figures[0]["epsilon"] if figures else None


_OF_RUNS: dict[str, Column] = {
    "perplexity": _perplexity("overall"),
    "public perplexity": _perplexity("public"),
    "private perplexity": _perplexity("private"),
    "accuracy": _at("figures", "utility", "tokens", "overall", "accuracy"),
    "nats per character": _at("figures", "utility", "nats_a_character"),
    "test error rate": _at("figures", "utility", "labels", "overall", "error_rate"),
    "test error rate, with secrets": _at("figures", "utility", "labels", "with_secrets", "error_rate"),
    "epsilon": _headline,
    "printed epsilon": _at("figures", "claim", "published", "epsilon"),
}
_OF_CHECKPOINTS: dict[str, Column] = {
    "step": lambda point: point["step"],
    "perplexity": lambda point: point["perplexity"] if point["normalised"] is None else point["normalised"],
}


def attack_columns() -> dict[str, AttackColumn]:
    """The columns that attacks bring, by name."""
    return {column.name: column for attack in load_attacks() for column in attack.columns}


def table_columns() -> dict[str, Column]:
    found = [name for name, column in attack_columns().items() if column.in_tables]
    return {**_OF_RUNS, **{name: _at("figures", "attacks", "figures", name) for name in found}}


def chart_columns() -> dict[str, Column]:
    """Every column of a chart of runs."""
    return {**_OF_RUNS, **{name: _at("figures", "attacks", "figures", name) for name in attack_columns()}}


def checkpoint_columns() -> dict[str, Column]:
    """Every column of a chart of checkpoints, from an entry of `checkpoints`."""
    found = [name for name, column in attack_columns().items() if column.at_checkpoints]
    return {**_OF_CHECKPOINTS, **{name: _at("figures", name) for name in found}}


def checkpoints(line: ResultLine) -> Sequence[ResultLine]:
    """The saved models that the run's audit attacked."""
    curve: Any = _at("figures", "attacks", "checkpoints")(line)
    return curve or ()


@dataclass(frozen=True, slots=True)
class Averaged:
    """The mean over the seeds that have a value, and its sample deviation; known: how many seeds have one."""

    mean: float
    deviation: float = 0.0
    known: int = 1
    of: int = 1

    @property
    def ends(self) -> tuple[float, float] | None:
        """One deviation to each side; None if the seeds agree, or there is only one."""
        return (self.mean - self.deviation, self.mean + self.deviation) if self.deviation else None


def averaged(values: Iterable[float | None]) -> Averaged | None:
    """The average of the finite values; None if there are none."""
    everything = list(values)
    known = [value for value in everything if value is not None and math.isfinite(value)]
    if not known:
        return None
    deviation = statistics.stdev(known) if len(known) > 1 else 0.0
    return Averaged(statistics.fmean(known), deviation, len(known), len(everything))


def written(column: str, value: float) -> str:
    """A value of a column to three digits; an epsilon is never rounded down."""
    if value > _DIVERGED:
        return f"over {_DIVERGED:.0e}"
    return rounded_up(value, 3) if column in EPSILONS else f"{value:.3g}"


def cell(column: str, lines: Sequence[ResultLine], printed: float | str | None = None) -> str:
    """A column over seeds, with what a paper prints in parentheses."""
    found = averaged(table_columns()[column](line) for line in lines)
    ours = "–" if found is None else written(column, found.mean)
    if found is not None and found.known > 1:
        ours += f" ± {found.deviation:.3g}"
    if found is not None and found.known < found.of:
        ours += f" ({found.known} of {found.of})"
    if printed is None:
        return ours
    return f"{ours} (paper: {printed if isinstance(printed, str) else f'{printed:g}'})"


class ResultRow(NamedTuple):
    """A run over all its seeds: its cells under `columns_of`, and the mean seconds per seed."""

    name: str
    lines: tuple[ResultLine, ...]
    cells: tuple[str, ...]
    seconds: str


def columns_of(lines: Sequence[ResultLine], paper: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The columns for which some line, or the paper, has a value."""
    return [
        column
        for column, value in table_columns().items()
        if any(value(line) is not None for line in lines) or any(column in printed for printed in paper.values())
    ]


def rows_of(
    lines: Iterable[ResultLine], columns: Sequence[str], paper: Mapping[str, Mapping[str, Any]]
) -> list[ResultRow]:
    """One row per run, in the order of the lines."""
    groups: dict[str, list[ResultLine]] = {}
    for line in lines:
        groups.setdefault(line["group"], []).append(line)
    rows = []
    for name, own in groups.items():
        cells = tuple(cell(column, own, paper.get(name, {}).get(column)) for column in columns)
        seconds = [sum(line["seconds"].values()) for line in own if line["seconds"]]
        rows.append(ResultRow(name, tuple(own), cells, f"{statistics.mean(seconds):.0f}" if seconds else "–"))
    return rows


class ChartSpec(BaseModel):
    """One chart of a recipe."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: str = Field(min_length=1, description="The title of the chart.")
    x: str = Field(description="A column or a setting.")
    y: list[str] = Field(min_length=1, description="A column or several.")
    points: Literal["runs", "checkpoints"] = Field("runs", description="What a point is: runs or checkpoints.")
    series: list[str] = Field([RUN], description="What has a line of its own: run, and settings; [] is each column.")
    runs: list[str] = Field([], description="Only these: names under `runs`, or with their values of a grid.")
    log: dict[Literal["x", "y"], bool] = Field({}, description="Which axes are logarithmic: {x: true, y: false}.")
    note: str = Field("", description="A sentence below the chart.")

    @property
    def columns(self) -> dict[str, Column]:
        """The columns that its axes may show."""
        return checkpoint_columns() if self.points == "checkpoints" else chart_columns()


def chart_specs(given: object) -> list[ChartSpec]:
    """`draws:` of a recipe; y, series and runs may be a single name."""
    if not isinstance(given, list) or not all(isinstance(one, dict) for one in given):
        way_out = "- {title: ..., x: epsilon, y: perplexity}"
        raise ConfigError("draws: a list of charts", type(given).__name__, way_out)
    if len(given) > _MOST_CHARTS:
        raise ConfigError(f"at most {_MOST_CHARTS} charts under `draws`", str(len(given)), "draw fewer")
    several = ("y", "series", "runs")
    return [
        from_words(ChartSpec, {k: [v] if k in several and isinstance(v, str) else v for k, v in one.items()})
        for one in given
    ]


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether it is a number, and not a boolean."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def check_charts(
    charts: list[ChartSpec], settings: Mapping[str, Collection[object]], runs: Collection[str], attacked: bool
) -> None:
    """Refuse charts of what no run has.

    settings: the values of every setting but the seed, by dotted name; attacked: whether audits attack checkpoints.
    """
    for chart in charts:
        where = f"in the chart {chart.title!r}"
        for noun, name, known in _names(chart, settings, runs):
            if name not in known:
                raise ConfigError.unknown_name(f"{noun}, {where}", name, known)
        if chart.points == "checkpoints" and not attacked:
            raise ConfigError(
                expected=f"checkpoints that audits attack, {where}",
                found="none",
                way_out="settings: {training.save_steps: 100}, and audit: {checkpoints: true}",
            )
        of_column = chart.x in chart.columns
        own_axis = chart.x in EPSILONS if of_column else not all(map(is_number, settings[chart.x]))
        if "x" in chart.log and own_axis:
            way_out = f"leave it out: {chart.x} has an axis of its own"
            raise ConfigError(f"no log.x, {where}", str(chart.log["x"]), way_out)


def _names(
    chart: ChartSpec, settings: Collection[str], runs: Collection[str]
) -> Iterator[tuple[str, str, Collection[str]]]:
    columns = chart.columns
    yield "column or setting", chart.x, {*columns, *settings}
    yield from (("column", name, columns) for name in chart.y)
    yield from (("setting", name, {RUN, *settings}) for name in chart.series)
    yield from ((RUN, name, runs) for name in chart.runs)
