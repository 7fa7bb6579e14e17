"""What an adversary can learn from a model that speaks. Attacks get a Speaker, never a Learner."""

from tacit.attacks.candidates import Listed, Space, Spelling, TokenTree
from tacit.attacks.exposure import ExposureSettings, measure_exposure, twin_margins, value_exposures
from tacit.attacks.scoring import total_log_probabilities

__all__ = [
    "ExposureSettings",
    "Listed",
    "Space",
    "Spelling",
    "TokenTree",
    "measure_exposure",
    "total_log_probabilities",
    "twin_margins",
    "value_exposures",
]
