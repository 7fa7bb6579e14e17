"""How hard an audit attacks."""

from tacit.common.serialize import LARGEST_SEED
from tacit.config.canary_schema import CanaryPlan
from tacit.config.choices import Method
from tacit.config.setting import section, setting
from tacit.errors import AttackError


@section
class ExposureConfig:
    """No method: exact up to `exact_up_to` candidates, extrapolated above. memory: bytes of model state at a time."""

    method: Method | None = setting(
        None, "exact, sampled or extrapolated ranks.", auto="exact where it is cheap enough"
    )
    exact_up_to: int = setting(10_000_000, "Largest number of candidates that are all scored.")
    draws: int = setting(20_000, "Candidates drawn where not all are scored.")
    memory: int = setting(1 << 30, "Bytes of model state at a time; lower it if you run out of memory.")

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


@section
class ExtractionConfig:
    """How hard to try. discoverable: pairs (n, p)."""

    tries: int = setting(10, "Generated continuations per secret.")
    temperature: float = setting(1.0, "Temperature of the generated text.")
    discoverable: tuple[tuple[int, float], ...] = setting(
        ((1, 0.5), (100, 0.5), (10_000, 0.5)), "Pairs (n, p): extracted with chance p within n tries."
    )


FEWEST = 10  # candidates of each side


@section
class AuditConfig:
    """candidates: rows of each side; secrets: of each side, for extraction; checkpoints: whether kept models, too."""

    candidates: int = setting(500, "Records attacked on each side; raise it for narrower intervals.")
    secrets: int = setting(200, "Secrets of each side that extraction tries.")
    group_size: int = setting(20, "Records per group in the group attack.")
    surrogates: int = setting(5, "Invented secrets that each real one is compared with.")
    longest_prompt: int = setting(64, "Tokens before a secret that the attacker knows.")
    confidence: float = setting(0.95, "Confidence level for intervals and verdict.")
    seed: int = setting(0, "Seed of the attacks, which repeat exactly.")
    checkpoints: bool = setting(False, "Attack the models kept by `training.save_steps`, too.")
    exposure: ExposureConfig = setting(ExposureConfig, "How exposure is measured.")
    extraction: ExtractionConfig = setting(ExtractionConfig, "How hard extraction tries.")
    canaries: tuple[CanaryPlan, ...] = setting(
        (), "Made-up secrets to plant before training: {template: My ID is {6 digits}, count: 20}."
    )

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
