"""The released model, and intermediate ones kept in `private/kept/`, for audits of how attacks grow in training."""

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
from tacit.runs.folder import RunFolder
from tacit.runs.release import ReleaseFile

_FOLDER = "kept"
_FILE = re.compile(r"step-(\d+)\.safetensors")


def write_model(run: RunFolder, tensors: Mapping[str, Tensor]) -> None:
    """The model of `release/`: tensors and nothing else."""
    run.write(ReleaseFile.MODEL, lambda path: save_tensors(path, tensors))


def read_model(run: RunFolder) -> dict[str, Tensor]:
    """The tensors that `write_model` wrote."""
    way_out = "finish the training that writes it, or resume it to write it again"
    return _load(run.path(ReleaseFile.MODEL), f"the file {ReleaseFile.MODEL} of a run, whole", way_out)


def read_adapters(run: RunFolder) -> dict[str, Tensor]:
    """The adapters of `release/`, under the names that peft gives them."""
    way_out = "finish the training that writes it, or resume it to write it again"
    return _load(run.path(ReleaseFile.ADAPTERS), f"the file {ReleaseFile.ADAPTERS} of a run, whole", way_out)


def _load(path: Path, expected: str, way_out: str) -> dict[str, Tensor]:
    try:
        open_file(path).close()
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise RunError(expected, type(error).__name__, way_out) from error


def save_tensors(path: Path, tensors: Mapping[str, Tensor], notes: dict[str, str] | None = None) -> None:
    """Tensors as safetensors; one that two names share is refused."""
    try:
        save_file({name: tensor.detach().contiguous() for name, tensor in tensors.items()}, path, notes)
    except SafetensorError as error:
        # safetensors puts the system's error number into words
        number = re.search(r"os error (\d+)", str(error))
        raise OSError(*((int(number[1]), os.strerror(int(number[1]))) if number else (str(error),))) from error
    except RuntimeError as error:
        raise RunError(
            expected="each tensor under one name",
            found="tensors that share their memory",
            way_out="give each parameter once, as `named_parameters` does",
        ) from error


@dataclass(frozen=True, slots=True)
class KeptModel:
    """The model after `step` steps."""

    step: int
    path: Path

    def tensors(self) -> dict[str, Tensor]:
        expected = f"a whole model in private/{_FOLDER}/{self.path.name}"
        return _load(self.path, expected, "remove that file: the others are enough")


def keep_model(run: RunFolder, step: int, tensors: Mapping[str, Tensor]) -> None:
    """Keep the model after `step`; whole or not at all, and a step that a resumed run repeats replaces its own."""
    folder = run.folder / "private" / _FOLDER
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise failed("keep a model", error) from error
    write_atomically(folder / f"step-{step:06d}.safetensors", lambda path: save_tensors(path, tensors), 0o600)


def kept_models(run: RunFolder) -> tuple[KeptModel, ...]:
    """All that were kept, in the order of their steps; an error when there are none."""
    folder = run.folder / "private" / _FOLDER
    places = [(path, match) for path in folder.glob("*") if (match := _FILE.fullmatch(path.name))]
    if not places:
        raise RunError(
            expected=f"intermediate models, in private/{_FOLDER}",
            found="none",
            way_out="train with --set save_steps=100 to keep a model every 100 steps, or leave --checkpoints out",
        )
    return tuple(sorted((KeptModel(int(match[1]), path) for path, match in places), key=lambda one: one.step))
