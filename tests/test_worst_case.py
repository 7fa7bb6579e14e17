"""A worst-case audit of what training really does (theory, T6 and T7), through the trainer itself.

One record, one weight: record i moves weight i of a small model by exactly +C, by -C, or, with its secret blanked, not
at all. Draws of different records are independent and so is the noise of different weights, so one run of the trainer
is as many independent repetitions of the attack as there are records. The attacker sees the model after every step and
knows everything but the secret: the likelihood ratio over all private increments is the best test there is. From its
errors follow exact (Clopper-Pearson) lower bounds on epsilon, at the delta of the claim and at larger ones, which need
fewer repetitions. A bound above what is claimed at its delta disproves the claim.

Each bound is false with a chance of at most `ALARM`. Controls: mechanisms that do not keep the claim must be caught.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NoReturn

import numpy as np
import numpy.typing as npt
import pytest
import torch
from scipy import stats
from torch import Tensor, nn

from tacit import train as training
from tacit.accounting import account
from tacit.events import ExposedGaussian, Gaussian, Relation
from tacit.gradients import Flat, NoiseStream
from tacit.guarantee import Evidence
from tacit.mechanisms.base import Mechanism, PrivateSteps, PublicSteps
from tacit.mechanisms.dpsgd import DPSGD
from tacit.mechanisms.selective import Selective
from tacit.models.batch import Batch, TokenLosses
from tacit.models.speech import losses_of
from tacit.optimisers import OptimiserSettings
from tacit.plan import Plan, Step, cost
from tacit.prepare.headers import Counts, Facts
from tacit.prepare.store import Prepared, Row, StoreWriter
from tacit.prepare.views import PublicTokens
from tacit.randomness import Streams
from tacit.reading import RowReader
from tacit.run import Run
from tacit.sampling import Annotation, Pools, Samplers
from tacit.sampling import Batch as Drawn
from tacit.train import Trainer, TrainSettings
from tacit.updates import UpdateSettings

ALARM = 1e-6
MANY = 24_000  # directions of each kind
COPIES = 5


@dataclass(frozen=True, slots=True)
class Setting:
    """A plan's numbers."""

    rate: float
    noise: float
    steps: int

    def drawn(self, copies: int = 1, sign: int = 1) -> dict[int, float]:
        """How many of the copies a draw has, with their sign, and how probably."""
        return {sign * j: float(stats.binom.pmf(j, copies, self.rate)) for j in range(copies + 1)}


SHARP = Setting(rate=0.1, noise=0.7, steps=10)  # few steps, much signal: bounds come close to the claims
PAPERS = Setting(rate=0.02, noise=1.0, steps=50)  # the example of the theory, section 2 ...
PAPERS_CLAIM = 2.06  # ... and its claim there
DELTA = 1e-5
DELTAS = (DELTA, 1e-2, 3e-2, 1e-1)

Floats = npt.NDArray[np.float64]
World = Literal["plus", "minus", "null", "copies"]
RECORDS: dict[World, int] = {"plus": 1, "minus": 1, "null": 1, "copies": COPIES}  # a direction
DIRECTIONS: dict[World, int] = {"plus": MANY, "minus": MANY, "null": MANY, "copies": MANY // COPIES}

DIGITS = math.isqrt(sum(DIRECTIONS.values())) + 1
END, PLUS, MINUS, PUBLIC_MARK, PLACEHOLDER = range(DIGITS, DIGITS + 5)
WORDS = DIGITS + 5
SECRETS: dict[World, list[int]] = {"plus": [PLUS], "minus": [MINUS], "null": [], "copies": [PLUS]}


class CanaryModule(nn.Module):
    """Scores of the third and the fourth position are a multiple of the weight that the row's two digits name."""

    def __init__(self) -> None:
        super().__init__()
        self.canaries = nn.Embedding(DIGITS * DIGITS, 1)
        self.head = nn.Linear(1, WORDS, bias=False)
        self.head.weight.requires_grad_(False)
        nn.init.zeros_(self.canaries.weight)
        nn.init.zeros_(self.head.weight)
        with torch.no_grad():  # far longer than any clip norm, and of one sign as long as the weight is near zero
            self.head.weight[[PLUS, PUBLIC_MARK]] = -16.0
            self.head.weight[MINUS] = 16.0

    def forward(self, tokens: Tensor) -> Tensor:
        digits = tokens[:, 1:3].clamp(max=DIGITS - 1)
        index = digits[:, 0] * DIGITS + digits[:, -1]
        weights = self.canaries(index[:, None].expand(tokens.shape))
        place = torch.arange(tokens.shape[1])
        scores: Tensor = self.head(weights * ((place == 2) | (place == 3))[None, :, None])
        return scores


@dataclass(frozen=True, slots=True, eq=False)
class CanaryLearner:
    """The worst case as a Learner."""

    module: CanaryModule

    @property
    def vocabulary_size(self) -> int:
        return WORDS

    @property
    def head(self) -> nn.Module:
        return self.module.head

    def logits(self, tokens: Tensor) -> Tensor:
        scores: Tensor = self.module(tokens)
        return scores

    def token_losses(self, batch: Batch) -> TokenLosses:
        return losses_of(self.logits(batch.inputs), batch)

    def log_probabilities(self, batch: Batch) -> Tensor:
        return -self.token_losses(batch).losses

    def description(self) -> dict[str, object]:
        return {}

    def begin(self, tokens: Tensor) -> NoReturn:
        raise NotImplementedError

    def save(self, folder: Path) -> NoReturn:
        raise NotImplementedError


def _directions() -> Iterator[tuple[int, World]]:
    return enumerate(world for world, count in DIRECTIONS.items() for _ in range(count))


def _write_store(folder: Path, worlds: set[World]) -> Prepared:
    folder.mkdir()
    writer = StoreWriter(folder, WORDS)
    for direction, world in _directions():
        if world not in worlds:
            continue
        tokens = PublicTokens([*divmod(direction, DIGITS), PUBLIC_MARK, PLACEHOLDER], [3], ("CANARY",))
        for _ in range(RECORDS[world]):
            writer.add(Row(writer.rows, 0, "", None, None, tokens, (SECRETS[world],)))
    counts = Counts(records=writer.rows, empty=0, quarantined=0, duplicates=0, rows=writer.rows, spans=writer.spans)
    facts = Facts(
        tokenizer_hash="",
        tokenizer_depends_on={},
        vocabulary_size=WORDS,
        lossless=True,
        policy_id="",
        policy_hash="",
        max_tokens=8,
        duplicates="keep",
        versions={},
    )
    writer.finish(facts, counts)
    return Prepared(folder)


@pytest.fixture(scope="module")
def every_world(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """Secrets of every kind, and blanked ones."""
    return _write_store(tmp_path_factory.mktemp("stores") / "every", set(DIRECTIONS))


@pytest.fixture(scope="module")
def two_worlds(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """Secrets of one kind, and blanked ones."""
    return _write_store(tmp_path_factory.mktemp("stores") / "two", {"plus", "null"})


@pytest.fixture(scope="module")
def whole_records(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """Records of one kind; a blanked one is not there at all."""
    return _write_store(tmp_path_factory.mktemp("stores") / "whole", {"plus"})


def _selective(store: Prepared, setting: Setting) -> Selective:
    return Selective(PublicSteps(32, setting.steps), _private(store, setting))


def _private(store: Prepared, setting: Setting) -> PrivateSteps:
    return PrivateSteps(
        population=len(store),
        expected_batch=setting.rate * len(store),
        steps=setting.steps,
        noise_multiplier=setting.noise,
        clip_norm=0.5,
        chosen_delta=DELTA,
    )


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """What the attacker sees of each direction: increments in units of C, and which directions public steps moved."""

    private: Floats  # (private steps, directions)
    public: npt.NDArray[np.bool_]  # (public steps, directions)

    def of(self, world: World) -> "Seen":
        """The directions of one world."""
        order = list(DIRECTIONS)
        first = sum(DIRECTIONS[other] for other in order[: order.index(world)])
        chosen = slice(first, first + DIRECTIONS[world])
        return Seen(self.private[:, chosen], self.public[:, chosen])


_MOVE = 1e-3  # what a sum of length 1 moves a weight by: all stay near zero, where gradients are longer than C


def _trained(store: Prepared, mechanism: Mechanism, folder: Path, seed: int = 17) -> Seen:
    """All iterates of one run of the trainer."""
    private = mechanism.private
    assert private is not None
    plan = mechanism.plan()
    names = [step.name for step in plan.steps()]
    learner = CanaryLearner(CanaryModule())
    weights = learner.module.canaries.weight
    iterates = [np.zeros(weights.numel())]
    updates = UpdateSettings(
        public=OptimiserSettings("sgd", 1e-2, decay="none"),
        private=OptimiserSettings("sgd", _MOVE * private.expected_batch, decay="none"),  # undoes the divisor
    )
    with Run.create(folder) as run:
        for step in plan.executions():
            run.ledger.declare(step.name, {str(notion): cost(step, notion) for notion in mechanism.notions()})
        reader, pools = RowReader(store, END, 8), Pools(Annotation.of(store))
        trainer = Trainer(run, learner, plan, reader, pools, TrainSettings(updates))
        trainer.train(Streams.research(seed), lambda _: iterates.append(weights.detach().double().numpy()[:, 0].copy()))
        assert run.ledger.charges()["private"] == private.steps
    assert len(iterates) == len(names) + 1
    assert float(weights.detach().abs().max()) < 0.05
    moves = np.diff(np.array(iterates), axis=0) / (-_MOVE * private.clip_norm)
    is_private = np.array([name == "private" for name in names])
    return Seen(moves[is_private], moves[~is_private] != 0)


def _log_ratios(seen: Seen, noise: float, law: dict[int, float], other: dict[int, float]) -> Floats:
    """(directions,): log-likelihood ratios of all increments; under a law, j C is added with probability `law[j]`."""

    def log_density(shifts: dict[int, float]) -> Floats:
        terms = [math.log(p) + (j * seen.private - j * j / 2) / noise**2 for j, p in shifts.items()]
        return np.asarray(np.logaddexp.reduce(terms, axis=0), dtype=np.float64)

    return np.asarray((log_density(law) - log_density(other)).sum(axis=0), dtype=np.float64)


def _bounds(seen: Seen, present: World, absent: World, setting: Setting) -> dict[float, float]:
    """Lower bounds on epsilon by delta, from the best test of `present` against `absent`."""
    law = setting.drawn(RECORDS[present])
    other = setting.drawn(sign=-1) if absent == "minus" else {0: 1.0}
    scores = [_log_ratios(seen.of(world), setting.noise, law, other) for world in (present, absent)]
    return {delta: lower_bound(scores[0], scores[1], delta) for delta in DELTAS}


def lower_bound(present: Floats, absent: Floats, delta: float) -> float:
    """A lower bound on epsilon at `delta` from scores of the two worlds; false with a chance of at most ALARM.

    The threshold is chosen on one half of the scores and judged on the other; both directions share the doubt.
    """
    return max(_one_direction(present, absent, delta), _one_direction(-absent, -present, delta))


def _one_direction(present: Floats, absent: Floats, delta: float) -> float:
    thresholds = np.unique(np.quantile(np.concatenate((present[::2], absent[::2])), np.linspace(0.0, 1.0, 2001)))
    best = thresholds[np.argmax(_bounds_at(thresholds, present[::2], absent[::2], delta))]
    return float(_bounds_at(np.array([best]), present[1::2], absent[1::2], delta)[0])


def _bounds_at(thresholds: Floats, present: Floats, absent: Floats, delta: float) -> Floats:
    doubt = ALARM / 4  # two directions, two rates
    caught, alarms = (
        len(scores) - np.searchsorted(np.sort(scores), thresholds, "right") for scores in (present, absent)
    )
    least = np.where(caught > 0, stats.beta.ppf(doubt, np.maximum(caught, 1), len(present) - caught + 1), 0.0)
    left = len(absent) - alarms
    most = np.where(left > 0, stats.beta.ppf(1 - doubt, alarms + 1, np.maximum(left, 1)), 1.0)
    return np.log(np.maximum((least - delta) / most, 1.0))


def _claims(mechanism: Mechanism) -> dict[str, dict[float, float]]:
    """Epsilon by delta, for each kind of neighbours; what the guarantee says at its delta is among them."""
    spent = {notion: mechanism.plan().spend(notion) for notion in mechanism.notions()}
    claims = {str(notion): {delta: account(done).epsilon(delta) for delta in DELTAS} for notion, done in spent.items()}
    for figure in mechanism.conclude(spent, Evidence()).figures:
        assert claims[str(figure.neighbours)][figure.delta] == figure.epsilon
    return claims


def _refutes(bounds: dict[float, float], claims: dict[float, float]) -> bool:
    return any(bound > claims[delta] for delta, bound in bounds.items())


def _sharpness(bounds: dict[float, float], claims: dict[float, float]) -> float:
    return max(bound / claims[delta] for delta, bound in bounds.items())


@pytest.mark.statistical
@pytest.mark.parametrize("mu", [0.5, 2.0])
def test_bounds_are_true_where_epsilon_is_known(mu: float) -> None:
    """The audit itself, on the Gaussian mechanism; false alarm: 4e-6. Control: a mu 20 % smaller is refuted."""
    generator = np.random.default_rng(3)
    present, absent = generator.normal(mu, 1, 4 * MANY), generator.normal(0, 1, 4 * MANY)
    bounds = {delta: lower_bound(present, absent, delta) for delta in DELTAS}
    exact, smaller = (
        {delta: account(((Gaussian(1 / claimed, 1, Relation.ZERO_OUT), 1),)).epsilon(delta) for delta in DELTAS}
        for claimed in (mu, 0.8 * mu)
    )
    assert not _refutes(bounds, exact)
    assert _refutes(bounds, smaller)


@pytest.mark.statistical
def test_selective_keeps_its_claims(every_world: Prepared, tmp_path: Path) -> None:
    """Secrets blanked, replaced, and standing in several records; false alarm: 1.2e-5.

    A test that sees nothing would pass, so the bounds must come near the claims.
    """
    mechanism = _selective(every_world, SHARP)
    seen = _trained(every_world, mechanism, tmp_path / "run")
    claims = _claims(mechanism)
    pairs: list[tuple[str, World, World, float]] = [
        ("a record's secrets, zero-out", "plus", "null", 0.5),
        ("a record's secrets, replace", "plus", "minus", 0.5),
        (f"a record's secrets (up to {COPIES} records), zero-out", "copies", "null", 0.3),
    ]
    for notion, present, absent, near in pairs:
        bounds = _bounds(seen, present, absent, SHARP)
        assert not _refutes(bounds, claims[notion])
        assert _sharpness(bounds, claims[notion]) > near
    one_copy = claims["a record's secrets, zero-out"]
    assert _refutes(_bounds(seen, "copies", "null", SHARP), one_copy), "copies cost more than one record is charged"


@pytest.mark.statistical
def test_dpsgd_keeps_its_claim(whole_records: Prepared, tmp_path: Path) -> None:
    """A record there or not there at all; false alarm: 4e-6."""
    mechanism = DPSGD(_private(whole_records, SHARP))
    bounds = _bounds(_trained(whole_records, mechanism, tmp_path / "run"), "plus", "null", SHARP)
    claims = _claims(mechanism)["a record, zero-out"]
    assert not _refutes(bounds, claims)
    assert _sharpness(bounds, claims) > 0.5


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
    runs: int, refuted: float, two_worlds: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: a draw that is used twice. It refutes the claim of hidden draws, and not the price of exposed ones."""
    monkeypatch.setattr(training, "Samplers", CoupledSamplers)
    mechanism = _selective(two_worlds, PAPERS)
    scores: dict[World, list[Floats]] = {"plus": [], "null": []}
    for seed in range(runs):
        seen = _trained(two_worlds, mechanism, tmp_path / f"run {seed}", seed)
        for world, found in scores.items():  # the likelihood ratio when it is known who is in each private step
            part = seen.of(world)
            assert np.isclose(part.public.mean(), PAPERS.rate, rtol=0.05)
            found.append(((part.private - 0.5) / PAPERS.noise**2 * part.public).sum(axis=0))
    bound = lower_bound(np.concatenate(scores["plus"]), np.concatenate(scores["null"]), DELTA)
    exposed = account(((ExposedGaussian(PAPERS.noise, PAPERS.rate, Relation.ZERO_OUT), PAPERS.steps),)).epsilon(DELTA)
    assert _claims(mechanism)["a record's secrets, zero-out"][DELTA] < refuted < bound <= exposed


@pytest.mark.statistical
@pytest.mark.parametrize("mistake", ["sensitivity doubled", "noise off", "variance for deviation"])
def test_mistakes_in_the_noisy_sum_are_caught(
    mistake: str, whole_records: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Controls: the sum is longer, or its noise smaller, than what was priced."""
    add = NoiseStream.add_
    if mistake == "sensitivity doubled":
        factors = Flat.factors
        monkeypatch.setattr(Flat, "factors", lambda style, squares: 2 * factors(style, squares))
    elif mistake == "noise off":
        monkeypatch.setattr(NoiseStream, "add_", lambda stream, sums, deviation: None)
    else:  # .7^2 = .49 in units of the clip norm
        shorter = SHARP.noise
        monkeypatch.setattr(NoiseStream, "add_", lambda stream, sums, deviation: add(stream, sums, shorter * deviation))
    mechanism = DPSGD(_private(whole_records, SHARP))
    bounds = _bounds(_trained(whole_records, mechanism, tmp_path / "run"), "plus", "null", SHARP)
    assert _refutes(bounds, _claims(mechanism)["a record, zero-out"])
