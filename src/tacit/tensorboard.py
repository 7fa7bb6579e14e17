"""Event files for TensorBoard, in `private/`: exact losses may not leave the house."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from tacit.errors import ConfigError
from tacit.progress import Observer, Progress
from tacit.run import PrivateFile, Run
from tacit.silence import require_library


@contextmanager
def watched(run: Run, log: Literal["none", "tensorboard"], observe: Observer) -> Iterator[Observer]:
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
