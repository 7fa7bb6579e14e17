"""Logistic regression, by L-BFGS, over hashed n-grams or over the states of an encoder.

The loss is the mean over rows of the logistic loss, both classes weighing the same, plus penalty / 2 times the squared
norm of the weights (not of the bias). It is convex: the start does not matter, and nothing is drawn.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from scipy.sparse import csr_matrix
from scipy.special import expit

from tacit.policy.detector.features import Window, Windows, grams, lengths
from tacit.policy.detector.linear import UNIT, Linear

Reals = npt.NDArray[np.float64]
Labels = npt.NDArray[np.bool_]
_ITERATIONS = 300


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


def loss_and_gradient(parameters: Reals, matrix: Matrix, labels: Labels, penalty: float) -> tuple[float, Reals]:
    """At `parameters`, which are the weights and, last, the bias."""
    weights, bias = parameters[:-1], parameters[-1]
    signs = np.where(labels, 1.0, -1.0)
    shares = np.where(labels, 0.5 / max(1, labels.sum()), 0.5 / max(1, (~labels).sum()))
    margins = signs * (matrix @ weights + bias)
    loss = shares @ np.logaddexp(0, -margins) + penalty / 2 * (weights @ weights)
    slopes = -shares * signs * expit(-margins)
    return float(loss), np.append(matrix.T @ slopes + penalty * weights, slopes.sum())


def fit(matrix: Matrix, labels: Labels, penalty: float) -> tuple[Reals, float]:
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


def fit_linear(lines: Sequence[str], labels: Labels, bits: int, penalty: float, window: Window) -> Linear:
    """The linear detector of these masked texts, its weights rounded to whole multiples of 2**-20."""
    weights, bias = fit(hashed(lines, bits), labels, penalty)
    limit = np.iinfo(np.int32)
    whole = np.clip(np.rint(weights / UNIT), limit.min, limit.max).astype(np.int32)
    return Linear(whole, round(bias, 9), window)
