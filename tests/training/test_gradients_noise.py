"""Noise has the deviation it is asked for (T3 of the theory), is never repeated, and does not depend on threads."""

import math
import secrets
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from oracles import research_noise
from tacit.config.model_schema import LSTMConfig
from tacit.data.batches import TextBatch
from tacit.errors import ConfigError
from tacit.models import kernels as native
from tacit.models.lstm import LSTM
from tacit.training.gradients.clipped import Flat, clipped_sum
from tacit.training.randomness import NoiseStream, ciphered, normals

FALSE_ALARM = 1e-6
Adder = Callable[[NoiseStream, list[Tensor], float], None]


@pytest.fixture(autouse=True)
def _threads_restored() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


built = pytest.mark.skipif(not native.available, reason="the native kernels were not built, or are switched off")


@pytest.fixture(params=[pytest.param("native", marks=built), "portable"])
def implementation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test that asks for it runs with each implementation of the stream."""
    if request.param == "portable":
        monkeypatch.setattr(native, "available", False)


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


@pytest.mark.usefixtures("implementation")
@pytest.mark.statistical
@pytest.mark.parametrize("deviation", [0.3, 0.98, 1.02, 25.0])
def test_variance_is_the_one_that_was_priced(deviation: float) -> None:
    """False-alarm rate 1e-6 a case; 302,000 numbers see deviations that are 0.7 % off."""
    assert variance_is_plausible(as_priced, NoiseStream(secrets.token_bytes(32), 0), deviation)


@pytest.mark.usefixtures("implementation")
@pytest.mark.statistical
@pytest.mark.parametrize("deviation", [0.3, 0.98, 1.02, 25.0])
def test_variance_taken_for_deviation_is_caught(deviation: float) -> None:
    """The negative control; it is missed with probability below 1e-6."""
    assert not variance_is_plausible(squared, NoiseStream(secrets.token_bytes(32), 0), deviation)


@pytest.mark.statistical
def test_the_noise_of_a_whole_step_has_the_deviation_of_its_sensitivity() -> None:
    """Noise multiplier 1.3 times sensitivity .5 on a model's clipped sum, the sum taken off; false-alarm rate 1e-6."""
    torch.manual_seed(0)
    model, batch = LSTM.new(LSTMConfig(500, 60, 60, dropout=0.0)), TextBatch.of_tokens(torch.randint(500, (4, 9)))
    exact, noisy = (clipped_sum(model, batch, Flat(0.5)) for _ in range(2))
    NoiseStream(secrets.token_bytes(32), 0).add_(noisy.sums.values(), 1.3 * noisy.sensitivity)
    noise = torch.cat([(noisy.sums[name] - exact.sums[name]).flatten() for name in exact.sums]).double() / 0.65
    low, high = stats.chi2.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], len(noise))
    assert low <= float(noise.square().sum()) <= high


@pytest.mark.usefixtures("implementation")
@pytest.mark.statistical
def test_numbers_are_normal_and_blocks_are_independent() -> None:
    """Kolmogorov-Smirnov of 300,000 numbers, and the correlation of two blocks; false-alarm rate 1e-6 each."""
    numbers = torch.zeros(2 * 131_072)
    NoiseStream(secrets.token_bytes(32), 0).add_([numbers], 1.0)
    assert stats.kstest(numbers.double().numpy(), "norm").pvalue > FALSE_ALARM
    first, second = torch.split(numbers.double(), 131_072)
    correlation = float((first * second).mean()) * math.sqrt(131_072)
    assert abs(correlation) < stats.norm.ppf(1 - FALSE_ALARM / 2)
    assert stats.kstest(numbers.double().square().numpy(), "norm").pvalue < FALSE_ALARM  # the test can fail


def draw(stream: NoiseStream, size: int = 300_000) -> Tensor:
    numbers = torch.zeros(size)
    stream.add_([numbers], 1.0)
    return numbers


@pytest.mark.usefixtures("implementation")
def test_research_streams_repeat_and_go_on_where_they_stopped() -> None:
    one, other = research_noise(3), research_noise(3)
    first, second = draw(one), draw(one)
    assert torch.equal(first, draw(other))
    assert torch.equal(second, draw(research_noise(3, draws=1)))
    assert one._draws == 2
    assert not torch.equal(first, draw(research_noise(4)))


@pytest.mark.usefixtures("implementation")
def test_no_draw_repeats_another_nor_a_block_another_block() -> None:
    stream = research_noise(0)
    blocks = [block for _ in range(3) for block in torch.split(draw(stream, 4 * 131_072), 131_072)]
    assert len({tuple(block[:4].tolist()) for block in blocks}) == 12


@pytest.mark.usefixtures("implementation")
def test_noise_does_not_depend_on_threads_nor_on_how_weights_are_divided_into_threads() -> None:
    torch.set_num_threads(1)
    one = draw(research_noise(5))
    torch.set_num_threads(3)
    assert torch.equal(one, draw(research_noise(5)))


@pytest.mark.usefixtures("implementation")
def test_noise_is_added_to_what_is_there() -> None:
    there = torch.full((1000,), 100.0)
    research_noise(1).add_([there], 0.5)
    torch.testing.assert_close(there - 100.0, draw(research_noise(1), 1000) * 0.5, rtol=1e-3, atol=1e-4)


@pytest.mark.usefixtures("implementation")
def test_a_deviation_of_zero_adds_nothing_and_still_counts_as_a_draw() -> None:
    stream, there = research_noise(1), torch.ones(10)
    stream.add_([there], 0.0)
    assert torch.equal(there, torch.ones(10))
    assert stream._draws == 1


@pytest.mark.parametrize("deviation", [-1.0, math.nan, math.inf])
def test_a_deviation_that_means_nothing_is_refused(deviation: float) -> None:
    with pytest.raises(ConfigError, match="noise deviation"):
        research_noise(1).add_([torch.zeros(3)], deviation)


def test_sums_that_are_not_float32_are_refused() -> None:
    with pytest.raises(ConfigError, match="float32"):
        research_noise(1).add_([torch.zeros(3, dtype=torch.bfloat16)], 1.0)


# one stream, two implementations


KEY = bytes(range(16))


def places(draw: int, counters: list[int]) -> list[bytes]:
    return [counter.to_bytes(8, "little") + draw.to_bytes(8, "little") for counter in counters]


@pytest.mark.parametrize(
    ("key", "text", "answer"),
    [  # FIPS 197, appendices B and C.1
        ("2b7e151628aed2a6abf7158809cf4f3c", "3243f6a8885a308d313198a2e0370734", "3925841d02dc09fbdc118597196a0b32"),
        ("000102030405060708090a0b0c0d0e0f", "00112233445566778899aabbccddeeff", "69c4e0d86a7b0430d8cdb78070b4c55a"),
    ],
)
def test_the_words_are_those_of_the_standard_on_any_processor(key: str, text: str, answer: str) -> None:
    """Catches any other generator where the native kernels are missing."""
    counter, draw = (int.from_bytes(bytes.fromhex(text)[half : half + 8], "little") for half in (0, 8))
    words = ciphered(bytes.fromhex(key), draw, np.array([counter], np.uint64))
    assert words.astype("<u4").tobytes().hex() == answer


@built
@pytest.mark.parametrize("draw", [0, 1, (1 << 64) - 1])
def test_both_implementations_read_the_same_bytes(draw: int) -> None:
    counters = [0, 1, 1 << 15, (1 << 63) + 5, (1 << 64) - 1]
    expected = b"".join(native.cipher(KEY, place) for place in places(draw, counters))
    assert ciphered(KEY, draw, np.array(counters, np.uint64)).astype("<u4").tobytes() == expected


@built
def test_both_implementations_give_the_same_numbers_to_the_last_digit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two million numbers, among them some from small words; the control: another draw does not agree."""
    sizes = [9 * 131_072, 7 * 131_072 + 3, 1]
    results = []
    for available, draws in ((True, 4), (False, 4), (False, 5)):
        monkeypatch.setattr(native, "available", available)
        numbers = [torch.zeros(size) for size in sizes]
        research_noise(7, draws).add_(numbers, 0.3)
        results.append(torch.cat(numbers).double())
    fast, portable, other = results
    key = research_noise(7)._key
    words = ciphered(key, 4, np.arange(16 << 15, dtype=np.uint64)).reshape(-1, 16)[:, :8]
    assert (words < 1 << 16).any()
    assert float(((fast - portable) / portable).abs().max()) < 1e-6
    assert float(((fast - other) / other).abs().median()) > 0.1


@pytest.mark.usefixtures("implementation")
def test_release_noise_never_asks_torch_for_random_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches the Mersenne twister that made the noise where the native kernels were missing."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("torch's generator was used")

    for owner, name in ((torch, "Generator"), (Tensor, "normal_"), (torch, "randn"), (torch, "normal")):
        monkeypatch.setattr(owner, name, refuse)
    state = torch.random.get_rng_state()
    assert float(draw(NoiseStream(secrets.token_bytes(32), 0)).std()) > 0.9
    assert torch.equal(state, torch.random.get_rng_state())


def test_words_next_to_either_end_keep_their_radius(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches tails that end at 6.7 deviations, and radii of zero where float32 takes a uniform for 1."""
    for word, expected in ((0, math.sqrt(2 * 65 * math.log(2))), (0xFFFFFFFF, 2.0**-16)):
        words = np.array([[word] * 4, [word] * 4, [0] * 4, [0] * 4], np.uint32)
        answers = iter([words, np.zeros((8, 4), np.uint32)])  # the second for the further bits of small words
        monkeypatch.setattr("tacit.training.randomness.ciphered", lambda *_, answers=answers: next(answers))
        assert normals(KEY, 0, 0, 1).item() == pytest.approx(expected, rel=1e-6)


@built
def test_native_radii_next_to_zero_are_not_rounded_away() -> None:
    """Pairs of words within 2^-24 of 1 have radii of at least 2^-16; a uniform in float32 made them zero."""
    keys = [bytes([index]) * 16 for index in range(64)]
    found = []
    for key in keys:
        words = ciphered(key, 0, np.arange(1 << 15, dtype=np.uint64)).reshape(-1, 16)[:, :8]
        group, lane = np.nonzero(words > 2**32 - 2**12)
        block = torch.zeros(131_072)
        native.add_normal_(key, 0, [block], 1.0)
        pairs = block.double().view(-1, 2, 8)
        radii = pairs.square().sum(dim=1).sqrt()[group, lane].numpy()
        exact = np.sqrt(-2 * np.log((words[group, lane] + 0.5) / 2**32))
        np.testing.assert_allclose(radii, exact, rtol=1e-6)
        found += radii.tolist()
    assert len(found) >= 2
