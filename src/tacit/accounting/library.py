"""dp-accounting's PLD accountant behind a thin adapter: an independent check of ours.

For units that own several records it takes a minute where `pld` takes a fraction of a second (LOG.md), so those are
compared in the tests alone. Its transform's rounding has no stated bound: at a delta of 1e-11, after 100,000 steps, its
epsilon is .01 below the true one.
"""

import importlib.metadata
import math
from dataclasses import dataclass

import numpy as np
from dp_accounting import NeighboringRelation, dp_event
from dp_accounting.pld import PLDAccountant
from scipy import stats

from tacit.accounting.pairs import Floats, Spent
from tacit.accounting.profile import Law, Profile, price
from tacit.errors import ClaimRefused
from tacit.events import Composition, ExposedGaussian, Gaussian, NoisyEvent, Relation


@dataclass(frozen=True)
class _LibraryLaw:
    accountant: PLDAccountant

    def deltas(self, epsilons: Floats) -> Floats:
        return np.asarray(self.accountant.get_delta(epsilons.tolist()), dtype=np.float64)

    def epsilon(self, delta: float) -> float:
        return float(self.accountant.get_epsilon(delta))


@dataclass(frozen=True, slots=True)
class LibraryPLD:
    """dp-accounting's PLD accountant with the given discretisation interval."""

    interval: float = 1e-3
    name: str = f"PLD (dp-accounting {importlib.metadata.version('dp-accounting')})"

    def profile(self, composition: Composition) -> Profile:
        """The profile of the composition; exposed draws are refused."""
        return price(self.name, composition, self._law)

    def _law(self, spent: Spent) -> Law:
        relation = spent.relation
        neighbours = (
            NeighboringRelation.REPLACE_ONE if relation is Relation.REPLACE else NeighboringRelation.REPLACE_SPECIAL
        )
        accountant = PLDAccountant(neighbours, value_discretization_interval=self.interval)
        for event, count in spent.events:
            accountant.compose(_translated(event), count)
        return _LibraryLaw(accountant)


def _translated(event: NoisyEvent) -> dp_event.DpEvent:
    if isinstance(event, ExposedGaussian):
        raise ClaimRefused(
            expected="events that dp-accounting knows", found="ExposedGaussian", way_out="account in closed form"
        )
    if isinstance(event, Gaussian) or event.sampling_rate == 1.0:
        return dp_event.GaussianDpEvent(event.noise_multiplier / event.copies)
    if event.copies == 1:
        return dp_event.PoissonSampledDpEvent(event.sampling_rate, dp_event.GaussianDpEvent(event.noise_multiplier))
    counts = np.arange(event.copies + 1)
    weights = stats.binom.pmf(counts, event.copies, event.sampling_rate)
    weights[0] += math.fsum([1.0, *-weights])
    return dp_event.MixtureOfGaussiansDpEvent(event.noise_multiplier, counts.tolist(), weights.tolist())
