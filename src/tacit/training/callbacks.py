"""Which of the models seen during training is kept, and when to stop: by public text alone.

G1 (public). Under a claim, nothing is looked at but a corpus declared public, or the redacted view where the claim is
   about secrets: the choice is then a function of released models and of public text.
G2 (no discount). When to stop depends on the models, so a run that stopped early is priced as if it had not.

Event files for TensorBoard, in `private/`: exact losses may not leave your organization.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from safetensors import safe_open
from torch import Tensor, nn

from tacit.common.libraries import require_library
from tacit.common.progress import Observer, Progress
from tacit.errors import ClaimRefused, ConfigError
from tacit.mechanisms.mechanism import Mechanism
from tacit.privacy.plan import Unit
from tacit.runs.folder import RunFolder
from tacit.runs.release import PrivateFile
from tacit.runs.weights import save_tensors


def check_choice(mechanism: Mechanism, on: str) -> None:
    """Refuse a look at text that the claim protects."""
    refused = mechanism.notions() if on == "full" else [n for n in mechanism.notions() if n.unit != Unit.SECRETS]
    if on in ("full", "redacted") and refused:
        raise ClaimRefused(
            expected="a model chosen on public text",
            found=f"the {on} view of held-out records, under a claim about {refused[0].unit}",
            way_out="eval_on: a corpus that is public, or take the last model (leave eval_steps out)",
        )


@dataclass(slots=True)
class Choice:
    """Looks every `every` steps; keeps the best model in a private file, which a resumed run goes on with."""

    run: RunFolder
    every: int
    patience: int | None
    nats: Callable[[], float]  # a token of the public text, of the model as it stands
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
        """Whether it is time to stop."""
        return self.patience is not None and self._since >= self.patience

    def look(self, step: int, parameters: Mapping[str, Tensor]) -> None:
        """Measure the model after `step`; keep it if it is the best so far. A resumed run does not look twice."""
        if step % self.every or step <= self.looked:
            return
        self.looked = step
        found = self.nats()
        if found < self._best:
            self._best, self._since = found, 0
            self._save({name: value.detach() for name, value in parameters.items()})
        else:
            self._since += 1
            self._save(self._kept())

    def restore(self, module: nn.Module) -> None:
        """The best model seen, if there was a look at all."""
        if self.run.path(PrivateFile.BEST).exists():
            module.load_state_dict(self._kept(), strict=False)

    def _kept(self) -> dict[str, Tensor]:
        with safe_open(self.run.path(PrivateFile.BEST), framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (not a dictionary)

    def _save(self, tensors: Mapping[str, Tensor]) -> None:
        notes = {"nats": repr(self._best), "since": str(self._since), "step": str(self.looked)}
        self.run.write(PrivateFile.BEST, lambda path: save_tensors(path, tensors, notes))


@contextmanager
def watched(run: RunFolder, log: Literal["none", "tensorboard"], observe: Observer) -> Iterator[Observer]:
    """`observe`, and the same numbers in event files when these were asked for."""
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
