"""Several runs side by side: what tells them apart, and which promise more than which.

G1. No run is put above another by its epsilon: the order is the one the person gave, and two runs are related only by
    `guarantee.compare`, with its reason.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tacit.guarantee import Comparison, Order, Status, compare
from tacit.report.facts import (
    error_rate,
    exposure,
    flat_settings,
    membership_accuracy,
    perplexity,
    private_perplexity,
)
from tacit.report.runs import Finished
from tacit.report.words import number, percent
from tacit.rounding import rounded_up

_MOST_SETTINGS = 8
_MOST_PAIRS = 6
_WORDS = {
    Order.BETTER: "promises more",
    Order.WORSE: "promises more",
    Order.EQUAL: "equal",
    Order.NOT_COMPARABLE: "not comparable",
}
SIGNS = {Order.BETTER: ">", Order.WORSE: "<", Order.EQUAL: "=", Order.NOT_COMPARABLE: "·"}


@dataclass(frozen=True, slots=True)
class Family:
    """Runs of one mechanism that protect the same unit: one series of every picture."""

    name: str
    key: str
    look: int
    runs: tuple[Finished, ...]


@dataclass(frozen=True, slots=True)
class Reason:
    """Why pairs of runs stand as they do."""

    order: str
    reason: str
    pairs: tuple[str, ...]
    more: int


@dataclass(frozen=True, slots=True)
class Line:
    """A run's line of the table."""

    run: Finished
    family: Family
    protects: str
    epsilon: str
    delta: str
    assumed: int
    overall: str
    private: str
    exposure: str
    membership: str


def families(runs: Sequence[Finished]) -> tuple[Family, ...]:
    """The runs by mechanism and unit, in the order of their first."""
    found: dict[str, list[Finished]] = {}
    for run in runs:
        protects = f": {run.headline.neighbours}" if run.headline is not None else ""
        found.setdefault(f"{run.guarantee.mechanism}{protects}", []).append(run)
    return tuple(
        Family(name, f"family-{look}", look, tuple(members)) for look, (name, members) in enumerate(found.items())
    )


def lines(runs: Sequence[Finished]) -> list[Line]:
    """The table, in the order the runs were given."""
    belongs = {run.at: family for family in families(runs) for run in family.runs}
    return [_line(run, belongs[run.at]) for run in runs]


def _line(run: Finished, family: Family) -> Line:
    figure, accuracy = run.headline, membership_accuracy(run)
    return Line(
        run,
        family,
        "nothing" if figure is None else str(figure.neighbours),
        "none" if figure is None else rounded_up(figure.epsilon, 4),
        "–" if figure is None else rounded_up(figure.delta, 3),
        sum(condition.status in (Status.ASSUMED, Status.UNMET) for condition in run.guarantee.holds_if),
        _worth(perplexity(run), error_rate(run)),
        _worth(private_perplexity(run), _with_secrets(run)),
        _exposed(run),
        percent(accuracy),
    )


def _worth(perplexity: float | None, error_rate: float | None) -> str:
    return f"{percent(error_rate)} wrong" if error_rate is not None else number(perplexity)


def _with_secrets(run: Finished) -> float | None:
    labels = None if run.utility is None else run.utility.labels
    return None if labels is None else labels.with_secrets.share


def _exposed(run: Finished) -> str:
    """Canaries that the policy was told of, then those that it was not."""
    known, unknown = (
        None if found is None else f"{number(found.planted)} ({number(found.held_out)})"
        for found in (exposure(run, True), exposure(run, False))
    )
    return " ".join(filter(None, (known, None if unknown is None else f"not told: {unknown}"))) or "–"


def differing(runs: Sequence[Finished]) -> dict[int, list[str]]:
    """For each run, by its place, the settings in which the runs are not all alike."""
    flat = {run.at: flat_settings(run.config) for run in runs}
    words = sorted({word for settings in flat.values() for word in settings})
    apart = [word for word in words if len({settings.get(word, "not set") for settings in flat.values()}) > 1]
    return {
        at: [f"{word}: {settings[word]}" for word in apart if word in settings][:_MOST_SETTINGS]
        for at, settings in flat.items()
    }


def standing(first: Finished, second: Finished) -> Comparison:
    """How the claim of one stands to that of another."""
    ours, theirs = first.headline, second.headline
    if ours is not None and theirs is not None and _deltas(first) != _deltas(second):
        return Comparison(Order.NOT_COMPARABLE, "their privacy profiles are stated at different deltas")
    return compare(first.guarantee, second.guarantee)


def _deltas(run: Finished) -> list[float]:
    return [] if run.headline is None else [delta for _, delta in run.headline.profile]


def matrix(runs: Sequence[Finished]) -> list[list[Comparison | None]]:
    """How the run of a row stands to the run of a column; none on the diagonal."""
    return [[None if row is column else standing(row, column) for column in runs] for row in runs]


def reasons(runs: Sequence[Finished], standings: list[list[Comparison | None]]) -> list[Reason]:
    """Each reason once, with the pairs it is true of."""
    found: dict[tuple[str, str], list[str]] = {}
    for row, first in enumerate(runs):
        for column in range(row + 1, len(runs)):
            second, comparison = runs[column], standings[row][column]
            if comparison is None:
                continue
            one, other = first, second
            if _better_said_the_other_way(comparison, first, second):
                one, other, comparison = second, first, standing(second, first)
            words = _WORDS[comparison.order]
            joint = f" {words} than " if comparison.order is Order.BETTER else " and "
            found.setdefault((words, comparison.reason), []).append(f"{one.name}{joint}{other.name}")
    order = list(dict.fromkeys(_WORDS.values()))
    return [
        Reason(words, reason, tuple(pairs[:_MOST_PAIRS]), max(0, len(pairs) - _MOST_PAIRS))
        for (words, reason), pairs in sorted(found.items(), key=lambda entry: order.index(entry[0][0]))
    ]


def _better_said_the_other_way(comparison: Comparison, first: Finished, second: Finished) -> bool:
    """Whether the reason reads as "promises more", and names two units in one fixed order, from the other side."""
    if comparison.order is not Order.NOT_COMPARABLE or first.headline is None or second.headline is None:
        return comparison.order is Order.WORSE
    return str(first.headline.neighbours) > str(second.headline.neighbours)
