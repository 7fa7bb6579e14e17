"""Per-unit clipped sums of gradients, and the noise that is added to them."""

from tacit.gradients.clipped import ClippedSum, clipped_sum
from tacit.gradients.clipping import Automatic, Clipping, Flat, PerParameter
from tacit.gradients.recording import GradientError

__all__ = [
    "Automatic",
    "ClippedSum",
    "Clipping",
    "Flat",
    "GradientError",
    "PerParameter",
    "clipped_sum",
]
