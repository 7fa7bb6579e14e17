"""Gaussian noise of a stated deviation, added in float32, in parallel.

Numbers come in blocks of 131,072, from one of two sources (`NoiseStream.source`):

AES: the cipher AES-128 in counter mode under a key drawn by SHAKE-256 from the stream's key; it is given the draw's
number, the block's and the place within the block. Used where the native kernels are available; several times as fast.
TWISTER: a block's generator is torch's Mersenne twister with its whole state (19,968 bits, where `manual_seed` would
set 32) drawn by SHAKE-256 from the stream's key, the draw's number and the block's number. Not a cipher: the noise
is safe against whoever sees the model, not against whoever sees raw noise.

So noise does not depend on the number of threads, no block is ever used twice, and a stream can go on after a restart.
A seeded stream gives other numbers from another source: to repeat a run, have native kernels in both or in neither.

G1 (deviation). `add_` adds independent normal numbers of exactly the deviation asked for.
G2 (never twice). Every call to `add_` uses a new draw number; streams with different keys share nothing.
G3 (no stored seed). A release stream has its key from the operating system and offers no way to read it.
"""

import hashlib
import math
import secrets
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum

import torch
from torch import Tensor

from tacit import native
from tacit.errors import ConfigError

_BLOCK = native.BLOCK
_WORDS = 624  # of the twister's state, 32 bits each, kept in 64
_WORDS_AT = 24  # bytes before them: seed (8), numbers left (4), seeded (4), next (8)


class Source(StrEnum):
    """Where a stream's random bits come from."""

    AES = "AES-128 in counter mode"
    TWISTER = "Mersenne twister"


class NoiseStream:
    """A source of noise; each call draws what no call drew before."""

    def __init__(self, key: bytes, draws: int) -> None:
        self._key = key
        self._draws = draws

    @classmethod
    def research(cls, seed: int, draws: int = 0) -> "NoiseStream":
        """A stream that can be repeated; `draws` is where a run that was interrupted goes on."""
        return cls(hashlib.sha256(f"tacit noise {seed}".encode()).digest(), draws)

    @classmethod
    def release(cls) -> "NoiseStream":
        """A stream nobody can repeat."""
        return cls(secrets.token_bytes(32), 0)

    @property
    def draws(self) -> int:
        """How many draws were taken."""
        return self._draws

    @property
    def source(self) -> Source:
        """What makes the numbers here."""
        return Source.AES if native.available else Source.TWISTER

    def add_(self, tensors: Iterable[Tensor], deviation: float) -> None:
        """Add normal numbers of this deviation to every element of these float32 tensors."""
        if not (math.isfinite(deviation) and deviation >= 0):
            raise ConfigError("a noise deviation of 0 or more", str(deviation), "correct the number")
        draw, self._draws = self._draws, self._draws + 1
        blocks = [block for tensor in tensors for block in _blocks(tensor)]
        if deviation == 0:
            return
        if self.source is Source.AES:
            self._add_ciphered(blocks, draw, deviation)
        else:
            self._add_twisted(blocks, draw, deviation)

    def _add_ciphered(self, blocks: list[Tensor], draw: int, deviation: float) -> None:
        key = hashlib.shake_256(b"tacit noise cipher" + self._key).digest(native.KEY_BYTES)
        with torch.no_grad():
            here = [block if block.device.type == "cpu" else torch.zeros(len(block)) for block in blocks]
            native.add_normal_(key, draw, here, deviation)
            for block, noise in zip(blocks, here, strict=True):
                if block is not noise:
                    block.add_(noise.to(block.device))

    def _add_twisted(self, blocks: list[Tensor], draw: int, deviation: float) -> None:
        workers = min(torch.get_num_threads(), len(blocks))
        if workers <= 1:
            self._add_blocks(blocks, 0, 1, draw, deviation)
            return
        with ThreadPoolExecutor(workers) as pool:
            shares = [
                pool.submit(self._add_blocks, blocks, first, workers, draw, deviation) for first in range(workers)
            ]
        for share in shares:
            share.result()

    def _add_blocks(self, blocks: list[Tensor], first: int, stride: int, draw: int, deviation: float) -> None:
        with torch.no_grad():
            numbers = torch.empty(_BLOCK)
            for index in range(first, len(blocks), stride):
                block = blocks[index]
                noise = numbers[: len(block)].normal_(0.0, deviation, generator=self._generator(draw, index))
                block.add_(noise.to(block.device))

    def _generator(self, draw: int, block: int) -> torch.Generator:
        name = self._key + draw.to_bytes(8, "little") + block.to_bytes(8, "little")
        words = torch.frombuffer(bytearray(hashlib.shake_256(name).digest(4 * _WORDS)), dtype=torch.int32)
        generator = torch.Generator()
        state = generator.get_state()
        fields = state[_WORDS_AT : _WORDS_AT + 8 * _WORDS].view(torch.int64)
        fields.copy_(words.to(torch.int64) & 0xFFFFFFFF)
        generator.set_state(state)
        return generator


def _blocks(tensor: Tensor) -> tuple[Tensor, ...]:
    if tensor.dtype != torch.float32 or not tensor.is_contiguous():
        raise ConfigError("contiguous float32 sums", f"{tensor.dtype}", "take the sums as clipped_sum gives them")
    return torch.split(tensor.view(-1), _BLOCK)
