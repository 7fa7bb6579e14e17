"""Per-unit clipped sums of gradients, and the noise that is added to them."""

from tacit.errors import GradientError
from tacit.gradients.check import check_gradients
from tacit.gradients.clipped import ClippedSum, clipped_sum
from tacit.gradients.clipping import Automatic, Clipping, Flat, PerParameter
from tacit.gradients.noise import NoiseStream
from tacit.gradients.plain import PlainSum, plain_sum

__all__ = [
    "Automatic",
    "ClippedSum",
    "Clipping",
    "Flat",
    "GradientError",
    "NoiseStream",
    "PerParameter",
    "PlainSum",
    "check_gradients",
    "clipped_sum",
    "plain_sum",
]
