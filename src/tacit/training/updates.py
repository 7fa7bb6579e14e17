"""Carrying out one step on one draw: which gradient, which noise, which optimiser. One method a kind of update.

G1 (as priced). A private draw reaches the model only through its noisy sum, over the public divisor; an empty draw adds
   noise all the same. The algorithms as printed use parts of a draw exactly, and add nothing for an empty part: they
   are priced so, with who was drawn in the open.
G2 (rates). An optimiser's schedule spans all the updates it will make; those printed have SGD and one rate.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pkgutil import resolve_name
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from tacit.config.model_schema import LocalConfig, OptimizerConfig
from tacit.data.batches import BatchReader, Examples, Trainable
from tacit.errors import ConfigError
from tacit.models.classifier import Classifier
from tacit.models.language_model import Learner
from tacit.privacy.plan import (
    ClipStyle,
    Moves,
    Noisy,
    Plain,
    Plan,
    PoissonUsers,
    ShuffledPass,
    SplitBatch,
    Step,
    UsersAndEntities,
)
from tacit.training.gradients.clipped import Automatic, Clipping, Flat, PerParameter, clipped_sum, plain_sum
from tacit.training.local_updates import LocalUnit, local_sum
from tacit.training.optimizers import Optimizer
from tacit.training.pools import DrawnUnits as Drawn
from tacit.training.pools import Pools
from tacit.training.randomness import NoiseStream, Streams

_SCORES = 1 << 26  # in memory at a time: 256 MB

DEFAULT_NOISED_STATES = 2
_AS_PRINTED = {  # steps of the papers' algorithms, by how they split a batch
    "records": "tacit.papers.algorithms:update_by_records",
    "segments": "tacit.papers.algorithms:update_by_segments",
}
_STYLES: dict[ClipStyle, Callable[[float], Clipping]] = {
    "flat": Flat,
    "automatic": Automatic,
    "per parameter": PerParameter,
}


@dataclass(frozen=True, slots=True)
class UpdateSettings:
    """How updates are carried out. Nothing here depends on the data.

    noised_states: of Selective-DPSGD as printed, as its plan counts them.
    """

    public: OptimizerConfig = field(default_factory=OptimizerConfig)
    private: OptimizerConfig = field(default_factory=OptimizerConfig)
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


class Updates:
    """Applies the steps of one plan to one model."""

    def __init__(
        self, learner: Learner | Classifier, plan: Plan, reader: BatchReader, pools: Pools, settings: UpdateSettings
    ) -> None:
        executions = plan.executions()
        self.learner: Trainable[Any] = learner
        self.reader, self.pools, self.settings = reader, pools, settings
        self.optimisers = {
            name: Optimizer(
                chosen,
                sum(times * _draws(step, pools) for step, times in executions.items() if step.optimiser == name),
            )
            for name, chosen in (("public", settings.public), ("private", settings.private))
        }
        self.parameters = {name: p for name, p in learner.module.named_parameters() if p.requires_grad}
        self.moving = {step.moves: moving_names(learner, step.moves) for step in executions}
        self._device = next(learner.module.parameters()).device
        self._positions = settings.positions or min(8192, max(512, _SCORES // learner.vocabulary_size))

    def carry_out(self, step: Step, drawn: Drawn, streams: Streams) -> Done:
        """One draw of `step`."""
        update = step.update
        with torch.autocast(self._device.type, torch.bfloat16, enabled=self.settings.precision == "bfloat16"):
            if isinstance(update, Plain):
                return self.plain(step, self.read(step, drawn.rows), self.optimisers[step.optimiser])
            if isinstance(update, SplitBatch):
                done: Done = resolve_name(_AS_PRINTED[update.by])(self, step, update, drawn, streams)
                return done
            if isinstance(step.draw, PoissonUsers | UsersAndEntities):
                return self._users(step, update, drawn, streams)
            batch = self.read(step, drawn.rows)
            return self.noisy(step, update, batch, streams, self.optimisers[step.optimiser])

    def read(self, step: Step, rows: np.ndarray) -> Examples:
        """The rows as `step` sees them, on the model's device."""
        return self.reader.batch(rows, step.view, step.targets).to(self._device)

    def plain(self, step: Step, batch: Examples, rule: Optimizer) -> Done:
        """One step along the mean gradient of `batch`."""
        moving = self.moving[step.moves]
        result = plain_sum(self.learner, batch, positions=self._positions, parameters=moving)
        weight = max(result.weight, 1.0)
        gradients = {name: total / weight for name, total in result.sums.items()}
        rule.apply(self.parameters, gradients)
        return Done(_counted(batch), result.loss / weight)

    def noisy(self, step: Step, update: Noisy | SplitBatch, batch: Examples, streams: Streams, rule: Optimizer) -> Done:
        """One step along the noisy sum of the clipped gradients of `batch`, over the public divisor."""
        clipping = _STYLES[update.style if isinstance(update, Noisy) else "flat"](update.clip_norm)
        moving = self.moving[step.moves]
        result = clipped_sum(self.learner, batch, clipping, positions=self._positions, parameters=moving)
        self._apply(rule, update, result.sums, result.sensitivity, streams)
        return Done(_counted(batch), None, _facts(result.norms, result.non_finite))

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
                counts.append(_counted(batch))
                yield LocalUnit(batch, float(weight), (key, self.pools.owner(rows)))

        result = local_sum(
            self.learner,
            units(),
            _STYLES[update.style](update.clip_norm),
            replace(self.settings.local, epochs=epochs),
            positions=self._positions,
            parameters=self.moving[step.moves],
        )
        rule = self.optimisers[step.optimiser]
        self._apply(rule, update, result.sums, most * result.sensitivity, streams)
        return Done(sum(counts), None, _facts(result.norms, result.non_finite))

    def _apply(
        self,
        rule: Optimizer,
        update: Noisy | SplitBatch,
        sums: dict[str, Tensor],
        sensitivity: float,
        streams: Streams,
    ) -> None:
        deviation = update.noise_multiplier * sensitivity
        next_noise(streams).add_(sums.values(), deviation)
        gradients = {name: total / update.divisor for name, total in sums.items()}
        rule.apply(self.parameters, gradients, deviation / update.divisor)


def next_noise(streams: Streams) -> NoiseStream:
    """The noise of one update, which no other update has."""
    return NoiseStream(streams.noise.seed(streams.noise.last_step + 1), 0)


def _draws(step: Step, pools: Pools) -> int:
    """How many draws one execution of a step has."""
    draw = step.draw
    return -(-len(pools.records(step.pool)) // draw.batch_size) if isinstance(draw, ShuffledPass) else 1


def _counted(batch: Examples) -> int:
    return int(batch.weights.count_nonzero())


def _facts(norms: Tensor, non_finite: int) -> dict[str, float]:
    median = float(norms.median()) if len(norms) else 0.0
    return {"drawn": len(norms), "non_finite": non_finite, "median_norm": median}


def moving_names(learner: Trainable[Any], moves: Moves) -> list[str]:
    """The names of the parameters that a step moves."""
    known = {name: p for name, p in learner.module.named_parameters() if p.requires_grad}
    of_head = {id(parameter) for parameter in learner.head.parameters()}
    belongs: dict[Moves, Callable[[str], bool]] = {
        "all": lambda name: True,
        "head": lambda name: id(known[name]) in of_head,
        "biases": lambda name: name.endswith("bias"),
        "adapters": lambda name: ".lora_" in name,
    }
    names = [name for name in known if belongs[moves](name)]
    if not names:
        raise ConfigError(f"a model with {moves} to move", "none", "choose another `plan.trainable`, or another model")
    return names
