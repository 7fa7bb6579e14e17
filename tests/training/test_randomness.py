"""Random streams: independent, exact to resume in research, never the same twice in release."""

import re
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from tacit.common.serialize import from_json, to_json
from tacit.config.setting import Mode
from tacit.errors import ClaimRefused, ConfigError, RunError
from tacit.training.randomness import NoiseSeeds, Streams, StreamsState


def some_draws(streams: Streams, step: int) -> list[float]:
    """A little of each stream, of even and odd sizes so that half-used words count."""
    batches = streams.batches.integers(0, 1000, 3, dtype=np.uint32).tolist()
    noise = list(streams.noise.seed(step))
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
    neighbor = Streams.research(4)
    apart = [streams.batches, streams.other, neighbor.batches, neighbor.other]
    limit = float(norm.isf(1e-6 / 2 / 6))
    assert largest_correlation(apart) < limit
    again = Streams.research(3)
    assert largest_correlation([Streams.research(3).batches, again.batches]) > limit


def test_g2_release_state_holds_nothing_but_the_mode() -> None:
    state = Streams.release().state()
    assert asdict(state) == {"mode": Mode.RELEASE, "exact": None}
    assert state == Streams.release().state()
    assert not re.search(r"\d", to_json(state))


def test_g3_a_step_gives_its_noise_once() -> None:
    noise = NoiseSeeds(bytes(32))
    noise.seed(5)
    noise.seed(9)
    for used in (9, 7, 5, 0):
        with pytest.raises(ClaimRefused):
            noise.seed(used)
    noise.seed(10)


def test_g3_release_runs_and_their_resumptions_share_no_seed() -> None:
    """128 bits: 1,200 seeds are different unless something repeats."""
    first = Streams.release()
    lives = [first, Streams.resumed(first.state()), Streams.resumed(first.state()), Streams.release()]
    seeds = [life.noise.seed(step) for life in lives for step in range(300)]
    assert len(set(seeds)) == len(seeds)
    assert {len(seed) for seed in seeds} == {16}
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
