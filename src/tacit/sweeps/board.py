"""A sweep as a table of words: one line per run, with how far it is, what it is worth and what is claimed."""

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from tacit.common.formatting import rounded_up
from tacit.common.progress import Progress
from tacit.sweeps.recipe import read_recipe, variations
from tacit.sweeps.result_columns import ResultLine, table_columns, written
from tacit.sweeps.scheduler import RunOutcome

_WAITS = "waits"


@dataclass(slots=True)
class Board:
    """What is known of every run, in the order of the recipe."""

    HEADS: ClassVar = ("run", "how far", "perplexity", "on secrets", "epsilon", "canaries", "seconds")
    names: tuple[str, ...]
    title: str
    _news: dict[str, Progress | RunOutcome] = field(default_factory=dict)
    _began: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, recipe: Path, scale: float) -> "Board":
        """Of the runs of a recipe, all of which wait."""
        read = read_recipe(recipe, scale)
        names = tuple(one.name for one in variations(read))
        stated = f": {read.states}" if read.states else ""
        return cls(names, f"{read.name}, {len(names)} runs{stated}")

    def told(self, name: str, news: Progress | RunOutcome) -> None:
        """Remember the latest of a run."""
        self._news[name] = news
        self._began.setdefault(name, time.monotonic())

    def news(self, name: str) -> str:
        """The latest of a run in a line."""
        latest = self._news[name]
        if isinstance(latest, Progress):
            return f"{name}: {how_far(latest)}"
        return f"{name}: {' '.join(filter(None, row_of(latest)[1:]))}"

    def rows(self) -> list[tuple[str, ...]]:
        """One a run, under HEADS."""
        return [self._row(name) for name in self.names]

    def _row(self, name: str) -> tuple[str, ...]:
        news = self._news.get(name)
        if news is None:
            return (name, _WAITS, "", "", "", "", "")
        if not isinstance(news, Progress):
            return row_of(news)
        spent = "" if news.epsilon is None else rounded_up(news.epsilon, 3)
        return (name, how_far(news), "", "", spent, "", f"{time.monotonic() - self._began[name]:.0f}")


def how_far(news: Progress) -> str:
    """A stage and its share."""
    if news.total is None:
        return f"{news.stage} {news.done:,}" if news.done else news.stage
    return f"{news.stage} {news.done / max(1, news.total):.0%}"


def row_of(outcome: RunOutcome) -> tuple[str, ...]:
    """A run that ended, under HEADS."""
    figures, seconds = outcome.line["figures"], outcome.line["seconds"]
    passed = f"{sum(seconds.values()):.0f}" if seconds else ""
    if outcome.refused is not None:
        return (outcome.name, "failed", "", "", "", "", passed)
    if figures is None:
        return (outcome.name, "stopped", "", "", "", "", passed)
    state = "done before" if outcome.known else "done"
    if outcome.is_contradicted:
        state += ", CONTRADICTED"
    epsilon = _value(outcome.line, "epsilon")
    spent = "none" if epsilon is None else written("epsilon", epsilon)
    return (outcome.name, state, *_worth(outcome.line), spent, _canaries(outcome.line), passed)


def _worth(line: ResultLine) -> tuple[str, str]:
    if "labels" in line["figures"]["utility"]:
        return _wrong(line, "test error rate"), _wrong(line, "test error rate, with secrets")
    return _number(line, "perplexity"), _number(line, "private perplexity")


def _wrong(line: ResultLine, column: str) -> str:
    rate = _value(line, column)
    return "–" if rate is None else f"{rate:.1%} wrong"


def _canaries(line: ResultLine) -> str:
    """Exposure of canaries that the policy knows, and of those it does not; in brackets, of values not planted."""
    said = [
        f"{before}{_number(line, column)} ({_number(line, f'{column}, not planted')})"
        for before, column in (("", "exposure"), ("unknown ", "exposure, unknown"))
        if _value(line, column) is not None
    ]
    return f"{', '.join(said)} bits" if said else ""


def _value(line: ResultLine, column: str) -> float | None:
    return table_columns()[column](line)


def _number(line: ResultLine, column: str) -> str:
    value = _value(line, column)
    return "–" if value is None else written(column, value)
