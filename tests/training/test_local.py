"""Users' whole updates against a copy of the model that is trained in the open; sensitivity; that no trace stays."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from oracles import EXACT, ROUNDED, assert_near, clip_factors, in_float64, length_of
from tacit.config.model_schema import CausalLMConfig, LocalConfig, LoRAConfig, LSTMConfig
from tacit.data.batches import TextBatch
from tacit.errors import ClaimRefused, ConfigError
from tacit.models.causal_lm import CausalLM
from tacit.models.language_model import Learner
from tacit.models.lstm import LSTM
from tacit.training.gradients.clipped import Automatic, Clipping, Flat, PerParameter, clipped_sum
from tacit.training.local import LocalSum, LocalUnit, local_sum

VOCABULARY = 19
ALONE = (0,)
STYLES: tuple[Clipping, ...] = (Flat(0.3), Automatic(0.3), PerParameter(0.3))
SETTINGS = (
    LocalConfig(epochs=1, batch_size=100, learning_rate=1.0),
    LocalConfig(epochs=1, batch_size=2, learning_rate=0.5),
    LocalConfig(epochs=3, batch_size=3, learning_rate=0.2),
)
Unit = LocalUnit[TextBatch]


def lstm(tied: bool = False) -> Learner:
    return LSTM.new(LSTMConfig(VOCABULARY, 8, 8, 2, dropout=0.0, tied=tied))


def gpt(lora: LoRAConfig | None = None) -> Learner:
    return CausalLM.new(CausalLMConfig(VOCABULARY, 8, 1, 2, 32, dropout=0.0), lora)


MODELS: dict[str, Callable[[], Learner]] = {
    "lstm": lstm,
    "lstm, tied": lambda: lstm(tied=True),
    "gpt": gpt,
    "gpt with lora": lambda: gpt(LoRAConfig(rank=2)),
}


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(5)


def some_units() -> list[Unit]:
    """Users of five, one, three and no rows, of mixed lengths; one row has no target that counts."""
    words = np.random.Generator(np.random.PCG64DXSM(1))
    rows = [words.integers(0, VOCABULARY, length).tolist() for length in (9, 4, 12, 2, 7, 5, 11, 3, 6)]
    counts = [[1.0] * (len(row) - 1) for row in rows]
    counts[2][4:] = [0.0] * (len(counts[2]) - 4)
    counts[7] = [0.0, 0.0]
    parts = [slice(0, 5), slice(5, 6), slice(6, 9), slice(0, 0)]
    weights = (1.0, 0.2, 0.6, 1.0)
    return [
        LocalUnit(TextBatch.of_rows(rows[part], counts[part]), weight, (part.start, 7))
        for part, weight in zip(parts, weights, strict=True)
    ]


def trained_in_the_open(
    learner: Learner, batch: TextBatch, settings: LocalConfig, seed: tuple[int, ...] = ALONE
) -> dict[str, Tensor]:
    """theta - theta_local, in double precision: a copy of the model, torch's SGD on the mean loss, a subtraction."""
    copied, generator = in_float64(learner), np.random.Generator(np.random.PCG64DXSM(seed))
    moving = {name: p for name, p in copied.module.named_parameters() if p.requires_grad}
    start = {name: p.detach().clone() for name, p in moving.items()}
    optimizer = torch.optim.SGD(moving.values(), lr=settings.learning_rate)
    for _ in range(settings.epochs):
        order = generator.permutation(len(batch))
        for first in range(0, len(order), settings.batch_size):
            index = torch.from_numpy(order[first : first + settings.batch_size])
            optimizer.zero_grad()
            losses = torch.nn.functional.cross_entropy(
                copied.logits(batch.tokens[index][:, :-1]).transpose(1, 2), batch.tokens[index][:, 1:], reduction="none"
            )
            weights = batch.weights[index].double()
            if weights.sum() > 0:
                ((losses * weights).sum() / weights.sum()).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
    return {name: start[name] - p.detach() for name, p in moving.items()}


def slow_sum(learner: Learner, units: list[Unit], clipping: Clipping, chosen: LocalConfig) -> dict[str, Tensor]:
    total: dict[str, Tensor] = {}
    for unit in units:
        update = trained_in_the_open(learner, unit.batch, chosen, unit.seed)
        factors = clip_factors(clipping, [float(value.norm()) for value in update.values()])
        for (name, value), factor in zip(update.items(), factors, strict=True):
            total[name] = value * factor * unit.weight + total.get(name, 0.0)
    return total


def bits(learner: Learner) -> dict[str, bytes]:
    return {name: p.detach().contiguous().numpy().tobytes() for name, p in learner.module.named_parameters()}


def alone_as(learner: Learner, unit: Unit) -> dict[str, Tensor]:
    return local_sum(learner, [unit], Flat(0.3), SETTINGS[1]).sums


def alone(learner: Learner, batch: TextBatch, clipping: Clipping, chosen: LocalConfig, weight: float = 1.0) -> LocalSum:
    return local_sum(learner, [LocalUnit(batch, weight, ALONE)], clipping, chosen)


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
@example([[0, 1, 2, 3]], PerParameter(0.3), 3.0, 1, 1, 1.2e-38, 1.0)  # products beyond the normal numbers
@example([[0, 1, 2, 3]], Flat(0.3), 3.0, 1, 1, 1.5e-40, 30.0)
@example([[0, 1, 2, 3]], Flat(0.3), 0.0, 1, 1, 1e-44, 30.0)
def test_g1_no_unit_adds_more_than_the_clip_norm_times_its_weight(
    rows: list[list[int]], style: Clipping, magnitude: float, epochs: int, size: int, weight: float, scale: float
) -> None:
    """Any rows, any parameters, learning rates from a millionth to 1e12, weights down to the smallest number."""
    learner = lstm()
    with torch.no_grad():
        for parameter in learner.module.parameters():
            parameter.mul_(scale)
    found = alone(learner, TextBatch.of_rows(rows), style, LocalConfig(epochs, size, 10.0**magnitude), weight)
    assert length_of(found.sums) <= style.clip_norm * weight
    assert found.sensitivity == style.clip_norm


@pytest.mark.parametrize("style", STYLES, ids=lambda style: type(style).__name__)
@pytest.mark.parametrize("name", MODELS)
def test_g1_the_last_unit_moves_the_sum_by_at_most_the_sensitivity(name: str, style: Clipping) -> None:
    """With a large learning rate; and by nearly as much, so that the bound could be broken."""
    learner, units = MODELS[name](), some_units()[:3]
    chosen = LocalConfig(epochs=2, batch_size=2, learning_rate=3.0)
    whole, rest = (local_sum(learner, part, style, chosen) for part in (units, units[:-1]))
    moved = length_of({name: whole.sums[name] - rest.sums[name] for name in whole.sums})
    assert whole.non_finite == 0
    assert 0.1 * style.clip_norm * units[-1].weight < moved <= style.clip_norm * units[-1].weight
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

    local_sum(learner, watched(), Flat(1.0), LocalConfig(2, 2, rate))
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
        alone(learner, some_units()[0].batch, Flat(1.0), SETTINGS[1])
    handle.remove()
    assert moved == [False, True, True]
    assert bits(learner) == before


# --- G3: weights ---


@pytest.mark.parametrize("style", STYLES, ids=lambda style: type(style).__name__)
def test_g3_weights_multiply_what_was_clipped(style: Clipping) -> None:
    learner, batch = lstm(), some_units()[0].batch
    whole = alone(learner, batch, style, SETTINGS[2])
    for weight in (0.0, 0.25, 1.0):
        part = alone(learner, batch, style, SETTINGS[2], weight)
        torch.testing.assert_close(part.sums, {name: value * weight for name, value in whole.sums.items()})
        assert torch.equal(part.norms, whole.norms)


@pytest.mark.parametrize("weight", [1 + 1e-9, 2.0, -0.1, math.nan, math.inf])
def test_g3_other_weights_are_refused_and_nothing_has_moved(weight: float) -> None:
    learner, units = lstm(), some_units()
    before = bits(learner)
    with pytest.raises(ClaimRefused, match="between 0 and 1"):
        local_sum(learner, (replace(unit, weight=weight) for unit in units), Flat(1.0), SETTINGS[2])
    assert bits(learner) == before


# --- G4: finite ---


@pytest.mark.parametrize("style", STYLES, ids=lambda style: type(style).__name__)
@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_g4_units_that_are_not_finite_add_zero_and_are_counted(poison: float, style: Clipping) -> None:
    learner, units = lstm(), some_units()
    bad = units[2].batch.weights.clone()
    bad[0, 0] = poison
    spoiled = [units[0], replace(units[2], batch=TextBatch(units[2].batch.tokens, bad)), units[1]]
    whole = LocalConfig(epochs=1, batch_size=100, learning_rate=1.0)  # no shuffle decides anything
    found = local_sum(learner, spoiled, style, whole)
    rest = local_sum(learner, [units[0], units[1]], style, whole)
    assert found.non_finite == 1
    assert [bool(norm.isfinite()) for norm in found.norms] == [True, False, True]
    assert_near(found.sums, rest.sums, ROUNDED)


def test_g4_a_learning_rate_beyond_all_numbers() -> None:
    found = local_sum(lstm(), some_units(), Flat(1.0), LocalConfig(3, 1, 1e38))
    assert found.non_finite == 3  # the fourth unit has no rows
    assert length_of(found.sums) == 0.0


# --- G5: exact ---


@pytest.mark.parametrize("chosen", SETTINGS, ids=["one step", "a pass", "three passes"])
@pytest.mark.parametrize("style", STYLES, ids=lambda style: type(style).__name__)
@pytest.mark.parametrize("name", MODELS)
def test_g5_sum_equals_copies_trained_in_the_open(name: str, style: Clipping, chosen: LocalConfig) -> None:
    learner, units = MODELS[name](), some_units()
    wanted = slow_sum(learner, units, style, chosen)
    for twin, tolerance in ((in_float64(learner), EXACT), (learner, ROUNDED)):
        found = local_sum(twin, units, style, chosen)
        assert_near(found.sums, wanted, tolerance)
        assert {value.dtype for value in found.sums.values()} == {value.dtype for value in twin.module.parameters()}
        assert not any(value.requires_grad for value in found.sums.values())
        assert found.norms.shape == (4,)
        assert found.non_finite == 0


def test_g5_norms_are_the_lengths_before_clipping() -> None:
    learner, units = gpt(), some_units()
    wanted = [length_of(trained_in_the_open(learner, unit.batch, SETTINGS[2], unit.seed)) for unit in units]
    found = local_sum(learner, units, Flat(1e-3), SETTINGS[2])
    assert found.norms.tolist() == pytest.approx(wanted, rel=1e-4)


@pytest.mark.parametrize("style", STYLES, ids=lambda style: type(style).__name__)
def test_g5_one_step_on_one_row_is_the_clipped_gradient(style: Clipping) -> None:
    """Two roads to one number: the row's mean loss as loss weights, and the fast path for records."""
    learner, batch = in_float64(lstm()), TextBatch.of_tokens(torch.randint(VOCABULARY, (1, 9)))
    found = alone(learner, batch, style, LocalConfig(epochs=1, batch_size=1, learning_rate=1.0))
    mean = TextBatch(batch.tokens, batch.weights / batch.weights.sum())  # eighths, which have no rounding
    fast = clipped_sum(learner, mean, style)
    assert_near(found.sums, fast.sums, EXACT)
    assert float(found.norms[0]) == pytest.approx(float(fast.norms[0]), rel=EXACT)


@pytest.mark.parametrize("positions", [1, 8, 1000])
def test_g5_micro_batches_change_nothing(positions: int) -> None:
    learner, units = in_float64(gpt()), some_units()
    whole = local_sum(learner, units, Flat(0.3), SETTINGS[2])
    parts = local_sum(learner, units, Flat(0.3), SETTINGS[2], positions=positions)
    assert_near(parts.sums, whole.sums, EXACT)


def test_g5_autocast_changes_nothing() -> None:
    """Catches local steps in bfloat16, and stale copies of parameters, which autocast keeps, before and after."""
    learner, batch = gpt(), some_units()[0].batch
    many = LocalConfig(12, 100, 0.5)
    wanted = alone(learner, batch, Flat(1e6), many).sums
    with torch.autocast("cpu", torch.bfloat16):
        before = learner.logits(batch.inputs)  # fills the cache
        found = alone(learner, batch, Flat(1e6), many).sums
        assert torch.equal(learner.logits(batch.inputs), before)
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)


@pytest.mark.parametrize("first", [True, False])
def test_g5_other_units_change_nothing(first: bool) -> None:
    """Catches shuffles that come from one stream: a unit more would reorder the rows of all after it."""
    learner, units = in_float64(lstm()), some_units()[:3]
    one = units[0] if first else units[-1]
    whole, rest = (
        local_sum(learner, part, Flat(0.3), SETTINGS[1]).sums for part in (units, [u for u in units if u is not one])
    )
    own = alone_as(learner, one)
    assert_near({name: whole[name] - rest[name] for name in whole}, own, EXACT)


def test_only_the_named_parameters_move_and_are_clipped() -> None:
    learner, units = in_float64(lstm()), some_units()
    chosen = ["head.weight", "head.bias"]
    found = local_sum(learner, units, Flat(0.3), SETTINGS[2], parameters=chosen)
    for name, parameter in learner.module.named_parameters():
        parameter.requires_grad_(name in chosen)
    assert_near(found.sums, slow_sum(learner, units, Flat(0.3), SETTINGS[2]), EXACT)


def test_no_units_give_a_zero_sum_of_every_parameter() -> None:
    for batches in ([], [TextBatch.of_rows([])], [TextBatch.of_rows([[1], [2, 3]], [[], [0.0]])]):
        units = [LocalUnit(batch, 1.0, ALONE) for batch in batches]
        found = local_sum(lstm(), units, Automatic(1.0), SETTINGS[2])
        assert length_of(found.sums) == 0.0
        assert found.sums.keys() == dict(lstm().module.named_parameters()).keys()
        assert found.norms.tolist() == [0.0] * len(units)
        assert (found.sensitivity, found.non_finite) == (1.0, 0)


def test_shuffles_come_from_the_units_seed() -> None:
    learner, unit = lstm(), some_units()[0]
    first, same, other = (alone_as(learner, replace(unit, seed=seed))["head.bias"] for seed in ((0,), (0,), (1,)))
    assert torch.equal(first, same)
    assert not torch.equal(first, other)


def test_the_models_mode_is_left_to_the_caller() -> None:
    learner = lstm()
    for training in (True, False):
        learner.module.train(training)
        local_sum(learner, some_units(), Flat(1.0), SETTINGS[0])
        assert learner.module.training is training


@pytest.mark.parametrize(
    ("epochs", "size", "rate"),
    [(0, 1, 1.0), (1, 0, 1.0), (1, 1, 0.0), (1, 1, -1.0), (1, 1, math.nan), (1, 1, math.inf)],
)
def test_settings_without_a_meaning_are_refused(epochs: int, size: int, rate: float) -> None:
    with pytest.raises(ConfigError):
        LocalConfig(epochs, size, rate)
