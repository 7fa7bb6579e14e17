"""Samplers: each unit with its probability, independently of everything; cheap; and they resume where they stood.

Statistical tests look at the inclusion matrix (draw x unit) through five p-values, each against the limit 1e-6, so that
one sampler raises a false alarm with probability at most 5e-6. Each p-value has a control that it must catch. Seeds are
fixed: a failure is repeatable.
"""

import tracemalloc
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, chi2, norm
from test_prepare_views import Annotated

from marking import prepare
from tacit.data.prepare import PrepareConfig
from tacit.data.records import Record, Span
from tacit.data.tokenizer import byte_tokenizer
from tacit.errors import ConfigError, RunError
from tacit.privacy.plan import (
    Noisy,
    Phase,
    Plain,
    Plan,
    PoissonRecords,
    PoissonUsers,
    Pool,
    ShuffledBatch,
    ShuffledPass,
    Step,
    UsersAndEntities,
    View,
)
from tacit.training.pools import Annotation, DrawnUnits, Pools, Sampler, ShuffleState, Units, bernoulli_positions
from tacit.training.sampling import (
    PoissonRecordSampler,
    PoissonUserSampler,
    Samplers,
    ShuffledBatchSampler,
    ShuffledPassSampler,
    sampler_for,
)

UNITS, DRAWS, RATE, PUBLIC_BATCH = 120, 4000, 0.05, 12
LIMIT = 1e-6
Matrix = npt.NDArray[np.bool_]


def chance(seed: int = 0) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64DXSM(seed))


def single_rows(count: int) -> Units:
    return Units(np.arange(count), np.arange(count + 1))


def only(batches: Any) -> DrawnUnits:  # noqa: ANN401
    (batch,) = batches
    assert isinstance(batch, DrawnUnits)
    return batch


# --- the five p-values ---


def included(draws: list[npt.NDArray[np.int64]]) -> Matrix:
    matrix = np.zeros((len(draws), UNITS), dtype=np.bool_)
    for line, rows in zip(matrix, draws, strict=True):
        line[rows] = True
    return matrix


def marginal_p(matrix: Matrix) -> float:
    """Each unit was drawn about rate x draws times: chi-square over the units."""
    counts = matrix.sum(axis=0)
    expected = len(matrix) * RATE
    statistic = float(np.sum((counts - expected) ** 2) / (expected * (1 - RATE)))
    return 2 * min(chi2.sf(statistic, UNITS), chi2.cdf(statistic, UNITS))  # type: ignore[no-any-return]


def size_p(matrix: Matrix) -> float:
    """The size of a draw is Binomial: its scatter is neither too small (fixed size) nor too large (clumps)."""
    sizes = matrix.sum(axis=1)
    statistic = float(np.sum((sizes - UNITS * RATE) ** 2) / (UNITS * RATE * (1 - RATE)))
    freedom = len(matrix)
    return 2 * min(chi2.sf(statistic, freedom), chi2.cdf(statistic, freedom))  # type: ignore[no-any-return]


def pair_p(matrix: Matrix) -> float:
    """Any two units meet in Binomial(draws, rate^2) draws: the rarest count, Bonferroni over pairs and sides."""
    together = (matrix.T.astype(np.int64) @ matrix.astype(np.int64))[np.triu_indices(UNITS, 1)]
    few = binom.cdf(together.min(), len(matrix), RATE**2)
    many = binom.sf(together.max() - 1, len(matrix), RATE**2)
    return min(1.0, 2 * len(together) * min(few, many))  # type: ignore[no-any-return]


def memory_p(matrix: Matrix) -> float:
    """A unit's place in the next draw does not depend on its place in this one."""
    centred = matrix - RATE
    total = float(np.sum(centred[:-1] * centred[1:]))
    deviations = total / (RATE * (1 - RATE) * np.sqrt((len(matrix) - 1) * UNITS))
    return 2 * norm.sf(abs(deviations))  # type: ignore[no-any-return]


def public_p(matrix: Matrix, public: Matrix) -> float:
    """Nor on its place in the public batch of the same turn."""
    centred = public - public.mean()
    total = float(np.sum((matrix - RATE) * centred))
    return 2 * norm.sf(abs(total) / np.sqrt(RATE * (1 - RATE) * np.sum(centred**2)))  # type: ignore[no-any-return]


def alarms(draw: Callable[[np.random.Generator, npt.NDArray[np.int64]], npt.NDArray[np.int64]]) -> set[str]:
    """Which of the p-values are below the limit, for private draws taken in turn with public batches of one stream."""
    generator, public_sampler = chance(7), ShuffledBatchSampler(np.arange(UNITS), PUBLIC_BATCH)
    private_draws, public_draws = [], []
    for _ in range(DRAWS):
        public_draws.append(only(public_sampler.draw(generator)).rows)
        private_draws.append(draw(generator, public_draws[-1]))
    matrix, public = included(private_draws), included(public_draws)
    values = {
        "marginal": marginal_p(matrix),
        "size": size_p(matrix),
        "pair": pair_p(matrix),
        "memory": memory_p(matrix),
        "public": public_p(matrix, public),
    }
    return {name for name, value in values.items() if value < LIMIT}


@pytest.mark.statistical
def test_g1_poisson_draws_are_independent_coins() -> None:
    """False alarm 5e-6 for each of the two samplers."""
    records = PoissonRecordSampler(single_rows(UNITS), RATE)
    users = PoissonUserSampler(single_rows(UNITS), RATE)
    assert alarms(lambda generator, _: only(records.draw(generator)).rows) == set()
    assert alarms(lambda generator, _: only(users.draw(generator)).rows) == set()


@pytest.mark.statistical
def test_g1_records_of_many_rows_are_independent_coins_too() -> None:
    """False alarm 5e-6. A record's inclusion does not grow with its pieces."""
    sizes = chance(1).integers(1, 6, UNITS)
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    owner = np.repeat(np.arange(UNITS), sizes)
    sampler = PoissonRecordSampler(Units(np.arange(len(owner)), offsets), RATE)
    assert alarms(lambda generator, _: owner[only(sampler.draw(generator)).rows]) == set()


def slow_oracle(generator: np.random.Generator, _: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.flatnonzero([generator.random() < RATE for _ in range(UNITS)])


def fixed_size(generator: np.random.Generator, _: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return generator.choice(UNITS, round(UNITS * RATE), replace=False)


def one_offset(generator: np.random.Generator, _: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Right marginals, but one coin decides for every twentieth unit."""
    return np.arange(generator.integers(round(1 / RATE)), UNITS, round(1 / RATE))


def higher_rate(generator: np.random.Generator, _: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return bernoulli_positions(UNITS, RATE * 1.1, generator)


def from_the_public_batch(generator: np.random.Generator, public: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return public[bernoulli_positions(len(public), RATE * UNITS / PUBLIC_BATCH, generator)]


def sticky() -> Callable[[np.random.Generator, npt.NDArray[np.int64]], npt.NDArray[np.int64]]:
    """Every second draw is the one before."""
    kept: list[npt.NDArray[np.int64]] = []

    def draw(generator: np.random.Generator, _: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        if kept:
            return kept.pop()
        kept.append(bernoulli_positions(UNITS, RATE, generator))
        return kept[0]

    return draw


def shuffled_pass() -> Callable[[np.random.Generator, npt.NDArray[np.int64]], npt.NDArray[np.int64]]:
    sampler = ShuffledBatchSampler(np.arange(UNITS), round(UNITS * RATE))
    return lambda generator, _: only(sampler.draw(generator)).rows


@pytest.mark.statistical
def test_the_slow_twin_passes() -> None:
    """False alarm 5e-6: a coin for each unit, tossed in a loop."""
    assert alarms(slow_oracle) == set()


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("draw", "caught"),
    [
        (shuffled_pass(), {"size", "memory", "marginal"}),
        (fixed_size, {"size"}),
        (one_offset, {"size", "pair"}),
        (higher_rate, {"marginal"}),
        (from_the_public_batch, {"public"}),
        (sticky(), {"memory"}),
    ],
    ids=["shuffled pass", "fixed size", "one offset", "higher rate", "from the public batch", "sticky"],
)
def test_controls_are_caught(
    draw: Callable[[np.random.Generator, npt.NDArray[np.int64]], npt.NDArray[np.int64]], caught: set[str]
) -> None:
    assert caught <= alarms(draw)


@pytest.mark.statistical
@pytest.mark.parametrize("rate", [1e-4, 0.02, 0.4, 0.97])
def test_sizes_have_the_binomial_law(rate: float) -> None:
    """Chi-square over the sizes of 4,000 draws of 1,000; false alarm 1e-6 each. Control: twice the rate of the law."""
    generator = chance(3)
    sizes = np.array([len(bernoulli_positions(1000, rate, generator)) for _ in range(4000)])

    def p_value(law_rate: float) -> float:
        edges = np.unique(binom.ppf([0.05, 0.2, 0.35, 0.5, 0.65, 0.8, 0.95], 1000, law_rate))
        cumulative = np.concatenate(([0.0], binom.cdf(edges, 1000, law_rate), [1.0]))
        observed = np.diff(np.concatenate(([0], np.searchsorted(np.sort(sizes), edges, side="right"), [len(sizes)])))
        expected = np.diff(cumulative) * len(sizes)
        likely = expected > 1e-9
        statistic = np.sum((observed[likely] - expected[likely]) ** 2 / expected[likely])
        return float(chi2.sf(statistic, likely.sum() - 1))

    assert p_value(rate) > LIMIT
    assert p_value(rate * 0.5) < LIMIT


# --- exact properties ---


@given(st.integers(0, 300), st.floats(1e-12, 1.0), st.integers(0, 2**32))
def test_positions_rise_and_stay_inside(count: int, rate: float, seed: int) -> None:
    positions = bernoulli_positions(count, rate, chance(seed))
    assert positions.dtype == np.int64
    assert np.all(np.diff(positions) > 0)
    assert np.all((positions >= 0) & (positions < count))


def test_rates_at_the_edges() -> None:
    assert bernoulli_positions(500, 1.0, chance()).tolist() == list(range(500))
    assert bernoulli_positions(10**6, 1e-300, chance()).tolist() == []
    for rate in (0.0, -0.1, 1.1, float("nan")):
        with pytest.raises(ConfigError):
            bernoulli_positions(10, rate, chance())


def test_an_empty_draw_is_a_draw() -> None:
    """Three samplers of nothing: one batch each, without rows, and the stream moved on."""
    units = Units(np.arange(6), np.array([0, 3, 6]))
    for sampler in (PoissonRecordSampler(units, 1e-9), PoissonUserSampler(units, 1e-9)):
        generator = chance()
        batch = only(sampler.draw(generator))
        assert (len(batch), batch.rows.tolist(), list(batch.units())) == (0, [], [])
        assert batch.rows.dtype == batch.offsets.dtype == np.int64
        assert generator.bit_generator.state != chance().bit_generator.state


def test_g2_a_record_gives_at_most_one_row_and_each_of_its_rows_in_turn() -> None:
    sizes = [1, 4, 2, 7]
    owner = np.repeat(np.arange(4), sizes)
    units = Units(np.arange(14) + 100, np.concatenate(([0], np.cumsum(sizes))))
    samplers: list[Sampler] = [PoissonRecordSampler(units, 0.5), ShuffledPassSampler(units, 3)]
    for sampler in samplers:
        generator, seen = chance(), Counter[int]()
        for _ in range(400):
            rows = np.concatenate([batch.rows for batch in sampler.draw(generator)])
            assert np.bincount(owner[rows - 100], minlength=4).max(initial=0) <= 1
            seen.update(rows.tolist())
        assert set(seen) == set(range(100, 114))


def test_users_come_with_all_their_rows() -> None:
    users = np.array([5, 9, 5, 5, 2, 9], dtype=np.uint64)
    annotation = Annotation(np.arange(6, dtype=np.uint64), users, np.zeros(6, np.int64))
    sampler = sampler_for(PoissonUsers(0.5, 1), Pool.EVERY, Pools(annotation))
    generator, drawn = chance(), Counter[tuple[int, ...]]()
    for _ in range(200):
        batch = only(sampler.draw(generator))
        drawn.update(tuple(rows.tolist()) for rows in batch.units())
        assert len(batch) == len(set(users[batch.rows].tolist()))
    assert set(drawn) == {(0, 2, 3), (1, 5), (4,)}


@given(st.integers(1, 60), st.integers(1, 70), st.integers(0, 2**32))
def test_g3_a_pass_has_each_row_once(count: int, size: int, seed: int) -> None:
    rows = np.arange(count) * 3
    generator, sampler = chance(seed), ShuffledBatchSampler(rows, size)
    for _ in range(2):
        batches = [only(sampler.draw(generator)).rows for _ in range(-(-count // size))]
        assert sorted(np.concatenate(batches)) == rows.tolist()
        assert all(len(batch) == size for batch in batches[:-1])
    whole = list(ShuffledPassSampler(Units(rows, np.arange(count + 1)), size).draw(generator))
    assert sorted(np.concatenate([batch.rows for batch in whole])) == rows.tolist()
    assert [len(batch) for batch in whole] == [len(batch) for batch in batches]


def test_passes_are_shuffled_anew() -> None:
    generator, sampler = chance(), ShuffledBatchSampler(np.arange(50), 50)
    orders = {tuple(only(sampler.draw(generator)).rows.tolist()) for _ in range(20)}
    assert len(orders) == 20


def test_g4_a_draw_from_a_million_allocates_no_more_than_from_a_thousand() -> None:
    """Control: a coin for each row would allocate a million numbers."""

    def peak(units: int, batch: int) -> int:
        sampler, generator = PoissonRecordSampler(single_rows(units), batch / units), chance()
        tracemalloc.start()
        for _ in range(20):
            only(sampler.draw(generator))
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    assert peak(1_000_000, 64) < 2 * peak(1000, 64) + 4096 < 100_000


# --- going on where they stood ---


def a_plan() -> Plan:
    public = Step("public", View.REDACTED, Pool.EVERY, ShuffledBatch(4), Plain(), "public")
    private = Step("private", View.FULL, Pool.WITH_SECRETS, PoissonRecords(0.3), Noisy(1.0, 1.0, 3.0), "private")
    other = Step("public", View.REDACTED, Pool.WITH_SECRETS, ShuffledBatch(3), Plain(), "public")
    return Plan((Phase(((public, 2), (private, 1), (other, 1)), 50),))


def some_pools(rows: int = 30) -> Pools:
    records, users = np.arange(rows, dtype=np.uint64), np.zeros(rows, np.uint64)
    return Pools(Annotation(records, users, np.arange(rows) % 2))


@settings(deadline=None)
@given(st.integers(0, 60))
def test_restored_samplers_go_on_exactly(before: int) -> None:
    plan = a_plan()
    steps = list(plan.steps())
    samplers, generator = Samplers(plan, some_pools()), chance()
    for step in steps[:before]:
        only(samplers.draw(step, generator))
    restored, same = Samplers(plan, some_pools()), chance()
    restored.restore(samplers.states())
    same.bit_generator.state = generator.bit_generator.state
    for step in steps[before : before + 30]:
        assert only(restored.draw(step, same)).rows.tolist() == only(samplers.draw(step, generator)).rows.tolist()


def test_states_name_each_sampler_that_remembers() -> None:
    samplers = Samplers(a_plan(), some_pools())
    assert samplers.states() == {}
    for step in list(a_plan().steps())[:4]:
        only(samplers.draw(step, chance()))
    assert {name: state.taken for name, state in samplers.states().items()} == {"0 public": 8, "2 public": 3}


def test_foreign_states_are_refused() -> None:
    samplers = Samplers(a_plan(), some_pools())
    for states in ({"7 public": ShuffleState("ab", 0)}, {"0 public": ShuffleState("ab", 31)}):
        with pytest.raises(RunError):
            samplers.restore(states)
    with pytest.raises(RunError):
        samplers.restore({"1 private": ShuffleState("ab", 0)})
    with pytest.raises(RunError):
        ShuffledPassSampler(single_rows(3), 2).restore(ShuffleState("ab", 0))
    with pytest.raises(RunError):
        PoissonUserSampler(single_rows(3), 0.5).restore(ShuffleState("ab", 0))


# --- pools ---


def marks(*values: int) -> npt.NDArray[np.bool_]:
    return np.array(values, dtype=np.bool_)


def marked() -> Annotation:
    """Record 0 has rows 0 and 1."""
    return Annotation(
        records=np.array([0, 0, 1, 2, 3], dtype=np.uint64),
        users=np.array([4, 4, 6, 6, 0], dtype=np.uint64),
        span_counts=np.array([0, 2, 0, 1, 0]),
        flagged=marks(1, 1, 0, 1, 0),
        kept=marks(1, 0, 1, 0, 0),
        with_entity=marks(0, 1, 1, 0, 0),
    )


def test_pools_hold_what_their_names_say() -> None:
    pools = Pools(marked())
    expected = {
        Pool.EVERY: [0, 1, 2, 3, 4],
        Pool.WITH_SECRETS: [1, 3],
        Pool.FLAGGED: [0, 1, 3],
        Pool.CLEARED: [2, 4],
        Pool.CAPPED: [0, 2],
        Pool.NO_ENTITY: [0, 3, 4],
    }
    assert {pool: pools.rows(pool).tolist() for pool in Pool} == expected
    units = pools.records(Pool.FLAGGED)
    assert [rows.tolist() for rows in units.rows_of(np.arange(len(units)))] == [[0, 1], [3]]
    assert not units.one_row_each
    assert pools.records(Pool.CLEARED).one_row_each
    assert [rows.tolist() for rows in pools.users(Pool.CAPPED).rows_of(np.arange(2))] == [[0], [2]]


def test_missing_annotation_is_said() -> None:
    records = np.arange(3, dtype=np.uint64)
    pools = Pools(Annotation(records, records, np.zeros(3, np.int64)))
    for pool, name in (
        (Pool.FLAGGED, "flagged"),
        (Pool.CLEARED, "flagged"),
        (Pool.CAPPED, "kept"),
        (Pool.NO_ENTITY, "with_entity"),
    ):
        with pytest.raises(ConfigError, match=name):
            pools.rows(pool)
    with pytest.raises(ConfigError, match="at least one row among the records with marked secrets"):
        pools.rows(Pool.WITH_SECRETS)
    with pytest.raises(ConfigError, match="1 rows without one"):
        pools.users(Pool.EVERY)
    with pytest.raises(ConfigError):
        sampler_for(UsersAndEntities(0.1, 0.1, 0.1), Pool.EVERY, pools)
    for draw in (ShuffledBatch(0), ShuffledPass(0)):
        with pytest.raises(ConfigError):
            sampler_for(draw, Pool.EVERY, pools)


def test_annotation_that_does_not_fit_is_refused() -> None:
    records, spans = np.arange(3, dtype=np.uint64), np.zeros(3, np.int64)
    with pytest.raises(ConfigError, match="users"):
        Annotation(records, records[:2], spans)
    with pytest.raises(ConfigError, match="kept"):
        Annotation(records, records, spans, kept=marks(1, 0))
    with pytest.raises(ConfigError, match="true or false"):
        Annotation(records, records, spans, kept=np.ones(3))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="all or none"):
        Annotation(np.array([0, 0, 1], dtype=np.uint64), records, spans, flagged=marks(1, 0, 1))


def test_g1_pools_and_draws_of_a_store_read_no_secret(tmp_path: Path) -> None:
    """Every access to the private columns fails, and nothing notices."""

    class Forbidden(dict[str, Any]):
        def __getitem__(self, name: str) -> NoReturn:
            raise AssertionError(f"read {name}")

    records = [
        Record(str(i), f"I am Ann{i}. " + "x" * i, user=f"u{i % 3}", spans=(Span(5, 8, "NAME"),)) for i in range(40)
    ]
    store = prepare(records, Annotated(), byte_tokenizer(), tmp_path / "store", PrepareConfig(max_tokens=32))
    store._private = Forbidden()
    pools = Pools(Annotation.of(store, kept=np.ones(len(store), np.bool_)))
    assert len(store) > len(pools.records(Pool.EVERY)) == 40
    assert len(pools.users(Pool.EVERY)) == 3
    samplers, generator = Samplers(a_plan(), pools), chance()
    for step in a_plan().steps():
        only(samplers.draw(step, generator))
    with pytest.raises(AssertionError):
        store.full(0)
