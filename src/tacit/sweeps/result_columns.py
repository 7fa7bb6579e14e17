"""What a run is known by in tables and pictures: columns by name, taken from its line of the results.

A line is what a sweep writes of one run. A column gives a number, or none where the line has nothing to say there.
Over several seeds it is averaged: the mean of what is known, and the sample's deviation.

What a recipe draws: pictures over its runs, by the names of columns and settings.

    draws:
      - title: Privacy against utility
        x: epsilon                          # a column, or a setting such as plan.epsilon
        y: perplexity                       # a column or several
      - title: Exposure on the way
        points: checkpoints                 # a point a kept model, not a run: save_steps, audit: {checkpoints: true}
        x: perplexity
        y: [exposure, "exposure, not planted"]
        runs: [plain, selective-epsilon-2]  # names under `runs`, or with their values of a grid; by default all
        series: [run, plan.clip_norm]       # what has a line of its own; by default the run; [] is each column
        log: {x: true}                      # by default chosen by how far the values spread
        note: Chance is about 1 bit.

Seeds are averaged. What the recipe's paper prints of both axes is drawn beside it; its epsilon is the one it prints.
"""

import math
import statistics
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from tacit.audits.attacks import load_attacks
from tacit.audits.findings import Column as AttackColumn
from tacit.common.formatting import rounded_up
from tacit.common.serialize import from_words
from tacit.errors import ConfigError

ResultLine = Mapping[str, Any]
Column = Callable[[ResultLine], float | None]


def _at(*path: str) -> Column:
    """What stands at a path of a line, none where it ends early."""

    def found(line: ResultLine) -> float | None:
        value: Any = line
        for word in path:
            value = None if value is None else value.get(word)
        return value  # type: ignore[no-any-return]

    return found


def _perplexity(part: str) -> Column:
    """A measure's tokens where there is one, the run's own otherwise."""

    def found(line: ResultLine) -> float | None:
        normalised: Any = _at("figures", "utility", "normalised")(line)
        parts: Any = normalised or _at("figures", "utility", "tokens")(line)
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
    """What attacks bring, by name."""
    return {column.name: column for attack in load_attacks() for column in attack.columns}


def table_columns() -> dict[str, Column]:
    """Every column of a table, and where a line has it."""
    found = [name for name, column in attack_columns().items() if column.in_tables]
    return {**_OF_RUNS, **{name: _at("figures", "attacks", "figures", name) for name in found}}


def drawn_columns() -> dict[str, Column]:
    """What a picture of runs may have on an axis."""
    return {**_OF_RUNS, **{name: _at("figures", "attacks", "figures", name) for name in attack_columns()}}


def checkpoint_columns() -> dict[str, Column]:
    """What a picture of models on the way may have on an axis, and where a point of a line's curve has it."""
    found = [name for name, column in attack_columns().items() if column.at_checkpoints]
    return {**_OF_CHECKPOINTS, **{name: _at("figures", name) for name in found}}


_ROUNDED_UP = {"epsilon", "printed epsilon"}
_DIVERGED = 1e99  # perplexities end at exp(700)


def checkpoints(line: ResultLine) -> Sequence[ResultLine]:
    """The models on the way that its audit attacked."""
    curve: Any = _at("figures", "attacks", "checkpoints")(line)
    return curve or ()


@dataclass(frozen=True, slots=True)
class Averaged:
    """Over seeds: the mean of those that are known, and how far they stand from it; known: how many of how many."""

    mean: float
    deviation: float
    known: int
    of: int

    @property
    def ends(self) -> tuple[float, float] | None:
        """One deviation to each side; none where the seeds agree, or there is one."""
        return (self.mean - self.deviation, self.mean + self.deviation) if self.deviation else None


def averaged(values: Iterable[float | None]) -> Averaged | None:
    """The average of finite numbers; none where there is none."""
    everything = list(values)
    known = [value for value in everything if value is not None and math.isfinite(value)]
    if not known:
        return None
    deviation = statistics.stdev(known) if len(known) > 1 else 0.0
    return Averaged(statistics.fmean(known), deviation, len(known), len(everything))


def written(column: str, value: float) -> str:
    """A number of a column, to three digits; what is claimed never smaller than it is."""
    if value > _DIVERGED:
        return f"over {_DIVERGED:.0e}"
    return rounded_up(value, 3) if column in _ROUNDED_UP else f"{value:.3g}"


def cell(column: str, lines: Sequence[ResultLine], printed: float | str | None = None) -> str:
    """A column over seeds, with what a paper prints in brackets."""
    found = averaged(table_columns()[column](line) for line in lines)
    ours = "–" if found is None else written(column, found.mean)
    if found is not None and found.known > 1:
        ours += f" ± {found.deviation:.3g}"
    if found is not None and found.known < found.of:
        ours += f" ({found.known} of {found.of})"
    if printed is None:
        return ours
    return f"{ours} (paper: {printed if isinstance(printed, str) else f'{printed:g}'})"


@dataclass(frozen=True, slots=True)
class ResultRow:
    """A run over all its seeds: its cells under `columns_of`, and the seconds of one seed."""

    name: str
    lines: tuple[ResultLine, ...]
    cells: tuple[str, ...]
    seconds: str


def columns_of(lines: Iterable[ResultLine], paper: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Those that some line, or the paper, fills."""
    known = list(lines)
    return [
        column
        for column, value in table_columns().items()
        if any(value(line) is not None for line in known) or any(column in printed for printed in paper.values())
    ]


def rows_of(
    lines: Iterable[ResultLine], columns: Sequence[str], paper: Mapping[str, Mapping[str, Any]]
) -> list[ResultRow]:
    """One a run, in the order of the lines."""
    groups: dict[str, list[ResultLine]] = {}
    for line in lines:
        groups.setdefault(line["group"], []).append(line)
    return [
        ResultRow(
            name,
            tuple(own),
            tuple(cell(column, own, paper.get(name, {}).get(column)) for column in columns),
            _seconds(own),
        )
        for name, own in groups.items()
    ]


def _seconds(lines: Sequence[ResultLine]) -> str:
    seconds = [sum(line["seconds"].values()) for line in lines if line["seconds"]]
    return f"{statistics.mean(seconds):.0f}" if seconds else "–"


RUN = "run"
PRICES = {"epsilon", "printed epsilon"}
_MOST = 30


class ChartSpec(BaseModel):
    """One picture."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: str = Field(min_length=1, description="What stands above the picture.")
    x: str = Field(description="A column or a setting.")
    y: list[str] = Field(min_length=1, description="A column or several.")
    points: Literal["runs", "checkpoints"] = Field("runs", description="What a point is: runs or checkpoints.")
    series: list[str] = Field([RUN], description="What has a line of its own: run, and settings; [] is each column.")
    runs: list[str] = Field([], description="Only these: names under `runs`, or with their values of a grid.")
    log: dict[Literal["x", "y"], bool] = Field({}, description="Which axes are logarithmic: {x: true, y: false}.")
    note: str = Field("", description="A sentence below the picture.")

    @property
    def columns(self) -> Mapping[str, Any]:
        """What may stand on its axes."""
        return checkpoint_columns() if self.points == "checkpoints" else drawn_columns()


def draws_of(given: object) -> list[ChartSpec]:
    """`draws:` of a recipe; y, series and runs may be one word each."""
    if not isinstance(given, list) or not all(isinstance(one, dict) for one in given):
        raise ConfigError(
            "draws: a list of pictures", type(given).__name__, "- {title: ..., x: epsilon, y: perplexity}"
        )
    if len(given) > _MOST:
        raise ConfigError(f"at most {_MOST} pictures under `draws`", str(len(given)), "draw fewer")
    return [from_words(ChartSpec, {word: _several(word, value) for word, value in one.items()}) for one in given]


def _several(word: str, value: object) -> object:
    return [value] if word in ("y", "series", "runs") and isinstance(value, str) else value


def is_number(value: object) -> bool:
    """Whether it can stand on an axis of numbers."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def check_draws(
    draws: list[ChartSpec],
    settings: Mapping[str, Collection[object]],
    names: Collection[str],
    kept: bool,
    attacked: bool,
) -> None:
    """Refuse what no run has. settings: dotted words of the runs but the seed, which is averaged, and their values;
    names: of runs; kept: whether some run keeps models; attacked: whether audits attack them.
    """
    for draw in draws:
        where = f"in the picture {draw.title!r}"
        for noun, word, known in _words(draw, settings, names):
            if word not in known:
                raise ConfigError.unknown_name(f"{noun}, {where}", word, known)
        if draw.points == "checkpoints" and not (kept and attacked):
            raise ConfigError(
                expected=f"models on the way, {where}",
                found="no training.save_steps in the settings" if not kept else "audits that leave them alone",
                way_out="settings: {training.save_steps: 100}, and audit: {checkpoints: true}",
            )
        if "x" in draw.log and _has_its_own_axis(draw, settings):
            raise ConfigError(
                f"no log.x, {where}", str(draw.log["x"]), f"leave it out: {draw.x} has an axis of its own"
            )


def _has_its_own_axis(draw: ChartSpec, settings: Mapping[str, Collection[object]]) -> bool:
    """Claims have one, and so have words."""
    if draw.x in draw.columns:
        return draw.x in PRICES
    return not all(is_number(value) for value in settings[draw.x])


def _words(
    draw: ChartSpec, settings: Collection[str], names: Collection[str]
) -> Iterator[tuple[str, str, Collection[str]]]:
    yield "column or setting", draw.x, {*draw.columns, *settings}
    for word in draw.y:
        yield "column", word, draw.columns
    for word in draw.series:
        yield "setting", word, {RUN, *settings}
    for word in draw.runs:
        yield RUN, word, names
