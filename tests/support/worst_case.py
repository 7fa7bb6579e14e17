"""What worst-case audits share (theory, T6): a model with one weight a direction, the trainer on it, exact bounds.

A record that names a direction moves that weight of a small model by exactly +C or -C and no other. Draws of different
units are independent and so is the noise of different weights, so one run of the trainer is as many independent
repetitions of the attack as there are directions. The attacker sees the model after every step and knows everything
but what is protected: the likelihood ratio over all private increments is the best test there is. From its errors
follow exact (Clopper-Pearson) lower bounds on epsilon, at the delta of the claim and at larger ones, which need fewer
repetitions. A bound above what is claimed at its delta disproves the claim; it is false with a chance of at most
`ALARM`.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np
import numpy.typing as npt
import torch
from scipy import stats
from torch import Tensor, nn

from many_runs import many_run_bound
from tacit.config.model_schema import LocalConfig, OptimizerConfig
from tacit.data.batches import RowReader, TextBatch, TokenLosses
from tacit.data.records import Record
from tacit.data.store import Facts, PreparedCorpus, StoreCounts, StoreWriter
from tacit.data.views import PublicTokens
from tacit.mechanisms.mechanism import Mechanism, PrivateSteps, planned
from tacit.models.language_model import losses_of
from tacit.privacy.account import account
from tacit.privacy.guarantee import Evidence
from tacit.privacy.plan import cost
from tacit.runs.folder import RunFolder
from tacit.training.group import ALONE, Group
from tacit.training.pools import Pools
from tacit.training.randomness import Streams
from tacit.training.trainer import Trainer, TrainSettings
from tacit.training.updates import UpdateSettings

ALARM = 1e-6
DELTA = 1e-5
DELTAS = (DELTA, 1e-2, 3e-2, 1e-1)

Floats = npt.NDArray[np.float64]
Law = Mapping[int, float]
"""With which probability a step adds how many times C to a direction."""

END, PLUS, MINUS, PUBLIC_MARK, PLACEHOLDER, FIRST_DIGIT = range(6)


@dataclass(frozen=True, slots=True)
class Setting:
    """A plan's numbers."""

    rate: float
    noise: float
    steps: int

    def drawn(self, copies: int = 1, sign: int = 1) -> Law:
        """How many of the copies a draw has, with their sign, and how probably."""
        return {sign * j: float(stats.binom.pmf(j, copies, self.rate)) for j in range(copies + 1)}

    def private(self, units: int) -> PrivateSteps:
        """Its private steps on so many units."""
        return PrivateSteps(
            population=units,
            expected_batch=self.rate * units,
            steps=self.steps,
            noise_multiplier=self.noise,
            clip_norm=0.5,
            chosen_delta=DELTA,
        )


SHARP = Setting(rate=0.1, noise=0.7, steps=10)  # few steps, much signal: bounds come close to the claims
NOTHING: Law = {0: 1.0}


@dataclass(frozen=True, slots=True)
class Canary:
    """A record: which direction it names, and what follows, which decides the sign. No secret: all of it is public."""

    direction: int
    follows: tuple[int, ...] = (PLUS, PLUS)
    secret: tuple[int, ...] | None = None
    user: str | None = None
    entities: tuple[int, ...] = ()


def digits_for(directions: int) -> int:
    """How many digits there must be for two of them to name a direction."""
    return math.isqrt(directions) + 1


def write_store(folder: Path, canaries: Iterable[Canary], directions: int) -> PreparedCorpus:
    """The records as a prepared store."""
    folder.mkdir()
    digits = digits_for(directions)
    words = FIRST_DIGIT + digits
    writer = StoreWriter(folder, words)
    for canary in canaries:
        high, low = divmod(canary.direction, digits)
        public = [FIRST_DIGIT + high, FIRST_DIGIT + low, *canary.follows]
        tokens, secrets = PublicTokens(public, [], ()), [] if canary.secret is None else [list(canary.secret)]
        if secrets:
            tokens = PublicTokens([*public, PLACEHOLDER], [len(public)], ("CANARY",))
        writer.add(writer.rows, 0, Record(str(writer.rows), "", canary.user), tokens, secrets)
    counts = StoreCounts(
        records=writer.rows, empty=0, quarantined=0, duplicates=0, rows=writer.rows, spans=writer.spans
    )
    facts = Facts(
        tokenizer_hash="",
        tokenizer_depends_on={},
        vocabulary_size=words,
        lossless=True,
        policy_id="",
        policy_hash="",
        max_tokens=8,
        duplicates="keep",
        versions={},
    )
    writer.finish(facts, counts)
    return PreparedCorpus(folder)


class CanaryModule(nn.Module):
    """Scores of the third and the fourth position are a multiple of the weight that the row's two digits name."""

    def __init__(self, words: int) -> None:
        super().__init__()
        self.digits = words - FIRST_DIGIT
        self.canaries = nn.Embedding(self.digits * self.digits, 1)
        self.head = nn.Linear(1, words, bias=False)
        self.head.weight.requires_grad_(False)
        nn.init.zeros_(self.canaries.weight)
        nn.init.zeros_(self.head.weight)
        with torch.no_grad():  # far longer than any clip norm, and of one sign as long as the weight is near zero
            self.head.weight[[PLUS, PUBLIC_MARK]] = -16.0
            self.head.weight[MINUS] = 16.0

    def forward(self, tokens: Tensor) -> Tensor:
        whole = nn.functional.pad(tokens, (0, max(0, 3 - tokens.shape[1])))
        named = (whole[:, 1:3] - FIRST_DIGIT).clamp(0, self.digits - 1)
        index = named[:, 0] * self.digits + named[:, -1]
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
        return self.module.head.out_features

    @property
    def context(self) -> int:
        return 8

    @property
    def head(self) -> nn.Module:
        return self.module.head

    def logits(self, tokens: Tensor) -> Tensor:
        scores: Tensor = self.module(tokens)
        return scores

    def token_losses(self, batch: TextBatch) -> TokenLosses:
        return losses_of(self.logits(batch.inputs), batch)

    def log_probabilities(self, batch: TextBatch) -> Tensor:
        return -self.token_losses(batch).losses

    def description(self) -> dict[str, object]:
        return {}

    def begin(self, tokens: Tensor) -> NoReturn:
        raise NotImplementedError

    def save(self, folder: Path) -> NoReturn:
        raise NotImplementedError


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """What the attacker sees of each direction: increments in units of C, and which directions public steps moved."""

    private: Floats  # (private steps, directions)
    public: npt.NDArray[np.bool_]  # (public steps, directions)

    def part(self, first: int, count: int) -> "Seen":
        """Some of the directions."""
        chosen = slice(first, first + count)
        return Seen(self.private[:, chosen], self.public[:, chosen])


def trained(
    store: PreparedCorpus,
    pools: Pools,
    mechanism: Mechanism,
    folder: Path,
    *,
    seed: int = 17,
    move: float = 1e-3,
    local: LocalConfig | None = None,
    group: Group = ALONE,
) -> Seen:
    """All iterates of one run of the trainer; of several ranks, the first sees them.

    move: what a sum of length 1 moves a weight by: all stay near zero, where gradients are longer than C.
    """
    private = mechanism.private
    assert private is not None
    plan = mechanism.plan()
    is_private = np.array([step.name == "private" for step in plan.steps()])
    learner = CanaryLearner(CanaryModule(store.header.facts.vocabulary_size))
    weights = learner.module.canaries.weight
    iterates = [np.zeros(weights.numel(), np.float32)]
    updates = UpdateSettings(
        public=OptimizerConfig("sgd", 1e-2, lr_scheduler="none"),
        private=OptimizerConfig("sgd", move * private.expected_batch, lr_scheduler="none"),  # undoes the divisor
        local=local or LocalConfig(),
    )
    with ledger_for(mechanism, folder, group) as run:
        trainer = Trainer(run, learner, plan, RowReader(store, END, 8), pools, TrainSettings(updates), group=group)
        trainer.train(Streams.research(seed), lambda _: iterates.append(weights.detach().numpy()[:, 0].copy()))
        if not group.writes:
            return Seen(np.empty((0, 0)), np.empty((0, 0), np.bool_))
        assert run.ledger.charges()["private"] == private.steps
    assert len(iterates) == len(is_private) + 1
    assert float(weights.detach().abs().max()) < 0.05
    moves = np.diff(np.array(iterates, np.float64), axis=0) / (-move * private.clip_norm)
    return Seen(moves[is_private], moves[~is_private] != 0)


def ledger_for(mechanism: Mechanism, folder: Path, group: Group = ALONE) -> RunFolder:
    """A new run whose ledger knows the prices of the steps; for ranks that do not write, a view of it."""
    run = RunFolder.create(folder) if group.writes else None
    group.barrier()
    if run is None:
        return RunFolder.view(folder)
    for step in mechanism.plan().executions():
        run.ledger.declare(step.name, {str(notion): cost(step, notion) for notion in mechanism.notions()})
    return run


def log_ratios(increments: Floats, noise: float, law: Law, other: Law) -> Floats:
    """(directions,): log-likelihood ratios of all of (steps, directions); `noise` is in units of C."""

    def log_density(shifts: Law) -> Floats:
        terms = [math.log(p) + (j * increments - j * j / 2) / noise**2 for j, p in shifts.items()]
        return np.asarray(np.logaddexp.reduce(terms, axis=0), dtype=np.float64)

    return np.asarray((log_density(law) - log_density(other)).sum(axis=0), dtype=np.float64)


def bounds_between(present: Seen, absent: Seen, noise: float, law: Law, other: Law = NOTHING) -> dict[float, float]:
    """Lower bounds on epsilon by delta, from the best test of `law`, under which `present` should be, against `other`.

    Whoever knows both laws can rehearse the attack: thresholds are chosen on simulated increments.
    """
    generator = np.random.default_rng(5)
    rehearsed = [
        simulated(generator, one, noise, seen.private.shape) for one, seen in ((law, present), (other, absent))
    ]
    real = Scores(*(log_ratios(seen.private, noise, law, other) for seen in (present, absent)))
    rehearsal = Scores(*(log_ratios(increments, noise, law, other) for increments in rehearsed))
    return {delta: lower_bound(real, rehearsal, delta) for delta in DELTAS}


def simulated(generator: np.random.Generator, law: Law, noise: float, shape: tuple[int, ...]) -> Floats:
    """Increments as the law says they are."""
    shifts = generator.choice(list(law), p=list(law.values()), size=shape)
    return np.asarray(shifts + noise * generator.standard_normal(shape), dtype=np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """How much each repetition of the attack looks like `present`, in both worlds."""

    present: Floats
    absent: Floats

    def halves(self) -> tuple["Scores", "Scores"]:
        """Every other repetition, and the rest."""
        return Scores(self.present[::2], self.absent[::2]), Scores(self.present[1::2], self.absent[1::2])

    def mirrored(self) -> "Scores":
        """The attack on the other direction of the claim."""
        return Scores(-self.absent, -self.present)


def lower_bound(scores: Scores, rehearsal: Scores, delta: float) -> float:
    """A lower bound on epsilon at `delta`, false with a chance of at most ALARM.

    Thresholds are chosen on `rehearsal`, which must not depend on `scores`; both directions share the doubt.
    """
    repeated = (rehearsal.present, rehearsal.absent)
    return many_run_bound(scores.present, scores.absent, delta, 1 - ALARM, repeated)


def claims_of(mechanism: Mechanism) -> dict[str, dict[float, float]]:
    """Epsilon by delta, for each kind of neighbors; what the guarantee says at its delta is among them."""
    spent = planned(mechanism)
    claims = {str(notion): {delta: account(done).epsilon(delta) for delta in DELTAS} for notion, done in spent.items()}
    for figure in mechanism.conclude(spent, Evidence()).figures:
        assert claims[str(figure.neighbors)][figure.delta] == figure.epsilon
    return claims


def refutes(bounds: dict[float, float], claims: dict[float, float]) -> bool:
    """Whether a bound is above what is claimed at its delta."""
    return any(bound > claims[delta] for delta, bound in bounds.items())


def sharpness(bounds: dict[float, float], claims: dict[float, float]) -> float:
    """The largest share of a claim that the audit found."""
    return max(bound / claims[delta] for delta, bound in bounds.items() if claims[delta] > 0)
