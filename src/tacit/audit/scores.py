"""What an attack thinks of each candidate, and the truth about them: joined by id, never by position.

G1. The order in which scores or truths come changes nothing.
G2. An id that comes twice, is missing on one side, or has no number is an error that names it; texts never appear here.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from tacit.errors import AttackError

Floats = npt.NDArray[np.float64]
Booleans = npt.NDArray[np.bool_]
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Scores:
    """One number for each candidate's id: the higher, the more it looks like a member."""

    by_id: Mapping[str, float]

    def __post_init__(self) -> None:
        unknown = [name for name, value in self.by_id.items() if np.isnan(value)]
        if unknown:
            raise AttackError(
                expected="a number for every candidate",
                found=f"no number for {_named(unknown)}",
                way_out="see why the model has no probability for it: an empty text, or weights that are not finite",
            )

    @classmethod
    def of(cls, ids: Sequence[str], values: Iterable[float]) -> Self:
        """Scores from two lists in the same order."""
        numbers = [float(value) for value in values]
        if len(ids) != len(numbers):
            raise AttackError("one score for each id", f"{len(numbers)} scores for {len(ids)} ids", "score them again")
        _refuse_repeated(ids)
        return cls(dict(zip(ids, numbers, strict=True)))

    def __len__(self) -> int:
        return len(self.by_id)

    def only(self, ids: Iterable[str]) -> "Scores":
        """The scores of these ids."""
        return Scores({name: self.by_id[name] for name in ids})


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """Scores beside the truth, in the order of the ids; there is someone inside and someone outside."""

    ids: tuple[str, ...]
    values: Floats
    inside: Booleans

    @property
    def members(self) -> Floats:
        """Scores of those inside."""
        return self.values[self.inside]

    @property
    def others(self) -> Floats:
        """Scores of those outside."""
        return self.values[~self.inside]

    def __len__(self) -> int:
        return len(self.ids)


def judged(scores: Scores, inside: Mapping[str, bool]) -> Judged:
    """Scores and truth joined by id; both must speak of the same candidates, some inside and some outside."""
    if scores.by_id.keys() != inside.keys():
        raise AttackError(
            expected="scores and truth about the same candidates",
            found=f"{_missing(inside.keys() - scores.by_id.keys(), 'score')}; "
            f"{_missing(scores.by_id.keys() - inside.keys(), 'truth')}",
            way_out="score every candidate once, and nothing else",
        )
    ids = tuple(sorted(inside))
    truth = np.array([bool(inside[name]) for name in ids], dtype=np.bool_)
    if not ids or truth.all() or not truth.any():
        raise AttackError(
            expected="candidates inside and candidates outside",
            found=f"{int(truth.sum())} inside and {int((~truth).sum())} outside",
            way_out="plant more canaries, each by a fair coin",
        )
    return Judged(ids, np.array([scores.by_id[name] for name in ids], dtype=np.float64), truth)


def _refuse_repeated(ids: Sequence[str]) -> None:
    if len(set(ids)) < len(ids):
        seen: set[str] = set()
        repeated = [name for name in ids if name in seen or seen.add(name)]  # type: ignore[func-returns-value]
        raise AttackError("every id once", f"{_named(repeated)} again", "score each candidate once")


def _missing(ids: Iterable[str], what: str) -> str:
    names = sorted(ids)
    return f"no {what} for {_named(names)}" if names else f"no {what} missing"


def _named(ids: Sequence[str]) -> str:
    rest = f" and {len(ids) - _SHOWN} more" if len(ids) > _SHOWN else ""
    return ", ".join(ids[:_SHOWN]) + rest
