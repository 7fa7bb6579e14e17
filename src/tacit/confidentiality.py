"""Confidentiality (CRT, definitions 2-4): regular and group confidentiality, and the average case made sound.

Zhao et al., "Provably Confidential Language Modelling" (NAACL 2022), Propositions 5-7 and Theorem 8, as repaired in
docs/theory.md (sections 4 and 10): "detects" reads "misses"; groups count surviving records, not unique secrets; the
average case takes the price of *replacing* a record (a masked secret replaces one), and upper confidence bounds on the
miss rates, once for a whole run, never for a step.

| paper | here |
|---|---|
| pi(s, x) = 0 | the redaction policy missed the secret |
| gamma | `missed`, g1: upper bound on the share of records with secrets that are not hit |
| delta_2 | `cleared`, g2: upper bound on the share of them that is lost |
| (eps', delta') of DP-SGD | `record_epsilon(delta)`: what the protected records have |
"""

import math
from collections.abc import Callable
from typing import NamedTuple, Protocol

from tacit.errors import ClaimRefused

EpsilonAt = Callable[[float], float]
"""The epsilon that records of the protected set have, at a delta."""


class Confidentiality(NamedTuple):
    """How close the model is to one trained with the secret masked."""

    epsilon: float
    delta: float


class Prices(Protocol):
    """A privacy profile, both ways."""

    def epsilon(self, delta: float) -> float:
        """The epsilon at this delta."""

    def delta(self, epsilon: float) -> float:
        """The delta at this epsilon."""


class AverageCase(NamedTuple):
    """The numbers of section 10. S1: (epsilon, delta) and `advantage`; S2 and S3: (amplified, delta)."""

    epsilon: float
    amplified: float
    delta: float
    advantage: float


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


def average_case(replaced: Prices, delta: float, missed: float, cleared: float) -> AverageCase:
    """Theory, section 10: S1, S2 and S3 from the price of *replacing* a protected record, and the two miss rates.

    epsilon is taken at d0 = delta / g1, so that delta~ = g1 d0 + g2 is at most delta + g2.
    """
    if not 0 <= cleared <= missed <= 1 or missed == 0:
        raise ClaimRefused(
            expected="miss rates between 0 and 1, the one of both policies together no larger, and the other above 0",
            found=f"{missed} and {cleared}",
            way_out="measure them on a labelled sample: an upper confidence bound is never 0",
        )
    room = delta / missed
    epsilon = 0.0 if room >= 1 else replaced.epsilon(room)
    return AverageCase(
        epsilon,
        amplified(epsilon, missed),
        min(1.0, missed * min(room, 1.0) + cleared),
        min(1.0, missed * replaced.delta(0.0) + cleared),
    )


def amplified(epsilon: float, missed: float) -> float:
    """log(1 + g (e^eps - 1)): Proposition 6. Large epsilons do not overflow."""
    if epsilon > 700:
        return epsilon + math.log(missed)
    return math.log1p(missed * math.expm1(epsilon))


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
