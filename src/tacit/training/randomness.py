"""Three random streams: batches, noise, everything else. What hides secrets is never drawn twice.

`research` derives all three from one seed; `release` takes them from the operating system and keeps no seed anywhere.

G1 (apart). The streams of one seed are independent: they are spawned, not offset.
G2 (no seed kept). The state of release streams contains nothing but their mode; a key of theirs is the operating
   system's, and nothing reads it but `shared`, which gives it to the other processes of a run and writes it nowhere.
G3 (never twice). A step's noise seed is given once; a resumed release run shares no seed and no draw with its past.
   Every call to `add_` uses a new draw number; streams with different keys share nothing.
G4 (exact). Research streams that were saved and restored continue as if nothing had happened.
G5 (deviation). `add_` adds independent normal numbers of exactly the deviation asked for.
G6 (threads). Noise does not depend on the number of threads.

Noise has one definition, AES-128 in counter mode, and two implementations: the native kernel, and torch with the cipher
of `cryptography` (some ten times slower). Both read the same bits; the numbers may differ in a float32's last digit.

The cipher's key is drawn by SHAKE-256 from the stream's. Numbers come in blocks of 131,072. Ciphering (counter, draw),
64 bits each, little-endian, with counter = 2^15 block + place, gives four words of 32 bits. Each four places give eight
words w, then eight words t, and with them 16 normal numbers (Box and Muller 1958), first r cos a, then r sin a:

    r = sqrt(-2 log u),  u = (w + 1/2) / 2^32,  a = 2 pi t / 2^32

Where w < 2^16, 32 more bits v come from the same place with the counter's top bit set: u = (2^32 w + v + 1/2) / 2^64.
So no number is beyond 9.50 deviations; a normal one is with probability 3e-21 (why 32 bits are too few:
docs/pitfalls.md). Nor is u rounded next to 1, where float32 would make one pair in 2^25 exactly zero. What is proved of
Gaussian noise is proved for real numbers: no proof covers what the last digits of float32 may show (Mironov 2012).
"""

import hashlib
import math
import secrets
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Self

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray
from torch import Tensor

from tacit.common.serialize import from_json, to_json
from tacit.config.setting import Mode
from tacit.errors import ClaimRefused, ConfigError, RunError
from tacit.models import kernels as native

_KEY_BYTES = 32
_SEED_BYTES = 16


@dataclass(frozen=True, slots=True)
class GeneratorState:
    """The state of a PCG64DXSM generator; numbers wider than 64 bits in hexadecimal."""

    state: str = field(repr=False)
    increment: str = field(repr=False)
    has_half: bool
    half: int = field(repr=False)


@dataclass(frozen=True, slots=True)
class ExactState:
    """The state of the streams of a research run."""

    batches: GeneratorState
    other: GeneratorState
    noise_key: str = field(repr=False)
    last_noisy_step: int


@dataclass(frozen=True, slots=True)
class StreamsState:
    """What a checkpoint keeps of the streams: private, and for a release run nothing but the mode."""

    mode: Mode
    exact: ExactState | None


class NoiseSeeds:
    """A seed for the noise of each step (`gradients.NoiseStream`): a keyed hash of the step's number, given once."""

    def __init__(self, key: bytes, last_step: int = -1) -> None:
        self._key = key
        self.last_step = last_step  # that took its seed; -1 before the first

    def seed(self, step: int) -> bytes:
        """The 128 bits of `step`. Steps only go up: noise that was used before would hide nothing."""
        if step <= self.last_step:
            raise ClaimRefused(
                expected=f"a step after {self.last_step}, whose noise was drawn already",
                found=f"step {step}",
                way_out="number the steps upwards, and draw all noise of a step from one generator",
            )
        self.last_step = step
        return hashlib.blake2b(step.to_bytes(8, "little"), key=self._key, digest_size=_SEED_BYTES).digest()


class Streams:
    """The three streams of a run. Make them with `research`, `release` or `resumed`."""

    def __init__(self, mode: Mode, batches: np.random.Generator, noise: NoiseSeeds, other: np.random.Generator) -> None:
        self.mode, self.batches, self.noise, self.other = mode, batches, noise, other

    @classmethod
    def research(cls, seed: int) -> Self:
        """Streams that the same seed gives again."""
        if seed < 0:
            raise ConfigError(expected="a seed of 0 or more", found=str(seed), way_out="choose another number")
        batches, noise, other = np.random.SeedSequence(seed).spawn(3)
        key = noise.generate_state(_KEY_BYTES // 8, np.uint64).astype("<u8").tobytes()
        return cls(Mode.RESEARCH, _generator(batches), NoiseSeeds(key), _generator(other))

    @classmethod
    def release(cls) -> Self:
        batches, other = (np.random.SeedSequence(secrets.randbits(8 * _KEY_BYTES), pool_size=8) for _ in range(2))
        noise = NoiseSeeds(secrets.token_bytes(_KEY_BYTES))
        return cls(Mode.RELEASE, _generator(batches), noise, _generator(other))

    @classmethod
    def resumed(cls, state: StreamsState) -> Self:
        """The streams of a resumed run: research ones continue, release ones are drawn anew."""
        if state.mode == Mode.RELEASE:
            return cls.release()
        exact = state.exact
        if exact is None:
            raise RunError("the state of the streams of a research run", "nothing", "use another checkpoint")
        return cls._of(Mode.RESEARCH, exact)

    def state(self) -> StreamsState:
        return StreamsState(self.mode, None if self.mode == Mode.RELEASE else self._exact())

    def shared(self, broadcast: Callable[[bytes], bytes]) -> Self:
        """The streams of the process that `broadcast` takes its bytes from, for every process."""
        exact = from_json(ExactState, broadcast(to_json(self._exact()).encode()))
        return self._of(self.mode, exact)

    @classmethod
    def _of(cls, mode: Mode, exact: ExactState) -> Self:
        noise = NoiseSeeds(bytes.fromhex(exact.noise_key), exact.last_noisy_step)
        return cls(mode, _restored(exact.batches), noise, _restored(exact.other))

    def _exact(self) -> ExactState:
        noise = self.noise
        return ExactState(_state_of(self.batches), _state_of(self.other), noise._key.hex(), noise.last_step)


def _generator(seeds: np.random.SeedSequence) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64DXSM(seeds))


def _state_of(generator: np.random.Generator) -> GeneratorState:
    state = generator.bit_generator.state
    inner = state["state"]
    return GeneratorState(f"{inner['state']:x}", f"{inner['inc']:x}", bool(state["has_uint32"]), int(state["uinteger"]))


def _restored(state: GeneratorState) -> np.random.Generator:
    bits = np.random.PCG64DXSM(0)
    bits.state = {
        "bit_generator": "PCG64DXSM",
        "state": {"state": int(state.state, 16), "inc": int(state.increment, 16)},
        "has_uint32": int(state.has_half),
        "uinteger": state.half,
    }
    return np.random.Generator(bits)


_BLOCK = native.BLOCK
_PIECE = 1 << 15  # numbers at a time, in one thread: torch divides larger ones, and their last digits follow
_BEYOND = np.uint64(1 << 63)  # the counter's top bit: where the further bits of small words come from
_SMALL = 1 << 16


class NoiseStream:
    """A source of noise; each call draws what no call drew before."""

    def __init__(self, key: bytes, draws: int) -> None:
        self._key = hashlib.shake_256(b"tacit noise cipher" + key).digest(native.KEY_BYTES)
        self._draws = draws

    def add_(self, tensors: Iterable[Tensor], deviation: float) -> None:
        """Add normal numbers of this deviation to every element of these float32 tensors."""
        if not (math.isfinite(deviation) and deviation >= 0):
            raise ConfigError("a noise deviation of 0 or more", str(deviation), "correct the number")
        draw, self._draws = self._draws, self._draws + 1
        blocks = [block for tensor in tensors for block in _blocks(tensor)]
        if deviation == 0:
            return
        add = native.add_normal_ if native.available else add_normal_
        with torch.no_grad():
            if all(block.device.type == "cpu" for block in blocks):
                add(self._key, draw, blocks, deviation)
                return
            sizes = [len(block) for block in blocks]
            noise = torch.zeros(sum(sizes))
            add(self._key, draw, torch.split(noise, sizes), deviation)
            for block, numbers in zip(blocks, torch.split(noise.to(blocks[0].device), sizes), strict=True):
                block.add_(numbers)


def add_normal_(key: bytes, draw: int, blocks: Sequence[Tensor], deviation: float) -> None:
    """As `native.add_normal_`, on any processor."""
    pieces = [(index, first) for index, block in enumerate(blocks) for first in range(0, len(block), _PIECE)]

    def add(piece: tuple[int, int]) -> None:
        index, first = piece
        with torch.no_grad():  # a switch of this thread alone
            numbers = blocks[index][first : first + _PIECE]
            numbers += deviation * normals(key, draw, index * _BLOCK + first, len(numbers))

    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        list(pool.map(add, pieces))


def normals(key: bytes, draw: int, first: int, size: int) -> Tensor:
    """Standard normal numbers of a draw, each rounded once, from number `first` on, a multiple of 16."""
    counters = first // 4 + np.arange(-(-size // 16) * 4, dtype=np.uint64)
    radial, turn = np.split(ciphered(key, draw, counters).reshape(-1, 16), 2, axis=1)
    radius = torch.from_numpy(_uniforms(key, draw, counters, radial)).log_().mul_(-2).sqrt_()
    angle = torch.from_numpy(turn * (2 * math.pi / 2**32))
    return torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1).view(-1)[:size].float()


def ciphered(key: bytes, draw: int, counters: NDArray[np.uint64]) -> NDArray[np.uint32]:
    """(counters, 4): the words at these places of a draw."""
    places = np.empty((len(counters), 2), "<u8")
    places[:, 0], places[:, 1] = counters, draw
    blockwise = Cipher(algorithms.AES(key), modes.ECB())  # counter mode, of counters that we lay out ourselves
    return np.frombuffer(blockwise.encryptor().update(places.tobytes()), "<u4").reshape(-1, 4)


def _uniforms(key: bytes, draw: int, counters: NDArray[np.uint64], words: NDArray[np.uint32]) -> NDArray[np.float64]:
    uniforms: NDArray[np.float64] = (words + 0.5) / 2**32
    group, lane = np.nonzero(words < _SMALL)
    more = ciphered(key, draw, counters[4 * group + lane // 4] | _BEYOND)[np.arange(len(lane)), lane % 4]
    uniforms[group, lane] = (words[group, lane] * 2.0**32 + more + 0.5) / 2.0**64
    return uniforms


def _blocks(tensor: Tensor) -> tuple[Tensor, ...]:
    if tensor.dtype != torch.float32 or not tensor.is_contiguous():
        raise ConfigError("contiguous float32 sums", f"{tensor.dtype}", "take the sums as clipped_sum gives them")
    return torch.split(tensor.view(-1), _BLOCK)
