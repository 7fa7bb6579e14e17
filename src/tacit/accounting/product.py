"""The one accountant of the product, from plan to report.

G1. Exact where a closed form exists; dp-accounting's PLD where every unit owns one record and a grid is affordable,
    for deltas of 1e-8 or more: below, its rounding begins to show; else our PLD, which counts its rounding as loss;
    where no grid of losses is tight, for the hops of a replacement and for the small deltas, the smaller of ours and
    RDP, which both hold. The profile's `accountant` says which it was.
G2. PLD is checked against RDP at several deltas: if it is larger, something is wrong and no number is given.
"""

from functools import lru_cache
from typing import Protocol

from tacit.accounting.closed_form import ClosedForm, has_closed_form
from tacit.accounting.library import LibraryPLD
from tacit.accounting.pairs import put_in_order
from tacit.accounting.pld import PLD, privacy_loss_law
from tacit.accounting.profile import Profile, SmallerOf, Split, TwoHops
from tacit.accounting.renyi import RDP
from tacit.errors import ClaimRefused
from tacit.events import Composition, SampledGaussian

_CHECKED_DELTAS = (1e-3, 1e-5, 1e-8)
_LIBRARY_SMALLEST_DELTA = 1e-8  # with 100,000 steps it is .01 below the true epsilon at 1e-11: rounding
_LIBRARY_INTERVALS = (1e-3, 1e-4)
_LIBRARY_LOOSENESS = 1.003
_LIBRARY_MOST_STEPS, _LIBRARY_MOST_EPSILON = 100_000, 150.0  # beyond these its grids outgrow seconds and memory


class Accountant(Protocol):
    """Turns a composition into its privacy profile."""

    @property
    def name(self) -> str:
        """What the certificate calls it."""

    def profile(self, composition: Composition) -> Profile:
        """The profile of the composition."""


@lru_cache(maxsize=256)
def account(composition: Composition) -> Profile:
    """What the composition costs, cross-checked."""
    profile = quick_account(composition)
    if profile.accountant != PLD().name:
        return profile
    profile = _by_the_library(composition, profile)
    check = RDP(strict=False).profile(composition)
    for delta in _CHECKED_DELTAS:
        spent, bound = profile.epsilon(delta), check.epsilon(delta)
        if spent > 1.01 * bound + 1e-4:
            raise ClaimRefused(
                expected=f"an epsilon of at most {bound:.6g} (RDP) at delta {delta:g}",
                found=f"{spent:.6g} ({profile.accountant})",
                way_out="report this composition: the two accountants contradict each other",
            )
    return profile


def _by_the_library(composition: Composition, quick: Profile) -> Profile:
    """dp-accounting's profile, on the coarsest grid that is about as tight as `quick`; `quick` itself if none is."""
    spent = put_in_order(composition)
    alone = all(isinstance(event, SampledGaussian) and event.copies == 1 for event, _ in spent.events)
    steps = sum(count for _, count in spent.events)
    tightest = {delta: quick.epsilon(delta) for delta in _CHECKED_DELTAS}
    if alone and steps <= _LIBRARY_MOST_STEPS and max(tightest.values()) <= _LIBRARY_MOST_EPSILON:
        for interval in _LIBRARY_INTERVALS:
            profile = LibraryPLD(interval).profile(composition)
            if all(profile.epsilon(delta) <= _LIBRARY_LOOSENESS * tight for delta, tight in tightest.items()):
                below = SmallerOf(quick.law, RDP(strict=False).profile(composition).law)
                law = Split(profile.law, below, _LIBRARY_SMALLEST_DELTA)
                return Profile(profile.accountant, profile.relation, law)
    return quick


@lru_cache(maxsize=64)
def quick_account(composition: Composition) -> Profile:
    """As `account`, without the cross-check: for searches that check their result at the end."""
    spent = put_in_order(composition)
    if spent.unbounded or has_closed_form(spent):
        return ClosedForm().profile(composition)
    hop = spent.one_hop if spent.needs_two_hops else spent
    law = privacy_loss_law(hop)
    if not (law.coarse or spent.needs_two_hops):
        return Profile(PLD().name, spent.relation, law)
    both = SmallerOf(law, RDP(strict=False).law(hop))
    if spent.needs_two_hops:
        # e^e1 d(e2) asks for deltas far below what a Fourier transform can resolve; there RDP takes over
        return Profile(f"{PLD().name} or RDP, the smaller at each hop", spent.relation, TwoHops(both))
    return Profile(f"{PLD().name}, grid coarse, or RDP, the smaller", spent.relation, both)
