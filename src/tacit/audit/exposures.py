"""What an exposure attack found: ids and bits, never a value."""

from dataclasses import dataclass
from enum import StrEnum

from tacit.audit.excess import Excess


class Method(StrEnum):
    """How ranks are found."""

    EXACT = "exact"
    SAMPLED = "sampled"
    EXTRAPOLATED = "extrapolated"


@dataclass(frozen=True, slots=True)
class Exposure:
    """Of one value. rank: the middle one, where known; ties: other candidates that are as probable.

    chance: how probable so high a rank is, at most, for a uniform value that the model knows nothing of (equal
    candidates counted as above it); none where the rank is extrapolated.
    """

    bits: float
    standard_error: float
    rank: float | None
    ties: int
    chance: float | None


@dataclass(frozen=True, slots=True)
class CanaryExposure:
    """Of one canary, and of its twin that was never planted."""

    id: str
    inside: bool
    own: Exposure
    twin: Exposure


@dataclass(frozen=True, slots=True)
class ExposureResult:
    """`dataclasses.asdict` of it is JSON. fit_distance: the largest gap between the fit and the draws, as shares.

    excess: canaries inside against all values held out; none when no canary is inside. best_chance: of the best canary
    inside, times their number: a p-value that needs no values held out, but values drawn uniformly.
    """

    method: Method
    space: int
    draws: int | None
    fit_distance: float | None
    canaries: tuple[CanaryExposure, ...]
    excess: Excess | None
    best_chance: float | None
