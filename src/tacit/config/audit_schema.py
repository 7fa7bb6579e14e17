"""How hard an audit attacks."""

from dataclasses import dataclass, field

from tacit.common.serialize import LARGEST_SEED
from tacit.config.choices import Method
from tacit.errors import AttackError


@dataclass(frozen=True, slots=True)
class ExposureConfig:
    """No method: exact up to `exact_up_to` candidates, extrapolated above. memory: bytes of model state at a time."""

    method: Method | None = None
    exact_up_to: int = 10_000_000
    draws: int = 20_000
    memory: int = 1 << 30

    def __post_init__(self) -> None:
        if self.draws < 100 or self.memory < 1:
            found = f"{self.draws} draws and {self.memory} bytes"
            raise AttackError("at least 100 draws and some memory", found, "raise the number")

    def method_for(self, size: int) -> Method:
        """The method for a space of this size."""
        if self.method is not None:
            return self.method
        return Method.EXACT if size <= self.exact_up_to else Method.EXTRAPOLATED

    def scored(self, size: int, values: int) -> int:
        """How many candidates are scored for so many values of a space of this size."""
        return size if self.method_for(size) is Method.EXACT else values + self.draws


@dataclass(frozen=True, slots=True)
class ExtractionConfig:
    """How hard to try. discoverable: pairs (n, p)."""

    tries: int = 10
    temperature: float = 1.0
    discoverable: tuple[tuple[int, float], ...] = ((1, 0.5), (100, 0.5), (10_000, 0.5))


FEWEST = 10  # candidates of each side


@dataclass(frozen=True, slots=True)
class AuditConfig:
    """candidates: rows of each side; secrets: of each side, for extraction; checkpoints: whether kept models, too."""

    candidates: int = 500
    secrets: int = 200
    group_size: int = 20
    surrogates: int = 5
    longest_prompt: int = 64
    confidence: float = 0.95
    seed: int = 0
    checkpoints: bool = False
    exposure: ExposureConfig = field(default_factory=ExposureConfig)
    extraction: ExtractionConfig = field(default_factory=ExtractionConfig)

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
