"""How hard an audit attacks."""

from dataclasses import dataclass, field

from tacit.attacks.exposure import ExposureSettings
from tacit.attacks.extraction import ExtractionSettings
from tacit.documents import LARGEST_SEED
from tacit.errors import AttackError

FEWEST = 10  # candidates of each side


@dataclass(frozen=True, slots=True)
class AuditSettings:
    """candidates: rows of each side; secrets: of each side, for extraction; checkpoints: whether kept models, too."""

    candidates: int = 500
    secrets: int = 200
    group_size: int = 20
    surrogates: int = 5
    longest_prompt: int = 64
    confidence: float = 0.95
    seed: int = 0
    checkpoints: bool = False
    exposure: ExposureSettings = field(default_factory=ExposureSettings)
    extraction: ExtractionSettings = field(default_factory=ExtractionSettings)

    def __post_init__(self) -> None:
        if self.candidates < FEWEST:
            raise AttackError(
                expected=f"at least {FEWEST} candidates of each side",
                found=str(self.candidates),
                way_out="fewer tell nothing from chance: raise --candidates",
            )
        if not 0 < self.confidence < 1:
            raise AttackError("a confidence between 0 and 1", str(self.confidence), "such as 0.95")
        if not 0 <= self.seed <= LARGEST_SEED:
            raise AttackError("a seed from 0 to 2^63 - 1", f"one of {self.seed.bit_length()} bits", "such as 0")
