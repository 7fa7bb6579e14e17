"""What an adversary can learn from a model that speaks. Attacks get a Speaker, never a Learner."""

from tacit.attacks.candidates import Listed, Space, Spelling, TokenTree
from tacit.attacks.excess import Excess, excess_over_chance
from tacit.attacks.exposure import (
    CanaryExposure,
    Exposure,
    ExposureResult,
    ExposureSettings,
    Method,
    measure_exposure,
)
from tacit.attacks.scoring import total_log_probabilities

__all__ = [
    "CanaryExposure",
    "Excess",
    "Exposure",
    "ExposureResult",
    "ExposureSettings",
    "Listed",
    "Method",
    "Space",
    "Spelling",
    "TokenTree",
    "excess_over_chance",
    "measure_exposure",
    "total_log_probabilities",
]
