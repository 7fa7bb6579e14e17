"""Carrying out one step on one draw: which gradient, which noise, which optimiser. One method a kind of update.

G1 (as priced). A private draw reaches the model only through its noisy sum, over the public divisor; an empty draw adds
   noise all the same. The algorithms as printed use parts of a draw exactly, and add nothing for an empty part: they
   are priced so, with who was drawn in the open.
G2 (rates). An optimiser's schedule spans all the updates it will make; those printed have SGD and one rate.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from tacit.config.model_schema import LocalConfig, OptimizerConfig
from tacit.data.batches import BatchReader, Examples, RowReader, Trainable
from tacit.errors import ConfigError
from tacit.models.classifier import Classifier
from tacit.models.language_model import Learner
from tacit.models.lstm import LSTM
from tacit.papers.algorithms import PrintedSettings, printed_update
from tacit.privacy.plan import (
    ClipStyle,
    Moves,
    Noisy,
    Plain,
    Plan,
    PoissonUsers,
    Pool,
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

_STYLES: dict[ClipStyle, Callable[[float], Clipping]] = {
    "flat": Flat,
    "automatic": Automatic,
    "per parameter": PerParameter,
}


@dataclass(frozen=True, slots=True)
class UpdateSettings:
    """How updates are carried out. Nothing here depends on the data."""

    public: OptimizerConfig = field(default_factory=OptimizerConfig)
    private: OptimizerConfig = field(default_factory=OptimizerConfig)
    local: LocalConfig = field(default_factory=LocalConfig)
    printed: PrintedSettings = field(default_factory=PrintedSettings)
    positions: int | None = None
    precision: Literal["float32", "bfloat16"] = "float32"


@dataclass(frozen=True, slots=True)
class Done:
    """What an update did. `private` may not leave the house."""

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
        self._learner: Trainable[Any] = learner
        self._reader, self._pools, self._settings = reader, pools, settings
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
        with torch.autocast(self._device.type, torch.bfloat16, enabled=self._settings.precision == "bfloat16"):
            if isinstance(update, Plain):
                return self._plain(step, self._read(step, drawn.rows), self.optimisers[step.optimiser])
            if isinstance(update, SplitBatch):
                by = self._by_records if update.by == "records" else self._by_segments
                return by(step, update, drawn, streams)
            if isinstance(step.draw, PoissonUsers | UsersAndEntities):
                return self._users(step, update, drawn, streams)
            batch = self._read(step, drawn.rows)
            return self._noisy(step, update, batch, streams, self.optimisers[step.optimiser])

    def _read(self, step: Step, rows: np.ndarray) -> Examples:
        return self._reader.batch(rows, step.view, step.targets).to(self._device)

    def _plain(self, step: Step, batch: Examples, rule: Optimizer) -> Done:
        moving = self.moving[step.moves]
        result = plain_sum(self._learner, batch, positions=self._positions, parameters=moving)
        weight = max(result.weight, 1.0)
        gradients = {name: total / weight for name, total in result.sums.items()}
        rule.apply(self.parameters, gradients)
        return Done(_counted(batch), result.loss / weight)

    def _noisy(
        self, step: Step, update: Noisy | SplitBatch, batch: Examples, streams: Streams, rule: Optimizer
    ) -> Done:
        clipping = _STYLES[update.style if isinstance(update, Noisy) else "flat"](update.clip_norm)
        moving = self.moving[step.moves]
        result = clipped_sum(self._learner, batch, clipping, positions=self._positions, parameters=moving)
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
            for rows, weight in zip(drawn.units(), self._pools.weights(drawn, cap), strict=True):
                batch = self._read(step, rows)
                counts.append(_counted(batch))
                yield LocalUnit(batch, float(weight), (key, self._pools.owner(rows)))

        result = local_sum(
            self._learner,
            units(),
            _STYLES[update.style](update.clip_norm),
            replace(self._settings.local, epochs=epochs),
            positions=self._positions,
            parameters=self.moving[step.moves],
        )
        rule = self.optimisers[step.optimiser]
        self._apply(rule, update, result.sums, most * result.sensitivity, streams)
        return Done(sum(counts), None, _facts(result.norms, result.non_finite))

    def _by_records(self, step: Step, update: SplitBatch, drawn: Drawn, streams: Streams) -> Done:
        """CADP-LM as printed: the flagged records of a batch with noise, then the others of the same batch exactly."""
        flagged = np.isin(drawn.rows, self._pools.rows(Pool.FLAGGED))
        rule, done = self._printed_rule(), Done(0)
        if flagged.any():
            done += self._noisy(step, update, self._read(step, drawn.rows[flagged]), streams, rule)
        if not flagged.all():
            done += self._plain(step, self._read(step, drawn.rows[~flagged]), rule)
        return done

    def _by_segments(self, step: Step, update: SplitBatch, drawn: Drawn, streams: Streams) -> Done:
        """Selective-DPSGD as printed."""
        reader = self._reader
        if not isinstance(self._learner, LSTM) or not isinstance(reader, RowReader):
            raise ConfigError("the lstm, whose states Algorithm 1 noises", "another model", "model: lstm")
        rule = self._printed_rule()
        facts = printed_update(
            self._learner,
            [reader.marked(int(row)) for row in drawn.rows],
            update,
            NoiseStream(streams.noise.seed(streams.noise.last_step + 1), 0),
            lambda gradients: rule.apply(self.parameters, gradients),
            self._settings.printed,
        )
        loss = facts.public_loss / max(facts.public_positions, 1)
        private = {"drawn": facts.rows, "private_updates": facts.private_updates, "non_finite": facts.non_finite}
        return Done(facts.public_positions, loss, private)

    def _printed_rule(self) -> Optimizer:
        """As both papers print it: SGD, with one rate for both kinds of gradient; it keeps nothing between draws."""
        return Optimizer(OptimizerConfig("sgd", self._settings.private.learning_rate, decay="none"), 1)

    def _apply(
        self,
        rule: Optimizer,
        update: Noisy | SplitBatch,
        sums: dict[str, Tensor],
        sensitivity: float,
        streams: Streams,
    ) -> None:
        deviation = update.noise_multiplier * sensitivity
        key = streams.noise.seed(streams.noise.last_step + 1)
        NoiseStream(key, 0).add_(sums.values(), deviation)
        gradients = {name: total / update.divisor for name, total in sums.items()}
        rule.apply(self.parameters, gradients, deviation / update.divisor)


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
        raise ConfigError(f"a model with {moves} to move", "none", "choose other `moves`, or another model")
    return names
