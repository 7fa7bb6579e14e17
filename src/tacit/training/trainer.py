"""The training loop. It executes a plan, and knows no mechanism by name.

G1 (before). Every step is charged to the ledger, on the disk, before its update is applied.
G2 (as priced). A private step's draw reaches the model as `updates` guarantees; an empty one is charged like any other.
G3 (resumes). A run that was killed at any moment resumes from its last checkpoint; charges are never taken back.
G4 (public choice). Under a claim, which model is kept and when to stop is decided by a corpus declared public, or by
   the redacted view where the claim is about secrets. When to stop depends on the models, so a run that stopped early
   is priced as if it had not.
G5 (ranks). Every rank of a group begins with the state of rank 0, which alone reads and writes checkpoints and charges
   the ledger. Their weights are compared before the first step, every hundred steps, and after the last; of a base
   model that they share, the files are compared instead.
"""

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal

import torch
from safetensors import safe_open
from torch import Tensor, nn

from tacit.common.libraries import require_library
from tacit.common.progress import Observer, Progress, unwatched
from tacit.data.batches import BatchReader
from tacit.errors import ConfigError, ModelError, RunError
from tacit.models.causal_lm import CausalLM
from tacit.models.classifier import Classifier
from tacit.models.language_model import Learner
from tacit.models.shards import whole_tensors
from tacit.models.transformers_model import own_parameters
from tacit.privacy.plan import Plan, Step
from tacit.runs.folder import RunFolder
from tacit.runs.release import PrivateFile
from tacit.runs.weights import save_tensors
from tacit.training.checkpoints import Checkpoint, Checkpoints, shared
from tacit.training.estimate import estimated
from tacit.training.gradients.check import check_gradients
from tacit.training.gradients.clipped import Method
from tacit.training.group import ALONE, Group
from tacit.training.pools import Pools
from tacit.training.randomness import Streams
from tacit.training.sampling import Samplers
from tacit.training.updates import Done, Updates, UpdateSettings

_COMPARED_STEPS = 100


@dataclass(frozen=True, slots=True)
class TrainSettings:
    """How a plan is executed. Nothing here depends on the data."""

    updates: UpdateSettings = field(default_factory=UpdateSettings)
    checkpoint_steps: int = 1000
    checkpoint_seconds: float = 120.0


@dataclass(slots=True)
class Choice:
    """Looks every `every` steps; keeps the best model in a private file, with which a resumed run continues."""

    run: RunFolder
    every: int
    patience: int | None
    nats: Callable[[], float]  # per token of the public text, of the model as it is; the same number on every rank
    writes: bool = True
    _best: float = field(default=float("inf"), init=False)
    _since: int = field(default=0, init=False)
    looked: int = field(default=0, init=False)  # at the model after this step

    def __post_init__(self) -> None:
        path = self.run.path(PrivateFile.BEST)
        if path.exists():
            with safe_open(path, framework="pt") as file:
                notes = file.metadata()
            self._best, self._since, self.looked = float(notes["nats"]), int(notes["since"]), int(notes["step"])

    @property
    def exhausted(self) -> bool:
        return self.patience is not None and self._since >= self.patience

    def look(self, step: int, parameters: Mapping[str, Tensor]) -> None:
        """Measure the model after `step`; keep it if it is the best so far. A resumed run does not look twice."""
        if step % self.every or step <= self.looked:
            return
        self.looked = step
        found = self.nats()
        better = found < self._best
        self._best, self._since = (found, 0) if better else (self._best, self._since + 1)
        if self.writes:
            kept = {name: value.detach() for name, value in parameters.items()} if better else self._kept()
            self._save(kept)

    def restore(self, module: nn.Module) -> None:
        """The best model seen, if there was a look at all."""
        if self.writes and self.run.path(PrivateFile.BEST).exists():
            module.load_state_dict(self._kept(), strict=False)

    def _kept(self) -> dict[str, Tensor]:
        with safe_open(self.run.path(PrivateFile.BEST), framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (not a dictionary)

    def _save(self, tensors: Mapping[str, Tensor]) -> None:
        notes = {"nats": repr(self._best), "since": str(self._since), "step": str(self.looked)}
        self.run.write(PrivateFile.BEST, lambda path: save_tensors(path, tensors, notes))


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
        group: Group = ALONE,
    ) -> None:
        """The run is open for writing on the rank that writes, and a view on the others."""
        self._run, self._learner, self._plan, self._settings, self._group = run, learner, plan, settings, group
        self._choice, self._longest = choice, reader.longest
        self._samplers = Samplers(plan, pools)
        self._updates = Updates(learner, plan, reader, pools, settings.updates, group)
        self._total = sum(plan.executions().values())

    def train(self, streams: Streams, observe: Observer, announce: Observer = unwatched) -> None:
        """Execute what is left of the plan. An interrupt raised by `observe` leaves a checkpoint behind.

        announce: is told before the first step how long all of them take, if that one is slow.
        """
        checkpoints = Checkpoints(self._run)
        done, streams = self._begin(checkpoints, streams)
        saved, saved_at = done, time.monotonic()
        self._choose_methods()
        self._learner.module.train()
        if self._group.writes and not self._group.passes.together:  # the others would have to pass all that, too
            self._estimate(done, announce)
        for number, step in enumerate(islice(self._plan.steps(), done, None), done + 1):
            if self._choice is not None and self._choice.exhausted:
                break
            did = self._execute(step, streams)
            if self._choice is not None:
                self._choice.look(number, self._updates.parameters)
            if number % _COMPARED_STEPS == 0 or number == self._total:
                self._compare(self._updates.parameters.values())
            if not self._group.writes:
                continue
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
            self._group.broadcast_(list(self._updates.parameters.values()))

    def _begin(self, checkpoints: Checkpoints, streams: Streams) -> tuple[int, Streams]:
        """How many steps were done, and the streams; the model is what it was then, on every rank."""
        done, group = 0, self._group
        resumed = checkpoints.latest() if group.writes else None
        if resumed is not None:
            done, streams = resumed.checkpoint.step, self._restore(resumed.checkpoint)
        if group.size > 1:
            beginning = shared(self._checkpoint(done, streams), group.broadcast)
            self._restore(beginning)
            done, streams = beginning.step, streams.shared(group.broadcast)
            self._compare(whole_tensors(self._learner.module))
        return done, streams

    def _compare(self, tensors: Iterable[Tensor]) -> None:
        """Stop every rank unless all have the same numbers."""
        if self._group.size > 1:
            found = hashlib.blake2b()
            for tensor in tensors:
                found.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
            self._group.check_equal("weights", found.digest())

    def _estimate(self, done: int, announce: Observer) -> None:
        estimate = estimated(self._updates, islice(self._plan.steps(), done, None))
        if estimate is not None:
            seconds = estimate.seconds / self._group.size
            announce(Progress("estimating", estimate.rows, None, seconds=seconds))

    def _choose_methods(self) -> None:
        """On nobody's tokens; once where two parts of the model have the same parameters."""
        known: dict[frozenset[str], Method] = {}
        for trainable, names in self._updates.moving.items():
            same = frozenset(names)
            if same not in known:
                known[same] = check_gradients(self._learner, longest=self._longest, parameters=names)
                _require_cache_read(self._learner, known[same])
            self._updates.methods[trainable] = known[same]
        self._group.check_equal("methods of computing gradients", repr(self._updates.methods).encode())

    def _execute(self, step: Step, streams: Streams) -> Done:
        """Charged before the first sum, which every rank needs for its update."""
        if self._group.writes:
            self._run.ledger.charge(step.name)
        done = Done(0)
        for drawn in self._samplers.draw(step, streams.batches):
            torch.manual_seed(int(streams.other.integers(2**63)))  # dropout
            done += self._updates.carry_out(step, drawn, streams)
        if done.private is not None and self._group.writes:
            self._run.record({"noise": streams.noise.last_step, **done.private})
        return done

    def _checkpoint(self, step: int, streams: Streams) -> Checkpoint:
        optimizer = {
            f"{kind}.{name}": value for kind, o in self._updates.optimizers.items() for name, value in o.state().items()
        }
        model = {name: value.detach() for name, value in own_parameters(self._learner).items()}
        return Checkpoint(step, model, optimizer, streams.state(), self._samplers.states())

    def _restore(self, checkpoint: Checkpoint) -> Streams:
        parameters = own_parameters(self._learner)
        if parameters.keys() != checkpoint.model.keys():
            raise RunError("a checkpoint of this model", "other parameters", "resume with the model that was trained")
        self._learner.module.load_state_dict(dict(checkpoint.model), strict=False)  # a tied weight has one name
        for kind, optimizer in self._updates.optimizers.items():
            mark = f"{kind}."
            saved = checkpoint.optimizer.items()
            optimizer.restore({name.removeprefix(mark): v for name, v in saved if name.startswith(mark)})
        self._samplers.restore(checkpoint.samplers)
        return Streams.resumed(checkpoint.streams)


@contextmanager
def watched(run: RunFolder, log: Literal["none", "tensorboard"], observe: Observer) -> Iterator[Observer]:
    """`observe`, and the same numbers in event files of TensorBoard, which stay in `private/`, if asked for."""
    if log == "none":
        yield observe
        return
    require_library("tensorboardX", ConfigError)
    from tensorboardX import SummaryWriter

    with SummaryWriter(str(run.path(PrivateFile.TENSORBOARD))) as writer:

        def told(progress: Progress) -> None:
            for name, value in (("public loss", progress.public_loss), ("epsilon", progress.epsilon)):
                if value is not None:
                    writer.add_scalar(name, value, progress.done)
            writer.add_scalar("tokens", progress.tokens, progress.done)
            observe(progress)

        yield told


def _require_cache_read(learner: Learner | Classifier, method: Method) -> None:
    """Kept activations are read by one method alone; with others they would be kept for nothing."""
    if isinstance(learner, CausalLM) and learner.cache is not None and method != "fused":
        raise ModelError(
            expected="a model whose gradients are computed with kept activations",
            found=f"one whose gradients need the method {method}",
            way_out="leave execution.cache_activations_gb out",
        )
