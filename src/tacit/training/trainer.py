"""The training loop. It executes a plan, and knows no mechanism by name.

G1 (before). Every step is charged to the ledger, on the disk, before its update is applied.
G2 (as priced). A private step's draw reaches the model only through its noisy sum, over the public divisor; an empty
   draw adds noise and is charged like any other.
G3 (goes on). A run that was killed at any moment goes on from its last checkpoint; charges are never taken back.
"""

import time
from dataclasses import dataclass, field
from itertools import islice

import torch

from tacit.common.progress import Observer, Progress
from tacit.data.batches import BatchReader
from tacit.errors import RunError
from tacit.models.classifier import Classifier
from tacit.models.language_model import Learner
from tacit.privacy.plan import Plan, Step
from tacit.runs.folder import RunFolder
from tacit.training.callbacks import Choice
from tacit.training.checkpoints import Checkpoint, Checkpoints
from tacit.training.gradients.clipped import check_gradients
from tacit.training.pools import Pools
from tacit.training.randomness import Streams
from tacit.training.sampling import Samplers
from tacit.training.updates import Done, Updates, UpdateSettings


@dataclass(frozen=True, slots=True)
class TrainSettings:
    """How a plan is executed. Nothing here depends on the data."""

    updates: UpdateSettings = field(default_factory=UpdateSettings)
    checkpoint_steps: int = 1000
    checkpoint_seconds: float = 120.0


class Trainer:
    """One run of one plan."""

    def __init__(
        self,
        run: RunFolder,
        learner: Learner | Classifier,
        plan: Plan,
        reader: BatchReader,
        pools: Pools,
        settings: TrainSettings,
        choice: Choice | None = None,
    ) -> None:
        self._run, self._learner, self._plan, self._settings = run, learner, plan, settings
        self._choice, self._longest = choice, reader.longest
        self._samplers = Samplers(plan, pools)
        self._updates = Updates(learner, plan, reader, pools, settings.updates)
        self._total = sum(plan.executions().values())

    def train(self, streams: Streams, observe: Observer) -> None:
        """Execute what is left of the plan. An interrupt raised by `observe` leaves a checkpoint behind."""
        checkpoints = Checkpoints(self._run)
        resumed = checkpoints.latest()
        done = 0
        if resumed is not None:
            done, streams = resumed.checkpoint.step, self._restore(resumed.checkpoint)
        saved, saved_at = done, time.monotonic()
        for names in self._updates.moving.values():
            check_gradients(self._learner, longest=self._longest, parameters=names)  # on nobody's tokens
        self._learner.module.train()
        for number, step in enumerate(islice(self._plan.steps(), done, None), done + 1):
            if self._choice is not None and self._choice.exhausted:
                break
            self._run.ledger.charge(step.name)
            did = self._execute(step, streams)
            if self._choice is not None:
                self._choice.look(number, self._updates.parameters)
            late = time.monotonic() - saved_at > self._settings.checkpoint_seconds
            if late or number - saved >= self._settings.checkpoint_steps or number == self._total:
                checkpoints.write(self._checkpoint(number, streams))
                saved, saved_at = number, time.monotonic()
            try:
                observe(Progress("training", number, self._total, did.tokens, did.public_loss))
            except KeyboardInterrupt:
                if saved < number:
                    checkpoints.write(self._checkpoint(number, streams))
                raise
        if self._choice is not None:
            self._choice.restore(self._learner.module)

    def _execute(self, step: Step, streams: Streams) -> Done:
        done = Done(0)
        for drawn in self._samplers.draw(step, streams.batches):
            torch.manual_seed(int(streams.other.integers(2**63)))  # dropout
            done += self._updates.carry_out(step, drawn, streams)
        if done.private is not None:
            self._run.record({"noise": streams.noise.last_step, **done.private})
        return done

    def _checkpoint(self, step: int, streams: Streams) -> Checkpoint:
        optimizer = {
            f"{kind}.{name}": value for kind, o in self._updates.optimizers.items() for name, value in o.state().items()
        }
        model = {name: value.detach() for name, value in self._learner.module.named_parameters()}
        return Checkpoint(step, model, optimizer, streams.state(), self._samplers.states())

    def _restore(self, checkpoint: Checkpoint) -> Streams:
        parameters = dict(self._learner.module.named_parameters())
        if parameters.keys() != checkpoint.model.keys():
            raise RunError("a checkpoint of this model", "other parameters", "resume with the model that was trained")
        self._learner.module.load_state_dict(dict(checkpoint.model), strict=False)  # a tied weight has one name
        for kind, optimizer in self._updates.optimizers.items():
            mark = f"{kind}."
            state = {name.removeprefix(mark): v for name, v in checkpoint.optimizer.items() if name.startswith(mark)}
            optimizer.restore(state)
        self._samplers.restore(checkpoint.samplers)
        return Streams.resumed(checkpoint.streams)
