"""Carrying out one step on one draw: which gradient, which noise, which optimizer. One method per kind of update.

G1 (as priced). A private draw reaches the model only through its noisy sum, over the public divisor; an empty draw adds
   noise all the same. The algorithms as printed use parts of a draw exactly, and add nothing for an empty part: they
   are priced so, with who was drawn in the open.
G2 (rates). An optimizer's schedule spans all the updates it will make; those printed have SGD and one rate.

`local_sum` is DP-FedAvg (McMahan et al., ICLR 2018, arXiv 1710.06963): a user's whole update is one clipped vector. Of
the paper, E, B and eta are `LocalConfig`, -Delta_k is theta - theta_local, S is `clip_norm`, w_k a unit's weight. Where
we differ: the update is clipped once, when it is complete. One local step on all rows is DP-FedSGD.

G3 (sensitivity). A unit adds a vector of length at most `clip_norm` x its weight, rounding included, whatever its rows
   and the learning rate are; a weight too small for float32 adds nothing. `sensitivity` is `clip_norm`: it does not
   depend on who was drawn.
G4 (restored). Every parameter is afterwards, bit for bit, what it was: after each unit, and after an error.
G5 (weights). A weight multiplies the clipped vector; one outside [0, 1] is refused.
G6 (finite). A unit whose update, or its squared length, is not finite adds zero, and is counted.
G7 (exact). The sum equals that of training a copy of the model for each unit, up to float32 rounding, whatever the
   caller's autocast and the model's dropouts, which are off; `positions` changes nothing.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pkgutil import resolve_name
from typing import Any, Generic, Literal, TypedDict

import numpy as np
import torch
from torch import Tensor, nn

from tacit.config.model_schema import LocalConfig, OptimizerConfig
from tacit.data.batches import BatchKind, BatchReader, Examples, RowsInParts, Trainable, parts_of
from tacit.errors import ClaimRefused, ConfigError
from tacit.models.classifier import Classifier
from tacit.models.language_model import Learner
from tacit.models.sequence_classifier import SequenceClassifier
from tacit.privacy.plan import (
    Noisy,
    Plain,
    Plan,
    PoissonUsers,
    ShuffledPass,
    SplitBatch,
    Step,
    TrainablePart,
    UsersAndEntities,
)
from tacit.training.gradients.clipped import (
    Automatic,
    Clipping,
    Flat,
    Method,
    PerParameter,
    add_clipped,
    clipped_sum,
    exact,
    plain_sum,
)
from tacit.training.gradients.recording import chosen_parameters, zero_sums
from tacit.training.optimizers import Optimizer, UpdateRule
from tacit.training.pools import DrawnUnits as Drawn
from tacit.training.pools import Pools
from tacit.training.randomness import NoiseStream, Streams


@dataclass(frozen=True, slots=True, eq=False)
class LocalUnit(Generic[BatchKind]):
    """One user: rows, weight, and what the order of its rows is drawn from, which must not depend on other users."""

    batch: BatchKind
    weight: float
    seed: tuple[int, ...]

    def __post_init__(self) -> None:
        if not 0 <= self.weight <= 1:
            raise ClaimRefused(
                expected="a unit's weight between 0 and 1, or its vector is longer than the price counts",
                found=str(self.weight),
                way_out="divide by a public cap and cut at 1: min(records / weight_cap, 1)",
            )


@dataclass(frozen=True, slots=True, eq=False)
class LocalSum:
    """What a private step adds noise to. Only `sums` after noise may leave; norms are exact, and private."""

    sums: dict[str, Tensor]  # by parameter name, in float32 or better
    sensitivity: float
    norms: Tensor  # (units,), before clipping and weighting
    non_finite: int


def local_sum(
    learner: Trainable[BatchKind],
    units: Iterable[LocalUnit[BatchKind]],
    clipping: Clipping,
    settings: LocalConfig,
    *,
    positions: int | None = None,
    parameters: Collection[str] | None = None,
    method: Method = "fused",
) -> LocalSum:
    """Sum over `units` of the weighted clipped pseudo-gradient.

    positions, parameters, method: as in `plain_sum`. Units are taken one at a time.
    """
    chosen = chosen_parameters(learner.module, parameters)
    training = _LocalTraining(learner, chosen, settings, positions, method)
    sums = zero_sums(chosen)
    norms = []
    for unit in units:
        with exact(learner.module, unit.batch.weights.device):
            update = training.update(unit.batch, np.random.Generator(np.random.PCG64DXSM(unit.seed)))
        norms.append(float(add_clipped(sums, update, clipping, unit.weight)))
    found = torch.tensor(norms, dtype=torch.float64)
    return LocalSum(sums, clipping.clip_norm, found, int((~found.isfinite()).sum()))


@dataclass(eq=False)
class _LocalTraining(Generic[BatchKind]):
    """Trains from the same start again and again."""

    learner: Trainable[BatchKind]
    parameters: Mapping[str, nn.Parameter]
    settings: LocalConfig
    positions: int | None
    method: Method

    def __post_init__(self) -> None:
        self._start = {name: parameter.detach().clone() for name, parameter in self.parameters.items()}

    def update(self, batch: BatchKind, generator: np.random.Generator) -> dict[str, Tensor]:
        """theta - theta_local: the local steps summed up, which loses no digits to a subtraction."""
        update = zero_sums(self.parameters)
        try:
            for number, part in enumerate(self._parts(batch, generator)):
                if number:  # the first step finds the start in place, and where the last one leads nobody looks
                    self._place(update)
                gradient = plain_sum(
                    self.learner, part, positions=self.positions, parameters=self.parameters, method=self.method
                )
                if gradient.weight:
                    for name, total in gradient.sums.items():
                        update[name].add_(total.div_(gradient.weight), alpha=self.settings.learning_rate)
        finally:
            self._place(None)
        return update

    def _parts(self, batch: BatchKind, generator: np.random.Generator) -> Iterator[BatchKind]:
        for _ in range(self.settings.epochs):
            order = torch.from_numpy(generator.permutation(len(batch))).to(batch.weights.device)
            for first in range(0, len(order), self.settings.batch_size):
                yield batch.rows(order[first : first + self.settings.batch_size])

    @torch.no_grad()
    def _place(self, update: Mapping[str, Tensor] | None) -> None:
        for name, parameter in self.parameters.items():
            parameter.copy_(self._start[name] if update is None else self._start[name] - update[name])


def default_positions(vocabulary_size: int) -> int:
    """How many positions pass through a model at a time where nobody says."""
    return min(8192, max(512, _SCORES // vocabulary_size))


_SCORES = 1 << 26  # in memory at a time: 256 MB
_ROWS_AT_A_TIME = 512  # of a draw, read to learn how long they are
DEFAULT_NOISED_STATES = 2
_AS_PRINTED = {  # steps of the papers' algorithms, by how they split a batch
    "records": "tacit.papers.algorithms:update_by_records",
    "segments": "tacit.papers.algorithms:update_by_segments",
}
_STYLES = {"flat": Flat, "automatic": Automatic, "per parameter": PerParameter}


_ADAM = OptimizerConfig("adam", 2e-3)


@dataclass(frozen=True, slots=True)
class UpdateSettings:
    """How updates are carried out. Nothing here depends on the data.

    noised_states: of Selective-DPSGD as printed, as its plan counts them.
    """

    public: OptimizerConfig = _ADAM
    private: OptimizerConfig = _ADAM
    local: LocalConfig = field(default_factory=LocalConfig)
    positions: int | None = None
    precision: Literal["float32", "bfloat16"] = "float32"
    noised_states: int = DEFAULT_NOISED_STATES


@dataclass(frozen=True, slots=True)
class Done:
    """What an update did. `private` may not leave your organization."""

    tokens: int
    public_loss: float | None = None
    private: Mapping[str, float] | None = None

    def __add__(self, other: "Done") -> "Done":
        loss = self.public_loss if other.public_loss is None else other.public_loss
        return Done(self.tokens + other.tokens, loss, other.private or self.private)


@dataclass(frozen=True, slots=True)
class DrawnRows:
    """Rows of a draw, read when their part is due; the parts are those of one batch of all rows."""

    rows: np.ndarray
    read: Callable[[np.ndarray], Examples]  # on the host
    device: torch.device

    def __len__(self) -> int:
        return len(self.rows)

    def micro_batches(self, positions: int | None) -> Iterator[tuple[Tensor, Examples]]:
        """Every row is read twice: for its length, and with its part."""
        starts = range(0, len(self), _ROWS_AT_A_TIME)
        reach = torch.cat([self.read(self.rows[start : start + _ROWS_AT_A_TIME]).reach for start in starts])
        sizes = tuple((length, 0) for length in reach.tolist())
        for index, _ in parts_of(sizes, positions, reach.device):
            part = self.read(self.rows[index.numpy()])
            yield index.to(self.device), part.rows(torch.arange(len(index))).to(self.device)


class How(TypedDict):
    """How gradients are computed."""

    positions: int
    method: Method


class Updates:
    """Applies the steps of one plan to one model."""

    def __init__(
        self,
        learner: Learner | Classifier | SequenceClassifier,
        plan: Plan,
        reader: BatchReader,
        pools: Pools,
        settings: UpdateSettings,
    ) -> None:
        executions = plan.executions()
        self.learner: Trainable[Any] = learner
        self.reader, self.pools, self.settings = reader, pools, settings
        self.optimizers = {
            name: Optimizer(
                chosen, sum(times * _draws(step, pools) for step, times in executions.items() if step.optimizer == name)
            )
            for name, chosen in (("public", settings.public), ("private", settings.private))
        }
        self.parameters = {name: p for name, p in learner.module.named_parameters() if p.requires_grad}
        self.moving = {step.trainable: moving_names(learner, step.trainable) for step in executions}
        self.methods: dict[TrainablePart, Method] = dict.fromkeys(self.moving, "fused")  # until the check has chosen
        self._device = next(learner.module.parameters()).device
        self.vocabulary_size = learner.vocabulary_size
        self._positions = settings.positions or default_positions(learner.vocabulary_size)

    def carry_out(self, step: Step, drawn: Drawn, streams: Streams) -> Done:
        """One draw of `step`."""
        update, rule = step.update, self.optimizers[step.optimizer]
        with self.autocast():
            if isinstance(update, Plain):
                return self.plain(step, drawn.rows, rule)
            if isinstance(update, SplitBatch):
                done: Done = resolve_name(_AS_PRINTED[update.by])(self, step, update, drawn, streams)
                return done
            if isinstance(step.draw, PoissonUsers | UsersAndEntities):
                return self._users(step, update, drawn, streams)
            return self.noisy(step, update, drawn.rows, streams, rule)

    def autocast(self) -> torch.autocast:
        """The precision that was asked for."""
        return torch.autocast(self._device.type, torch.bfloat16, enabled=self.settings.precision == "bfloat16")

    def how(self, step: Step) -> How:
        """The arguments of `plain_sum` and `clipped_sum` in a step."""
        return {"positions": self._positions, "method": self.methods[step.trainable]}

    def read(self, step: Step, rows: np.ndarray) -> Examples:
        """The rows as `step` sees them, on the model's device."""
        return self._read_here(step, rows).to(self._device)

    def _read_here(self, step: Step, rows: np.ndarray) -> Examples:
        return self.reader.batch(rows, step.view, step.targets)

    def plain(self, step: Step, rows: np.ndarray, rule: Optimizer) -> Done:
        """One step along the mean gradient of `rows`."""
        batch, moving = self.read(step, rows), self.moving[step.trainable]
        result = plain_sum(self.learner, batch, parameters=moving, **self.how(step))
        weight = max(result.weight, 1.0)
        rule.apply(self.parameters, {name: total.div_(weight) for name, total in result.sums.items()})
        return Done(int(batch.weights.count_nonzero()), result.loss / weight)

    def noisy(
        self, step: Step, update: Noisy | SplitBatch, rows: np.ndarray, streams: Streams, rule: UpdateRule
    ) -> Done:
        """One step along the noisy sum of the clipped gradients of `rows`, over the public divisor."""
        streamed = DrawnRows(rows, partial(self._read_here, step), self._device)
        batch: RowsInParts[Examples] = streamed if len(rows) > _ROWS_AT_A_TIME else self.read(step, rows)
        clipping = _STYLES[update.style if isinstance(update, Noisy) else "flat"](update.clip_norm)
        moving = self.moving[step.trainable]
        result = clipped_sum(self.learner, batch, clipping, parameters=moving, **self.how(step))
        self._apply(rule, update, result.sums, result.sensitivity, streams)
        loss = float(result.losses.sum()) / max(1, result.targets)
        return Done(result.targets, None, {**_facts(result.norms, result.non_finite), "loss": loss})

    def _users(self, step: Step, update: Noisy, drawn: Drawn, streams: Streams) -> Done:
        """Each user's own training is one clipped vector.

        UeDP as printed has noise for q_u |U| + 1 of them: sigma = z (q_u |U| + 1) C, and never more are used.
        """
        draw = step.draw
        cap, epochs = (draw.weight_cap, draw.local_epochs) if isinstance(draw, PoissonUsers) else (1, 1)
        most = 1.0 if isinstance(draw, PoissonUsers) else update.divisor + 1  # an entity may stand in every user's rows
        drawn = drawn if isinstance(draw, PoissonUsers) else drawn.first(int(most))
        counts: list[int] = []
        key = int(streams.other.integers(2**63))  # one number a draw, whoever was drawn

        def units() -> Iterator[LocalUnit[Examples]]:
            for rows, weight in zip(drawn.units(), self.pools.weights(drawn, cap), strict=True):
                batch = self.read(step, rows)
                counts.append(int(batch.weights.count_nonzero()))
                yield LocalUnit(batch, float(weight), (key, self.pools.owner(rows)))

        result = local_sum(
            self.learner,
            units(),
            _STYLES[update.style](update.clip_norm),
            replace(self.settings.local, epochs=epochs),
            parameters=self.moving[step.trainable],
            **self.how(step),
        )
        self._apply(self.optimizers[step.optimizer], update, result.sums, most * result.sensitivity, streams)
        return Done(sum(counts), None, _facts(result.norms, result.non_finite))

    def _apply(
        self,
        rule: UpdateRule,
        update: Noisy | SplitBatch,
        sums: dict[str, Tensor],
        sensitivity: float,
        streams: Streams,
    ) -> None:
        deviation = update.noise_multiplier * sensitivity
        next_noise(streams).add_(sums.values(), deviation)
        gradients = {name: total.div_(update.divisor) for name, total in sums.items()}
        rule.apply(self.parameters, gradients, deviation / update.divisor)


def next_noise(streams: Streams) -> NoiseStream:
    """The noise of one update, which no other update has."""
    return NoiseStream(streams.noise.seed(streams.noise.last_step + 1), 0)


def _draws(step: Step, pools: Pools) -> int:
    """How many draws one execution of a step has."""
    draw = step.draw
    return -(-len(pools.records(step.pool)) // draw.batch_size) if isinstance(draw, ShuffledPass) else 1


def _facts(norms: Tensor, non_finite: int) -> dict[str, float]:
    median = float(norms.median()) if len(norms) else 0.0
    return {"drawn": len(norms), "non_finite": non_finite, "median_norm": median}


def moving_names(learner: Trainable[Any], trainable: TrainablePart) -> list[str]:
    """The names of the parameters that a step moves."""
    known = {name: p for name, p in learner.module.named_parameters() if p.requires_grad}
    of_head = {id(parameter) for parameter in learner.head.parameters()}
    chosen: dict[TrainablePart, list[str]] = {
        "all": list(known),
        "head": [name for name, parameter in known.items() if id(parameter) in of_head],
        "biases": [name for name in known if name.endswith("bias")],
        "adapters": [name for name in known if ".lora_" in name],
    }
    if not (names := chosen[trainable]):
        way_out = "choose another `plan.trainable`, or another model"
        raise ConfigError(f"a model with {trainable} to train", "none", way_out)
    return names
