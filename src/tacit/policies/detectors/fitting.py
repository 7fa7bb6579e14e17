"""From prompts and public sentences to rows, and from rows to the weights of a classifier.

Rows are masked words, one window each. A detector must not learn that short is sensitive, that a number at the end is,
or that a prompt stands alone: prompts of both kinds come bare, before a number, and amid public words; public sentences
are cut to the lengths of prompts too.

Fitting is logistic regression, by L-BFGS, over hashed n-grams or over the states of an encoder.
The loss is the mean over rows of the logistic loss, both classes weighing the same, plus penalty / 2 times the squared
norm of the weights (not of the bias). It is convex: the start does not matter, and nothing is drawn.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from scipy.sparse import csr_matrix
from scipy.special import expit

from tacit.policies.detectors.linear import NUMBER, UNIT, Linear, Window, Windows, grams, lengths, masked

Reals = npt.NDArray[np.float64]
BooleanLabels = npt.NDArray[np.bool_]
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


class Matrix(Protocol):
    """Rows of features, sparse or dense."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def T(self) -> "Matrix": ...  # noqa: N802
    def __matmul__(self, vector: Any) -> Any: ...  # noqa: ANN401


def hashed(lines: Sequence[str], bits: int) -> "csr_matrix":
    """A row a masked text, read whole: how often each bucket is hit, over the root of the number of hits."""
    counts = lengths(lines)
    windows = Windows.of(counts, Window(max([1, *counts]), 1))
    found = grams(lines, bits)
    row = np.concatenate([np.repeat(np.arange(len(lines)), high - low) for low, high in found.within(windows)])
    column = found.buckets
    number = np.maximum(1, np.bincount(row, minlength=len(lines)))
    return csr_matrix((1 / np.sqrt(number[row]), (row, column)), shape=(len(lines), 1 << bits))


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
