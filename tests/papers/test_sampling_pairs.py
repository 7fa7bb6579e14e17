"""The two-level draw of users and entities: coins, rows, empty draws, memory; and what is refused.

Each statistical test states its false-alarm rate and has a control that it must catch. Seeds are fixed: a failure is
repeatable.
"""

import tracemalloc
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, norm

from tacit.errors import ConfigError, RunError
from tacit.papers.algorithms import PairSampler
from tacit.privacy.plan import Noisy, Phase, Plan, Pool, Step, UsersAndEntities, View
from tacit.training.pools import Annotation, DrawnUnits, Pools, RowEntities, ShuffleState, Units, bernoulli_positions
from tacit.training.sampling import Samplers, sampler_for

LIMIT = 1e-6
Ids = tuple[int, ...]


def chance(seed: int = 0) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64DXSM(seed))


def a_draw(sampler: PairSampler, generator: np.random.Generator) -> DrawnUnits:
    (batch,) = sampler.draw(generator)
    return batch


def annotated(users: list[int], entities: list[Ids], count: int, **marks: npt.NDArray[np.bool_]) -> Annotation:
    rows = len(users)
    return Annotation(
        np.arange(rows, dtype=np.uint64),
        np.array(users, dtype=np.uint64),
        np.zeros(rows, np.int64),
        entities=RowEntities.of(entities, count),
        **marks,
    )


def sampler_of(users: list[int], entities: list[Ids], count: int, rates: UsersAndEntities) -> PairSampler:
    sampler = sampler_for(rates, Pool.EVERY, Pools(annotated(users, entities, count)))
    assert isinstance(sampler, PairSampler)
    return sampler


# --- G1: coins; statistical ---

USERS, DRAWS = 24, 5000
RATES = UsersAndEntities(user_rate=0.3, entity_rate=0.4, other_rate=0.15)
KINDS: tuple[Ids, ...] = ((), (0,), (1,), (0, 1), (0, 1, 2))  # each user has one row of each
PROBABILITIES = (0.15, 0.4, 0.4, 1 - 0.6**2, 1 - 0.6**3)  # that a drawn user's row is taken
Inclusion = npt.NDArray[np.bool_]  # (draws, users, kinds)
Draw = Callable[[np.random.Generator], npt.NDArray[np.int64]]


def included(draw: Draw) -> Inclusion:
    generator, found = chance(11), np.zeros((DRAWS, USERS * len(KINDS)), dtype=np.bool_)
    for line in found:
        line[draw(generator)] = True
    return found.reshape(DRAWS, USERS, len(KINDS))


def two_sided(found: float, trials: int, rate: float) -> float:
    return min(1.0, 2 * float(min(binom.cdf(found, trials, rate), binom.sf(found - 1, trials, rate))))


def memory_p(products: npt.NDArray[np.float64]) -> float:
    """One product of centred numbers for each two draws in a row: without memory uncorrelated, of mean zero."""
    return 2 * norm.sf(abs(products.sum()) / np.sqrt(np.sum(products**2)))  # type: ignore[no-any-return]


def p_values(inclusion: Inclusion) -> dict[str, float]:
    """Exact ones with Bonferroni where it is the least of several; those of memory normal for thousands of draws."""
    rates = 0.3 * np.array(PROBABILITIES)
    frequency = [
        two_sided(int(inclusion[:, user, kind].sum()), DRAWS, rates[kind])
        for user in range(USERS)
        for kind in range(len(KINDS))
    ]
    met = inclusion[:, :12, 1] & inclusion[:, 12:, 1]  # both users drawn, and entity 0: one coin for both
    shared = [two_sided(int(met[:, pair].sum()), DRAWS, 0.3**2 * 0.4) for pair in range(12)]
    other = inclusion[:, :12, 1] & inclusion[:, 12:, 2]  # and entities 0 and 1: two coins
    apart = [two_sided(int(other[:, pair].sum()), DRAWS, 0.3**2 * 0.4**2) for pair in range(12)]
    plain = inclusion[:, :12, 0] & inclusion[:, 12:, 0]
    rows = [two_sided(int(plain[:, pair].sum()), DRAWS, (0.3 * 0.15) ** 2) for pair in range(12)]
    centred = inclusion - rates
    whole = centred.sum(axis=(1, 2))
    return {
        "frequency": min(1.0, len(frequency) * min(frequency)),
        "one coin an entity": min(1.0, 12 * min(shared)),
        "entities apart": min(1.0, 12 * min(apart)),
        "other rows apart": min(1.0, 12 * min(rows)),
        "memory of a row": memory_p(np.sum(centred[:-1] * centred[1:], axis=(1, 2))),
        "memory of a draw": memory_p(whole[:-1] * whole[1:]),
    }


def alarms(draw: Draw) -> set[str]:
    return {name for name, value in p_values(included(draw)).items() if value < LIMIT}


def corpus() -> tuple[list[int], list[Ids]]:
    return [user + 1 for user in range(USERS) for _ in KINDS], list(KINDS) * USERS


def the_sampler(rates: UsersAndEntities = RATES) -> Draw:
    sampler = sampler_of(*corpus(), 3, rates)
    return lambda generator: a_draw(sampler, generator).rows


def slow_twin(
    generator: np.random.Generator, *, per_user: bool = False, every: bool = False, one_user_coin: bool = False
) -> npt.NDArray[np.int64]:
    """A coin at a time, read off the docstring; and three ways to get it wrong."""
    entities = {e for e in range(3) if generator.random() < 0.4}
    together = generator.random() < 0.3
    rows = []
    for user in range(USERS):
        drawn = together if one_user_coin else generator.random() < 0.3
        if per_user:
            entities = {e for e in range(3) if generator.random() < 0.4}
        for kind, ids in enumerate(KINDS):
            hit = entities >= set(ids) if every else bool(entities & set(ids))
            taken = hit if ids else generator.random() < 0.15
            if drawn and taken:
                rows.append(user * len(KINDS) + kind)
    return np.array(rows, dtype=np.int64)


def sticky() -> Draw:
    """Every second draw is the one before."""
    fresh, kept = the_sampler(), list[npt.NDArray[np.int64]]()

    def draw(generator: np.random.Generator) -> npt.NDArray[np.int64]:
        if kept:
            return kept.pop()
        kept.append(fresh(generator))
        return kept[0]

    return draw


@pytest.mark.statistical
def test_g1_users_and_entities_are_independent_coins() -> None:
    """False alarm 6e-6: six p-values against 1e-6."""
    assert alarms(the_sampler()) == set()


@pytest.mark.statistical
def test_the_slow_twin_passes() -> None:
    """False alarm 6e-6."""
    assert alarms(slow_twin) == set()


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("draw", "caught"),
    [
        (the_sampler(UsersAndEntities(0.36, 0.4, 0.15)), {"frequency"}),
        (the_sampler(UsersAndEntities(0.3, 0.5, 0.15)), {"frequency"}),
        (the_sampler(UsersAndEntities(0.3, 0.4, 0.25)), {"frequency"}),
        (lambda generator: slow_twin(generator, every=True), {"frequency"}),
        (lambda generator: slow_twin(generator, per_user=True), {"one coin an entity"}),
        (lambda generator: slow_twin(generator, one_user_coin=True), {"one coin an entity", "other rows apart"}),
        (sticky(), {"memory of a row", "memory of a draw"}),
    ],
    ids=["more users", "more entities", "more others", "all entities", "entities a user", "one user coin", "sticky"],
)
def test_controls_are_caught(draw: Draw, caught: set[str]) -> None:
    assert caught <= alarms(draw)


# --- G2: rows ---

corpora = st.lists(
    st.tuples(st.integers(1, 4), st.lists(st.integers(0, 5), max_size=3).map(tuple)), min_size=1, max_size=30
)


@given(
    corpora,
    st.sampled_from([0.3, 0.7, 1.0]),
    st.sampled_from([0.3, 0.7]),
    st.sampled_from([0.0, 1.0]),
    st.integers(0, 99),
)
def test_g2_rows_are_those_of_a_loop_over_the_same_coins(
    rows: list[tuple[int, Ids]], user_rate: float, entity_rate: float, other_rate: float, seed: int
) -> None:
    """The coins of users, then of entities, tossed again from the same seed; then one row after another."""
    users, entities = [user for user, _ in rows], [ids for _, ids in rows]
    batch = a_draw(sampler_of(users, entities, 6, UsersAndEntities(user_rate, entity_rate, other_rate)), chance(seed))
    same, known = chance(seed), sorted(set(users))
    drawn_users = [known[place] for place in bernoulli_positions(len(known), user_rate, same)]
    drawn = set(bernoulli_positions(6, entity_rate, same).tolist())
    wanted = [
        [
            row
            for row, (owner, ids) in enumerate(rows)
            if owner == user and (drawn & set(ids) or (not ids and other_rate))
        ]
        for user in drawn_users
    ]
    assert [unit.tolist() for unit in batch.units()] == [unit for unit in wanted if unit]


def test_g2_the_estimator_without_other_rows_takes_none() -> None:
    sampler = sampler_of([1, 1, 2], [(0,), (), ()], 1, UsersAndEntities(1.0, 1.0, 0.0))
    assert a_draw(sampler, chance()).rows.tolist() == [0]


def test_g2_a_pool_limits_the_rows() -> None:
    """A user's other rows, and their entities, are out of reach."""
    kept = np.array([True, False, True, True])
    annotation = annotated([1, 1, 1, 2], [(0,), (0,), (), (1,)], 2, kept=kept)
    batch = a_draw_of(annotation, Pool.CAPPED, UsersAndEntities(1.0, 1.0, 1.0))
    assert [rows.tolist() for rows in batch.units()] == [[0, 2], [3]]


def a_draw_of(annotation: Annotation, pool: Pool, rates: UsersAndEntities) -> DrawnUnits:
    (batch,) = sampler_for(rates, pool, Pools(annotation)).draw(chance())
    return batch


# --- G3: a draw is a draw ---


def test_g3_an_empty_draw_is_a_draw() -> None:
    """No user; users without entities; no listed entity at all."""
    for sampler in (
        sampler_of([1, 2], [(0,), ()], 1, UsersAndEntities(1e-9, 1.0, 1.0)),
        sampler_of([1, 2], [(0,), ()], 1, UsersAndEntities(1.0, 1e-9, 0.0)),
        sampler_of([1, 2], [(), ()], 0, UsersAndEntities(1.0, 1.0, 0.0)),
    ):
        generator = chance()
        batch = a_draw(sampler, generator)
        assert (len(batch), batch.rows.tolist(), list(batch.units())) == (0, [], [])
        assert batch.rows.dtype == batch.offsets.dtype == np.int64
        assert generator.bit_generator.state != chance().bit_generator.state


def test_g3_users_without_a_row_left_are_not_in_the_batch() -> None:
    sampler = sampler_of([1, 2, 3, 3], [(0,), (), (), (0,)], 1, UsersAndEntities(1.0, 1.0, 0.0))
    assert [rows.tolist() for rows in a_draw(sampler, chance()).units()] == [[0], [3]]


# --- G4: cheap ---


def test_g4_a_draw_from_a_million_rows_allocates_no_more_than_from_ten_thousand() -> None:
    """Control: a mark for each row would be a million bytes."""

    def peak(rows: int) -> int:
        offsets, count = np.arange(rows + 1) // 2, rows // 10
        entities = RowEntities(offsets, np.arange(rows // 2, dtype=np.int32) % count, count)
        users = Units(np.arange(rows), np.arange(0, rows + 1, 10))
        sampler = PairSampler(users, entities, UsersAndEntities(200 / rows, 200 / rows, 0.5))
        generator = chance()
        tracemalloc.start()
        for _ in range(20):
            a_draw(sampler, generator)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    assert peak(1_000_000) < 2 * peak(10_000) + 4096 < 100_000


# --- the annotation ---


def test_entities_are_flat_arrays() -> None:
    entities = RowEntities.of([(2, 0, 2), (), {1}], 3)
    assert (entities.offsets.tolist(), entities.ids.tolist(), len(entities)) == ([0, 2, 2, 3], [0, 2, 1], 3)
    assert [entities.offsets.dtype.name, entities.ids.dtype.name] == ["int32", "int32"]
    assert len(RowEntities.of([], 0)) == 0


@pytest.mark.parametrize(
    ("offsets", "ids", "count"),
    [
        ([0, 1], [3], 3),  # no such entity
        ([0, 1], [-1], 3),
        ([0, 2, 1, 3], [0, 0, 0], 1),  # falls
        ([1, 2], [0, 0], 1),  # does not begin at 0
        ([0, 1], [0, 0], 1),  # does not end
        ([], [], 1),
        ([0.0, 1.0], [0], 1),
        ([0, 1], [0.0], 1),
        ([[0, 1]], [0], 1),
    ],
)
def test_entities_that_do_not_fit_are_refused(offsets: list[int], ids: list[int], count: int) -> None:
    kind = None if offsets and ids else np.int64
    with pytest.raises(ConfigError):
        RowEntities(np.array(offsets, dtype=kind), np.array(ids, dtype=kind), count)


def test_rows_with_an_entity_follow_from_the_entities() -> None:
    annotation = annotated([1, 1, 2], [(0,), (), (1, 0)], 2)
    assert annotation.with_entity is not None
    assert annotation.with_entity.tolist() == [True, False, True]
    assert Pools(annotation).rows(Pool.NO_ENTITY).tolist() == [1]
    same = annotated([1, 1, 2], [(0,), (), (1, 0)], 2, with_entity=annotation.with_entity)
    assert same.with_entity is not None
    with pytest.raises(ConfigError, match="with_entity"):
        annotated([1, 1, 2], [(0,), (), (1, 0)], 2, with_entity=~annotation.with_entity)
    with pytest.raises(ConfigError, match="`entities` for each of 3 rows"):
        annotated([1, 1, 2], [(0,), ()], 2)


def test_a_draw_without_users_or_entities_is_refused() -> None:
    records = np.arange(2, dtype=np.uint64)
    users = np.ones(2, dtype=np.uint64)
    with pytest.raises(ConfigError, match="`entities`"):
        sampler_for(RATES, Pool.EVERY, Pools(Annotation(records, users, np.zeros(2, np.int64))))
    with pytest.raises(ConfigError, match="a user for every row"):
        sampler_of([0, 1], [(), ()], 1, RATES)


@pytest.mark.parametrize(
    "rates", [(0.0, 0.5, 0.5), (0.5, 0.0, 0.5), (1.1, 0.5, 0.5), (0.5, 0.5, -0.1), (0.5, 0.5, 1.1)]
)
def test_rates_that_are_none_are_refused_before_any_draw(rates: tuple[float, float, float]) -> None:
    with pytest.raises(ConfigError, match="rates"):
        sampler_of([1], [(0,)], 1, UsersAndEntities(*rates))


def test_a_plan_draws_pairs_and_remembers_nothing() -> None:
    step = Step("private", View.FULL, Pool.EVERY, RATES, Noisy(1.0, 1.0, 1.0), "private")
    samplers = Samplers(Plan((Phase(((step, 3),)),)), Pools(annotated(*corpus(), 3)))
    (batch,) = samplers.draw(step, chance(11))
    assert batch.rows.tolist() == the_sampler()(chance(11)).tolist()
    assert samplers.states() == {}
    with pytest.raises(RunError):
        sampler_of([1], [(0,)], 1, RATES).restore(ShuffleState("ab", 0))


# --- weights ---


def test_weights_count_records_not_rows_up_to_the_cap() -> None:
    """Units of one record in three rows, of three records, and of five."""
    records = np.array([0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8], dtype=np.uint64)
    pools = Pools(Annotation(records, records, np.zeros(11, np.int64)))
    batch = DrawnUnits(np.arange(11), np.array([0, 3, 6, 11]))
    assert pools.weights(batch, 4).tolist() == [0.25, 0.75, 1.0]
    assert pools.weights(batch, 1).tolist() == [1.0, 1.0, 1.0]
    assert pools.weights(DrawnUnits(np.empty(0, np.int64), np.zeros(1, np.int64)), 4).tolist() == []
    with pytest.raises(ConfigError):
        pools.weights(batch, 0)
