"""Confidentiality (CRT, definitions 2-4): the average case made sound.

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
from typing import NamedTuple, Protocol

from tacit.errors import ClaimRefused


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
