"""Noise has the deviation it is asked for (T3 of the theory), is never repeated, and does not depend on threads."""

import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from tacit.errors import ConfigError
from tacit.gradients import Flat, NoiseStream, clipped_sum
from tacit.models import LSTM, Batch, LSTMSettings

FALSE_ALARM = 1e-6
Adder = Callable[[NoiseStream, list[Tensor], float], None]


@pytest.fixture(autouse=True)
def _threads_restored() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def as_priced(stream: NoiseStream, sums: list[Tensor], deviation: float) -> None:
    stream.add_(sums, deviation)


def squared(stream: NoiseStream, sums: list[Tensor], deviation: float) -> None:
    """The bug of a published script: the variance was taken for the deviation."""
    stream.add_(sums, deviation**2)


def variance_is_plausible(adder: Adder, stream: NoiseStream, deviation: float) -> bool:
    """A chi-square test of the sum of squares, both sides, with the false-alarm rate above."""
    sums = [torch.zeros(300_000), torch.zeros(40, 50)]
    adder(stream, sums, deviation)
    numbers = torch.cat([value.flatten() for value in sums]).double() / deviation
    low, high = stats.chi2.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], len(numbers))
    return bool(low <= float(numbers.square().sum()) <= high)


@pytest.mark.statistical
@pytest.mark.parametrize("deviation", [0.3, 0.98, 1.02, 25.0])
def test_variance_is_the_one_that_was_priced(deviation: float) -> None:
    """False-alarm rate 1e-6 a case; 302,000 numbers see deviations that are 0.7 % off."""
    assert variance_is_plausible(as_priced, NoiseStream.release(), deviation)


@pytest.mark.statistical
@pytest.mark.parametrize("deviation", [0.3, 0.98, 1.02, 25.0])
def test_variance_taken_for_deviation_is_caught(deviation: float) -> None:
    """The negative control; it is missed with probability below 1e-6."""
    assert not variance_is_plausible(squared, NoiseStream.release(), deviation)


@pytest.mark.statistical
def test_the_noise_of_a_whole_step_has_the_deviation_of_its_sensitivity() -> None:
    """Noise multiplier 1.3 times sensitivity .5 on a model's clipped sum, the sum taken off; false-alarm rate 1e-6."""
    torch.manual_seed(0)
    model, batch = LSTM.new(LSTMSettings(500, 60, 60, dropout=0.0)), Batch.of_tokens(torch.randint(500, (4, 9)))
    exact, noisy = (clipped_sum(model, batch, Flat(0.5)) for _ in range(2))
    NoiseStream.release().add_(noisy.sums.values(), 1.3 * noisy.sensitivity)
    noise = torch.cat([(noisy.sums[name] - exact.sums[name]).flatten() for name in exact.sums]).double() / 0.65
    low, high = stats.chi2.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], len(noise))
    assert low <= float(noise.square().sum()) <= high


@pytest.mark.statistical
def test_numbers_are_normal_and_blocks_are_independent() -> None:
    """Kolmogorov-Smirnov of 300,000 numbers, and the correlation of two blocks; false-alarm rate 1e-6 each."""
    numbers = torch.zeros(2 * 131_072)
    NoiseStream.release().add_([numbers], 1.0)
    assert stats.kstest(numbers.double().numpy(), "norm").pvalue > FALSE_ALARM
    first, second = torch.split(numbers.double(), 131_072)
    correlation = float((first * second).mean()) * math.sqrt(131_072)
    assert abs(correlation) < stats.norm.ppf(1 - FALSE_ALARM / 2)
    assert stats.kstest(numbers.double().square().numpy(), "norm").pvalue < FALSE_ALARM  # the test can fail


def draw(stream: NoiseStream, size: int = 300_000) -> Tensor:
    numbers = torch.zeros(size)
    stream.add_([numbers], 1.0)
    return numbers


def test_research_streams_repeat_and_go_on_where_they_stopped() -> None:
    one, other = NoiseStream.research(3), NoiseStream.research(3)
    first, second = draw(one), draw(one)
    assert torch.equal(first, draw(other))
    assert torch.equal(second, draw(NoiseStream.research(3, draws=1)))
    assert one.draws == 2
    assert not torch.equal(first, draw(NoiseStream.research(4)))


def test_no_draw_repeats_another_nor_a_block_another_block() -> None:
    stream = NoiseStream.research(0)
    blocks = [block for _ in range(3) for block in torch.split(draw(stream, 4 * 131_072), 131_072)]
    assert len({tuple(block[:4].tolist()) for block in blocks}) == 12


def test_release_streams_differ() -> None:
    assert not torch.equal(draw(NoiseStream.release()), draw(NoiseStream.release()))


def test_noise_does_not_depend_on_threads_nor_on_how_weights_are_divided_into_threads() -> None:
    torch.set_num_threads(1)
    one = draw(NoiseStream.research(5))
    torch.set_num_threads(3)
    assert torch.equal(one, draw(NoiseStream.research(5)))


def test_noise_is_added_to_what_is_there() -> None:
    there = torch.full((1000,), 100.0)
    NoiseStream.research(1).add_([there], 0.5)
    torch.testing.assert_close(there - 100.0, draw(NoiseStream.research(1), 1000) * 0.5, rtol=1e-3, atol=1e-4)


def test_a_deviation_of_zero_adds_nothing_and_still_counts_as_a_draw() -> None:
    stream, there = NoiseStream.research(1), torch.ones(10)
    stream.add_([there], 0.0)
    assert torch.equal(there, torch.ones(10))
    assert stream.draws == 1


@pytest.mark.parametrize("deviation", [-1.0, math.nan, math.inf])
def test_a_deviation_that_means_nothing_is_refused(deviation: float) -> None:
    with pytest.raises(ConfigError, match="noise deviation"):
        NoiseStream.research(1).add_([torch.zeros(3)], deviation)


def test_sums_that_are_not_float32_are_refused() -> None:
    with pytest.raises(ConfigError, match="float32"):
        NoiseStream.research(1).add_([torch.zeros(3, dtype=torch.bfloat16)], 1.0)


def test_the_whole_state_of_the_generator_is_set() -> None:
    """Two keys whose first word is equal still differ: the seed is not cut to 32 bits."""
    states = {bytes(NoiseStream.research(seed)._generator(0, 0).get_state().tolist()) for seed in range(20)}
    assert len(states) == 20
    state = NoiseStream.research(1)._generator(0, 0).get_state()
    words = state[24 : 24 + 8 * 624].view(torch.int64)
    assert int(words.max()) < 2**32
    assert len(set(words.tolist())) > 620


def test_the_generator_is_numpy_s_twister_from_the_same_words() -> None:
    """An oracle over several twists; and the control: `manual_seed` takes seeds that differ in bit 32 for one."""
    generator = NoiseStream.research(1)._generator(0, 0)
    words = generator.get_state()[24 : 24 + 8 * 624].view(torch.int64).numpy().astype(np.uint32)
    oracle = np.random.MT19937(0)
    oracle.state = {"bit_generator": "MT19937", "state": {"key": words, "pos": 624}}
    ours = torch.empty(2000, dtype=torch.int64).random_(0, 1 << 24, generator=generator)
    assert ours.tolist() == (oracle.random_raw(2000) % (1 << 24)).tolist()
    alone = [torch.randn(4, generator=torch.Generator().manual_seed(seed)).tolist() for seed in (5, 5 + (1 << 32))]
    assert alone[0] == alone[1]
