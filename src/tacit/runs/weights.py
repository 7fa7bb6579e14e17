"""Models on the way, kept on request in `private/kept/`, so that an audit can show how attacks grow with training."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from tacit.common.files import open_file, write_atomically
from tacit.errors import RunError, failed
from tacit.runs.files import ReleaseFile
from tacit.runs.folder import RunFolder


def write_model(run: RunFolder, tensors: Mapping[str, Tensor]) -> None:
    """The model of `release/`: tensors and nothing else."""
    run.write(ReleaseFile.MODEL, lambda path: save_tensors(path, tensors))


def read_model(run: RunFolder) -> dict[str, Tensor]:
    """The tensors that `write_model` wrote."""
    try:
        open_file(run.path(ReleaseFile.MODEL)).close()
        return load_file(run.path(ReleaseFile.MODEL))
    except (OSError, SafetensorError) as error:
        raise RunError(
            expected=f"the file {ReleaseFile.MODEL} of a run, whole",
            found=type(error).__name__,
            way_out="finish the training that writes it, or resume it to write it again",
        ) from error


def save_tensors(path: Path, tensors: Mapping[str, Tensor], notes: dict[str, str] | None = None) -> None:
    """Tensors as safetensors; one that two names share is refused."""
    try:
        save_file({name: tensor.detach().contiguous() for name, tensor in tensors.items()}, path, notes)
    except SafetensorError as error:
        raise _as_system_error(error) from error
    except RuntimeError as error:
        raise RunError(
            expected="each tensor under one name",
            found="tensors that share their memory",
            way_out="give each parameter once, as `named_parameters` does",
        ) from error


def _as_system_error(error: SafetensorError) -> OSError:
    """What the system said, which safetensors puts into words."""
    number = re.search(r"os error (\d+)", str(error))
    return OSError(int(number[1]), os.strerror(int(number[1]))) if number else OSError(str(error))


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


def keep_model(run: RunFolder, step: int, tensors: Mapping[str, Tensor]) -> None:
    """Keep the model after `step`; whole or not at all, and a step that a resumed run repeats replaces its own."""
    folder = run.folder / "private" / _FOLDER
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise failed("keep a model", error) from error
    write_atomically(folder / f"step-{step:06d}.safetensors", lambda path: save_tensors(path, tensors), 0o600)


def kept_models(run: RunFolder) -> tuple[KeptModel, ...]:
    """All that were kept, in the order of their steps; refused when there are none."""
    folder = run.folder / "private" / _FOLDER
    places = [(path, match) for path in folder.glob("*") if (match := _FILE.fullmatch(path.name))]
    if not places:
        raise RunError(
            expected=f"models on the way, in private/{_FOLDER}",
            found="none",
            way_out="train with --set save_steps=100 to keep a model every 100 steps, or leave --checkpoints out",
        )
    return tuple(sorted((KeptModel(int(match[1]), path) for path, match in places), key=lambda one: one.step))
