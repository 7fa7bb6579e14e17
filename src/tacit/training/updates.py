"""Carrying out one step on one draw: which gradient, which noise, which optimizer. One method per kind of update.

G1 (as priced). A private draw reaches the model only through its noisy sum, over the public divisor; an empty draw adds
   noise all the same. The algorithms as printed use parts of a draw exactly, and add nothing for an empty part: they
   are priced so, with who was drawn in the open.
G2 (rates). An optimizer's schedule spans all the updates it will make; those printed have SGD and one rate.
G3 (ranks). Each rank of a group computes the gradients of its share of a draw; they are summed, and then noise is added
   once, from the key that all ranks have. A draw with nothing for a rank, or for any, is summed all the same. Batches
   that Selective-DPSGD as printed takes segment by segment are not divided: every rank computes all of them. Where a
   pass through the model needs every rank, those with fewer passes join the others with a row that is nobody's.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pkgutil import resolve_name
from typing import Any, Literal, TypedDict

import numpy as np
import torch
from torch import Tensor

from tacit.config.model_schema import LocalConfig, OptimizerConfig
from tacit.data.batches import BatchReader, Examples, LabeledBatch, RowsInParts, TextBatch, Trainable, parts_of
from tacit.errors import ConfigError
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
from tacit.training.gradients.clipped import Automatic, Flat, Method, PerParameter, clipped_sum, plain_sum
from tacit.training.group import ALONE, Group
from tacit.training.local import LocalUnit, local_sum
from tacit.training.optimizers import Optimizer, UpdateRule
from tacit.training.pools import DrawnUnits as Drawn
from tacit.training.pools import Pools
from tacit.training.randomness import NoiseStream, Streams


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
        group: Group = ALONE,
    ) -> None:
        executions = plan.executions()
        self.learner: Trainable[Any] = learner
        self.reader, self.pools, self.settings, self.group = reader, pools, settings, group
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
        if self.group.rank:  # dropout of other rows, which needs no equal masks
            torch.manual_seed((torch.initial_seed() + self.group.rank) % 2**63)
        batch, moving = self.read(step, rows[self._own(rows)]), self.moving[step.trainable]
        result = plain_sum(self.learner, batch, parameters=moving, **self.how(step))
        idle = partial(plain_sum, self.learner, self._nobodys(), parameters=moving, **self.how(step))
        self.group.finish_passes(idle)
        totals = self._numbers(result.loss, result.weight, int(batch.weights.count_nonzero()))
        self.group.sum_([*result.sums.values(), totals])
        loss, weight, targets = totals.tolist()
        weight = max(weight, 1.0)
        rule.apply(self.parameters, {name: total.div_(weight) for name, total in result.sums.items()})
        return Done(int(targets), loss / weight)

    def noisy(
        self, step: Step, update: Noisy | SplitBatch, rows: np.ndarray, streams: Streams, rule: UpdateRule
    ) -> Done:
        """One step along the noisy sum of the clipped gradients of `rows`, over the public divisor."""
        own = self._own(rows)
        streamed = DrawnRows(rows[own], partial(self._read_here, step), self._device)
        batch: RowsInParts[Examples] = streamed if len(own) > _ROWS_AT_A_TIME else self.read(step, rows[own])
        clipping = _STYLES[update.style if isinstance(update, Noisy) else "flat"](update.clip_norm)
        moving = self.moving[step.trainable]
        result = clipped_sum(self.learner, batch, clipping, parameters=moving, **self.how(step))
        idle = partial(clipped_sum, self.learner, self._nobodys(), clipping, parameters=moving, **self.how(step))
        self.group.finish_passes(idle)
        totals = self._numbers(result.losses.sum(), result.targets, result.non_finite)
        norms = self._placed(result.norms, own, len(rows))
        self.group.sum_([*result.sums.values(), norms, totals])
        self._apply(rule, update, result.sums, result.sensitivity, streams)
        loss, targets, non_finite = totals.tolist()
        return Done(int(targets), None, {**_facts(norms, int(non_finite)), "loss": loss / max(1, targets)})

    def _nobodys(self) -> Examples:
        """A row of made-up tokens, for a pass of which nothing is kept."""
        classifies = isinstance(self.learner, Classifier | SequenceClassifier)
        made: Examples = LabeledBatch.of_rows([[0, 0]], [0]) if classifies else TextBatch.of_rows([[0, 0, 0]])
        return made.to(self._device)

    def _own(self, rows: np.ndarray) -> np.ndarray:
        """Which of these rows are this rank's."""
        return self.group.share(self._costs(rows))

    def _costs(self, rows: np.ndarray) -> np.ndarray:
        return np.ones(len(rows)) if self.group.size == 1 else self.reader.lengths(rows)

    def _numbers(self, *numbers: float | Tensor) -> Tensor:
        return torch.tensor([float(number) for number in numbers], dtype=torch.float64, device=self._device)

    def _placed(self, values: Tensor, places: np.ndarray, size: int) -> Tensor:
        """(size,): the values at their places, zeros elsewhere."""
        placed = torch.zeros(size, dtype=torch.float64, device=self._device)
        placed[torch.from_numpy(places).to(self._device)] = values.to(placed)
        return placed

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
        weights, members = self.pools.weights(drawn, cap), list(drawn.units())
        own = self.group.share(np.array([self._costs(rows).sum() for rows in members]))

        def units() -> Iterator[LocalUnit[Examples]]:
            for unit in own.tolist():
                rows, weight = members[unit], weights[unit]
                batch = self.read(step, rows)
                counts.append(int(batch.weights.count_nonzero()))
                yield LocalUnit(batch, float(weight), (key, self.pools.owner(rows)))

        update_of = partial(
            local_sum,
            self.learner,
            clipping=_STYLES[update.style](update.clip_norm),
            parameters=self.moving[step.trainable],
            **self.how(step),
        )
        result = update_of(units(), settings=replace(self.settings.local, epochs=epochs))
        nobody = LocalUnit(self._nobodys(), 1.0, (0,))
        self.group.finish_passes(partial(update_of, [nobody], settings=replace(self.settings.local, epochs=1)))
        totals, norms = self._numbers(sum(counts), result.non_finite), self._placed(result.norms, own, len(members))
        self.group.sum_([*result.sums.values(), norms, totals])
        self._apply(self.optimizers[step.optimizer], update, result.sums, most * result.sensitivity, streams)
        targets, non_finite = totals.tolist()
        return Done(int(targets), None, _facts(norms, int(non_finite)))

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
