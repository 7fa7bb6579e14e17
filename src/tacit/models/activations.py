"""Activations below the first adapter, kept on disk between passes.

The layers below are frozen, so what they make of a record is the same in every pass. It is computed when the record is
first drawn, and then read from a file in private/.

G1 (one record). What is kept for a row is a function of frozen weights and of that row's tokens: it is computed from
   this row alone, without padding. A sum is therefore the same, bit for bit, whatever the file contains, and whoever
   was drawn before; the price of a step does not change.
G2 (one accessor). States are found by the tokens they were made of. Only who has read a record's tokens, through the
   one accessor for them, can find its states.
G3 (no trace). The file has no name: nobody else can open it, and it is gone when the process ends, however it ends.
   A resumed run begins with an empty one.
G4 (room). It is never larger than the limit. Rows for which it has no room are computed in every pass.
"""

import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tacit.data.batches import Examples
from tacit.errors import ConfigError
from tacit.models.lower_layers import LowerLayers

_BYTES = 4  # of a number
_KEY_BYTES = 16
_GIGABYTE = 10**9


class ActivationCache:
    """States of rows by their tokens, in one mapped file."""

    def __init__(self, lower: LowerLayers, mapped: np.ndarray) -> None:
        """mapped: (positions, width), float32."""
        self._lower = lower
        self.mapped = mapped
        self._places: dict[bytes, slice] = {}
        self._used = 0

    @contextmanager
    def serving(self, batch: Examples) -> Iterator[None]:
        """Inside, the model reads `batch` without its lower layers. Positions beyond a row's reach read zeros."""
        rows, time = batch.inputs.shape
        states = torch.zeros(rows, time, self._lower.width, device=batch.inputs.device)
        for into, tokens, length in zip(states, batch.inputs, batch.reach.tolist(), strict=True):
            into[:length] = self._of(tokens[:length])
        with self._lower.replaced_by(states):
            yield

    def _of(self, tokens: Tensor) -> Tensor:
        key = hashlib.blake2b(tokens.numpy(force=True).tobytes(), digest_size=_KEY_BYTES).digest()
        if key in self._places:
            return torch.from_numpy(self.mapped[self._places[key]])
        states = self._lower.states(tokens)
        end = self._used + len(states)
        if end <= len(self.mapped):
            place = slice(self._used, end)
            self.mapped[place] = states.numpy(force=True)
            self._places[key], self._used = place, end  # known only when it is whole
        return states


@contextmanager
def activation_cache(lower: LowerLayers, folder: Path, gigabytes: float, positions: int) -> Iterator[ActivationCache]:
    """A cache in `folder` for at most so many positions; refused before anything is written if there is no room."""
    most = min(positions, int(gigabytes * _GIGABYTE) // (_BYTES * lower.width))
    size = most * _BYTES * lower.width
    free = shutil.disk_usage(folder).free
    if size > free:
        raise ConfigError(
            expected=f"room for {size / _GIGABYTE:.1f} GB of activations in the run's folder",
            found=f"{free / _GIGABYTE:.1f} GB",
            way_out="lower execution.cache_activations_gb, or leave it out",
        )
    with tempfile.TemporaryFile(dir=folder) as file:
        file.truncate(max(size, 1))
        if size and sys.platform == "linux":
            os.posix_fallocate(file.fileno(), 0, size)  # a full disk is found here, not when a page is written
        mapped = np.memmap(file, np.float32, "r+", shape=(most, lower.width)) if most else np.zeros((0, lower.width))
        yield ActivationCache(lower, mapped)
