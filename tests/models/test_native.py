"""Each native kernel against float64 and against the path in torch; the cipher against its standard; noise by tests."""

import json
import math
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor
from torch.nn import functional

from tacit.errors import GradientError
from tacit.models import kernels as native
from tacit.models import lstm as recurrence
from tacit.training.gradients import head
from tacit.training.gradients.contributions import Gram

FALSE_ALARM = 1e-6
KEY = bytes(range(16))
SIZES = [1, 2, 7, 8, 9, 31, 32, 33, 100, 1001]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the native kernels are for x86-64")
def test_the_kernels_are_built_here() -> None:
    """Catches a build that failed without a word, as it is optional."""
    assert native.available or os.environ.get(native.SWITCH) == "0"


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the native kernels are for x86-64")
def test_kernels_that_were_not_built_are_missed_aloud(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv(native.SWITCH, raising=False)
    monkeypatch.setattr(native, "EXTENSION_SUFFIXES", [])
    assert native._loaded() is None
    assert "were not built" in caplog.text
    assert "C++ compiler" in caplog.text


built = pytest.mark.skipif(not native.available, reason="the native kernels were not built, or are switched off")


@pytest.fixture(autouse=True)
def _seeded_and_threads_restored() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.manual_seed(4)
    yield
    torch.set_num_threads(threads)


# softmax


def softmax_case(size: int, rows: int = 3, places: int = 5) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    scores, bias = 4 * torch.randn(rows, places, size), torch.randn(size)
    return scores, bias, torch.randint(size, (rows, places)), torch.rand(rows, places).round(decimals=1)


def exact_softmax(scores: Tensor, bias: Tensor | None, targets: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Losses and the gradient of the scores by autograd in float64."""
    values = scores.double().requires_grad_()
    logits = values if bias is None else values + bias.double()
    losses = functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none").view(targets.shape)
    (gradient,) = torch.autograd.grad((losses * weights).sum(), values)
    return losses.detach(), gradient


@built
@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("size", SIZES)
def test_softmax_is_that_of_float64(size: int, with_bias: bool) -> None:
    scores, bias, targets, weights = softmax_case(size)
    used = bias if with_bias else None
    wanted_losses, wanted = exact_softmax(scores, used, targets, weights)
    losses, sums = native.softmax_gradient_(scores, used, targets, weights, with_sums=True)
    torch.testing.assert_close(losses.double(), wanted_losses, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(scores.double(), wanted, rtol=1e-5, atol=1e-7)
    assert sums is not None
    torch.testing.assert_close(sums.double(), wanted.sum(dim=1), rtol=1e-5, atol=1e-6)


@built
@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("with_sums", [True, False])
def test_softmax_does_not_depend_on_threads_nor_on_sums(threads: int, with_sums: bool) -> None:
    scores, bias, targets, weights = softmax_case(77, rows=4)
    one, other = scores.clone(), scores.clone()
    torch.set_num_threads(1)
    wanted, _ = native.softmax_gradient_(one, bias, targets, weights, with_sums=True)
    torch.set_num_threads(threads)
    found, sums = native.softmax_gradient_(other, bias, targets, weights, with_sums=with_sums)
    assert torch.equal(one, other)
    assert torch.equal(wanted, found)
    assert (sums is not None) == with_sums


@built
def test_exponentials_are_as_exact_as_float32() -> None:
    """Of every size down to the least normal number."""
    scores = torch.linspace(-87.0, 0.0, 200_001)[None, None].contiguous()
    wanted = torch.softmax(scores.double(), dim=2)
    native.softmax_gradient_(scores, None, torch.zeros(1, 1, dtype=torch.int64), torch.ones(1, 1), with_sums=False)
    error = (scores.double() / wanted - 1).abs()[0, 0]
    normal = wanted[0, 0] > 2.0**-125
    normal[0] = False  # the target
    assert float(error[normal].max()) < 6e-7
    assert float(scores[0, 0][~normal][1:].abs().max()) < 2.0**-124


HOSTILE = [
    [math.nan, 0.0, 1.0],
    [0.0, 1.0, math.nan],
    [math.inf, 0.0, 1.0],
    [0.0, math.inf, math.inf],
    [-math.inf, 0.0, 1.0],
    [0.0, 1.0, -math.inf],
    [-math.inf] * 3,
    [3e38, -3e38, 0.0],
    [-3e38, 3e38, 3e38],
    [0.0, 120.0, -120.0],
    [-1e4, 0.0, 1.0],
    [1e30, 1e30, 1e30],
]


@built
@pytest.mark.parametrize("padding", [0, 5, 40])
@pytest.mark.parametrize("values", HOSTILE)
def test_hostile_scores_end_as_in_torch(values: list[float], padding: int) -> None:
    """Losses without overflow, and NaN where torch has NaN: such a row must be counted as not finite."""
    scores = torch.tensor([values + [-1.0] * padding]).repeat(1, 2, 1)
    targets, weights = torch.tensor([[0, 2]]), torch.tensor([[1.0, 0.5]])
    ours, theirs = scores.clone(), scores.clone()
    losses, sums = native.softmax_gradient_(ours, None, targets, weights, with_sums=True)
    wanted = head._replace_in_torch(theirs.flatten(0, 1), None, targets.view(-1, 1), weights.view(-1, 1))
    torch.testing.assert_close(losses, wanted.view(1, 2), rtol=1e-5, atol=1e-5, equal_nan=True)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6, equal_nan=True)
    torch.testing.assert_close(sums, theirs.sum(dim=1), rtol=1e-5, atol=1e-6, equal_nan=True)


@built
@pytest.mark.parametrize("shape", [(0, 5, 9), (3, 0, 9)])
def test_no_positions_at_all(shape: tuple[int, int, int]) -> None:
    none = torch.zeros(shape[:2])
    losses, sums = native.softmax_gradient_(torch.zeros(shape), torch.zeros(9), none.long(), none, with_sums=True)
    assert losses.shape == shape[:2]
    assert sums is not None
    assert torch.equal(sums, torch.zeros(shape[0], 9))


@built
@pytest.mark.parametrize("target", [-1, 9, 1 << 40])
def test_targets_out_of_range_are_refused_and_nothing_is_written(target: int) -> None:
    scores, targets = torch.ones(2, 3, 9), torch.zeros(2, 3, dtype=torch.int64)
    targets[1, 2] = target
    with pytest.raises(GradientError, match="targets"):
        native.softmax_gradient_(scores, None, targets, torch.ones(2, 3), with_sums=False)
    assert torch.equal(scores, torch.ones(2, 3, 9))


# LSTM


def states(rows: int, time: int, size: int) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty(rows, time, size), torch.empty(rows, time, size), torch.empty(rows, time, size)


@built
@pytest.mark.parametrize("size", [1, 3, 8, 9, 200])
@pytest.mark.parametrize(("rows", "time"), [(0, 2), (1, 1), (3, 1), (2, 5), (32, 4)])
def test_steps_forward_and_backward_are_those_of_torch_in_float64(rows: int, time: int, size: int) -> None:
    projections, weight = 3 * torch.randn(rows, time, 4 * size), torch.randn(4 * size, size) * size**-0.5
    gradient = torch.randn(rows, time, size)
    found = (torch.full_like(projections, math.nan), *states(rows, time, size))
    wanted = tuple(value.double() for value in found)
    recurrence._forward_native(projections, weight.t(), *found)
    recurrence._forward_torch(projections.double(), weight.double().t(), *wanted)
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours.double(), theirs, rtol=1e-4, atol=1e-5)
    gates, cells, squashed, _ = found
    ours = recurrence._backward_native(weight, gates, cells, squashed, gradient)
    theirs = recurrence._backward_torch(
        weight.double(), gates.double(), cells.double(), squashed.double(), gradient.double()
    )
    torch.testing.assert_close(ours.double(), theirs, rtol=1e-4, atol=1e-5)


@built
def test_sigmoid_and_tanh_are_as_exact_as_float32() -> None:
    sweep = torch.cat(
        [torch.linspace(-30, 30, 100_001), torch.logspace(-30, 2, 20_001), -torch.logspace(-30, 2, 20_001)]
    )
    gates = sweep.repeat(4)[None, None].contiguous()
    native.lstm_forward_(gates, *states(1, 1, len(sweep)), 0)
    exact = [torch.sigmoid(sweep.double())] * 3 + [torch.tanh(sweep.double())]
    for found, wanted in zip(gates[0, 0].double().chunk(4), exact, strict=True):
        error = (found - wanted).abs()
        assert float(torch.where(wanted.abs() > 1e-35, error / wanted.abs(), error).max()) < 4e-7


@built
def test_extreme_activations_saturate_and_nan_stays() -> None:
    values = torch.tensor([math.inf, -math.inf, 1e38, -1e38, 500.0, -500.0, math.nan, 0.0, -0.0])
    gates = values.repeat(4)[None, None].contiguous()
    native.lstm_forward_(gates, *states(1, 1, len(values)), 0)
    for found, function in zip(gates[0, 0].chunk(4), [torch.sigmoid] * 3 + [torch.tanh], strict=True):
        torch.testing.assert_close(found, function(values), rtol=0, atol=0, equal_nan=True)


@built
def test_lstm_steps_do_not_depend_on_threads() -> None:
    projections = torch.randn(40, 3, 800)
    results = []
    for threads in (1, 3):
        torch.set_num_threads(threads)
        gates = projections.clone()
        kept = states(40, 3, 200)
        for step in range(3):
            native.lstm_forward_(gates, *kept, step)
        results.append(torch.cat([gates, *kept], dim=2))
    assert torch.equal(*results)


# Gram matrices


@built
@pytest.mark.parametrize("time", [1, 2, 3, 8, 17, 64, 65])
def test_gram_sums_are_those_of_whole_matrices(time: int, monkeypatch: pytest.MonkeyPatch) -> None:
    left, right = torch.randn(3, time, 5), torch.randn(3, time, 7)
    right[1, 0] = 0.0
    found = Gram(left).dot(Gram(right))
    whole, other = (torch.bmm(value.double(), value.double().transpose(1, 2)) for value in (left, right))
    lengths = left.double().norm(dim=2) * right.double().norm(dim=2)
    for ours, exact in zip(found, ((whole * other).sum(dim=(1, 2)), lengths.sum(dim=1)), strict=True):
        torch.testing.assert_close(ours.double(), exact, rtol=1e-5, atol=1e-4)
    monkeypatch.setattr(native, "available", False)
    torch.testing.assert_close(found, Gram(left).dot(Gram(right)), rtol=1e-4, atol=1e-3)


def exact_gram(values: Tensor) -> Tensor:
    """The lower triangles in float64."""
    time = values.shape[1]
    whole = torch.bmm(values.double(), values.double().transpose(1, 2))
    return whole[:, *torch.tril_indices(time, time)]


def assert_gram(values: Tensor) -> None:
    """Errors of a few units in the last place of the product of the lengths."""
    lengths, (first, second) = values.double().norm(dim=2), torch.tril_indices(values.shape[1], values.shape[1])
    error = (native.gram(values) - exact_gram(values)).abs()
    assert bool((error <= 2.0**-21 * lengths[:, first] * lengths[:, second]).all())


@built
@given(rows=st.integers(0, 4), time=st.integers(1, 40), width=st.integers(0, 1100), seed=st.integers(0, 99))
@settings(deadline=None)
def test_gram_matrices_are_those_of_float64(rows: int, time: int, width: int, seed: int) -> None:
    assert_gram(torch.randn(rows, time, width, generator=torch.Generator().manual_seed(seed)))


@built
@pytest.mark.parametrize(
    ("time", "width"), [(600, 3), (599, 511), (128, 384), (65, 512), (64, 513), (3, 9000), (1, 8999)]
)
def test_gram_matrices_of_many_steps_and_numbers(time: int, width: int) -> None:
    assert_gram(torch.randn(2, time, width))


@built
def test_gram_matrices_of_one_row_read_no_other_and_none_is_no_matter() -> None:
    room = torch.full((3, 5, 9), math.nan)
    room[1] = torch.randn(5, 9)
    assert bool(native.gram(room)[1].isfinite().all())
    assert native.gram(torch.zeros(2, 0, 7)).shape == (2, 0)


@built
@pytest.mark.parametrize("rows", [1, 2, 7])
def test_gram_matrices_do_not_depend_on_threads(rows: int) -> None:
    values = torch.randn(rows, 70, 1100)
    results = []
    for threads in (1, 2, 5):
        torch.set_num_threads(threads)
        pairs = native.gram(values)
        results.append(torch.cat([pairs, torch.stack(native.gram_dot(pairs, pairs), dim=1)], dim=1))
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


@built
@given(time=st.integers(1, 40), scale=st.sampled_from([1e-6, 1.0, 1e6]), seed=st.integers(0, 99))
@settings(deadline=None)
def test_gram_sums_are_symmetric_and_exact_for_the_matrices_given(time: int, scale: float, seed: int) -> None:
    torch.manual_seed(seed)
    left, right = (native.gram(scale * torch.randn(3, time, 6)) for _ in range(2))
    found = native.gram_dot(left, right)
    for ours, swapped in zip(found, native.gram_dot(right, left), strict=True):
        assert torch.equal(ours, swapped)
    weights = torch.full((time, time), 2.0, dtype=torch.float64).fill_diagonal_(1.0)[*torch.tril_indices(time, time)]
    terms = left.double() * right.double() * weights
    error = (found[0] - terms.sum(dim=1)).abs()
    assert bool((error <= 2.0**-24 * terms.sum(dim=1).abs() + 1e-12 * terms.abs().sum(dim=1)).all())


@built
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e30])
@pytest.mark.parametrize("place", [0, 4, 8])
def test_a_gram_matrix_that_is_not_finite_gives_no_finite_sum_for_its_row_alone(bad: float, place: int) -> None:
    left, right = torch.randn(3, 9, 5), torch.randn(3, 9, 7)
    left[1, place, 2] = bad
    right[1] *= 0.0 if place == 8 else 1.0
    for sums in Gram(left).dot(Gram(right)):
        assert sums.isfinite().tolist() == [True, False, True]


# cipher and noise


@built
@pytest.mark.parametrize(
    ("key", "text", "ciphered"),
    [  # FIPS 197, appendices B and C.1
        ("2b7e151628aed2a6abf7158809cf4f3c", "3243f6a8885a308d313198a2e0370734", "3925841d02dc09fbdc118597196a0b32"),
        ("000102030405060708090a0b0c0d0e0f", "00112233445566778899aabbccddeeff", "69c4e0d86a7b0430d8cdb78070b4c55a"),
    ],
)
def test_the_cipher_gives_the_answers_of_its_standard(key: str, text: str, ciphered: str) -> None:
    assert native.cipher(bytes.fromhex(key), bytes.fromhex(text)).hex() == ciphered


def noise(sizes: list[int], draw: int = 0, key: bytes = KEY, deviation: float = 1.0) -> list[Tensor]:
    blocks = [torch.zeros(size) for size in sizes]
    native.add_normal_(key, draw, blocks, deviation)
    return blocks


def exact_noise(draw: int, block: int, size: int) -> NDArray[np.float64]:
    """The definition in float64, from the cipher alone."""
    numbers = []
    for place in range(0, -(-size // 4), 4):
        counters = [((block << 15) + place + k).to_bytes(8, "little") + draw.to_bytes(8, "little") for k in range(4)]
        words = np.frombuffer(b"".join(native.cipher(KEY, counter) for counter in counters), "<u4").astype(float)
        assert words[:8].min() >= 2**16  # small words have further bits; the tests of NoiseStream see them
        radius = np.sqrt(-2 * np.log((words[:8] + 0.5) / 2**32))
        turn = 2 * np.pi * words[8:] / 2**32
        numbers += [radius * np.cos(turn), radius * np.sin(turn)]
    return np.concatenate(numbers)[:size]


@built
@pytest.mark.parametrize("draw", [0, 1, (1 << 64) - 1])
def test_noise_is_what_its_definition_gives(draw: int) -> None:
    for block, found in enumerate(noise([1, 3000, 17], draw)):
        wanted = exact_noise(draw, block, len(found))
        np.testing.assert_allclose(found.double().numpy(), wanted, rtol=1e-6, atol=1e-14)


@built
@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 15, 16, 17, 255, 256, 257, 1000])
def test_noise_of_few_numbers_is_the_beginning_of_that_of_many_and_nothing_beyond_is_touched(size: int) -> None:
    room = torch.zeros(1100)
    native.add_normal_(KEY, 5, [room[:size]], 1.0)
    assert torch.equal(room[:size], noise([1100], 5)[0][:size])
    assert torch.equal(room[size:], torch.zeros(1100 - size))


@built
def test_noise_does_not_depend_on_threads() -> None:
    results = []
    for threads in (1, 2, 5):
        torch.set_num_threads(threads)
        results.append(torch.cat(noise([131_072, 9, 131_072, 70_000])))
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


@built
def test_no_ciphered_words_come_twice() -> None:
    """Sixteen numbers at a time, over draws, blocks and keys."""
    blocks = [
        block for key in (KEY, KEY[::-1]) for draw in (0, 1, 1 << 40) for block in noise([131_072] * 2, draw, key)
    ]
    groups = torch.cat(blocks).view(-1, 16).numpy()
    assert len({group.tobytes() for group in groups}) == len(groups)
    assert len({group.tobytes() for group in np.concatenate([groups, groups[:1]])}) == len(groups)  # it can fail


def is_normal(numbers: Tensor) -> dict[str, bool]:
    """Tests of independent standard normal numbers, each with the false-alarm rate above."""
    values, count = numbers.double(), len(numbers)
    limit = stats.norm.ppf(1 - FALSE_ALARM / 2)
    low, high = stats.chi2.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], count)
    beyond = stats.binom(count, 2 * stats.norm.sf(4.0))
    squares = (values.square() - 1) / math.sqrt(2)
    lags = [1, 2, 4, 8, 16, 64, 256]
    verdict = {
        "mean": abs(float(values.sum())) / math.sqrt(count) < limit,
        "variance": low < float(values.square().sum()) < high,
        "kurtosis": abs(float((values**4).mean()) - 3) * math.sqrt(count / 96) < limit,
        "tails": beyond.ppf(FALSE_ALARM / 2) <= int((values.abs() > 4).sum()) <= beyond.isf(FALSE_ALARM / 2),
        "distribution": stats.kstest(values.numpy(), "norm").pvalue > FALSE_ALARM,
    }
    for lag in lags:
        for name, series in (("numbers", values), ("squares", squares)):
            product = float((series[lag:] * series[:-lag]).sum()) / math.sqrt(count - lag)
            verdict[f"{name} {lag} apart"] = abs(product) < limit
    return verdict


@built
@pytest.mark.statistical
def test_noise_is_normal_and_independent() -> None:
    """A million numbers of a fresh key, 19 tests with false-alarm rate 1e-6 each."""
    numbers = torch.cat(noise([131_072] * 8, key=os.urandom(16)))
    assert all(is_normal(numbers).values()), is_normal(numbers)


@built
@pytest.mark.statistical
def test_what_is_not_normal_or_not_independent_is_found() -> None:
    """The negative controls: uniform numbers, numbers one in a thousand too wide, pairs that share their radius."""
    numbers = torch.cat(noise([131_072] * 8, key=os.urandom(16)))
    uniform = is_normal((torch.rand(1 << 20) - 0.5) * math.sqrt(12))
    assert not any(uniform[name] for name in ("kurtosis", "tails", "distribution"))
    wide = numbers.clone()
    wide[::1000] *= 3
    assert not is_normal(wide)["tails"]
    shared = numbers.clone()
    shared[8::16] = numbers[::16]
    assert not is_normal(shared)["numbers 8 apart"]


@built
@pytest.mark.statistical
def test_draws_blocks_and_keys_are_uncorrelated() -> None:
    """Six pairs with false-alarm rate 1e-6 each; and the control, a draw with itself."""
    limit = stats.norm.ppf(1 - FALSE_ALARM / 2)
    key = os.urandom(16)
    first, second = noise([131_072] * 2, 0, key)
    (third,), (fourth,) = noise([131_072], 1, key), noise([131_072], 0, os.urandom(16))
    several = [value.double() for value in (first, second, third, fourth)]
    found = torch.stack(several) @ torch.stack(several).t() / math.sqrt(131_072)
    assert float((found - torch.diag(found.diagonal())).abs().max()) < limit
    assert float(found.diagonal().min()) > limit


@built
def test_noise_is_added_in_the_deviation_asked_for() -> None:
    there = torch.full((1000,), 10.0)
    native.add_normal_(KEY, 0, [there], 0.25)
    torch.testing.assert_close(there, 10.0 + 0.25 * noise([1000])[0], rtol=1e-6, atol=0)


# refusals and the way without


@built
def test_tensors_a_kernel_cannot_take_are_refused() -> None:
    good = torch.zeros(4, 6)
    assert native.usable(good, None)
    for bad in (good.double(), good.t(), good.to("meta")):
        assert not native.usable(good, bad)
        with pytest.raises(GradientError, match="contiguous float32"):
            native.add_normal_(KEY, 0, [bad], 1.0)
    for width, hidden in ((8, 3), (9, 2)):
        with pytest.raises(GradientError, match="gates"):
            native.lstm_forward_(torch.zeros(1, 2, width), *states(1, 2, hidden), 0)
    with pytest.raises(GradientError, match="steps"):
        native.lstm_forward_(torch.zeros(1, 2, 8), *states(1, 2, 2), 2)
    for pairs, others in ((torch.zeros(1, 5), torch.zeros(1, 5)), (torch.zeros(1, 6), torch.zeros(1, 3))):
        with pytest.raises(GradientError, match="triangles"):
            native.gram_dot(pairs, others)
    with pytest.raises(GradientError, match="contiguous"):
        native.gram(torch.zeros(2, 3, 4).transpose(1, 2))
    with pytest.raises(GradientError, match="16 bytes"):
        native.add_normal_(b"short", 0, [torch.zeros(3)], 1.0)
    with pytest.raises(GradientError, match="blocks of at most"):
        native.add_normal_(KEY, 0, [torch.zeros(native.BLOCK + 1)], 1.0)


SCRIPT = """
import json, torch
from tacit.models import kernels as native
from tacit.training.gradients.clipped import Flat, clipped_sum
from tacit.training.randomness import NoiseStream
from tacit.models.lstm import LSTM
from tacit.data.batches import TextBatch
from tacit.config.model_schema import LSTMConfig
torch.manual_seed(0)
model = LSTM.new(LSTMConfig(50, 12, 11, 2, dropout=0.0))
result = clipped_sum(model, TextBatch.of_tokens(torch.randint(50, (4, 9))), Flat(0.5))
numbers = torch.zeros(200_000)
NoiseStream(b'1', 0).add_([numbers], 2.0)
found = {
    "available": native.available,
    "sums": torch.cat([value.flatten() for value in result.sums.values()]).tolist(),
    "norms": result.norms.tolist(),
    "losses": result.losses.tolist(),
    "noise": numbers[:1000].tolist(),
}
"""


def switched_off() -> dict[str, Any]:
    """What the script finds in a process of its own, without kernels."""
    command = [sys.executable, "-c", f"{SCRIPT}\nprint(json.dumps(found))"]
    environment = {**os.environ, native.SWITCH: "0"}
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=120)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_switch_leaves_the_kernels_out_and_the_step_is_the_same() -> None:
    """Without kernels all is computed by torch; with them, where they were built, to the same numbers."""
    scope: dict[str, Any] = {}
    exec(SCRIPT, scope)
    without, here = switched_off(), scope["found"]
    assert without["available"] is False
    for name in ("sums", "norms", "losses"):
        np.testing.assert_allclose(without[name], here[name], rtol=1e-3, atol=1e-5, err_msg=name)
    np.testing.assert_allclose(without["noise"], here["noise"], rtol=1e-6)


def test_a_kernel_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "_library", None)
    with pytest.raises(GradientError, match="built"):
        native.cipher(KEY, KEY)
