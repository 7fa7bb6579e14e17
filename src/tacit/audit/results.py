"""What an audit found: ids and numbers, never a text; `tacit.codec` writes and reads it as JSON."""

from dataclasses import dataclass

from tacit.audit.bounds import LowerBound
from tacit.audit.excess import Excess
from tacit.audit.exposures import ExposureResult
from tacit.audit.rates import Rates
from tacit.audit.verdict import Verdict
from tacit.intervals import Interval, exact_interval
from tacit.plan import Neighbours


@dataclass(frozen=True, slots=True)
class CanaryFinding:
    """Of the canaries of one plan. The template is public; what they say is not here.

    left_out: planted records that training did not read, as they were duplicates: then they bound no epsilon. None
    outside, where the number is not told.
    """

    template: str
    known: bool
    repetitions: int
    exposure: ExposureResult
    left_out: int | None = 0


@dataclass(frozen=True, slots=True)
class MembershipFinding:
    """Of one attack on single candidates, and on groups of `group_size`; the curve is (false rate, true rate)."""

    attack: str
    rates: Rates
    curve: tuple[tuple[float, float], ...]
    group_size: int
    groups: Rates | None


@dataclass(frozen=True, slots=True)
class TwoStageFinding:
    """S-DP's two-stage attack (appendix A.5), which is no measurement: the truth chooses whom the second stage attacks.

    of_noise: the accuracy of the same recipe on scores drawn at random.
    """

    attack: str
    candidates: int
    accuracy: float
    of_noise: float


@dataclass(frozen=True, slots=True)
class BlindFinding:
    """What the texts give away without a model. When `flagged`, no membership figure means anything."""

    rates: Rates
    chance: float
    flagged: bool


@dataclass(frozen=True, slots=True)
class Share:
    """How many of how many, with an exact 95 % interval."""

    count: int
    of: int
    interval: Interval

    @classmethod
    def among(cls, count: int, of: int) -> "Share":
        """With its interval."""
        return cls(count, of, exact_interval(count, of))


@dataclass(frozen=True, slots=True)
class Discoverable:
    """Secrets of which one of `tries` samples says the whole with probability at least `probability`."""

    tries: int
    probability: float
    share: Share


@dataclass(frozen=True, slots=True)
class Extraction:
    """Secrets that came out word for word after what stood before them."""

    greedy: Share
    tries: int
    sampled: Share
    discoverable: tuple[Discoverable, ...]


@dataclass(frozen=True, slots=True)
class ExtractionFinding:
    """Of secrets of the training side; and of the held-out side, which come out by being easy to guess alone."""

    trained: Extraction
    held_out: Extraction


@dataclass(frozen=True, slots=True)
class BoundFinding:
    """What the canaries of one plan say about epsilon for `measured`, and the verdict on the claim."""

    template: str
    measured: Neighbours
    bound: LowerBound
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class CheckpointExposure:
    """Of the canaries of one plan in one model on the way; no excess when no canary is inside."""

    template: str
    known: bool
    excess: Excess | None


@dataclass(frozen=True, slots=True)
class CheckpointFinding:
    """The model after `step` steps: its perplexity on held-out text, and how far two attacks get.

    membership: ranking by perplexity; none where a side has too few candidates.
    """

    step: int
    perplexity: float
    exposures: tuple[CheckpointExposure, ...]
    membership: Rates | None


@dataclass(frozen=True, slots=True)
class Audit:
    """All findings, and the verdict over all bounds. curve: of models kept on the way, when they were asked for."""

    canaries: tuple[CanaryFinding, ...]
    blind: BlindFinding | None
    membership: tuple[MembershipFinding, ...]
    extraction: ExtractionFinding | None
    bounds: tuple[BoundFinding, ...]
    verdict: Verdict
    curve: tuple[CheckpointFinding, ...] = ()
    two_stage: TwoStageFinding | None = None
