"""A worst-case audit of what training really does (theory, T6 and T7), through the trainer itself.

`worst_case.py` says how. Here a record's secret moves its weight by +C, by -C, or, blanked, not at all.

Each bound is false with a chance of at most `ALARM`. Controls: mechanisms that do not keep the claim must be caught.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from tacit.data.store import PreparedCorpus
from tacit.mechanisms.dpsgd import DPSGD
from tacit.mechanisms.mechanism import Mechanism, PublicSteps
from tacit.mechanisms.selective import Selective
from tacit.privacy.account import account
from tacit.privacy.events import ExposedGaussian, Gaussian, Relation
from tacit.privacy.plan import Plan, Step
from tacit.training import trainer as training
from tacit.training.gradients.clipped import Flat
from tacit.training.pools import Annotation, Pools
from tacit.training.pools import DrawnUnits as Drawn
from tacit.training.randomness import NoiseStream
from tacit.training.sampling import Samplers
from worst_case import (
    DELTA,
    DELTAS,
    MINUS,
    NOTHING,
    PLUS,
    PUBLIC_MARK,
    SHARP,
    Canary,
    Floats,
    Scores,
    Seen,
    Setting,
    bounds_between,
    claims_of,
    log_ratios,
    lower_bound,
    refutes,
    sharpness,
    trained,
    write_store,
)

MANY = 24_000  # directions of each kind
COPIES = 5

PAPERS = Setting(rate=0.02, noise=1.0, steps=50)  # the example of the theory, section 2 ...
PAPERS_CLAIM = 2.06  # ... and its claim there

World = Literal["plus", "minus", "null", "copies"]
RECORDS: dict[World, int] = {"plus": 1, "minus": 1, "null": 1, "copies": COPIES}  # a direction
DIRECTIONS: dict[World, int] = {"plus": MANY, "minus": MANY, "null": MANY, "copies": MANY // COPIES}
SECRETS: dict[World, tuple[int, ...]] = {"plus": (PLUS,), "minus": (MINUS,), "null": (), "copies": (PLUS,)}

WHOLE: tuple[World, World] = ("plus", "null")


def _canaries(worlds: set[World]) -> Iterator[Canary]:
    directions = enumerate(world for world, count in DIRECTIONS.items() for _ in range(count))
    for direction, world in directions:
        if world in worlds:
            for _ in range(RECORDS[world]):
                yield Canary(direction, (PUBLIC_MARK,), SECRETS[world])


def _store(folder: Path, worlds: set[World]) -> PreparedCorpus:
    return write_store(folder, _canaries(worlds), sum(DIRECTIONS.values()))


@pytest.fixture(scope="module")
def every_world(tmp_path_factory: pytest.TempPathFactory) -> PreparedCorpus:
    """Secrets of every kind, and blanked ones."""
    return _store(tmp_path_factory.mktemp("stores") / "every", set(DIRECTIONS))


@pytest.fixture(scope="module")
def two_worlds(tmp_path_factory: pytest.TempPathFactory) -> PreparedCorpus:
    """Secrets of one kind, and blanked ones."""
    return _store(tmp_path_factory.mktemp("stores") / "two", {"plus", "null"})


@pytest.fixture(scope="module")
def whole_records(tmp_path_factory: pytest.TempPathFactory) -> PreparedCorpus:
    """Records of one kind; a blanked one is not there at all."""
    return _store(tmp_path_factory.mktemp("stores") / "whole", {"plus"})


def _selective(store: PreparedCorpus, setting: Setting) -> Selective:
    return Selective(PublicSteps(32, setting.steps), setting.private(len(store)))


def _trained(store: PreparedCorpus, mechanism: Mechanism, folder: Path, seed: int = 17) -> Seen:
    return trained(store, Pools(Annotation.of(store)), mechanism, folder, seed=seed)


def _of(seen: Seen, world: World) -> Seen:
    """The directions of one world."""
    order = list(DIRECTIONS)
    return seen.part(sum(DIRECTIONS[other] for other in order[: order.index(world)]), DIRECTIONS[world])


def _bounds(seen: Seen, present: World, absent: World, setting: Setting) -> dict[float, float]:
    """Lower bounds on epsilon by delta, from the best test of `present` against `absent`."""
    law = setting.drawn(RECORDS[present])
    other = setting.drawn(sign=-1) if absent == "minus" else NOTHING
    return bounds_between(_of(seen, present), _of(seen, absent), setting.noise, law, other)


@pytest.mark.statistical
@pytest.mark.parametrize("mu", [0.5, 2.0])
def test_bounds_are_true_where_epsilon_is_known(mu: float) -> None:
    """The audit itself, on the Gaussian mechanism; false alarm: 4e-6. Control: a mu 20 % smaller is refuted."""
    generator = np.random.default_rng(3)
    present, absent = generator.normal(mu, 1, 4 * MANY), generator.normal(0, 1, 4 * MANY)
    rehearsal, real = Scores(present, absent).halves()
    bounds = {delta: lower_bound(real, rehearsal, delta) for delta in DELTAS}
    exact, smaller = (
        {delta: account(((Gaussian(1 / claimed, 1, Relation.ZERO_OUT), 1),)).epsilon(delta) for delta in DELTAS}
        for claimed in (mu, 0.8 * mu)
    )
    assert not refutes(bounds, exact)
    assert refutes(bounds, smaller)


@pytest.mark.statistical
def test_selective_keeps_its_claims(every_world: PreparedCorpus, tmp_path: Path) -> None:
    """Secrets blanked, replaced, and standing in several records; false alarm: 1.2e-5.

    A test that sees nothing would pass, so the bounds must come near the claims.
    """
    mechanism = _selective(every_world, SHARP)
    seen = _trained(every_world, mechanism, tmp_path / "run")
    claims = claims_of(mechanism)
    pairs: list[tuple[str, World, World, float]] = [
        ("a record's secrets, zero-out", "plus", "null", 0.5),
        ("a record's secrets, replace", "plus", "minus", 0.5),
        (f"a record's secrets (up to {COPIES} records), zero-out", "copies", "null", 0.3),
    ]
    for notion, present, absent, near in pairs:
        bounds = _bounds(seen, present, absent, SHARP)
        assert not refutes(bounds, claims[notion])
        assert sharpness(bounds, claims[notion]) > near
    one_copy = claims["a record's secrets, zero-out"]
    assert refutes(_bounds(seen, "copies", "null", SHARP), one_copy), "copies cost more than one record is charged"


@pytest.mark.statistical
def test_dpsgd_keeps_its_claim(whole_records: PreparedCorpus, tmp_path: Path) -> None:
    """A record there or not there at all; false alarm: 4e-6."""
    mechanism = DPSGD(SHARP.private(len(whole_records)))
    bounds = _bounds(_trained(whole_records, mechanism, tmp_path / "run"), "plus", "null", SHARP)
    claims = claims_of(mechanism)["a record, zero-out"]
    assert not refutes(bounds, claims)
    assert sharpness(bounds, claims) > 0.5


class CoupledSamplers(Samplers):
    """As printed in the paper: the public update and the private one of a turn share their batch."""

    _shared: Drawn

    def __init__(self, plan: Plan, pools: Pools) -> None:
        super().__init__(plan, pools)
        self._private = next(step for step in plan.executions() if step.name == "private")

    def draw(self, step: Step, generator: np.random.Generator) -> Iterator[Drawn]:
        if step.name == "public":
            (self._shared,) = super().draw(self._private, generator)
        yield self._shared


@pytest.mark.statistical
@pytest.mark.parametrize(("runs", "refuted"), [(1, 1.15), pytest.param(8, PAPERS_CLAIM, marks=pytest.mark.slow)])
def test_a_batch_that_the_public_step_shows_is_caught(
    runs: int, refuted: float, two_worlds: PreparedCorpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: a draw that is used twice. It refutes the claim of hidden draws, and not the price of exposed ones."""
    monkeypatch.setattr(training, "Samplers", CoupledSamplers)
    mechanism = _selective(two_worlds, PAPERS)
    scores: dict[World, list[Floats]] = {"plus": [], "null": []}
    for seed in range(runs):
        seen = _trained(two_worlds, mechanism, tmp_path / f"run {seed}", seed)
        for world, found in scores.items():  # the likelihood ratio when it is known who is in each private step
            part = _of(seen, world)
            assert np.isclose(part.public.mean(), PAPERS.rate, rtol=0.05)
            found.append(((part.private - 0.5) / PAPERS.noise**2 * part.public).sum(axis=0))
    rehearsal, real = Scores(np.concatenate(scores["plus"]), np.concatenate(scores["null"])).halves()
    bound = lower_bound(real, rehearsal, DELTA)
    exposed = account(((ExposedGaussian(PAPERS.noise, PAPERS.rate, Relation.ZERO_OUT), PAPERS.steps),)).epsilon(DELTA)
    assert claims_of(mechanism)["a record's secrets, zero-out"][DELTA] < refuted < bound <= exposed


@pytest.mark.statistical
@pytest.mark.parametrize("mistake", ["sensitivity doubled", "noise off", "noise halved", "variance for deviation"])
def test_mistakes_in_the_noisy_sum_are_caught(
    mistake: str, whole_records: PreparedCorpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Controls: the sum is longer, or its noise smaller, than what was priced."""
    add = NoiseStream.add_
    if mistake == "sensitivity doubled":
        factors = Flat.factors
        monkeypatch.setattr(Flat, "factors", lambda style, squares: 2 * factors(style, squares))
        monkeypatch.setattr("tacit.training.trainer.check_gradients", lambda *_, **__: "fused")  # it would refuse
    elif mistake == "noise off":
        monkeypatch.setattr(NoiseStream, "add_", lambda stream, sums, deviation: None)
    else:  # .7^2 = .49 in units of the clip norm
        shorter = 0.5 if mistake == "noise halved" else SHARP.noise
        monkeypatch.setattr(NoiseStream, "add_", lambda stream, sums, deviation: add(stream, sums, shorter * deviation))
    mechanism = DPSGD(SHARP.private(len(whole_records)))
    seen = _trained(whole_records, mechanism, tmp_path / "run")
    ratios = (log_ratios(_of(seen, world).private, SHARP.noise, SHARP.drawn(), NOTHING) for world in WHOLE)
    rehearsal, real = Scores(*ratios).halves()  # not simulated: the laws are not what they should be
    bounds = {delta: lower_bound(real, rehearsal, delta) for delta in DELTAS}
    assert refutes(bounds, claims_of(mechanism)["a record, zero-out"])
