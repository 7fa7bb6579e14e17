"""The linear detector: logistic regression over hashed n-grams, with whole numbers for weights.

The score of a window is the sum of the weights of its n-grams over the square root of their number, plus the bias; the
score of a text is the highest of its windows. Weights are whole multiples of 2**-20, so that sums are exact.

G1 (exact). Scores are bitwise equal on every machine: whole numbers are added, one root and one division are rounded
   as IEEE 754 says.
G2 (alone). The score of a text depends on that text only, not on those that are scored with it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tacit.errors import PolicyError
from tacit.policy.detector.features import Window, Windows, grams, lengths, masked

WEIGHTS = "weights.npy"
UNIT = 2.0**-20
NO_WORDS = -1e9


@dataclass(frozen=True, slots=True, eq=False)
class Linear:
    """A weight for each bucket, as a whole multiple of 2**-20, and a bias."""

    weights: npt.NDArray[np.int32]
    bias: float
    window: Window

    @property
    def bits(self) -> int:
        """The number of buckets is 2**bits."""
        return len(self.weights).bit_length() - 1

    def scores(self, texts: Sequence[str]) -> npt.NDArray[np.float64]:
        """How sensitive each text is; a text without words has the lowest score there is."""
        lines = masked(texts)
        counts = lengths(lines)
        windows = Windows.of(counts, self.window)
        found = grams(lines, self.bits)
        sums = np.zeros(len(found.buckets) + 1, np.int64)
        np.cumsum(self.weights[found.buckets], out=sums[1:])
        total, number = np.zeros(len(windows.start), np.int64), np.zeros(len(windows.start), np.int64)
        for low, high in found.within(windows):
            total += sums[high] - sums[low]
            number += high - low
        scores = total * UNIT / np.sqrt(np.maximum(1, number)) + self.bias
        best = np.full(len(texts), NO_WORDS)
        np.maximum.at(best, windows.text[number > 0], scores[number > 0])
        return best

    def save(self, folder: Path) -> None:
        """The weights as a file of numpy, which holds nothing but numbers."""
        with (folder / WEIGHTS).open("wb") as file:
            np.save(file, self.weights, allow_pickle=False)

    @classmethod
    def load(cls, folder: Path, bias: float, window: Window) -> "Linear":
        """What `save` wrote; a file with anything but numbers in it is refused."""
        try:
            weights = np.load(folder / WEIGHTS, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise _damaged(type(error).__name__) from error
        length = len(weights) if isinstance(weights, np.ndarray) and weights.ndim == 1 else 0
        if not length or weights.dtype != np.int32 or length & (length - 1):
            raise _damaged("other numbers")
        return cls(weights, bias, window)


def _damaged(found: str) -> PolicyError:
    return PolicyError(
        expected=f"the weights of a linear detector in {WEIGHTS}",
        found=found,
        way_out="train the detector again, or take the folder as `tacit detector train` wrote it",
    )
