"""Random streams: independent, exact to resume in research, never the same twice in release."""

import re
from dataclasses import asdict

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from tacit.codec import from_json, to_json
from tacit.errors import ClaimRefused, ConfigError, RunError
from tacit.randomness import Mode, NoiseStream, Streams, StreamsState, _twister_state


def some_draws(streams: Streams, step: int) -> list[float]:
    """A little of each stream, of even and odd sizes so that half-used words count."""
    batches = streams.batches.integers(0, 1000, 3, dtype=np.uint32).tolist()
    noise = torch.randn(5, generator=streams.noise.torch_generator(step)).tolist()
    return [*batches, *noise, *streams.other.random(3).tolist()]


@given(st.integers(0, 2**200))
def test_g1_one_seed_gives_the_same_three_streams(seed: int) -> None:
    assert some_draws(Streams.research(seed), 0) == some_draws(Streams.research(seed), 0)
    assert some_draws(Streams.research(seed), 0) != some_draws(Streams.research(seed + 1), 0)


def largest_correlation(streams: list[np.random.Generator]) -> float:
    """Of 20,000 normals a stream, between any two of them, in deviations."""
    draws = np.array([stream.standard_normal(20_000) for stream in streams])
    products = draws @ draws.T / np.sqrt(draws.shape[1])
    return float(np.max(np.abs(products[np.triu_indices(len(draws), 1)])))


@pytest.mark.statistical
def test_g1_streams_are_uncorrelated() -> None:
    """False alarm 1e-6 (normal tails, Bonferroni over the pairs). Control: a stream that is used under two names."""
    streams = Streams.research(3)
    neighbour = Streams.research(4)
    apart = [streams.batches, streams.other, streams.noise.numpy_generator(0), streams.noise.numpy_generator(1)]
    apart += [neighbour.batches, neighbour.other, neighbour.noise.numpy_generator(0)]
    limit = float(norm.isf(1e-6 / 2 / 21))
    assert largest_correlation(apart) < limit
    again = Streams.research(3)
    assert largest_correlation([Streams.research(3).batches, again.batches]) > limit


def test_g2_release_state_holds_nothing_but_the_mode() -> None:
    state = Streams.release().state()
    assert asdict(state) == {"mode": Mode.RELEASE, "exact": None}
    assert state == Streams.release().state()
    assert not re.search(r"\d", to_json(state))


def test_g3_a_step_gives_its_noise_once() -> None:
    noise = NoiseStream(bytes(32))
    noise.seed(5)
    noise.seed(9)
    for used in (9, 7, 5, 0):
        with pytest.raises(ClaimRefused):
            noise.seed(used)
        with pytest.raises(ClaimRefused):
            noise.torch_generator(used)
        with pytest.raises(ClaimRefused):
            noise.numpy_generator(used)
    noise.seed(10)


def test_g3_release_runs_and_their_resumptions_share_no_seed() -> None:
    """128 bits: 1,200 seeds are different unless something repeats."""
    first = Streams.release()
    lives = [first, Streams.resumed(first.state()), Streams.resumed(first.state()), Streams.release()]
    seeds = [life.noise.seed(step) for life in lives for step in range(300)]
    assert len(set(seeds)) == len(seeds)
    assert max(seeds) > 1 << 120
    assert len({tuple(life.batches.integers(0, 1 << 62, 2).tolist()) for life in lives}) == len(lives)
    assert len({tuple(life.other.integers(0, 1 << 62, 2).tolist()) for life in lives}) == len(lives)


@given(st.integers(0, 2**64), st.integers(0, 5))
def test_g4_research_streams_go_on_exactly(seed: int, before: int) -> None:
    """Through JSON, with half-used words, at any place."""
    streams = Streams.research(seed)
    for step in range(before):
        some_draws(streams, step)
        streams.batches.integers(0, 7, dtype=np.uint32)  # leaves half a word behind
    restored = Streams.resumed(from_json(StreamsState, to_json(streams.state())))
    assert restored.state() == streams.state()
    for step in range(before, before + 3):
        assert some_draws(restored, step) == some_draws(streams, step)


def test_a_resumed_research_run_does_not_repeat_the_noise_of_its_past() -> None:
    streams = Streams.research(1)
    streams.noise.seed(41)
    with pytest.raises(ClaimRefused):
        Streams.resumed(streams.state()).noise.seed(41)


def test_g5_torch_alone_looks_at_32_bits_and_ours_at_all() -> None:
    """Control first: seeds that differ in bit 32 are one seed to `manual_seed` on the CPU."""

    def torch_alone(seed: int) -> list[float]:
        return torch.randn(4, generator=torch.Generator().manual_seed(seed)).tolist()

    def ours(seed: int) -> list[float]:
        generator = torch.Generator()
        generator.set_state(_twister_state(np.random.SeedSequence(seed)))
        return torch.randn(4, generator=generator).tolist()

    assert torch_alone(5) == torch_alone(5 + (1 << 32))
    seen = {tuple(ours(5 ^ (1 << bit))) for bit in range(128)}
    assert len(seen) == 128


def test_g5_the_whole_twister_is_set() -> None:
    """Oracle: numpy's Mersenne Twister from the same words gives the same numbers, over several twists."""
    seeds = np.random.SeedSequence(99)
    words = seeds.generate_state(624, np.uint32).astype(np.uint32)
    words[0] |= np.uint32(1 << 31)
    oracle = np.random.MT19937(0)
    oracle.state = {"bit_generator": "MT19937", "state": {"key": words, "pos": 624}}
    generator = torch.Generator()
    generator.set_state(_twister_state(np.random.SeedSequence(99)))
    ours = torch.empty(2000, dtype=torch.int64).random_(0, 1 << 24, generator=generator)
    assert ours.tolist() == (oracle.random_raw(2000) % (1 << 24)).tolist()


def test_generators_are_fresh_each_step() -> None:
    """The numbers of 2,000 steps are different."""
    noise = Streams.research(0).noise
    drawn = {tuple(torch.randn(4, generator=noise.torch_generator(step)).tolist()) for step in range(2000)}
    assert len(drawn) == 2000


def test_errors() -> None:
    with pytest.raises(ConfigError):
        Streams.research(-1)
    with pytest.raises(RunError):
        Streams.resumed(StreamsState(Mode.RESEARCH, None))


def test_nothing_prints_a_key() -> None:
    streams = Streams.research(12345)
    exact = streams.state().exact
    assert exact is not None
    printed = repr(streams.state()) + repr(streams) + repr(streams.noise)
    assert exact.noise_key not in printed
    assert exact.batches.state not in printed
    assert exact.other.increment not in printed
