"""Users' whole updates against a copy of the model that is trained in the open; sensitivity; that no trace stays."""

import copy
import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tacit.errors import ClaimRefused, ConfigError
from tacit.gradients import Automatic, Clipping, Flat, PerParameter, clipped_sum
from tacit.local import LocalSettings, LocalSum, local_sum
from tacit.models import GPT, LSTM, Batch, GPTSettings, Learner, LoRASettings, LSTMSettings

VOCABULARY = 19
STYLES: tuple[Clipping, ...] = (Flat(0.3), Automatic(0.3), PerParameter(0.3))
SETTINGS = (
    LocalSettings(epochs=1, batch_size=100, learning_rate=1.0),
    LocalSettings(epochs=1, batch_size=2, learning_rate=0.5),
    LocalSettings(epochs=3, batch_size=3, learning_rate=0.2),
)
Unit = tuple[Batch, float]


def lstm(tied: bool = False) -> Learner:
    return LSTM.new(LSTMSettings(VOCABULARY, 8, 8, 2, dropout=0.0, tied=tied))


def gpt(lora: LoRASettings | None = None) -> Learner:
    return GPT.new(GPTSettings(VOCABULARY, 8, 1, 2, 32, dropout=0.0), lora)


MODELS: dict[str, Callable[[], Learner]] = {
    "lstm": lstm,
    "lstm, tied": lambda: lstm(tied=True),
    "gpt": gpt,
    "gpt with lora": lambda: gpt(LoRASettings(rank=2)),
}


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(5)


def chance(seed: int = 0) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64DXSM(seed))


def some_units() -> list[Unit]:
    """Users of five, one, three and no rows, of mixed lengths; one row has no target that counts."""
    words = chance(1)
    rows = [words.integers(0, VOCABULARY, length).tolist() for length in (9, 4, 12, 2, 7, 5, 11, 3, 6)]
    counts = [[1.0] * (len(row) - 1) for row in rows]
    counts[2][4:] = [0.0] * (len(counts[2]) - 4)
    counts[7] = [0.0, 0.0]
    parts = [slice(0, 5), slice(5, 6), slice(6, 9), slice(0, 0)]
    return [(Batch.of_rows(rows[p], counts[p]), w) for p, w in zip(parts, (1.0, 0.2, 0.6, 1.0), strict=True)]


def trained_in_the_open(
    learner: Learner, batch: Batch, settings: LocalSettings, generator: np.random.Generator
) -> dict[str, Tensor]:
    """theta - theta_local, in double precision: a copy of the model, torch's SGD on the mean loss, a subtraction."""
    copied = copy.deepcopy(learner)
    copied.module.double()
    moving = {name: p for name, p in copied.module.named_parameters() if p.requires_grad}
    start = {name: p.detach().clone() for name, p in moving.items()}
    optimiser = torch.optim.SGD(moving.values(), lr=settings.learning_rate)
    for _ in range(settings.epochs):
        order = generator.permutation(len(batch))
        for first in range(0, len(order), settings.batch_size):
            index = torch.from_numpy(order[first : first + settings.batch_size])
            optimiser.zero_grad()
            losses = torch.nn.functional.cross_entropy(
                copied.logits(batch.tokens[index][:, :-1]).transpose(1, 2), batch.tokens[index][:, 1:], reduction="none"
            )
            weights = batch.weights[index].double()
            if weights.sum() > 0:
                ((losses * weights).sum() / weights.sum()).backward()  # type: ignore[no-untyped-call]
                optimiser.step()
    return {name: start[name] - p.detach() for name, p in moving.items()}


def clipped_by_hand(update: dict[str, Tensor], clipping: Clipping) -> dict[str, Tensor]:
    length = math.sqrt(sum(float(value.square().sum()) for value in update.values()))
    if isinstance(clipping, PerParameter):
        most = clipping.clip_norm / math.sqrt(len(update))
        return {name: value * min(1.0, most / max(float(value.norm()), 1e-300)) for name, value in update.items()}
    if isinstance(clipping, Automatic):
        return {name: value * clipping.clip_norm / (length + clipping.stability) for name, value in update.items()}
    return {name: value * min(1.0, clipping.clip_norm / max(length, 1e-300)) for name, value in update.items()}


def slow_sum(learner: Learner, units: list[Unit], clipping: Clipping, chosen: LocalSettings) -> dict[str, Tensor]:
    generator = chance()
    total: dict[str, Tensor] = {}
    for batch, weight in units:
        update = clipped_by_hand(trained_in_the_open(learner, batch, chosen, generator), clipping)
        total = {name: value * weight + total.get(name, 0.0) for name, value in update.items()}
    return total


def length_of(values: dict[str, Tensor]) -> float:
    return math.sqrt(sum(float(value.double().square().sum()) for value in values.values()))


def assert_equal(found: dict[str, Tensor], wanted: dict[str, Tensor], tolerance: float = 2e-5) -> None:
    assert list(found) == list(wanted)
    for value in found.values():
        assert value.dtype == torch.float32
        assert not value.requires_grad
    apart = length_of({name: found[name].double() - wanted[name].double() for name in wanted})
    assert apart <= tolerance * length_of(wanted)


def bits(learner: Learner) -> dict[str, bytes]:
    return {name: p.detach().contiguous().numpy().tobytes() for name, p in learner.module.named_parameters()}


def alone(learner: Learner, batch: Batch, clipping: Clipping, chosen: LocalSettings, weight: float = 1.0) -> LocalSum:
    return local_sum(learner, [(batch, weight)], clipping, chosen, chance())


# --- G1: sensitivity ---


@settings(max_examples=40)
@given(
    st.lists(st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=8), min_size=1, max_size=5),
    st.sampled_from(STYLES),
    st.floats(-6, 12),
    st.integers(1, 3),
    st.integers(1, 3),
    st.floats(0, 1),
    st.sampled_from([1.0, 30.0]),
)
def test_g1_no_unit_adds_more_than_the_clip_norm_times_its_weight(
    rows: list[list[int]], style: Clipping, magnitude: float, epochs: int, size: int, weight: float, scale: float
) -> None:
    """Any rows, any parameters, learning rates from a millionth to 1e12."""
    learner = lstm()
    with torch.no_grad():
        for parameter in learner.module.parameters():
            parameter.mul_(scale)
    found = alone(learner, Batch.of_rows(rows), style, LocalSettings(epochs, size, 10.0**magnitude), weight)
    assert length_of(found.sums) <= style.clip_norm * weight * (1 + 1e-5)
    assert found.sensitivity == style.clip_norm


@pytest.mark.parametrize("style", STYLES, ids=lambda style: type(style).__name__)
@pytest.mark.parametrize("name", MODELS)
def test_g1_the_last_unit_moves_the_sum_by_at_most_the_sensitivity(name: str, style: Clipping) -> None:
    """With a large learning rate; and by nearly as much, so that the bound could be broken."""
    learner, units = MODELS[name](), some_units()[:3]
    chosen = LocalSettings(epochs=2, batch_size=2, learning_rate=3.0)
    whole, rest = (local_sum(learner, part, style, chosen, chance()) for part in (units, units[:-1]))
    moved = length_of({name: whole.sums[name] - rest.sums[name] for name in whole.sums})
    assert whole.non_finite == 0
    assert 0.1 * style.clip_norm * units[-1][1] < moved <= style.clip_norm * units[-1][1] * (1 + 1e-5)
    assert whole.sensitivity == rest.sensitivity == style.clip_norm


# --- G2: restored ---


@pytest.mark.parametrize("rate", [0.3, 1e30])
@pytest.mark.parametrize("name", MODELS)
def test_g2_parameters_are_restored_bit_for_bit(name: str, rate: float) -> None:
    learner = MODELS[name]()
    with torch.no_grad():
        next(learner.module.parameters()).view(-1)[:2] = torch.tensor([-0.0, 1e-42])  # bits that arithmetic would lose
    before, flags = bits(learner), [p.requires_grad for p in learner.module.parameters()]
    seen = []

    def watched() -> Iterator[Unit]:
        for unit in some_units():
            seen.append(bits(learner) == before)
            yield unit

    local_sum(learner, watched(), Flat(1.0), LocalSettings(2, 2, rate), chance())
    assert seen == [True] * 4
    assert bits(learner) == before
    assert [p.requires_grad for p in learner.module.parameters()] == flags
    assert all(p.grad is None for p in learner.module.parameters())


def test_g2_parameters_are_restored_after_an_error() -> None:
    """The third pass through the model fails, when parameters have moved; and they had, as the hook saw."""
    learner = lstm()
    before, moved = bits(learner), []

    def fail(*_: object) -> None:
        moved.append(bits(learner) != before)
        if len(moved) == 3:
            raise RuntimeError("no more")

    handle = learner.module.get_submodule("layers.0").register_forward_pre_hook(fail)
    with pytest.raises(RuntimeError, match="no more"):
        alone(learner, some_units()[0][0], Flat(1.0), SETTINGS[1])
    handle.remove()
    assert moved == [False, True, True]
    assert bits(learner) == before


# --- G3: weights ---


@pytest.mark.parametrize("style", STYLES, ids=lambda style: type(style).__name__)
def test_g3_weights_multiply_what_was_clipped(style: Clipping) -> None:
    learner, batch = lstm(), some_units()[0][0]
    whole = alone(learner, batch, style, SETTINGS[2])
    for weight in (0.0, 0.25, 1.0):
        part = alone(learner, batch, style, SETTINGS[2], weight)
        assert_equal(part.sums, {name: value * weight for name, value in whole.sums.items()})
        assert torch.equal(part.norms, whole.norms)


@pytest.mark.parametrize("weight", [1 + 1e-9, 2.0, -0.1, math.nan, math.inf])
def test_g3_other_weights_are_refused_and_nothing_has_moved(weight: float) -> None:
    learner, units = lstm(), some_units()
    before = bits(learner)
    with pytest.raises(ClaimRefused, match="between 0 and 1"):
        local_sum(learner, [units[0], (units[1][0], weight)], Flat(1.0), SETTINGS[2], chance())
    assert bits(learner) == before


# --- G4: finite ---


@pytest.mark.parametrize("style", STYLES, ids=lambda style: type(style).__name__)
@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_g4_units_that_are_not_finite_add_zero_and_are_counted(poison: float, style: Clipping) -> None:
    learner, units = lstm(), some_units()
    bad = units[2][0].weights.clone()
    bad[0, 0] = poison
    spoiled = [units[0], (Batch(units[2][0].tokens, bad), 1.0), units[1]]
    whole = LocalSettings(epochs=1, batch_size=100, learning_rate=1.0)  # no shuffle decides anything
    found = local_sum(learner, spoiled, style, whole, chance())
    rest = local_sum(learner, [units[0], units[1]], style, whole, chance())
    assert found.non_finite == 1
    assert [bool(norm.isfinite()) for norm in found.norms] == [True, False, True]
    assert_equal(found.sums, rest.sums)


def test_g4_a_learning_rate_beyond_all_numbers() -> None:
    found = local_sum(lstm(), some_units(), Flat(1.0), LocalSettings(3, 1, 1e38), chance())
    assert found.non_finite == 3  # the fourth unit has no rows
    assert length_of(found.sums) == 0.0


# --- G5: exact ---


@pytest.mark.parametrize("chosen", SETTINGS, ids=["one step", "a pass", "three passes"])
@pytest.mark.parametrize("style", STYLES, ids=lambda style: type(style).__name__)
@pytest.mark.parametrize("name", MODELS)
def test_g5_sum_equals_copies_trained_in_the_open(name: str, style: Clipping, chosen: LocalSettings) -> None:
    learner, units = MODELS[name](), some_units()
    found = local_sum(learner, units, style, chosen, chance())
    assert_equal(found.sums, slow_sum(learner, units, style, chosen))
    assert found.norms.shape == (4,)
    assert found.non_finite == 0


def test_g5_norms_are_the_lengths_before_clipping() -> None:
    learner, units, generator = gpt(), some_units(), chance()
    wanted = [length_of(trained_in_the_open(learner, batch, SETTINGS[2], generator)) for batch, _ in units]
    found = local_sum(learner, units, Flat(1e-3), SETTINGS[2], chance())
    assert found.norms.tolist() == pytest.approx(wanted, rel=1e-4)


@pytest.mark.parametrize("style", STYLES, ids=lambda style: type(style).__name__)
def test_g5_one_step_on_one_row_is_the_clipped_gradient(style: Clipping) -> None:
    """Two roads to one number: the row's mean loss as loss weights, and the fast path for records."""
    learner, batch = lstm(), Batch.of_tokens(torch.randint(VOCABULARY, (1, 9)))
    found = alone(learner, batch, style, LocalSettings(epochs=1, batch_size=1, learning_rate=1.0))
    mean = Batch(batch.tokens, batch.weights / batch.weights.sum())
    fast = clipped_sum(learner, mean, style)
    assert_equal(found.sums, fast.sums)
    assert float(found.norms[0]) == pytest.approx(float(fast.norms[0]), rel=1e-5)


@pytest.mark.parametrize("positions", [1, 8, 1000])
def test_g5_micro_batches_change_nothing(positions: int) -> None:
    learner, units = gpt(), some_units()
    whole = local_sum(learner, units, Flat(0.3), SETTINGS[2], chance())
    parts = local_sum(learner, units, Flat(0.3), SETTINGS[2], chance(), positions=positions)
    assert_equal(parts.sums, whole.sums)


def test_g5_under_autocast_local_steps_see_the_parameters_move() -> None:
    """Autocast keeps low-precision copies: with stale ones, many steps of one batch are one step many times over."""
    learner, batch = gpt(), some_units()[0][0]
    many, one = LocalSettings(12, 100, 0.5), LocalSettings(1, 100, 0.5)
    wanted = trained_in_the_open(learner, batch, many, chance())
    stale = {name: 12 * value for name, value in trained_in_the_open(learner, batch, one, chance()).items()}
    with torch.autocast("cpu", torch.bfloat16):
        learner.logits(batch.inputs)  # fills the cache
        found = alone(learner, batch, Flat(1e6), many).sums
        after = alone(learner, batch, Flat(1e6), one).sums
    with torch.autocast("cpu", torch.bfloat16):
        afresh = alone(learner, batch, Flat(1e6), one).sums
    assert_equal(found, wanted, tolerance=0.1)
    assert length_of({name: wanted[name] - stale[name] for name in wanted}) > length_of(wanted)
    assert all(torch.equal(after[name], afresh[name]) for name in after)


def test_only_the_named_parameters_move_and_are_clipped() -> None:
    learner, units = lstm(), some_units()
    chosen = ["head.weight", "head.bias"]
    found = local_sum(learner, units, Flat(0.3), SETTINGS[2], chance(), parameters=chosen)
    for name, parameter in learner.module.named_parameters():
        parameter.requires_grad_(name in chosen)
    assert_equal(found.sums, slow_sum(learner, units, Flat(0.3), SETTINGS[2]))


def test_no_units_give_a_zero_sum_of_every_parameter() -> None:
    for units in ([], [(Batch.of_rows([]), 1.0)], [(Batch.of_rows([[1], [2, 3]], [[], [0.0]]), 1.0)]):
        found = local_sum(lstm(), units, Automatic(1.0), SETTINGS[2], chance())
        assert length_of(found.sums) == 0.0
        assert found.sums.keys() == dict(lstm().module.named_parameters()).keys()
        assert found.norms.tolist() == [0.0] * len(units)
        assert (found.sensitivity, found.non_finite) == (1.0, 0)


def test_shuffles_come_from_the_generator() -> None:
    learner, units = lstm(), some_units()
    first, same, other = (
        local_sum(learner, units, Flat(0.3), SETTINGS[1], chance(seed)).sums["head.bias"] for seed in (0, 0, 1)
    )
    assert torch.equal(first, same)
    assert not torch.equal(first, other)


def test_the_models_mode_is_left_to_the_caller() -> None:
    learner = lstm()
    for training in (True, False):
        learner.module.train(training)
        local_sum(learner, some_units(), Flat(1.0), SETTINGS[0], chance())
        assert learner.module.training is training


@pytest.mark.parametrize(
    ("epochs", "size", "rate"),
    [(0, 1, 1.0), (1, 0, 1.0), (1, 1, 0.0), (1, 1, -1.0), (1, 1, math.nan), (1, 1, math.inf)],
)
def test_settings_without_a_meaning_are_refused(epochs: int, size: int, rate: float) -> None:
    with pytest.raises(ConfigError):
        LocalSettings(epochs, size, rate)
