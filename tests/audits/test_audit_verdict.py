"""Verdicts: consistent, contradicted, not comparable; one sentence, an exit code, and never "certified"."""

from dataclasses import replace

import numpy as np
import pytest

from tacit.audits.attacks.epsilon import delta_for, judge, measured_by
from tacit.audits.epsilon_bounds import LowerBound, one_run_bound
from tacit.audits.findings import Outcome, Verdict
from tacit.audits.statistics import Judged
from tacit.privacy.events import Gaussian, Relation
from tacit.privacy.guarantee import Evidence, Guarantee, figure, unused
from tacit.privacy.plan import Neighbors, Unit

DELTA = 1e-5
SECRETS, RECORD = Neighbors(Unit.SECRETS), Neighbors(Unit.RECORD)


def claim(noise: float, *neighbors: Neighbors) -> Guarantee:
    figures = tuple(figure(((Gaussian(noise, one.copies, one.relation), 1),), one, DELTA, 1000) for one in neighbors)
    return Guarantee("some mechanism", "A claim.", figures, (), (), Evidence())


def bound(epsilon: float, delta: float = DELTA) -> LowerBound:
    return LowerBound(epsilon, delta, 0.95)


def run(mu: float, canaries: int = 5000) -> Judged:
    generator = np.random.default_rng(1)
    inside = generator.random(canaries) < 0.5
    return Judged(tuple(map(str, range(canaries))), generator.normal(size=canaries) + mu * inside, inside)


def test_a_bound_contradicts_iff_it_is_above_the_claim() -> None:
    """G1, to the last digit."""
    guarantee = claim(1.0, SECRETS)
    epsilon = guarantee.figures[0].epsilon
    below = judge(guarantee, SECRETS, bound(epsilon))
    above = judge(guarantee, SECRETS, bound(np.nextafter(epsilon, 9)))
    assert (below.outcome, below.exit_code) == (Outcome.CONSISTENT, 0)
    assert (above.outcome, above.exit_code) == (Outcome.CONTRADICTED, 3)


def test_the_sentence_says_what_was_found() -> None:
    guarantee = claim(1.0, SECRETS)
    assert judge(guarantee, SECRETS, bound(9.87654)).sentence == (
        "Contradicted: with 95 % confidence epsilon for a record's secrets, zero-out is at least 9.876 at delta 1e-05, "
        "and the claim is 4.378."
    )
    assert judge(guarantee, SECRETS, bound(1.23456)).sentence == (
        "Consistent: with 95 % confidence epsilon for a record's secrets, zero-out is at least 1.234 at delta 1e-05, "
        "which does not exceed the claimed (4.378, 1e-05); a stronger attack might find more."
    )
    assert judge(guarantee, RECORD, bound(1.0)).sentence == (
        "Not comparable: the attack measured a record, zero-out; the claim protects a record's secrets, zero-out."
    )


@pytest.mark.parametrize(
    "measured",
    [RECORD, Neighbors(Unit.USER), Neighbors(Unit.SECRETS, Relation.REPLACE), Neighbors(Unit.SECRETS, copies=5)],
)
def test_another_unit_is_not_comparable_however_high_the_bound(measured: Neighbors) -> None:
    """G2."""
    verdict = judge(claim(1.0, SECRETS), measured, bound(50.0))
    assert (verdict.outcome, verdict.exit_code) == (Outcome.NOT_COMPARABLE, 0)


def test_the_figure_for_the_unit_is_chosen_among_several() -> None:
    several = claim(1.0, SECRETS, Neighbors(Unit.SECRETS, copies=5), RECORD)
    one, five = several.figures[0].epsilon, several.figures[1].epsilon
    between = bound((one + five) / 2)
    assert judge(several, SECRETS, between).outcome is Outcome.CONTRADICTED
    assert judge(several, Neighbors(Unit.SECRETS, copies=3), between).outcome is Outcome.CONSISTENT
    assert judge(several, Neighbors(Unit.SECRETS, copies=6), between).outcome is Outcome.NOT_COMPARABLE


def test_a_run_without_a_figure_is_not_comparable() -> None:
    nothing = Guarantee("plain", "No guarantee.", (), (), (), Evidence())
    verdict = judge(nothing, RECORD, bound(5.0))
    assert verdict.outcome is Outcome.NOT_COMPARABLE
    assert "plain guarantees nothing" in verdict.sentence


def test_other_deltas_are_compared_with_the_claim_at_a_smaller_one() -> None:
    """At delta .1 the profile claims less than at 1e-5; below every claimed delta nothing is claimed."""
    guarantee = claim(1.0, SECRETS)
    profile = dict((delta, epsilon) for epsilon, delta in guarantee.figures[0].profile)  # noqa: C402
    assert judge(guarantee, SECRETS, bound(profile[1e-1] + 0.01, 0.1)).outcome is Outcome.CONTRADICTED
    assert judge(guarantee, SECRETS, bound(profile[1e-2] + 0.01, 0.05)).outcome is Outcome.CONTRADICTED
    assert judge(guarantee, SECRETS, bound(profile[1e-2] - 0.01, 0.05)).outcome is Outcome.CONSISTENT
    verdict = judge(guarantee, SECRETS, bound(50.0, 1e-12))
    assert verdict.outcome is Outcome.NOT_COMPARABLE
    assert "1e-12" in verdict.sentence


def test_a_claim_of_nothing_read_is_contradicted_by_anything() -> None:
    zero = unused((), SECRETS)
    redacted = Guarantee("redaction", "Removed.", (zero,), (), (), Evidence())
    assert judge(redacted, SECRETS, bound(0.0)).outcome is Outcome.CONSISTENT
    assert judge(redacted, SECRETS, bound(0.1)).outcome is Outcome.CONTRADICTED
    assert judge(redacted, SECRETS, bound(0.1, 0.0)).outcome is Outcome.CONTRADICTED
    replaced = replace(SECRETS, relation=Relation.REPLACE)
    assert judge(redacted, replaced, bound(0.1)).outcome is Outcome.CONTRADICTED
    assert judge(redacted, RECORD, bound(0.1)).outcome is Outcome.NOT_COMPARABLE
    assert measured_by(redacted, known=True, flagged=False, replaced=True, copies=1) == replaced
    assert redacted.figures[0].delta == 0 < delta_for(redacted)
    assert delta_for(claim(1.0, SECRETS)) == DELTA


@pytest.mark.statistical
def test_real_bounds_against_true_and_false_claims() -> None:
    """False alarm: 1e-3. Control: a claim of a third of the mu is contradicted."""
    honest, broken = claim(1.0, SECRETS), claim(3.0, SECRETS)
    found = one_run_bound(run(1.0), DELTA, 0.999)
    assert judge(honest, SECRETS, found).outcome is Outcome.CONSISTENT
    assert judge(broken, SECRETS, found).outcome is Outcome.CONTRADICTED


def test_the_whole_profile_is_held_against_a_run() -> None:
    """One epsilon alone would not do."""
    guarantee = claim(1.0, SECRETS)
    found = one_run_bound(run(2.0), DELTA)
    assert found.epsilon < guarantee.figures[0].epsilon
    verdict = judge(guarantee, SECRETS, found)
    assert verdict.outcome is Outcome.CONTRADICTED
    assert "too unlikely under the whole profile" in verdict.sentence
    assert judge(guarantee, SECRETS, replace(found, guesses=())).outcome is Outcome.CONSISTENT


def test_nothing_is_ever_certified() -> None:
    sentences = [judge(claim(1.0, SECRETS), one, bound(two)).sentence for one in (SECRETS, RECORD) for two in (0, 9)]
    assert not any(word in sentence.lower() for sentence in sentences for word in ("certif", "proved", "safe"))


def test_only_a_contradiction_fails_a_script() -> None:
    assert {outcome: Verdict(outcome, "").exit_code for outcome in Outcome} == {
        Outcome.CONSISTENT: 0,
        Outcome.CONTRADICTED: 3,
        Outcome.NOT_COMPARABLE: 0,
    }
