"""The one accountant of the product, from plan to report.

G1. Exact where a closed form exists; else our PLD, whose rounding is bounded and counted as loss, or RDP where that is
    smaller: for small deltas, where no grid of losses is tight, and for the hops of a replacement. Both hold. The
    profile's `accountant` names it.
G2. PLD is checked against RDP at several deltas: if it is larger, something is wrong and no number is given.
G3. Where every unit owns one record and its grids are affordable, dp-accounting prices the same; if both agree the
    profile's `accountant` says so. It is not quoted itself: the rounding of its transform has no bound (at a delta of
    1e-11, after 100,000 steps, its epsilon is .01 below the true one). For units that own several records it takes a
    minute where `pld` takes a fraction of a second (LOG.md), so those are compared in the tests alone.
G4. The result of a calibration spends at most the target, by the same `account` that the certificate uses, and it is
    tight: a little less noise (1 %) would overspend.

Confidentiality (CRT, definitions 2-4), the average case made sound: Zhao et al., "Provably Confidential Language
Modelling" (NAACL 2022), Propositions 5-7 and Theorem 8, as repaired in docs/theory.md (sections 4 and 10): "detects"
reads "misses"; groups count surviving records, not unique secrets; the average case takes the price of *replacing* a
record (a masked secret replaces one), and upper confidence bounds on the miss rates, once for a whole run.

| paper | here |
|---|---|
| pi(s, x) = 0 | the redaction policy missed the secret |
| gamma | `missed`, g1: upper bound on the share of records with secrets that are not hit |
| delta_2 | `cleared`, g2: upper bound on the share of them that is lost |
| (eps', delta') of DP-SGD | `replaced.epsilon(delta)`: what the protected records have |
"""

import importlib.metadata
import itertools
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tacit.errors import ClaimRefused, ConfigError
from tacit.privacy.dominating_pairs import Floats, PricedEvents, put_in_order
from tacit.privacy.events import Composition, ExposedGaussian, Gaussian, NoisyEvent, Relation, SampledGaussian
from tacit.privacy.pld import PLD, privacy_loss_laws
from tacit.privacy.profile import CLOSED_FORM, Accountant, Envelope, Law, Profile, TwoHops, bisect, has_closed_form
from tacit.privacy.renyi import RDP, renyi_law

if TYPE_CHECKING:
    from dp_accounting import dp_event
    from dp_accounting.pld import PLDAccountant

_CHECKED_DELTAS = (1e-3, 1e-5, 1e-8)
_NOTICED = 1e-11  # lost mass that begins to show at small deltas
_LIBRARY_INTERVALS = (1e-3, 1e-4)
_LOOSENESS = 1.003
_NOISE_TOLERANCE, _LEAST_NOISE, _MOST_NOISE = 0.002, 1e-3, 1e6
_TRIES = 8  # the search is priced by the quick accountant, which may be a little below the final one
_LIBRARY_MOST_STEPS, _LIBRARY_MOST_EPSILON = 100_000, 150.0  # beyond these its grids outgrow seconds and memory


_CONFIRMS = ContextVar("confirms", default=True)


@contextmanager
def without_library() -> Iterator[None]:
    """Inside, dp-accounting confirms nothing: it takes a second to load, and changes no number."""
    before = _CONFIRMS.set(False)
    try:
        yield
    finally:
        _CONFIRMS.reset(before)


def account(composition: Composition) -> Profile:
    """What the composition costs, cross-checked."""
    return _account(composition, _CONFIRMS.get())


@lru_cache(maxsize=256)
def _account(composition: Composition, confirms: bool) -> Profile:
    profile = quick_account(composition)
    if profile.accountant != PLD.name:
        return profile
    check = RDP.profile(composition)
    for delta in _CHECKED_DELTAS:
        spent, bound = profile.epsilon(delta), check.epsilon(delta)
        if spent > 1.01 * bound + 1e-4:
            raise ClaimRefused(
                expected=f"an epsilon of at most {bound:.6g} (RDP) at delta {delta:g}",
                found=f"{spent:.6g} ({profile.accountant})",
                way_out="report this composition: the two accountants contradict each other",
            )
    confirmed = f", confirmed by {library_pld().name}" if confirms and _confirmed(composition, profile) else ""
    return Profile(f"{PLD.name}{confirmed}", profile.relation, Envelope((profile.law, check.law)))


def _confirmed(composition: Composition, profile: Profile) -> bool:
    """Whether dp-accounting can price this and agrees, on one of its grids."""
    spent = put_in_order(composition)
    alone = all(isinstance(event, SampledGaussian) and event.copies == 1 for event, _ in spent.events)
    steps = sum(count for _, count in spent.events)
    ours = {delta: profile.epsilon(delta) for delta in _CHECKED_DELTAS}
    if not (alone and steps <= _LIBRARY_MOST_STEPS and max(ours.values()) <= _LIBRARY_MOST_EPSILON):
        return False
    theirs = (library_pld(interval).profile(composition) for interval in _LIBRARY_INTERVALS)
    return any(
        all(1 / _LOOSENESS <= other.epsilon(delta) / own <= _LOOSENESS for delta, own in ours.items() if own > 0)
        for other in theirs
    )


@lru_cache(maxsize=64)
def quick_account(composition: Composition) -> Profile:
    """As `account`, without the cross-check: for searches that check their result at the end."""
    spent = put_in_order(composition)
    if spent.unbounded or has_closed_form(spent):
        return CLOSED_FORM.profile(composition)
    hop = spent.one_hop if spent.needs_two_hops else spent
    laws = privacy_loss_laws(hop)
    law, coarse = Envelope(laws, worst=True), any(one.coarse for one in laws)
    if not coarse and not spent.needs_two_hops and max(one.lost for one in laws) <= _NOTICED:
        return Profile(PLD.name, spent.relation, law)
    both = Envelope((law, renyi_law(hop)))
    if spent.needs_two_hops:
        # e^e1 d(e2) asks for deltas far below what a Fourier transform can resolve; there RDP takes over
        return Profile(f"{PLD.name} or RDP, the smaller at each hop", spent.relation, TwoHops(both))
    return Profile(f"{PLD.name}, grid coarse, or RDP, the smaller" if coarse else PLD.name, spent.relation, both)


def calibrate_noise(composition_for: Callable[[float], Composition], epsilon: float, delta: float) -> float:
    """The smallest noise multiplier (to 0.2 %) whose composition spends at most `epsilon` at `delta`."""
    if not (math.isfinite(epsilon) and epsilon > 0 and 0 < delta < 1):
        raise ConfigError(
            expected="an epsilon above 0 and a delta between 0 and 1",
            found=f"epsilon {epsilon!r}, delta {delta!r}",
            way_out="ask for a finite epsilon, such as 8, and a delta such as 1e-6",
        )

    def excess(log_noise: float) -> float:
        spent = quick_account(composition_for(math.exp(log_noise))).epsilon(delta)
        return math.log(spent / epsilon) if spent > 0 else -math.inf

    noise = math.exp(_least_log_noise(excess, epsilon))
    for _ in range(_TRIES):
        if account(composition_for(noise)).epsilon(delta) <= epsilon:
            return noise
        noise *= 1 + _NOISE_TOLERANCE / 2
    raise ClaimRefused(
        expected=f"a calibrated run that spends at most {epsilon:g}",
        found="more, when it was priced again",
        way_out="report this composition: the quick and the final accountant disagree",
    )


def _least_log_noise(excess: Callable[[float], float], epsilon: float) -> float:
    """Where `excess`, log(epsilon spent / target), comes down to 0, from above; it decreases along the line."""
    found: dict[float, float] = {}
    turns = itertools.count(1)
    width = math.log1p(_NOISE_TOLERANCE)

    def kept(log_noise: float) -> bool:
        found[log_noise] = excess(log_noise)
        return found[log_noise] <= 0

    def aim(low: float, high: float) -> float:
        """False position, slightly off the root on alternating sides, so that both ends move; halves now and then."""
        turn, at_low, at_high = next(turns), found[low], found[high]
        if turn % 3 == 0 or not (math.isfinite(at_low) and math.isfinite(at_high)):
            return (low + high) / 2
        place = low + at_low / (at_low - at_high) * (high - low) + (0.4 if turn % 2 else -0.4) * width
        return min(max(place, low + 0.25 * width), high - 0.25 * width)

    high, least = 0.0, math.log(_LEAST_NOISE)
    while not kept(high):
        high += math.log(2)
        if high > math.log(_MOST_NOISE):
            raise ClaimRefused(
                expected=f"noise that brings epsilon down to {epsilon:g}",
                found=f"more than {epsilon:g} with a noise multiplier of {_MOST_NOISE:g}",
                way_out="ask for a larger epsilon, or fewer steps; a step without noise has no price",
            )
    low = high
    while kept(low):
        if low <= least:
            raise ClaimRefused(
                expected="a target that needs noise",
                found=f"epsilon {epsilon:g} is kept with hardly any noise",
                way_out="ask for a smaller epsilon: this one promises nothing here",
            )
        high, low = low, max(low - math.log(2), least)
    return bisect(kept, low, high, absolute=width, middle=aim)[1]


def default_delta(units: int) -> float:
    """1 / (10 N) for a public number N of units."""
    return 1 / (10 * units)


def check_delta(delta: float, units: int) -> None:
    """Refuse a delta of 1/N or more: it would allow to publish one unit's content outright."""
    if not 0 < delta < 1 / units:
        raise ClaimRefused(
            expected=f"a delta above 0 and below one over the number of units ({1 / units:.3g})",
            found=f"{delta:g}",
            way_out=f"use {default_delta(units):.3g}",
        )


@dataclass(frozen=True)
class _LibraryLaw(Law):
    accountant: "PLDAccountant"

    def deltas(self, epsilons: Floats) -> Floats:
        return np.asarray(self.accountant.get_delta(epsilons.tolist()), dtype=np.float64)

    def epsilon(self, delta: float) -> float:
        return float(self.accountant.get_epsilon(delta))


def library_pld(interval: float = 1e-3) -> Accountant:
    """dp-accounting's PLD accountant with the given discretization interval; exposed draws are refused."""

    def law(spent: PricedEvents) -> Law:
        from dp_accounting import NeighboringRelation
        from dp_accounting.pld import PLDAccountant

        replaced = spent.relation is Relation.REPLACE
        neighbors = NeighboringRelation.REPLACE_ONE if replaced else NeighboringRelation.REPLACE_SPECIAL
        accountant = PLDAccountant(neighbors, value_discretization_interval=interval)
        for event, count in spent.events:
            accountant.compose(_translated(event), count)
        return _LibraryLaw(accountant)

    return Accountant(f"PLD (dp-accounting {importlib.metadata.version('dp-accounting')})", law)


def _translated(event: NoisyEvent) -> "dp_event.DpEvent":
    from dp_accounting import dp_event
    from scipy import stats

    if isinstance(event, ExposedGaussian):
        raise ClaimRefused("events that dp-accounting knows", "ExposedGaussian", "account in closed form")
    if isinstance(event, Gaussian) or event.sampling_rate == 1.0:
        return dp_event.GaussianDpEvent(event.noise_multiplier / event.copies)
    if event.copies == 1:
        return dp_event.PoissonSampledDpEvent(event.sampling_rate, dp_event.GaussianDpEvent(event.noise_multiplier))
    counts = np.arange(event.copies + 1)
    weights = stats.binom.pmf(counts, event.copies, event.sampling_rate)
    weights[0] += math.fsum([1.0, *-weights])
    return dp_event.MixtureOfGaussiansDpEvent(event.noise_multiplier, counts.tolist(), weights.tolist())


class AverageCase(NamedTuple):
    """The numbers of section 10. S1: (epsilon, delta) and `advantage`; S2 and S3: (amplified, delta)."""

    epsilon: float
    amplified: float
    delta: float
    advantage: float


def average_case(replaced: Profile, delta: float, missed: float, cleared: float) -> AverageCase:
    """Theory, section 10: S1, S2 and S3 from the price of *replacing* a protected record, and the two miss rates.

    epsilon is taken at d0 = delta / g1, so that delta~ = g1 d0 + g2 is at most delta + g2.
    """
    if not 0 <= cleared <= missed <= 1 or missed == 0:
        raise ClaimRefused(
            expected="miss rates between 0 and 1, the one of both policies together no larger, and the other above 0",
            found=f"{missed} and {cleared}",
            way_out="measure them on a labeled sample: an upper confidence bound is never 0",
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
