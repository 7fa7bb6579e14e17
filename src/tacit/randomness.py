"""Three random streams: batches, noise, everything else. What hides secrets is never drawn twice.

`research` derives all three from one seed; `release` takes them from the operating system and keeps no seed anywhere.

Formal guarantees:

G1 (apart). The streams of one seed are independent: they are spawned, not offset.
G2 (no seed kept). The state of release streams holds nothing but their mode.
G3 (never twice). A step's noise seed is given once; a resumed release run shares no seed and no draw with its past.
G4 (exact). Research streams that were saved and restored go on as if nothing had happened.
"""

import hashlib
import secrets
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Self

import numpy as np

from tacit.errors import ClaimRefused, ConfigError, RunError

_KEY_BYTES = 32
_SEED_BYTES = 16


class Mode(StrEnum):
    """Whether a run can be repeated, or its model can leave the house."""

    RESEARCH = "research"  # everything from one seed
    RELEASE = "release"  # everything from the operating system


@dataclass(frozen=True, slots=True)
class GeneratorState:
    """Where a PCG64DXSM generator stands; numbers wider than 64 bits in hexadecimal."""

    state: str = field(repr=False)
    increment: str = field(repr=False)
    has_half: bool
    half: int = field(repr=False)


@dataclass(frozen=True, slots=True)
class ExactState:
    """Where the streams of a research run stand."""

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
        self._last_step = last_step

    @property
    def last_step(self) -> int:
        """The last step that took its seed; -1 before the first."""
        return self._last_step

    def seed(self, step: int) -> bytes:
        """The 128 bits of `step`. Steps only go up: noise that was used before would hide nothing."""
        if step <= self._last_step:
            raise ClaimRefused(
                expected=f"a step after {self._last_step}, whose noise was drawn already",
                found=f"step {step}",
                way_out="number the steps upwards, and draw all noise of a step from one generator",
            )
        self._last_step = step
        return hashlib.blake2b(step.to_bytes(8, "little"), key=self._key, digest_size=_SEED_BYTES).digest()


class Streams:
    """The three streams of a run. Make them with `research`, `release` or `resumed`."""

    def __init__(self, mode: Mode, batches: np.random.Generator, noise: NoiseSeeds, other: np.random.Generator) -> None:
        """Private: use `research`, `release` or `resumed`."""
        self.mode = mode
        self.batches = batches
        self.noise = noise
        self.other = other

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
        """Streams that nobody can give again."""
        batches, other = (np.random.SeedSequence(secrets.randbits(8 * _KEY_BYTES), pool_size=8) for _ in range(2))
        noise = NoiseSeeds(secrets.token_bytes(_KEY_BYTES))
        return cls(Mode.RELEASE, _generator(batches), noise, _generator(other))

    @classmethod
    def resumed(cls, state: StreamsState) -> Self:
        """The streams of a run that goes on: research ones where they stood, release ones drawn anew."""
        if state.mode == Mode.RELEASE:
            return cls.release()
        exact = state.exact
        if exact is None:
            raise RunError("where the streams of a research run stood", "nothing", "use another checkpoint")
        noise = NoiseSeeds(bytes.fromhex(exact.noise_key), exact.last_noisy_step)
        return cls(Mode.RESEARCH, _restored(exact.batches), noise, _restored(exact.other))

    def state(self) -> StreamsState:
        """For a checkpoint, which is private."""
        if self.mode == Mode.RELEASE:
            return StreamsState(self.mode, None)
        noise = self.noise
        exact = ExactState(_state_of(self.batches), _state_of(self.other), noise._key.hex(), noise.last_step)
        return StreamsState(self.mode, exact)


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
