"""What a claim is worth when training began with the model of an earlier run (theory, section 11).

G1 (same question). What the earlier run spent is added only where its steps have a price for the same unit and
   relation; everything else is refused, and named.
G2 (all conditions). A composed claim holds under the conditions of both runs; one that is not met there is unmet here.
G3 (declared). Corpora are disjoint only if a person declares it. Then nothing is added, and the claim assumes it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from tacit.common.formatting import rounded_up
from tacit.errors import ClaimRefused
from tacit.mechanisms.mechanism import FOREIGN_BASE, Mechanism, PrivateSteps, Spent
from tacit.mechanisms.user import DEALT_USERS
from tacit.privacy.account import account, check_delta, quick_account
from tacit.privacy.events import Composition, NoisyEvent
from tacit.privacy.guarantee import BY_POLICY, Condition, Evidence, Guarantee, Status
from tacit.privacy.plan import Neighbors, Step, Unit, cost

DISJOINT = Condition("no unit of this corpus was in the corpora of the earlier runs", Status.ASSUMED)
ALIKE = Condition("a record that is in the corpora of several runs has the same text in all of them", Status.ASSUMED)
SAME_USERS = Condition("a user who is in the corpora of several runs has the same name in all of them", Status.ASSUMED)
OF_EARLIER = "for the earlier run: "
DECLARE = "if no unit of this corpus was in its corpus, declare it: --set disjoint_from_model=true"
_LISTED = (Unit.ENTITY, Unit.USER_AND_ENTITY)
_CAPPED = (Unit.USER,)


def earlier_price(mechanism: Mechanism, executed: Mapping[Step, int], claimed: Neighbors) -> Composition:
    """What the steps of an earlier run cost the unit of a later claim; refused where they have no price for it.

    A user owns as many records as the earlier run's own cap allows, whatever the cap of the later one.
    """
    own = [one for one in mechanism.notions() if one.unit == claimed.unit]
    if not own:
        known = " and ".join(dict.fromkeys(one.unit for one in mechanism.notions()))
        raise ClaimRefused(
            expected=f"an earlier run that claims something about {claimed.unit}, as it may be in both corpora",
            found=f"{mechanism.name}, which claims " + (f"something about {known}" if known else "nothing"),
            way_out=f"use a mechanism that protects the same; {DECLARE}",
        )
    if claimed.unit in _LISTED:
        raise ClaimRefused(
            expected="a claim about records or users: each run lists the entities of its own corpus",
            found=f"one about {claimed.unit}, which the earlier run may not have listed",
            way_out=f"use the mechanism user; {DECLARE}",
        )
    priced = replace(claimed, copies=max(one.copies for one in own)) if claimed.unit in _CAPPED else claimed
    return tuple((cost(step, priced), times) for step, times in executed.items() if times)


def check_composable(mechanism: Mechanism, evidence: Evidence, earlier: Guarantee) -> None:
    """Refuse a claim about units that the earlier run did not mean, or whose sum of prices nobody has proved."""
    if not earlier.figures or earlier.published is not None:
        raise ClaimRefused(
            expected="an earlier run with a guarantee, as units may be in both corpora",
            found=f"{earlier.mechanism}"
            + (", an algorithm as printed" if earlier.figures else ", without a guarantee"),
            way_out=f"begin with another model; {DECLARE}",
        )
    units = {one.unit for one in mechanism.notions()}
    before = earlier.evidence
    if before.record_is != evidence.record_is:
        raise _differs(
            "what a record is (segment_by)", before.record_is or "a record", evidence.record_is or "a record"
        )
    if Unit.USER in units and before.user_origin != evidence.user_origin:
        given = "as the corpus names them"
        raise _differs("users", before.user_origin or given, evidence.user_origin or given)
    if Unit.USER in units and evidence.user_origin == DEALT_USERS:
        raise ClaimRefused(
            expected="users who are the same in both corpora",
            found="users who were dealt at random (user_source)",
            way_out=f"name the user of every record; {DECLARE}",
        )
    if evidence.among_secrets is not None:
        raise ClaimRefused(
            expected="no average case over several runs: its miss rates are those of one corpus",
            found="miss rates among records with secrets",
            way_out=f"leave marking.coverage out; {DECLARE}",
        )


def same_delta(private: PrivateSteps, earlier: Iterable[PrivateSteps]) -> PrivateSteps:
    """Private steps whose delta is below one over the units of every run; the smallest of all unless one was given."""
    known = tuple(earlier)
    if private.chosen_delta is None:
        private = replace(private, chosen_delta=min([private.delta, *(one.delta for one in known)]))
    check_deltas(private, known)
    return private


def check_deltas(private: PrivateSteps, earlier: Iterable[PrivateSteps]) -> None:
    for one in earlier:
        check_delta(private.delta, one.population)


def check_left(mechanism: Mechanism, before: Spent, epsilon: float | None) -> None:
    """Refuse a target that the earlier runs have used up, and a claim of 0 after they spent something."""
    headline = mechanism.notions()[0]
    if mechanism.private is None:
        if any(isinstance(event, NoisyEvent) for done in before.values() for event, _ in done):
            raise ClaimRefused(
                expected="a mechanism whose claim can include what the earlier run spent",
                found=f"{mechanism.name}, which claims that protected content was never read",
                way_out=f"use one with private steps, such as selective; {DECLARE}",
            )
        return
    spent = quick_account(before[headline]).epsilon(mechanism.private.delta)
    if epsilon is not None and spent >= epsilon:
        raise ClaimRefused(
            expected=f"an epsilon above {rounded_up(spent, 4)}, which the earlier runs have spent already",
            found=f"epsilon {epsilon:g} for all runs together, at delta {rounded_up(mechanism.private.delta, 3)}",
            way_out=f"raise epsilon; {DECLARE}",
        )


def composed(guarantee: Guarantee, earlier: Sequence[Guarantee], before: Composition, runs: int) -> Guarantee:
    """`guarantee`, whose figures include what earlier runs spent, with their conditions and in words.

    earlier: their claims. before: what they spent of the headline.
    """
    if guarantee.published is not None:
        raise ClaimRefused(
            expected="a mechanism whose steps compose with those of the earlier run",
            found=f"{guarantee.mechanism}, an algorithm as printed",
            way_out=f"use another mechanism; {DECLARE}",
        )
    units = {one.neighbors.unit for one in guarantee.figures}
    about = [ALIKE] if units & BY_POLICY else []
    about += [SAME_USERS] if Unit.USER in units else []
    headline = guarantee.figures[0]
    spent = rounded_up(account(before).epsilon(headline.delta), 4) if headline.delta else "0"
    began = "the model of an earlier run" if runs == 1 else f"a model of {runs} earlier runs, each on top of the last"
    return replace(
        guarantee,
        holds_if=(*guarantee.holds_if, *about, *_carried(guarantee, earlier)),
        not_protected=tuple(dict.fromkeys(what for one in (guarantee, *earlier) for what in one.not_protected)),
        average_case=None,
        earlier=f"Training began with {began}, and the figures include what was spent there (epsilon {spent} at the "
        f"same delta): {headline.neighbors.unit} may be in the corpora of all of them.",
    )


def apart(guarantee: Guarantee, earlier: Guarantee) -> Guarantee:
    """`guarantee` of a corpus that shares no unit with those of earlier runs, by declaration."""
    own = "that run has no guarantee for its own corpus."
    if earlier.figures:
        claim = replace(earlier, coverage=(), utility=None).sentence()
        own = f"that run's guarantee is about its own corpus: “{claim}”"
    text = f"Training began with the model of an earlier run whose corpus shares no unit with this one (assumed); {own}"
    return replace(guarantee, holds_if=(*guarantee.holds_if, DISJOINT), earlier=text)


def _carried(guarantee: Guarantee, earlier: Iterable[Guarantee]) -> Iterable[Condition]:
    """Conditions of earlier claims that the later one does not have; a foreign base is about this corpus, too."""
    known = (*guarantee.holds_if, FOREIGN_BASE, ALIKE, SAME_USERS)
    conditions = (one for claim in earlier for one in claim.holds_if if one not in known)
    named = (one if one.text.startswith(OF_EARLIER) else replace(one, text=OF_EARLIER + one.text) for one in conditions)
    return dict.fromkeys(named)


def _differs(what: str, before: str, now: str) -> ClaimRefused:
    return ClaimRefused(
        expected=f"the same {what} in both runs, as units may be in both corpora",
        found=f"{before} in the earlier run, and {now} in this one",
        way_out=f"use the same; {DECLARE}",
    )
