"""Claims of runs that begin with the model of another run (theory, section 11)."""

from dataclasses import replace
from typing import Any

import pytest

from tacit.common.serialize import from_json, to_json
from tacit.errors import ClaimRefused, ConfigError
from tacit.mechanisms.build import EarlierRun, Measuring, Planned, Terms, plan
from tacit.mechanisms.earlier import ALIKE, DISJOINT, OF_EARLIER, SAME_USERS
from tacit.mechanisms.mechanism import FOREIGN_BASE, KNOWN_SEED
from tacit.mechanisms.registry import describe
from tacit.mechanisms.user import DEALT_USERS
from tacit.privacy.account import account
from tacit.privacy.events import Gaussian, Relation, SampledGaussian
from tacit.privacy.guarantee import Coverage, Evidence, Guarantee, Status
from tacit.privacy.noisy_utility import STEP
from tacit.privacy.plan import Neighbors, Unit

WORDS: dict[str, dict[str, Any]] = {
    "plain": {"records": 1000, "epochs": 1},
    "redaction": {"records": 1000, "epochs": 1},
    "invented": {"records": 1000, "epochs": 1},
    "dpsgd": {"records": 1000, "noise_multiplier": 1.0, "expected_batch_size": 50, "steps": 40},
    "selective": {"records": 1000, "noise_multiplier": 1.0, "expected_batch_size": 50, "steps": 40, "public_epochs": 1},
    "crt": {"records": 1000, "flagged": 500, "noise_multiplier": 1.0, "expected_batch_size": 50, "steps": 40},
    "user": {"records": 1000, "noise_multiplier": 2.0, "expected_batch_size": 50, "steps": 40, "user_cap": 3},
    "uedp": {
        "records": 1000,
        "noise_multiplier": 4.0,
        "expected_batch_size": 50,
        "steps": 20,
        "user_cap": 3,
        "entity_cap": 2,
    },
    "selective-published": {
        "records": 1000,
        "noise_multiplier": 1.1,
        "expected_batch_size": 50,
        "steps": 4,
        "events_per_batch": 2.5,
    },
}
MEASURING = Measuring(200, 2.77)


def priced(mechanism: str, earlier: EarlierRun | None = None, evidence: Evidence | None = None, **more: Any) -> Planned:  # noqa: ANN401
    return plan({"mechanism": mechanism, **WORDS[mechanism], **more}, evidence, earlier=earlier)


def finished(
    mechanism: str,
    earlier: EarlierRun | None = None,
    evidence: Evidence = Evidence(),  # noqa: B008  (frozen)
    measuring: Measuring | None = None,
    **more: Any,  # noqa: ANN401
) -> EarlierRun:
    """A run of `mechanism` that did what it planned, as the beginning of another."""
    terms = terms_of(priced(mechanism, earlier, evidence, **more), earlier, measuring, more)
    return EarlierRun(terms, terms.planned(), evidence, "0" * 64)


def terms_of(
    done: Planned, earlier: EarlierRun | None, measuring: Measuring | None = None, words: dict[str, Any] | None = None
) -> Terms:
    disjoint = bool((words or {}).get("disjoint_from_model"))
    return Terms(describe(done.mechanism), done.plan, False, False, measuring, earlier, disjoint)


def epsilons(guarantee: Guarantee) -> list[float]:
    return [figure.epsilon for figure in guarantee.figures]


def test_two_runs_of_dpsgd_cost_what_one_run_with_both_lists_of_steps_does() -> None:
    """The golden case: no approximation is added by composing."""
    both = priced("dpsgd", finished("dpsgd"), noise_multiplier=1.3, steps=70)
    record = Neighbors(Unit.RECORD)
    alone = account((*priced("dpsgd").plan.spend(record), *both.plan.spend(record)))
    assert both.guarantee.figures[0].epsilon == alone.epsilon(1e-4)
    # the same steps twice are one run that is twice as long
    again = priced("dpsgd", finished("dpsgd")).guarantee.figures[0]
    twice = priced("dpsgd", steps=80).guarantee.figures[0]
    assert (again.epsilon, again.profile, again.curve) == (twice.epsilon, twice.profile, twice.curve)


def test_the_earlier_run_is_not_forgotten() -> None:
    """The negative control: what a run that ignored its base would claim is smaller, and by how much is stated."""
    ignored, base = priced("dpsgd"), finished("dpsgd")
    both = priced("dpsgd", base)
    assert both.guarantee.figures[0].epsilon > 1.2 * ignored.guarantee.figures[0].epsilon
    assert f"epsilon {base.guarantee().figures[0].epsilon:.4g}"[:10] in both.guarantee.sentence()
    assert "a record may be in the corpora of all of them" in both.guarantee.sentence()
    assert both.before == base.spent(Neighbors(Unit.RECORD))


@pytest.mark.parametrize("mechanism", ["dpsgd", "selective", "crt", "user"])
def test_more_in_the_earlier_run_costs_more_now(mechanism: str) -> None:
    evidence = Evidence(policy_id="pii", policy_hash="5eed")
    alone = epsilons(priced(mechanism, None, evidence).guarantee)
    short = epsilons(priced(mechanism, finished(mechanism, evidence=evidence), evidence).guarantee)
    longer = finished(mechanism, evidence=evidence, steps=60)
    long = epsilons(priced(mechanism, longer, evidence).guarantee)
    third = epsilons(priced(mechanism, finished(mechanism, longer, evidence), evidence).guarantee)
    for one, two, three, four in zip(alone, short, long, third, strict=True):
        assert one <= two <= three <= four
        assert one < four or four == 0  # redacted spans of crt are unused, however often


def test_a_chain_of_three_prices_all_three() -> None:
    first = finished("dpsgd", noise_multiplier=1.1)
    second = finished("dpsgd", first, noise_multiplier=1.2)
    third = priced("dpsgd", second, noise_multiplier=1.3)
    events = [(SampledGaussian(noise, 0.05, 1, Relation.ZERO_OUT), 40) for noise in (1.1, 1.2, 1.3)]
    assert third.guarantee.figures[0].epsilon == account(tuple(events)).epsilon(1e-4)
    assert "a model of 2 earlier runs" in third.guarantee.sentence()
    # a middle run that was declared disjoint from the first says nothing about the third's corpus
    apart = finished("dpsgd", first, noise_multiplier=1.2, disjoint_from_model=True)
    assert priced("dpsgd", apart, noise_multiplier=1.3).guarantee.figures[0].epsilon == account(tuple(events)).epsilon(
        1e-4
    )


def test_a_target_is_that_of_all_runs_together() -> None:
    base = finished("dpsgd")
    spent = base.guarantee().figures[0].epsilon
    words: dict[str, Any] = {"noise_multiplier": None, "epsilon": 1.5 * spent}
    both, alone = priced("dpsgd", base, **words), priced("dpsgd", **words)
    assert 0.97 * 1.5 * spent <= both.guarantee.figures[0].epsilon <= 1.5 * spent
    private, other = both.mechanism.private, alone.mechanism.private
    assert private is not None
    assert other is not None
    assert private.noise_multiplier > other.noise_multiplier
    assert both.curve()[0][1] > spent
    assert both.curve()[-1][1] == pytest.approx(both.guarantee.figures[0].epsilon, rel=1e-3)
    with pytest.raises(ClaimRefused, match=r"an epsilon above 1\.944, which the earlier runs have spent") as refused:
        priced("dpsgd", base, noise_multiplier=None, epsilon=spent)
    assert "disjoint_from_model" in refused.value.way_out


def test_delta_is_one_that_suits_every_corpus() -> None:
    large = finished("dpsgd", records=50_000)
    assert priced("dpsgd", large).guarantee.figures[0].delta == 1 / 500_000
    assert priced("dpsgd", finished("dpsgd"), records=50_000).guarantee.figures[0].delta == 1 / 500_000
    with pytest.raises(ClaimRefused, match="a delta above 0 and below one over the number of units"):
        priced("dpsgd", large, delta=1e-4)
    # and a plan.json that was made to say otherwise is not concluded from
    terms = terms_of(priced("dpsgd", delta=1e-4), large)
    with pytest.raises(ClaimRefused, match="a delta above 0"):
        terms.conclude(terms.planned(), Evidence())


@pytest.mark.parametrize(
    ("base", "later", "says"),
    [
        ("dpsgd", "selective", "a record's secrets.*dpsgd, which claims something about a record"),
        ("selective", "dpsgd", "about a record, as.*selective, which claims something about a record's secrets"),
        ("selective", "crt", "a record of the protected set.*something about a record's secrets"),
        ("plain", "dpsgd", "with a guarantee.*plain, without a guarantee"),
        ("selective-published", "selective", "with a guarantee.*as printed"),
        ("selective", "selective-published", "whose steps compose.*as printed"),
        ("uedp", "uedp", "each run lists the entities of its own corpus"),
        ("selective", "redaction", "never read"),
        ("selective", "invented", "never read"),
    ],
)
def test_what_cannot_be_composed_is_refused_unless_corpora_are_disjoint(base: str, later: str, says: str) -> None:
    before = finished(base)
    with pytest.raises(ClaimRefused, match=says) as refused:
        priced(later, before)
    assert "disjoint_from_model=true" in refused.value.way_out
    disjoint = priced(later, before, disjoint_from_model=True).guarantee
    assert epsilons(disjoint) == epsilons(priced(later).guarantee)
    assert DISJOINT in disjoint.holds_if
    expected = "no guarantee for its own corpus" if base == "plain" else before.guarantee().claim
    assert expected in disjoint.sentence()


def test_what_claims_nothing_may_begin_with_anything() -> None:
    assert priced("plain", finished("dpsgd")).guarantee.sentence() == "No guarantee."


def test_redaction_after_redaction_still_reads_nothing_and_noise_may_come_after_it() -> None:
    base = finished("redaction")
    assert epsilons(priced("redaction", base).guarantee) == [0.0]
    assert epsilons(priced("selective", base).guarantee) == epsilons(priced("selective").guarantee)
    assert epsilons(priced("redaction", base).guarantee) == epsilons(
        priced("redaction", finished("redaction", base)).guarantee
    )


def test_every_relation_and_number_of_copies_is_priced_by_itself() -> None:
    evidence = Evidence(policy_hash="5eed")
    base = finished("selective", evidence=evidence)
    found = {figure.neighbors: figure.epsilon for figure in priced("selective", base, evidence).guarantee.figures}
    for neighbors in found:
        steps = priced("selective").plan.spend(neighbors)
        assert found[neighbors] == account((*steps, *steps)).epsilon(1e-4)
    assert len(found) == 5


def test_each_run_caps_users_by_itself() -> None:
    """A user owns at most 5 records of the first corpus and 2 of the second."""
    both = priced("user", finished("user", user_cap=5), user_cap=2).guarantee.figures[0]
    events = [(SampledGaussian(2.0, 0.05, copies, Relation.ZERO_OUT), 40) for copies in (5, 2)]
    assert both.epsilon == account(tuple(events)).epsilon(1e-4)
    assert SAME_USERS in priced("user", finished("user")).guarantee.holds_if
    # users of uedp are capped, too
    assert priced("user", finished("uedp")).guarantee.figures[0].epsilon > 0


def test_records_and_users_must_mean_the_same() -> None:
    turns = Evidence(record_is="one turn of a dialog")
    with pytest.raises(
        ClaimRefused, match=r"what a record is.*one turn of a dialog in the earlier run, and a record in"
    ):
        priced("dpsgd", finished("dpsgd", evidence=turns))
    documents = Evidence(user_origin="each record is taken as one user's")
    with pytest.raises(ClaimRefused, match="the same users"):
        priced("user", finished("user", evidence=documents))
    dealt = Evidence(user_origin=DEALT_USERS)
    with pytest.raises(ClaimRefused, match="dealt at random"):
        priced("user", finished("user", evidence=dealt), dealt)
    rates = Evidence(among_secrets=(Coverage(200, 0), Coverage(200, 0)))
    with pytest.raises(ClaimRefused, match="no average case"):
        priced("crt", finished("crt"), rates)
    assert priced("crt", finished("crt")).guarantee.average_case is None


def test_conditions_of_the_earlier_run_hold_on() -> None:
    seeded = finished("selective", evidence=Evidence(repeatable=True, pretrained=True, accelerated=True))
    later = priced("selective", seeded, Evidence(pretrained=True)).guarantee
    texts = [one.text for one in later.holds_if]
    assert OF_EARLIER + KNOWN_SEED.text in texts
    assert "Not met: for the earlier run: nobody can repeat" in later.sentence()
    assert FOREIGN_BASE in later.holds_if
    assert ALIKE in later.holds_if
    assert len(texts) == len(set(texts))
    third = priced("selective", finished("selective", seeded, Evidence(pretrained=True)), Evidence(pretrained=True))
    unmet = [one for one in third.guarantee.holds_if if one.status == Status.UNMET]
    assert [one.text for one in unmet] == [OF_EARLIER + KNOWN_SEED.text]
    # of disjoint corpora the earlier run's randomness does not matter, but its sentence says so
    disjoint = priced("selective", seeded, disjoint_from_model=True).guarantee
    assert not [one for one in disjoint.holds_if if one.status == Status.UNMET]
    assert "“For each training record" in disjoint.sentence()
    assert "Not met: nobody can repeat" in disjoint.sentence()


def test_a_run_behind_a_disjoint_one_has_conditions_too() -> None:
    """The second corpus shares no unit with the first; nobody said so of the third, whose price includes the first."""
    evidence = Evidence(policy_hash="5eed")
    first = finished("selective", evidence=replace(evidence, repeatable=True))
    third = priced("selective", finished("selective", first, evidence, disjoint_from_model=True), evidence).guarantee
    assert [one.text for one in third.holds_if if one.status == Status.UNMET] == [OF_EARLIER + KNOWN_SEED.text]
    fourth = priced("selective", finished("selective", first, evidence), evidence).guarantee
    assert set(fourth.holds_if) <= set(third.holds_if)
    chose = finished("dpsgd", measuring=replace(MEASURING, chose=True))
    later = priced("dpsgd", finished("dpsgd", chose, disjoint_from_model=True)).guarantee
    assert "held-out records, which chose the model" in later.not_protected
    turns = finished("dpsgd", evidence=Evidence(record_is="one turn of a dialog"))
    with pytest.raises(ClaimRefused, match=r"what a record is.*one turn of a dialog in the earlier run"):
        priced("dpsgd", finished("dpsgd", turns, disjoint_from_model=True))
    dealt = finished("user", evidence=Evidence(user_origin=DEALT_USERS))
    with pytest.raises(ClaimRefused, match="the same users"):
        priced("user", finished("user", dealt, disjoint_from_model=True))
    # nor does `verify` conclude from a plan.json that was put together so
    terms = terms_of(priced("dpsgd"), finished("dpsgd", turns, disjoint_from_model=True))
    with pytest.raises(ClaimRefused, match="what a record is"):
        terms.conclude(terms.planned(), Evidence())


def test_a_record_held_out_twice_is_in_two_noisy_sums() -> None:
    base = finished("dpsgd", measuring=MEASURING)
    terms = terms_of(priced("dpsgd", base), base, Measuring(300, 3.0))
    utility = terms.conclude(terms.planned(), Evidence()).utility
    assert utility is not None
    sums = tuple((Gaussian(noise, 1, Relation.ZERO_OUT), 1) for noise in (2.77, 3.0))
    assert utility.epsilon == account(sums).epsilon(1 / 3000)
    assert "that no earlier run used for training or for choosing its model, the measurements of 2 runs" in str(utility)
    apart = replace(terms, disjoint=True).conclude(terms.planned(), Evidence()).utility
    assert apart is not None
    assert apart.epsilon == account(sums[1:]).epsilon(1 / 3000)
    assert str(apart).endswith("for each held-out record.")


def test_what_is_written_is_concluded_from_alone() -> None:
    """G2 of build: JSON both ways, and what was altered or left out of it no longer gives the same guarantee."""
    first = finished("dpsgd", measuring=MEASURING)
    base = finished("dpsgd", first, measuring=MEASURING)
    terms = terms_of(priced("dpsgd", base), base, MEASURING)
    again = from_json(Terms, to_json(terms))
    assert again == terms
    claim = terms.conclude(terms.planned(), Evidence())
    assert again.conclude(terms.planned(), Evidence()) == claim
    assert base.terms.earlier is not None
    fewer = replace(base, charges={"private": 1, STEP: 1})
    shorter = replace(base, terms=replace(base.terms, earlier=None))
    for spoiled in (None, fewer, shorter):
        other = replace(terms, earlier=spoiled).conclude(terms.planned(), Evidence())
        assert other.figures[0].epsilon < claim.figures[0].epsilon
        assert other.sentence() != claim.sentence()
    quieter = replace(base.terms, plan=priced("dpsgd", noise_multiplier=9.0).plan)
    with pytest.raises(ClaimRefused, match="the plan that follows from it"):
        replace(terms, earlier=replace(base, terms=quieter)).conclude(terms.planned(), Evidence())


def test_disjoint_is_refused_where_no_run_is_the_base() -> None:
    with pytest.raises(ConfigError, match="a model of an earlier run with disjoint_from_model"):
        priced("dpsgd", disjoint_from_model=True)
