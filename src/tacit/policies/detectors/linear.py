"""The linear detector: logistic regression over hashed n-grams, with whole numbers for weights; and how it is fitted.

A detector must see the context, not the secret. It reads masked words in windows: every word with a digit and every
number word becomes the same sign, and a run of such signs becomes one, so neither the value of a number nor its length
can decide. The score of a window is the sum of the weights of its character and word n-grams over the square root of
their number, plus the bias; the score of a text is the highest of its windows.

G1 (exact). Scores are bitwise equal on every machine: n-grams are hashed by integer arithmetic, weights are whole
   multiples of 2**-20, and one root and one division are rounded as IEEE 754 requires.
G2 (alone). The score of a text depends on that text only, not on those that are scored with it.
G3 (masked). Two texts that differ only in their digits, or in how many of them are in a row, read the same.
G4 (windows). Every run of `words - stride` words lies in one window; a window is never longer than `words`.

Training rows are masked words, one window each. A detector must not learn that short is sensitive, that a number at the
end is, or that a prompt comes alone: prompts of both kinds come bare, before a number, and amid public words; public
sentences are cut to the lengths of prompts too.

Fitting is by L-BFGS. The loss is the mean over rows of the logistic loss, both classes weighing the same, plus
penalty / 2 times the squared norm of the weights (not of the bias). It is convex: the start does not matter, and
nothing is drawn.
"""

import random
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from scipy.sparse import csr_matrix
from scipy.special import expit

from tacit.errors import PolicyError

Integers = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]
NUMBER = "0"

_SPELLED = (
    "zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen|seventeen"
    "|eighteen|nineteen|twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety|hundred|thousand|million"
)

_APART = re.compile(r"(?:[^\w\n]|_)+")
_WITH_DIGIT = re.compile(r"(?<!\S)[^\s\d]*+\d\S*")  # possessive: one look at each character
_NUMBER_WORD = re.compile(rf"\b(?:{_SPELLED})\b")
_NUMBERS = re.compile(rf"\b{NUMBER}(?: {NUMBER})+\b")
_BREAK = re.compile(r" ?\n ?")
_WORD_GRAMS = 3
_CHARACTER_GRAMS = (3, 4, 5)
_SIZES = (*(1 for _ in _CHARACTER_GRAMS), *range(1, _WORD_GRAMS + 1))
_PRIME = 0x9E3779B97F4A7C15  # odd, so that it has an inverse modulo 2**64
_INVERSE = pow(_PRIME, -1, 1 << 64)


class Window(NamedTuple):
    """How many words a detector reads at a time, and how many words on the next window begins."""

    words: int = 16
    stride: int = 8


DEFAULT_WINDOW = Window()


def masked(texts: Sequence[str]) -> list[str]:
    """The words of each text, one blank between them: case folded, without punctuation, numbers masked."""
    together = "\n".join(" ".join(text.split()) for text in texts)
    together = unicodedata.normalize("NFKC", together).casefold()
    together = _WITH_DIGIT.sub(NUMBER, _APART.sub(" ", together))
    together = _NUMBERS.sub(NUMBER, _NUMBER_WORD.sub(NUMBER, together))
    return _BREAK.sub("\n", together).strip(" ").split("\n") if texts else []


def cut(length: int, window: Window) -> list[tuple[int, int]]:
    """Where the windows of a text of `length` words begin and end; an empty text has one empty window."""
    last = max(0, length - window.words)
    starts = [*range(0, last, window.stride), last]
    return [(start, min(length, start + window.words)) for start in starts]


class Grams(NamedTuple):
    """The buckets of all n-grams, kind by kind, those of a kind in the order of their first words.

    begins: for each kind the places in `buckets` where the n-grams of each word begin, and where the last end.
    """

    buckets: Integers
    begins: tuple[Integers, ...]

    def within(self, start: Integers, end: Integers) -> list[tuple[Integers, Integers]]:
        """For each kind the places [low, high) in `buckets` of the n-grams inside each window [start, end) of words."""
        kinds = zip(self.begins, _SIZES, strict=True)
        return [(begins[start], begins[np.maximum(start, end - size + 1)]) for begins, size in kinds]


def grams(lines: Sequence[str], bits: int) -> Grams:
    """The n-grams of masked texts, hashed into 2**bits buckets: 3 to 5 characters of a word, then 1 to 3 words.

    No n-gram crosses from one text into the next. The blanks around a word count as characters of it.
    """
    text = " " + " \n ".join(lines) + " "
    code = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32).astype(np.uint64)
    rolling = _Rolling(code)
    inside = code > ord(" ")  # below are only the blank and the end of a line
    edge = np.flatnonzero(inside[1:] != inside[:-1]) + 1
    first, last = edge[::2], edge[1::2]
    line = np.cumsum(code == ord("\n"))[first]
    found = [_character_grams(rolling, first, last, size) for size in _CHARACTER_GRAMS]
    found += _word_grams(rolling.of(first, last), line)
    ends = np.cumsum([0, *(len(hashes) for hashes, _ in found)])
    hashes = np.concatenate([hashes for hashes, _ in found])
    buckets = (_mixed(hashes) >> np.uint64(64 - bits)).astype(np.int64)
    begins = tuple(begins + end for (_, begins), end in zip(found, ends[:-1], strict=True))
    return Grams(buckets, begins)


def lengths(lines: Sequence[str]) -> list[int]:
    """How many words each masked text has."""
    return [line.count(" ") + 1 if line else 0 for line in lines]


class _Rolling:
    """Hashes of any slices of one text: sums of mixed codes times powers of a prime, modulo 2**64."""

    def __init__(self, code: Hashes) -> None:
        powers = _powers(_PRIME, 1 << max(10, len(code).bit_length()))
        self._inverse = _powers(_INVERSE, len(powers))
        self._sums = np.concatenate((np.zeros(1, np.uint64), np.cumsum(_mixed(code) * powers[: len(code)])))

    def of(self, start: Integers, end: Integers) -> Hashes:
        """The hash of the characters [start, end), for each pair."""
        hashes: Hashes = (self._sums[end] - self._sums[start]) * self._inverse[start]
        return hashes


def _character_grams(rolling: _Rolling, first: Integers, last: Integers, size: int) -> tuple[Hashes, Integers]:
    """All slices of `size` characters of each word with the blanks around it; where those of each word begin."""
    count = np.maximum(0, last - first + 3 - size)
    begins = np.pad(np.cumsum(count), (1, 0))
    start = np.repeat(first - 1 - begins[:-1], count) + np.arange(begins[-1])
    return rolling.of(start, start + size), begins


def _word_grams(word: Hashes, line: Integers) -> list[tuple[Hashes, Integers]]:
    """Every 1 to 3 words in a row of one text, from the hashes of the words; hashes of each size are of their own."""
    found = []
    hashes = word + np.uint64(1)
    for size in range(1, _WORD_GRAMS + 1):
        if size > 1:
            hashes = _mixed(hashes[:-1]) + word[size - 1 :] + np.uint64(size)
        whole = line[: len(hashes)] == line[size - 1 :]
        begins = np.pad(np.cumsum(whole), (1, 0))
        found.append((hashes[whole], np.pad(begins, (0, len(word) - len(hashes)), "edge")))
    return found


def _mixed(values: Hashes) -> Hashes:
    """The finishing steps of SplitMix64 (Steele, Lea, Flood 2014), modulo 2**64."""
    mixed = values + np.uint64(_PRIME)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    result: Hashes = mixed ^ (mixed >> np.uint64(31))
    return result


@cache
def _powers(base: int, length: int) -> Hashes:
    factors = np.full(length, base, np.uint64)
    factors[0] = 1
    return np.cumprod(factors, dtype=np.uint64)


WEIGHTS = "weights.npy"
UNIT = 2.0**-20
NO_WORDS = -1e9


@dataclass(frozen=True, slots=True, eq=False)
class Linear:
    """A weight for each bucket, as a whole multiple of 2**-20, and a bias."""

    weights: npt.NDArray[np.int32]
    bias: float
    window: Window

    def scores(self, texts: Sequence[str]) -> npt.NDArray[np.float64]:
        """How sensitive each text is; a text without words has the lowest score there is."""
        lines = masked(texts)
        rows: list[tuple[int, int, int]] = []
        first = 0
        for text, length in enumerate(lengths(lines)):
            rows += [(first + start, first + end, text) for start, end in cut(length, self.window)]
            first += length
        starts, ends, owners = np.array(rows, np.int64).reshape(-1, 3).T
        found = grams(lines, len(self.weights).bit_length() - 1)
        sums = np.pad(np.cumsum(self.weights[found.buckets], dtype=np.int64), (1, 0))
        total, number = np.zeros((2, len(rows)), np.int64)
        for low, high in found.within(starts, ends):
            total += sums[high] - sums[low]
            number += high - low
        scores = total * UNIT / np.sqrt(np.maximum(1, number)) + self.bias
        best = np.full(len(texts), NO_WORDS)
        np.maximum.at(best, owners[number > 0], scores[number > 0])
        return best

    def save(self, folder: Path) -> None:
        np.save(folder / WEIGHTS, self.weights, allow_pickle=False)

    @classmethod
    def load(cls, folder: Path, bias: float, window: Window) -> "Linear":
        weights = load_numbers(folder / WEIGHTS, np.int32)
        if not len(weights) or len(weights) & (len(weights) - 1):
            raise damaged(folder, "another number of weights")
        return cls(weights, bias, window)


def load_numbers(path: Path, kind: type) -> npt.NDArray[Any]:
    """A file of numpy with a row of numbers of this type; anything else is refused."""
    try:
        numbers = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise damaged(path.parent, type(error).__name__) from error
    if not isinstance(numbers, np.ndarray) or numbers.ndim != 1 or numbers.dtype != kind:
        raise damaged(path.parent, f"other numbers in {path.name}")
    return numbers


def damaged(folder: Path, found: str) -> PolicyError:
    """The error for a detector's folder that is not as it was written."""
    return PolicyError(
        expected=f"a whole detector in {str(folder)!r}",
        found=found,
        way_out="train it again with `tacit detector train`, or use the folder as it was written",
    )


Reals = npt.NDArray[np.float64]
BooleanLabels = npt.NDArray[np.bool_]
Matrix: TypeAlias = csr_matrix | Reals
_ITERATIONS = 300


@dataclass(frozen=True, slots=True, eq=False)
class FeatureRows:
    """Masked texts of at most one window, and which of them are sensitive."""

    lines: list[str]
    sensitive: npt.NDArray[np.bool_]


def make_rows(
    sensitive: Sequence[str], harmless: Sequence[str], public: Sequence[str], window: Window, seed: int
) -> FeatureRows:
    """Rows of both kinds; the same arguments give the same rows."""
    rng = random.Random(seed)
    around = [words for words in (line.split() for line in masked(public)) if words]
    rows: list[tuple[str, bool]] = []
    lengths = []
    for texts, label in ((sensitive, True), (harmless, False)):
        for line in masked(texts):
            words = line.split()[-window.words :]
            lengths.append(len(words))
            rows += [(" ".join(row), label) for row in _settings(words, around, window, rng)]
    for words in around:
        rows.append((" ".join(_cut(words, window.words, rng)), False))
        short = _cut(words, rng.choice(lengths), rng)
        rows.append((" ".join([*short, NUMBER][: window.words] if rng.random() < 1 / 2 else short), False))
    known = dict(reversed(rows))  # what is said twice counts once, with the label it had first
    return FeatureRows(list(known), np.array(list(known.values()), np.bool_))


def _settings(words: list[str], around: list[list[str]], window: Window, rng: random.Random) -> list[list[str]]:
    """The prompt bare, before a number, and amid words of public sentences."""
    numbered = words if words[-1:] == [NUMBER] else [*words, NUMBER][-window.words :]
    room = window.words - len(numbered)
    before = rng.randint(0, room)
    amid = [*_cut(rng.choice(around), before, rng), *numbered, *_cut(rng.choice(around), room - before, rng)]
    return [words, numbered, amid]


def _cut(words: list[str], length: int, rng: random.Random) -> list[str]:
    """So many words in a row, from anywhere in the sentence."""
    start = rng.randint(0, max(0, len(words) - length))
    return words[start : start + length]


def hashed(lines: Sequence[str], bits: int) -> csr_matrix:
    """One row per masked text, read whole: how often each bucket is hit, over the root of the number of hits."""
    counts = np.array(lengths(lines), np.int64)
    ends = np.cumsum(counts)
    found = grams(lines, bits)
    inside = found.within(ends - counts, ends)
    row = np.concatenate([np.repeat(np.arange(len(lines)), high - low) for low, high in inside])
    number = np.maximum(1, np.bincount(row, minlength=len(lines)))
    return csr_matrix((1 / np.sqrt(number[row]), (row, found.buckets)), shape=(len(lines), 1 << bits))


def loss_and_gradient(parameters: Reals, matrix: Matrix, labels: BooleanLabels, penalty: float) -> tuple[float, Reals]:
    """At `parameters`, which are the weights and, last, the bias."""
    weights, bias = parameters[:-1], parameters[-1]
    signs = np.where(labels, 1.0, -1.0)
    shares = np.where(labels, 0.5 / max(1, labels.sum()), 0.5 / max(1, (~labels).sum()))
    margins = signs * (matrix @ weights + bias)
    loss = shares @ np.logaddexp(0, -margins) + penalty / 2 * (weights @ weights)
    slopes = -shares * signs * expit(-margins)
    return float(loss), np.append(matrix.T @ slopes + penalty * weights, slopes.sum())


def fit(matrix: Matrix, labels: BooleanLabels, penalty: float) -> tuple[Reals, float]:
    """The weights and the bias with the least loss."""
    found = minimize(
        loss_and_gradient,
        np.zeros(matrix.shape[1] + 1),
        args=(matrix, labels, penalty),
        method="L-BFGS-B",
        jac=True,
        options={"maxiter": _ITERATIONS, "maxfun": 2 * _ITERATIONS, "ftol": 1e-10, "gtol": 1e-7},
    )
    return found.x[:-1], float(found.x[-1])


def fit_linear(lines: Sequence[str], labels: BooleanLabels, bits: int, penalty: float, window: Window) -> Linear:
    """The linear detector of these masked texts, its weights rounded to whole multiples of 2**-20."""
    weights, bias = fit(hashed(lines, bits), labels, penalty)
    limit = np.iinfo(np.int32)
    whole = np.clip(np.rint(weights / UNIT), limit.min, limit.max).astype(np.int32)
    return Linear(whole, round(bias, 9), window)
