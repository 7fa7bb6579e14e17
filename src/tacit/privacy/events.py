"""A complete description of what one step did to one unit's privacy.

An event contains every number its price depends on and the neighboring relation it is true for, so that a ledger of
events can be priced by anybody, without the code that trained. Noise is always given relative to the clip norm:
`noise_multiplier` = sigma / C, whatever the relation; the accountant doubles the sensitivity for `REPLACE`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from tacit.errors import ClaimRefused


class Relation(StrEnum):
    """How two neighboring corpora differ in one unit's protected content. Public parts are always equal."""

    ZERO_OUT = "zero-out"  # content becomes null (or the record is added or removed): sensitivity C
    REPLACE = "replace"  # content becomes other content: sensitivity 2C


@dataclass(frozen=True, slots=True)
class Free:
    """The step is a function of the past and of the public part: nothing is spent."""

    reason: str


@dataclass(frozen=True, slots=True)
class Unbounded:
    """The step reads protected content without noise: no finite epsilon is true."""

    reason: str


@dataclass(frozen=True, slots=True)
class Gaussian:
    """One noisy clipped sum in which each of the unit's `copies` records surely takes part."""

    noise_multiplier: float
    copies: int
    relation: Relation

    def __post_init__(self) -> None:
        _check(self.noise_multiplier, 1.0, self.copies)


@dataclass(frozen=True, slots=True)
class SampledGaussian:
    """One noisy clipped sum over a fresh Poisson draw that nothing else depends on.

    Each of the unit's `copies` records takes part independently with probability `sampling_rate`: a mixture of
    Gaussians with sensitivities 0..copies and probabilities Bin(copies, rate); one copy is the usual DP-SGD step.
    """

    noise_multiplier: float
    sampling_rate: float
    copies: int
    relation: Relation

    def __post_init__(self) -> None:
        _check(self.noise_multiplier, self.sampling_rate, self.copies)


@dataclass(frozen=True, slots=True)
class ExposedGaussian:
    """As `SampledGaussian`, but the adversary learns who was drawn: no amplification, only luck.

    For one copy the privacy loss is that of the Gaussian with probability `sampling_rate`, and none otherwise.
    """

    noise_multiplier: float
    sampling_rate: float
    relation: Relation

    def __post_init__(self) -> None:
        _check(self.noise_multiplier, self.sampling_rate, 1)


NoisyEvent = Gaussian | SampledGaussian | ExposedGaussian
Event = Free | Unbounded | NoisyEvent
Composition = tuple[tuple[Event, int], ...]  # events and how often each took place, in any order


def joint(queries: Sequence[NoisyEvent]) -> NoisyEvent:
    """Several noisy sums of one draw, as one event: sigma = (sum of sigma_j^-2)^(-1/2).

    Queries on one draw are not independent subsamples: they are one Gaussian of a longer vector (theory, section 1).
    """
    first = queries[0]
    if any(replace(query, noise_multiplier=first.noise_multiplier) != first for query in queries):
        raise ClaimRefused(
            expected="queries that share one draw: same rate, copies and relation",
            found=f"{len(queries)} queries that differ in more than their noise",
            way_out="price queries on different draws as separate events",
        )
    precision = sum(query.noise_multiplier**-2 for query in queries)
    return replace(first, noise_multiplier=precision**-0.5)


def _check(noise: float, sampling_rate: float, copies: int) -> None:
    for passed, expected, found, way_out in (
        (
            math.isfinite(noise) and noise > 0,
            "a noise multiplier that is finite and above 0",
            noise,
            "a step without noise is `Unbounded`, or `Free` with its reason",
        ),
        (0 < sampling_rate <= 1, "a sampling rate in (0, 1]", sampling_rate, "give each record's public probability"),
        (copies >= 1, "at least one record per unit", copies, "set the contribution cap to 1 or more"),
    ):
        if not passed:
            raise ClaimRefused(expected=expected, found=repr(found), way_out=way_out)
