"""Confidentiality (CRT, definitions 2-4): regular, group and Bayesian, with measured miss rates.

Zhao et al., "Provably Confidential Language Modelling" (NAACL 2022), Propositions 5-7 and Theorem 8, as repaired in
docs/theory.md: "detects" reads "misses"; groups count surviving records, not unique secrets; the Bayesian bound takes
upper confidence bounds on the miss rates and is applied once to a whole run, never to a step.

| paper | here |
|---|---|
| pi(s, x) = 0 | the redaction policy missed the secret |
| gamma | `missed`: upper bound on the miss rate of pi |
| delta_2 | `cleared`: upper bound on the miss rate of pi_c |
| (eps', delta') of DP-SGD | `record_epsilon(delta)`: what the protected records have |
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tacit.errors import ClaimRefused

EpsilonAt = Callable[[float], float]
"""The epsilon that records of the protected set have, at a delta."""


class Confidentiality(NamedTuple):
    """How close the model is to one trained with the secret masked."""

    epsilon: float
    delta: float


def regular(record_epsilon: EpsilonAt, delta: float, *, redacted: bool) -> Confidentiality:
    """Proposition 5, Theorem 8.1: a stably redacted secret was not used; a missed one is covered as its record."""
    return Confidentiality(0.0, 0.0) if redacted else Confidentiality(record_epsilon(delta), delta)


def group(record_epsilon: EpsilonAt, delta: float, surviving_records: int) -> Confidentiality:
    """Propositions 5 and 7, Theorem 8.2: a secret that stands in several records after redaction and de-duplication.

    Group privacy: k hops of (eps, d) give (k eps, d (1 + e^eps + ... + e^((k-1) eps))); d is chosen to end at `delta`.
    The mixture of Gaussians with k copies (events.SampledGaussian) is tighter and is what the certificate prints.
    """
    if surviving_records == 0:
        return Confidentiality(0.0, 0.0)
    low, high = 0.0, delta
    for _ in range(200):  # bisection for the largest per-hop delta whose geometric sum stays within `delta`
        hop = (low + high) / 2
        reached = hop > 0 and _geometric(record_epsilon(hop), surviving_records) * hop <= delta
        low, high = (hop, high) if reached else (low, hop)
        if high - low <= 1e-6 * delta:
            break
    if low == 0.0:
        raise ClaimRefused(
            expected="a group whose delta fits under the target",
            found=f"{surviving_records} surviving records at delta {delta:.3g}",
            way_out="use the K-copies figure of the certificate, or remove duplicates",
        )
    return Confidentiality(surviving_records * record_epsilon(low), delta)


def bayesian(record_epsilon: EpsilonAt, delta: float, missed: float, cleared: float = 0.0) -> Confidentiality:
    """Theorem 8.3: (log(1 + g1 (e^eps'(d0) - 1)), g1 d0 + g2) for a secret drawn from the distribution sampled.

    d0 is the largest that keeps the whole within `delta`; refused when the conservative policy alone exceeds it.
    """
    if not (0 < missed <= 1 and 0 <= cleared <= 1):
        raise ClaimRefused(
            expected="miss rates between 0 and 1, the redaction policy's above 0",
            found=f"{missed} and {cleared}",
            way_out="measure them on a labelled sample: an upper confidence bound is never 0",
        )
    room = delta - cleared
    if room <= 0:
        raise ClaimRefused(
            expected=f"a conservative policy with a miss rate below delta = {delta:.3g}",
            found=f"an upper bound of {cleared:.3g}",
            way_out=f"claim a delta above {cleared:.3g}, or label more units without a miss",
        )
    epsilon = record_epsilon(min(room / missed, 1.0))
    return Confidentiality(amplified(epsilon, missed), delta)


def amplified(epsilon: float, missed: float) -> float:
    """log(1 + g (e^eps - 1)): Proposition 6. Large epsilons do not overflow."""
    if epsilon > 700:
        return epsilon + math.log(missed)
    return math.log1p(missed * math.expm1(epsilon))


def amplification_curve(
    record_epsilon: EpsilonAt, delta: float, miss_rates: Sequence[float]
) -> tuple[tuple[float, float], ...]:
    """Figure 6 of the paper: Bayesian epsilon over the miss rate of the redaction policy."""
    return tuple((rate, bayesian(record_epsilon, delta, rate).epsilon) for rate in miss_rates)


def word_level_laplace(epsilon: float, dimensions: int, word_dropout: float = 0.0) -> float:
    """UeDP's appendix G: Laplace noise of scale 1/epsilon on each of k coordinates costs k epsilon for a word.

    With a share mu of words dropped, ln((1 - mu) e^(k epsilon) + mu), if the dropped word is itself a neighbour.
    """
    return amplified(dimensions * epsilon, 1 - word_dropout)


def _geometric(epsilon: float, terms: int) -> float:
    exponent = epsilon * terms
    if exponent > 700:
        return math.inf
    return terms if epsilon == 0 else math.expm1(exponent) / math.expm1(epsilon)
