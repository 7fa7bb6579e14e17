"""How a unit's gradient is made short, and by how much one unit can then move the sum.

| symbol | here |
|---|---|
| g_b | gradient of unit b, one vector over all parameters that move |
| C | `clip_norm` |
| c_b | the factor of unit b, one for each parameter |

G1 (sensitivity). For every style the vector c_b g_b has length at most `clip_norm`: adding or removing a unit moves the
   sum by at most that. Units whose gradient is not finite have factor zero.
G2 (margin). `safe_factors` takes norms a thousandth longer than they were computed. That is room for the rounding of
   a unit's own norm, whatever its content. It is room for some of what rounding for the other rows moves, not a bound
   on it: per row 2e-7 to 7e-7 C were measured at ordinary weights, 5e-6 C at extreme ones.
"""

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from tacit.errors import ConfigError

MARGIN = 2.0**-10


class Clipping(Protocol):
    """A style of clipping. `clip_norm` is the sensitivity of the sum."""

    @property
    def clip_norm(self) -> float:
        """The length that no unit's contribution exceeds."""

    def factors(self, squared_norms: Tensor) -> Tensor:
        """(parameters, rows): factors from each parameter's squared gradient norms of each row, all finite."""


@dataclass(frozen=True, slots=True)
class Flat:
    """c_b = min(1, C / |g_b|): one factor for the whole gradient (Abadi et al. 2016, arXiv 1607.00133)."""

    clip_norm: float

    def __post_init__(self) -> None:
        _require_positive("clip norm", self.clip_norm)

    def factors(self, squared_norms: Tensor) -> Tensor:
        """The same factor for every parameter."""
        norms = squared_norms.sum(dim=0).sqrt()
        return (self.clip_norm / norms).clamp(max=1.0).expand_as(squared_norms)


@dataclass(frozen=True, slots=True)
class Automatic:
    """c_b = C / (|g_b| + stability): every gradient nearly of length C (Bu et al. 2023, arXiv 2206.07136, AUTO-S)."""

    clip_norm: float
    stability: float = 0.01

    def __post_init__(self) -> None:
        _require_positive("clip norm", self.clip_norm)
        _require_positive("stability constant", self.stability)

    def factors(self, squared_norms: Tensor) -> Tensor:
        """The same factor for every parameter."""
        norms = squared_norms.sum(dim=0).sqrt()
        return (self.clip_norm / (norms + self.stability)).expand_as(squared_norms)


@dataclass(frozen=True, slots=True)
class PerParameter:
    """Each of K parameter tensors is clipped alone to C / sqrt(K); together they are no longer than C.

    A gradient below |g_b| / sqrt(K) is clipped as if it were that long, so that no factor is above C / |g_b|: what is
    nothing but rounding, which depends on the other rows of a batch, would otherwise become as long as all the rest.
    """

    clip_norm: float

    def __post_init__(self) -> None:
        _require_positive("clip norm", self.clip_norm)

    def factors(self, squared_norms: Tensor) -> Tensor:
        """Each parameter's own factor."""
        share = self.clip_norm / math.sqrt(len(squared_norms))
        least = squared_norms.mean(dim=0, keepdim=True)
        return (share / torch.maximum(squared_norms, least).sqrt()).clamp(max=1.0)


def safe_factors(clipping: Clipping, squared_norms: Tensor) -> tuple[Tensor, Tensor]:
    """Factors (parameters, rows), and which rows are finite (rows,); the others have factor zero."""
    finite = torch.isfinite(squared_norms.sum(dim=0))
    factors = clipping.factors(torch.where(finite, squared_norms * (1 + MARGIN) ** 2, 0.0))
    return torch.where(finite, factors, 0.0), finite


def _require_positive(noun: str, found: float) -> None:
    if not (math.isfinite(found) and found > 0):
        raise ConfigError(expected=f"a {noun} above 0", found=str(found), way_out="correct the number")
