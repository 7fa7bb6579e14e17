"""Three tests of the theory that would catch a false price, for every mechanism they apply to.

T1: corpora with the same public part give, bit for bit, the same model by public steps. T2: one unit moves a private
sum by at most what was priced. T3: deviation of the noise, sampling rate and divisor are the priced ones.

| mechanism | T1 | T2 | T3 |
|---|---|---|---|
| plain | no: nothing is claimed | no: no private sum | no: no noise |
| redaction | yes | no: no private sum | no: no noise |
| dpsgd | no: no public step | yes | yes |
| selective, twice | yes | yes | yes |
| cadp, crt | yes: whole protected records differ | yes | yes |
| user | no: no public step | yes: a user's whole update | yes |
| uedp | yes: plain steps on the rest, entities differ | yes: user, entity and pair | yes |
| selective-published | no: public steps read noised states | in test_printed.py, by segments | yes |
| cadp-published | no: a batch updates with both parts | yes | yes: a pass has each record once |
| uedp-published | no: no public step | yes: 2C for each user of a round | yes; rate in test_sampling_pairs.py |
"""

import dataclasses
import math
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from runs import PLANS, Parts, make_parts, quiet
from tacit.config.model_schema import LSTMConfig
from tacit.data.records import Record, Span
from tacit.data.tokenizer import byte_tokenizer
from tacit.models.lstm import LSTM
from tacit.privacy.events import ExposedGaussian, Gaussian, Relation, SampledGaussian
from tacit.privacy.plan import (
    Draw,
    Neighbors,
    Noisy,
    Phase,
    Plain,
    Plan,
    PoissonRecords,
    PoissonUsers,
    Pool,
    ShuffledPass,
    SplitBatch,
    Step,
    Unit,
    UsersAndEntities,
    cost,
)
from tacit.runs.folder import RunFolder
from tacit.training.optimizers import Optimizer
from tacit.training.pools import DrawnUnits
from tacit.training.randomness import NoiseStream, Streams
from tacit.training.sampling import Samplers
from tacit.training.trainer import Trainer, TrainSettings
from tacit.training.updates import Updates, UpdateSettings

NOISY = [name for name in PLANS if name not in ("plain", "redaction", "invented")]
FREE_PUBLIC_STEPS = ["redaction", "invented", "selective", "twice", "cadp", "crt", "uedp"]


def _records(name: str = "Ann", told: str = "my code is ") -> Iterator[Record]:
    """Twenty records with one of two entities, four a user; then six without."""
    for number in range(20):
        entity = f"{name}{'ab'[number % 2]}"
        spans = (Span(len(told), len(told) + len(entity), "NAME"),)
        yield Record(f"r{number}", f"{told}{entity}, thanks", user=f"u{number // 4}", spans=spans)
    for number in range(20, 26):
        yield Record(f"r{number}", f"nothing to see here, {number}", user=f"u{number // 4}", spans=())


def _made(folder: Path, mechanism: str, records: Iterator[Record], **words: Any) -> Parts:  # noqa: ANN401
    folder.mkdir(exist_ok=True)
    few = {"expected_batch_size": 4} if mechanism in NOISY else {}
    caps = {"entity_cap": 3} if mechanism == "uedp" else {}
    return make_parts(folder, records, {"mechanism": mechanism, **PLANS[mechanism], **few, **caps, **words})


def _learner() -> LSTM:
    torch.manual_seed(0)
    return LSTM.new(LSTMConfig(byte_tokenizer().vocabulary_size, 8, 8, dropout=0.0))


def _flat(tensors: Collection[Tensor]) -> Tensor:
    return torch.cat([tensor.detach().flatten() for tensor in tensors])


def _trained(parts: Parts, folder: Path, plan: Plan) -> Tensor:
    """The parameters after `plan`."""
    learner, mechanism = _learner(), parts.mechanism
    with RunFolder.create(folder / "run") as run:
        for step in plan.executions():
            run.ledger.declare(step.name, {str(notion): cost(step, notion) for notion in mechanism.notions()})
        Trainer(run, learner, plan, parts.reader, parts.pools, TrainSettings()).train(Streams.research(1), quiet)
    return _flat(list(learner.module.parameters()))


def _two_worlds(folder: Path, mechanism: str, private: bool) -> list[Tensor]:
    """The models of two corpora with the same public part, the second of longer secrets, or of other whole records."""
    whole_records = mechanism in ("cadp", "crt", "uedp")
    other = _records("a much longer name ", "quite another story, told by " if whole_records else "my code is ")
    more = {"public_epochs": 1} | ({} if mechanism in ("redaction", "invented") else {"steps": 1})
    models = []
    for number, records in enumerate((_records(), other)):
        parts = _made(folder / str(number), mechanism, records, **more)
        plan = parts.mechanism.plan()
        if not private:
            keeps = [tuple(turn for turn in phase.turns if turn[0].name == "public") for phase in plan.phases]
            plan = Plan(tuple(dataclasses.replace(p, turns=kept) for p, kept in zip(plan.phases, keeps, strict=True)))
        models.append(_trained(parts, folder / str(number), plan))
    return models


@pytest.mark.parametrize("mechanism", FREE_PUBLIC_STEPS)
def test_t1_public_steps_are_blind_to_what_is_protected(mechanism: str, tmp_path: Path) -> None:
    ours, theirs = _two_worlds(tmp_path, mechanism, private=False)
    assert torch.equal(ours, theirs)
    assert not torch.equal(ours, _flat(list(_learner().module.parameters()))), "something was learned"


@pytest.mark.parametrize("mechanism", [name for name in FREE_PUBLIC_STEPS if name not in ("redaction", "invented")])
def test_private_steps_are_not_blind(mechanism: str, tmp_path: Path) -> None:
    """The negative control of T1."""
    ours, theirs = _two_worlds(tmp_path, mechanism, private=True)
    assert not torch.equal(ours, theirs)


def test_public_steps_are_free_only_where_t1_says_so(tmp_path: Path) -> None:
    """The table of T1, from the plans: which mechanisms have plain steps beside a claim."""
    found = []
    for mechanism in PLANS:
        more = {"public_epochs": 1} if mechanism == "uedp" else {}
        made = _made(tmp_path / mechanism, mechanism, _records(), **more).mechanism
        if made.notions() and any(isinstance(step.update, Plain) for step in made.plan().executions()):
            found.append(mechanism)
    assert found == FREE_PUBLIC_STEPS


@dataclasses.dataclass(slots=True)
class Noised:
    """A sum before and after its noise, and the gradient that an optimizer was given next."""

    before: Tensor
    after: Tensor
    deviation: float
    applied: Tensor | None = None


def _overhear(monkeypatch: pytest.MonkeyPatch, noise: bool = True) -> list[Noised]:
    """Everything that noise is added to from now on; or would be added to, without `noise`."""
    heard: list[Noised] = []
    add, apply = NoiseStream.add_, Optimizer.apply

    def adding(stream: NoiseStream, tensors: Collection[Tensor], deviation: float) -> None:
        before = _flat(tensors)
        if noise:
            add(stream, tensors, deviation)
        heard.append(Noised(before, _flat(tensors), deviation))

    def applying(
        optimizer: Optimizer, parameters: Mapping[str, Tensor], gradients: Mapping[str, Tensor], noise: float = 0.0
    ) -> None:
        given = _flat(list(gradients.values()))
        if heard and heard[-1].applied is None and len(heard[-1].after) == len(given):
            heard[-1].applied = given
        apply(optimizer, parameters, gradients, noise)

    monkeypatch.setattr(NoiseStream, "add_", adding)
    monkeypatch.setattr(Optimizer, "apply", applying)
    return heard


def _private_step(parts: Parts) -> tuple[Step, Noisy | SplitBatch]:
    (step,) = (step for step in parts.mechanism.plan().executions() if step.name == "private")
    assert isinstance(step.update, Noisy | SplitBatch)
    return step, step.update


def _certain(draw: Draw) -> Draw:
    if isinstance(draw, UsersAndEntities):
        return UsersAndEntities(1.0, 1.0, 1.0)
    if isinstance(draw, ShuffledPass):
        return ShuffledPass(10**6)
    assert isinstance(draw, PoissonRecords | PoissonUsers)
    return dataclasses.replace(draw, rate=1.0)


def _everybody(parts: Parts, step: Step) -> DrawnUnits:
    """The draw of `step` that has all units, as its own sampler gives it."""
    certain = dataclasses.replace(step, draw=_certain(step.draw))
    samplers = Samplers(Plan((Phase(((certain, 1),)),)), parts.pools)
    (drawn,) = samplers.draw(certain, np.random.default_rng(0))
    return drawn


def _owned(parts: Parts, pool: Pool, neighbors: Neighbors, entity: int) -> set[int]:
    """Rows of one unit: records are those of one entity, which all say the same; users, the first."""
    entities = parts.pools.entities()
    of_entity = [row for row in parts.pools.rows(pool) if entity in _entities_of(entities, row)]
    of_user = [row for row in parts.pools.rows(pool) if parts.store.users[row] == parts.store.users[entity]]
    if neighbors.unit == Unit.USER:
        return set(of_user)
    if neighbors.unit == Unit.USER_AND_ENTITY:
        return {*of_user, *of_entity}
    return set(of_entity if neighbors.unit == Unit.ENTITY else of_entity[: neighbors.copies])


def _entities_of(entities: Any, row: int) -> list[int]:  # noqa: ANN401
    return list(entities.ids[entities.offsets[row] : entities.offsets[row + 1]])


def _without(drawn: DrawnUnits, gone: set[int]) -> DrawnUnits:
    left = [[int(row) for row in rows if row not in gone] for rows in drawn.units()]
    kept = [rows for rows in left if rows]
    return DrawnUnits(np.array([row for rows in kept for row in rows], np.int64), np.cumsum([0, *map(len, kept)]))


@pytest.mark.parametrize("mechanism", [name for name in NOISY if name != "selective-published"])
def test_t2_no_unit_moves_a_private_sum_by_more_than_was_priced(
    mechanism: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every gradient is longer than C and noise is off. The sum's noise over the event's is what one copy may move it.

    And units do move it by nearly as much: a bound that nobody reaches would not show that anything is clipped.
    """
    parts = _made(tmp_path, mechanism, _records(), clip_norm=1e-4)
    step, _ = _private_step(parts)
    heard = _overhear(monkeypatch, noise=False)
    everybody = _everybody(parts, step)

    def summed(drawn: DrawnUnits) -> Noised:
        before = len(heard)
        updates = Updates(_learner(), parts.mechanism.plan(), parts.reader, parts.pools, UpdateSettings())
        updates.carry_out(step, drawn, Streams.research(0))
        return heard[before]

    for neighbors in parts.mechanism.notions():
        event = cost(step, neighbors)
        if not isinstance(event, Gaussian | SampledGaussian | ExposedGaussian):
            continue
        unit = _owned(parts, step.pool, neighbors, entity=0)
        world = _without(everybody, unit)
        other = everybody
        if neighbors.relation == Relation.REPLACE:
            other = _without(everybody, _owned(parts, step.pool, neighbors, entity=1))
        assert len(unit) >= 1
        one, two = summed(other), summed(world)
        copies = neighbors.copies * (2 if neighbors.relation == Relation.REPLACE else 1)
        priced = one.deviation / event.noise_multiplier * copies
        moved = float((one.before.double() - two.before.double()).norm())
        assert moved <= priced * 1.0001, neighbors
        if mechanism != "uedp-published" and neighbors.relation == Relation.ZERO_OUT:
            assert moved >= 0.4 * priced, neighbors


def _sensitivity(step: Step, update: Noisy | SplitBatch) -> float:
    """What the deviation of one sum is a multiple of: C, or C for each of the users of a round."""
    return update.clip_norm * (update.divisor + 1 if isinstance(step.draw, UsersAndEntities) else 1)


def _priced_noise(step: Step, update: Noisy | SplitBatch) -> float:
    """The noise of one event: a pair of user and entity moves a sum by 2C, and several sums of a draw are one event."""
    if isinstance(step.draw, UsersAndEntities):
        return update.noise_multiplier / 2
    return update.noise_multiplier / (math.sqrt(update.queries) if isinstance(update, SplitBatch) else 1)


def _of_deviation_one(numbers: Tensor) -> bool:
    """Their mean square is within five deviations of 1."""
    return abs(float(numbers.double().square().mean()) - 1) < 5 * math.sqrt(2 / len(numbers))


@pytest.mark.statistical
@pytest.mark.parametrize("mechanism", NOISY)
def test_t3_noise_and_divisor_are_the_priced_ones(
    mechanism: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """False alarm 6e-7 for each mechanism. Control: a deviation of sigma squared is caught."""
    parts = _made(tmp_path, mechanism, _records(), clip_norm=0.5, noise_multiplier=0.7, expected_batch_size=6)
    step, update = _private_step(parts)
    heard = _overhear(monkeypatch)
    _trained(parts, tmp_path, parts.mechanism.plan())
    deviation = 0.7 * _sensitivity(step, update)
    assert [sum_.deviation for sum_ in heard] == pytest.approx([deviation] * len(heard))
    for neighbors in parts.mechanism.notions():
        event = cost(step, neighbors)
        if isinstance(event, Gaussian | SampledGaussian | ExposedGaussian):
            assert event.noise_multiplier == pytest.approx(_priced_noise(step, update))

    gradients = [sum_ for sum_ in heard if sum_.applied is not None]
    assert len(gradients) >= parts.mechanism.plan().executions()[step]
    numbers = torch.cat([sum_.after - sum_.before for sum_ in gradients]) / deviation
    assert _of_deviation_one(numbers)
    assert not _of_deviation_one(numbers * 0.7)
    for sum_ in gradients:
        assert sum_.applied is not None
        assert torch.equal(sum_.applied, sum_.after / 6)


@pytest.mark.statistical
@pytest.mark.parametrize("mechanism", [name for name in NOISY if name != "uedp-published"])
def test_t3_units_are_drawn_at_the_priced_rate(mechanism: str, tmp_path: Path) -> None:
    """How many units 500 draws have, within five deviations: false alarm 6e-7. Control: a rate a tenth higher."""
    parts = _made(tmp_path, mechanism, _records(), expected_batch_size=3)
    step, update = _private_step(parts)
    private = parts.mechanism.private
    assert private is not None
    assert update.divisor == private.expected_batch == 3
    samplers, generator = Samplers(parts.mechanism.plan(), parts.pools), np.random.default_rng(5)
    units = len(parts.pools.users(step.pool) if mechanism == "user" else parts.pools.records(step.pool))
    if mechanism == "cadp-published":
        drawn = np.concatenate([batch.rows for batch in samplers.draw(step, generator)])
        assert sorted(drawn) == list(parts.pools.rows(step.pool))
        return
    count = sum(len(batch) for _ in range(500) for batch in samplers.draw(step, generator))

    def fits(rate: float) -> bool:
        return abs(count - 500 * units * rate) < 5 * math.sqrt(500 * units * rate * (1 - rate))

    assert private.population == units
    assert fits(3 / units)
    assert not fits(3.6 / units)
    for neighbors in parts.mechanism.notions():
        event = cost(step, neighbors)
        if isinstance(event, SampledGaussian | ExposedGaussian):
            assert event.sampling_rate == 3 / units
