"""The training loop. It executes a plan, and knows no mechanism by name.

G1 (before). Every step is charged to the ledger, on the disk, before its update is applied.
G2 (as priced). A private step's draw reaches the model only through its noisy sum, over the public divisor; an empty
   draw adds noise and is charged like any other.
G3 (goes on). A run that was killed at any moment goes on from its last checkpoint; charges are never taken back.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal

import torch

from tacit.choosing import Choice
from tacit.errors import ConfigError, RunError
from tacit.gradients import (
    Automatic,
    Clipping,
    Flat,
    NoiseStream,
    PerParameter,
    check_gradients,
    clipped_sum,
    plain_sum,
)
from tacit.models.base import Learner
from tacit.models.batch import Batch
from tacit.optimisers import Optimiser, OptimiserSettings
from tacit.plan import ClipStyle, Moves, Noisy, Plain, Plan, Step
from tacit.randomness import Streams
from tacit.reading import RowReader
from tacit.run import Run
from tacit.run.checkpoints import Checkpoint, Checkpoints
from tacit.sampling import Pools, Samplers

_SCORES = 1 << 26  # in memory at a time: 256 MB
_STYLES: dict[ClipStyle, Callable[[float], Clipping]] = {
    "flat": Flat,
    "automatic": Automatic,
    "per parameter": PerParameter,
}


@dataclass(frozen=True, slots=True)
class TrainSettings:
    """How steps are carried out. Nothing here depends on the data."""

    public: OptimiserSettings = field(default_factory=OptimiserSettings)
    private: OptimiserSettings = field(default_factory=OptimiserSettings)
    positions: int | None = None
    precision: Literal["float32", "bfloat16"] = "float32"
    checkpoint_steps: int = 1000
    checkpoint_seconds: float = 120.0


@dataclass(frozen=True, slots=True)
class Progress:
    """What may be shown while a run goes on: losses of public steps alone. `done` of `total` steps, rows or records."""

    stage: Literal["preparing", "training", "measuring"]
    done: int
    total: int | None
    tokens: int = 0
    public_loss: float | None = None
    epsilon: float | None = None  # spent so far


Observer = Callable[[Progress], None]


class Trainer:
    """One run of one plan."""

    def __init__(
        self,
        run: Run,
        learner: Learner,
        plan: Plan,
        reader: RowReader,
        pools: Pools,
        settings: TrainSettings,
        choice: Choice | None = None,
    ) -> None:
        executions = plan.executions()
        self._run, self._learner, self._plan, self._reader, self._settings = run, learner, plan, reader, settings
        self._choice = choice
        self._samplers = Samplers(plan, pools)
        self._total = sum(executions.values())
        self._optimisers = {
            name: Optimiser(chosen, sum(times for step, times in executions.items() if step.optimiser == name))
            for name, chosen in (("public", settings.public), ("private", settings.private))
        }
        self._parameters = {name: p for name, p in learner.module.named_parameters() if p.requires_grad}
        self._moving = {step.moves: moving_names(learner, step.moves) for step in executions}
        self._device = next(learner.module.parameters()).device
        self._positions = settings.positions or min(8192, max(512, _SCORES // learner.vocabulary_size))

    def train(self, streams: Streams, observe: Observer) -> None:
        """Execute what is left of the plan. An interrupt raised by `observe` leaves a checkpoint behind."""
        checkpoints = Checkpoints(self._run)
        resumed = checkpoints.latest()
        done = 0
        if resumed is not None:
            done, streams = resumed.checkpoint.step, self._restore(resumed.checkpoint)
        saved, saved_at = done, time.monotonic()
        for names in self._moving.values():
            check_gradients(self._learner, parameters=names)  # on nobody's tokens
        self._learner.module.train()
        for number, step in enumerate(islice(self._plan.steps(), done, None), done + 1):
            if self._choice is not None and self._choice.exhausted:
                break
            self._run.ledger.charge(step.name)
            tokens, loss = self._execute(step, streams)
            if self._choice is not None and number % self._choice.every == 0:
                self._choice.look(self._parameters)
            late = time.monotonic() - saved_at > self._settings.checkpoint_seconds
            if late or number - saved >= self._settings.checkpoint_steps or number == self._total:
                checkpoints.write(self._checkpoint(number, streams))
                saved, saved_at = number, time.monotonic()
            try:
                observe(Progress("training", number, self._total, tokens, loss))
            except KeyboardInterrupt:
                if saved < number:
                    checkpoints.write(self._checkpoint(number, streams))
                raise
        if self._choice is not None:
            self._choice.restore(self._learner.module)

    def _execute(self, step: Step, streams: Streams) -> tuple[int, float | None]:
        tokens, loss = 0, None
        for drawn in self._samplers.draw(step, streams.batches):
            torch.manual_seed(int(streams.other.integers(2**63)))  # dropout
            batch = self._reader.batch(drawn.rows, step.view, step.targets).to(self._device)
            tokens += int(batch.weights.count_nonzero())
            with torch.autocast(self._device.type, torch.bfloat16, enabled=self._settings.precision == "bfloat16"):
                if isinstance(step.update, Plain):
                    loss = self._plain(step, batch)
                elif isinstance(step.update, Noisy):
                    self._noisy(step, step.update, batch, streams)
                else:
                    raise ConfigError(
                        expected="plain or noisy steps on batches of records",
                        found=f"a step with {step.update.kind}",
                        way_out="price it with `tacit plan`; algorithms as printed cannot be trained",
                    )
        return tokens, loss

    def _plain(self, step: Step, batch: Batch) -> float:
        moving = self._moving[step.moves]
        result = plain_sum(self._learner, batch, positions=self._positions, parameters=moving)
        weight = max(result.weight, 1.0)
        gradients = {name: total / weight for name, total in result.sums.items()}
        self._optimisers[step.optimiser].apply(self._parameters, gradients)
        return result.loss / weight

    def _noisy(self, step: Step, update: Noisy, batch: Batch, streams: Streams) -> None:
        clipping = _STYLES[update.style](update.clip_norm)
        moving = self._moving[step.moves]
        result = clipped_sum(self._learner, batch, clipping, positions=self._positions, parameters=moving)
        deviation = update.noise_multiplier * result.sensitivity
        key = streams.noise.seed(streams.noise.last_step + 1)
        NoiseStream(key, 0).add_(result.sums.values(), deviation)
        gradients = {name: total / update.divisor for name, total in result.sums.items()}
        self._optimisers[step.optimiser].apply(self._parameters, gradients, deviation / update.divisor)
        self._run.record(
            {
                "noise": streams.noise.last_step,
                "drawn": len(batch),
                "non_finite": result.non_finite,
                "median_norm": float(result.norms.median()) if len(batch) else 0.0,
            }
        )

    def _checkpoint(self, step: int, streams: Streams) -> Checkpoint:
        optimiser = {
            f"{kind}.{name}": value for kind, o in self._optimisers.items() for name, value in o.state().items()
        }
        model = {name: value.detach() for name, value in self._learner.module.named_parameters()}
        return Checkpoint(step, model, optimiser, streams.state(), self._samplers.states())

    def _restore(self, checkpoint: Checkpoint) -> Streams:
        parameters = dict(self._learner.module.named_parameters())
        if parameters.keys() != checkpoint.model.keys():
            raise RunError("a checkpoint of this model", "other parameters", "resume with the model that was trained")
        self._learner.module.load_state_dict(dict(checkpoint.model), strict=False)  # a tied weight has one name
        for kind, optimiser in self._optimisers.items():
            mark = f"{kind}."
            state = {name.removeprefix(mark): v for name, v in checkpoint.optimiser.items() if name.startswith(mark)}
            optimiser.restore(state)
        self._samplers.restore(checkpoint.samplers)
        return Streams.resumed(checkpoint.streams)


def moving_names(learner: Learner, moves: Moves) -> list[str]:
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
