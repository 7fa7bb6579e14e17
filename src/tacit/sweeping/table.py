"""A sweep as a table of words: a line a run, with how far it is, what it is worth and what is claimed."""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from tacit.progress import Progress
from tacit.rounding import rounded_up
from tacit.sweeping.columns import COLUMNS, Line, written
from tacit.sweeping.processes import Outcome

HEADS = ("run", "how far", "perplexity", "on secrets", "epsilon", "canaries", "seconds")
_WAITS = "waits"


@dataclass(slots=True)
class Board:
    """What is known of every run, in the order of the recipe."""

    names: tuple[str, ...]
    _news: dict[str, Progress | Outcome] = field(default_factory=dict)
    _began: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, names: Iterable[str]) -> "Board":
        """Of these runs, all of which wait."""
        return cls(tuple(names))

    def told(self, name: str, news: Progress | Outcome) -> None:
        """Remember the latest of a run."""
        self._news[name] = news
        self._began.setdefault(name, time.monotonic())

    def rows(self) -> list[tuple[str, ...]]:
        """One a run, under HEADS."""
        return [self._row(name) for name in self.names]

    def _row(self, name: str) -> tuple[str, ...]:
        news = self._news.get(name)
        if isinstance(news, Outcome):
            return row_of(news)
        if news is None:
            return (name, _WAITS, "", "", "", "", "")
        spent = "" if news.epsilon is None else rounded_up(news.epsilon, 3)
        return (name, how_far(news), "", "", spent, "", f"{time.monotonic() - self._began[name]:.0f}")


def how_far(news: Progress) -> str:
    """A stage and its share."""
    if news.total is None:
        return f"{news.stage} {news.done:,}" if news.done else news.stage
    return f"{news.stage} {news.done / max(1, news.total):.0%}"


def row_of(outcome: Outcome) -> tuple[str, ...]:
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
    epsilon = COLUMNS["epsilon"](outcome.line)
    spent = "none" if epsilon is None else written("epsilon", epsilon)
    return (outcome.name, state, *_worth(outcome.line), spent, _canaries(outcome.line), passed)


def _worth(line: Line) -> tuple[str, str]:
    if "labels" in line["figures"]["utility"]:
        return _wrong(line, "test error rate"), _wrong(line, "test error rate, with secrets")
    return _number(line, "perplexity"), _number(line, "private perplexity")


def _wrong(line: Line, column: str) -> str:
    rate = COLUMNS[column](line)
    return "–" if rate is None else f"{rate:.1%} wrong"


def _canaries(line: Line) -> str:
    """Exposure of canaries that the policy knows, and of those it does not; in brackets, of values not planted."""
    said = [
        f"{before}{_number(line, column)} ({_number(line, f'{column}, not planted')})"
        for before, column in (("", "exposure"), ("unknown ", "exposure, unknown"))
        if COLUMNS[column](line) is not None
    ]
    return f"{', '.join(said)} bits" if said else ""


def _number(line: Line, column: str) -> str:
    value = COLUMNS[column](line)
    return "–" if value is None else written(column, value)
