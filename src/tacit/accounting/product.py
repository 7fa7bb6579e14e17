"""The one accountant of the product, from plan to report.

G1. Exact where a closed form exists; else our PLD, whose rounding is bounded and counted as loss, or RDP where that is
    smaller: for small deltas, where no grid of losses is tight, and for the hops of a replacement. Both hold. The
    profile's `accountant` says which it was.
G2. PLD is checked against RDP at several deltas: if it is larger, something is wrong and no number is given.
G3. Where every unit owns one record and its grids are affordable, dp-accounting prices the same; if both agree the
    profile's `accountant` says so. It is not quoted itself: the rounding of its transform has no bound.
"""

from functools import lru_cache
from typing import Protocol

from tacit.accounting.closed_form import ClosedForm, has_closed_form
from tacit.accounting.library import LibraryPLD
from tacit.accounting.pairs import put_in_order
from tacit.accounting.pld import PLD, privacy_loss_law
from tacit.accounting.profile import Profile, SmallerOf, TwoHops
from tacit.accounting.renyi import RDP
from tacit.errors import ClaimRefused
from tacit.events import Composition, SampledGaussian

_CHECKED_DELTAS = (1e-3, 1e-5, 1e-8)
_NOTICED = 1e-11  # lost mass that begins to show at small deltas
_LIBRARY_INTERVALS = (1e-3, 1e-4)
_LOOSENESS = 1.003
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
    check = RDP(strict=False).profile(composition)
    for delta in _CHECKED_DELTAS:
        spent, bound = profile.epsilon(delta), check.epsilon(delta)
        if spent > 1.01 * bound + 1e-4:
            raise ClaimRefused(
                expected=f"an epsilon of at most {bound:.6g} (RDP) at delta {delta:g}",
                found=f"{spent:.6g} ({profile.accountant})",
                way_out="report this composition: the two accountants contradict each other",
            )
    name = f"{profile.accountant}, confirmed by {LibraryPLD().name}" if _confirmed(composition, profile) else PLD().name
    return Profile(name, profile.relation, SmallerOf(profile.law, check.law))


def _confirmed(composition: Composition, profile: Profile) -> bool:
    """Whether dp-accounting can price this and agrees, on one of its grids."""
    spent = put_in_order(composition)
    alone = all(isinstance(event, SampledGaussian) and event.copies == 1 for event, _ in spent.events)
    steps = sum(count for _, count in spent.events)
    ours = {delta: profile.epsilon(delta) for delta in _CHECKED_DELTAS}
    if not (alone and steps <= _LIBRARY_MOST_STEPS and max(ours.values()) <= _LIBRARY_MOST_EPSILON):
        return False
    theirs = (LibraryPLD(interval).profile(composition) for interval in _LIBRARY_INTERVALS)
    return any(
        all(1 / _LOOSENESS <= other.epsilon(delta) / own <= _LOOSENESS for delta, own in ours.items() if own > 0)
        for other in theirs
    )


@lru_cache(maxsize=64)
def quick_account(composition: Composition) -> Profile:
    """As `account`, without the cross-check: for searches that check their result at the end."""
    spent = put_in_order(composition)
    if spent.unbounded or has_closed_form(spent):
        return ClosedForm().profile(composition)
    hop = spent.one_hop if spent.needs_two_hops else spent
    law = privacy_loss_law(hop)
    tight = not (law.coarse or spent.needs_two_hops)
    if tight and law.lost <= _NOTICED:
        return Profile(PLD().name, spent.relation, law)
    both = SmallerOf(law, RDP(strict=False).law(hop))
    if tight:
        return Profile(PLD().name, spent.relation, both)
    if spent.needs_two_hops:
        # e^e1 d(e2) asks for deltas far below what a Fourier transform can resolve; there RDP takes over
        return Profile(f"{PLD().name} or RDP, the smaller at each hop", spent.relation, TwoHops(both))
    return Profile(f"{PLD().name}, grid coarse, or RDP, the smaller", spent.relation, both)
