"""A sweep as a table of words: a line a run, with how far it is, what it is worth and what is claimed."""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tacit.progress import Progress
from tacit.rounding import rounded_up
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
    overall, private = _worth(figures["utility"])
    return (outcome.name, state, overall, private, _epsilon(figures["claim"]), _canaries(figures["attacks"]), passed)


def _worth(utility: dict[str, Any]) -> tuple[str, str]:
    if "labels" in utility:
        rates = utility["labels"]
        return _wrong(rates["overall"]["error_rate"]), _wrong(rates["with_secrets"]["error_rate"])
    parts = utility["normalised"] or utility["tokens"]
    return _number(parts["overall"]["perplexity"]), _number(parts["private"]["perplexity"])


def _wrong(rate: float | None) -> str:
    return "–" if rate is None else f"{rate:.1%} wrong"


def _epsilon(claim: dict[str, Any]) -> str:
    figures = claim["figures"]
    return rounded_up(figures[0]["epsilon"], 3) if figures and figures[0]["epsilon"] is not None else "none"


def _canaries(attacks: dict[str, Any] | None) -> str:
    """Median exposure of the first plan's canaries, and of values that were not planted."""
    if not attacks or not attacks["canaries"] or not attacks["canaries"][0]["inside"]:
        return ""
    first = attacks["canaries"][0]
    return f"{_number(first['median'])} ({_number(first['median_held_out'])}) bits"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"
