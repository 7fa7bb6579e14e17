"""Models on the way, kept on request in `private/kept/`, so that an audit can show how attacks grow with training."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from tacit.errors import RunError, failed
from tacit.run.checkpoints import save_tensors
from tacit.run.files import write_atomically
from tacit.run.folder import Run

_FOLDER = "kept"
_FILE = re.compile(r"step-(\d+)\.safetensors")


@dataclass(frozen=True, slots=True)
class KeptModel:
    """The model after `step` steps."""

    step: int
    path: Path

    def tensors(self) -> dict[str, Tensor]:
        """Its weights."""
        try:
            return load_file(self.path)
        except (OSError, SafetensorError) as error:
            raise RunError(
                expected=f"a whole model in private/{_FOLDER}/{self.path.name}",
                found=type(error).__name__,
                way_out="remove that file: the others tell enough",
            ) from error


def keep_model(run: Run, step: int, tensors: Mapping[str, Tensor]) -> None:
    """Keep the model after `step`; whole or not at all, and a step that a resumed run repeats replaces its own."""
    folder = run.folder / "private" / _FOLDER
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise failed("keep a model", error) from error
    write_atomically(folder / f"step-{step:06d}.safetensors", lambda path: save_tensors(path, tensors), 0o600)


def kept_models(run: Run) -> tuple[KeptModel, ...]:
    """All that were kept, in the order of their steps; refused when there are none."""
    folder = run.folder / "private" / _FOLDER
    places = [(path, match) for path in folder.glob("*") if (match := _FILE.fullmatch(path.name))]
    if not places:
        raise RunError(
            expected=f"models on the way, in private/{_FOLDER}",
            found="none",
            way_out="train with keep_every: 100 (steps) to keep one every so often, or leave --checkpoints out",
        )
    return tuple(sorted((KeptModel(int(match[1]), path) for path, match in places), key=lambda one: one.step))
