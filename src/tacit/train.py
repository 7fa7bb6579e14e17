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

import torch

from tacit.errors import ConfigError
from tacit.gradients import Flat, NoiseStream, check_gradients, clipped_sum, plain_sum
from tacit.models.base import Learner
from tacit.models.batch import Batch
from tacit.optimisers import Optimiser, OptimiserSettings
from tacit.plan import Noisy, Plain, Plan, Step
from tacit.randomness import Streams
from tacit.reading import RowReader
from tacit.run import Run
from tacit.run.checkpoints import Checkpoint, Checkpoints
from tacit.sampling import Pools, Samplers


@dataclass(frozen=True, slots=True)
class TrainSettings:
    """How steps are carried out. Nothing here depends on the data."""

    public: OptimiserSettings = field(default_factory=OptimiserSettings)
    private: OptimiserSettings = field(default_factory=OptimiserSettings)
    positions: int = 8192
    checkpoint_steps: int = 1000
    checkpoint_seconds: float = 120.0


@dataclass(frozen=True, slots=True)
class Progress:
    """What may be shown while training: losses of public steps alone."""

    step: int
    steps: int
    tokens: int
    public_loss: float | None


class Trainer:
    """One run of one plan."""

    def __init__(
        self, run: Run, learner: Learner, plan: Plan, reader: RowReader, pools: Pools, settings: TrainSettings
    ) -> None:
        executions = plan.executions()
        self._run, self._learner, self._plan, self._reader, self._settings = run, learner, plan, reader, settings
        self._samplers = Samplers(plan, pools)
        self._total = sum(executions.values())
        self._optimisers = {
            name: Optimiser(chosen, sum(times for step, times in executions.items() if step.optimiser == name))
            for name, chosen in (("public", settings.public), ("private", settings.private))
        }
        self._parameters = {name: p for name, p in learner.module.named_parameters() if p.requires_grad}

    def train(self, streams: Streams, observe: Callable[[Progress], None]) -> None:
        """Execute what is left of the plan."""
        checkpoints = Checkpoints(self._run)
        resumed = checkpoints.latest()
        done = 0
        if resumed is not None:
            done, streams = resumed.checkpoint.step, self._restore(resumed.checkpoint)
        saved = time.monotonic()
        if any(isinstance(step.update, Noisy) for step in self._plan.executions()):
            check_gradients(self._learner)  # on nobody's tokens: a model the fast path gets wrong is refused
        self._learner.module.train()
        for number, step in enumerate(islice(self._plan.steps(), done, None), done + 1):
            self._run.ledger.charge(step.name)
            tokens, loss = self._execute(step, streams)
            late = time.monotonic() - saved > self._settings.checkpoint_seconds
            if late or number % self._settings.checkpoint_steps == 0 or number == self._total:
                checkpoints.write(self._checkpoint(number, streams))
                saved = time.monotonic()
            observe(Progress(number, self._total, tokens, loss))

    def _execute(self, step: Step, streams: Streams) -> tuple[int, float | None]:
        tokens, loss = 0, None
        for drawn in self._samplers.draw(step, streams.batches):
            torch.manual_seed(int(streams.other.integers(2**63)))  # dropout
            batch = self._reader.batch(drawn.rows, step.view, step.targets)
            tokens += int(batch.weights.count_nonzero())
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
        result = plain_sum(self._learner, batch, positions=self._settings.positions)
        weight = max(result.weight, 1.0)
        gradients = {name: total / weight for name, total in result.sums.items()}
        self._optimisers[step.optimiser].apply(self._parameters, gradients)
        return result.loss / weight

    def _noisy(self, step: Step, update: Noisy, batch: Batch, streams: Streams) -> None:
        result = clipped_sum(self._learner, batch, Flat(update.clip_norm), positions=self._settings.positions)
        deviation = update.noise_multiplier * update.clip_norm
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
        model = {name: value.detach() for name, value in self._learner.module.state_dict().items()}
        return Checkpoint(step, model, optimiser, streams.state(), self._samplers.states())

    def _restore(self, checkpoint: Checkpoint) -> Streams:
        self._learner.module.load_state_dict(dict(checkpoint.model))
        for kind, optimiser in self._optimisers.items():
            mark = f"{kind}."
            state = {name.removeprefix(mark): v for name, v in checkpoint.optimiser.items() if name.startswith(mark)}
            optimiser.restore(state)
        self._samplers.restore(checkpoint.samplers)
        return Streams.resumed(checkpoint.streams)
