"""Whatever the method, clipped sums keep every guarantee; and the check chooses a method, or refuses by name."""

import math
from collections.abc import Iterator

import numpy as np
import pytest
import test_gradients_clipped as language
import torch
from torch import Tensor, nn

from oracles import (
    EXACT,
    LONGER,
    ROUNDED,
    assert_clipped_sums_are_exact,
    assert_near,
    in_float64,
    length_of,
    loop_over_rows,
)
from tacit.config.model_schema import LoRAConfig, LSTMConfig
from tacit.data.batches import TextBatch
from tacit.errors import GradientError
from tacit.models.language_model import Learner
from tacit.models.lstm import LSTM
from tacit.training.gradients.check import check_gradients
from tacit.training.gradients.clipped import Clipping, Flat, Method, clipped_sum, plain_sum
from tacit.training.updates import DrawnRows

VOCABULARY = language.VOCABULARY
MODELS = {
    name: language.MODELS[name] for name in ("used twice and tied", "lstm", "gpt", "gpt with lora", "llama, tied")
}
every_method = pytest.mark.parametrize("method", ["layers", "rows"])
every_model = pytest.mark.parametrize("name", MODELS)


@pytest.fixture(autouse=True)
def _seeded_and_on_one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(7)
    yield
    torch.set_num_threads(threads)


def made(name: str) -> Learner:
    return language.awakened(MODELS[name]())


@pytest.mark.parametrize("style", language.STYLES, ids=lambda style: type(style).__name__)
@every_model
@every_method
def test_sum_equals_a_loop_over_rows(name: str, style: Clipping, method: Method) -> None:
    found, norms = assert_clipped_sums_are_exact(made(name), language.mixed_batch(), style, method=method)
    assert min(norms) < style.clip_norm < max(norms)
    assert found.sensitivity == style.clip_norm


@every_model
@every_method
def test_micro_batches_and_rows_that_are_read_later_change_nothing(name: str, method: Method) -> None:
    model, batch = in_float64(made(name)), language.mixed_batch()
    whole = clipped_sum(model, batch, Flat(0.6), method=method)
    here = torch.device("cpu")
    later = DrawnRows(np.arange(len(batch)), lambda rows: batch.rows(torch.from_numpy(rows)), here)
    for parts in (batch, later):
        found = clipped_sum(model, parts, Flat(0.6), positions=15, method=method)
        assert_near(found.sums, whole.sums, EXACT)
        torch.testing.assert_close(found.norms, whole.norms, rtol=EXACT, atol=EXACT)
        torch.testing.assert_close(found.losses, whole.losses, rtol=EXACT, atol=EXACT)
        assert found.targets == whole.targets


@pytest.mark.parametrize("method", ["fused", "layers"])
def test_parameters_that_are_other_objects_during_a_pass_are_known_by_their_place(method: Method) -> None:
    """As FSDP does it: each layer gets another object in place of its weight before it computes."""
    model, batch = made("gpt with lora"), language.mixed_batch()
    expected = clipped_sum(model, batch, Flat(0.6), method=method)

    def swap(layer: nn.Module, _: object) -> None:
        for local, value in list(layer.named_parameters(recurse=False)):
            setattr(layer, local, nn.Parameter(value.detach().clone(), value.requires_grad))

    adapters = [layer for path, layer in model.module.named_modules() if path.endswith(".default")]
    handles = [layer.register_forward_pre_hook(swap) for layer in adapters]
    before = {id(value) for value in model.module.parameters()}
    found = clipped_sum(model, batch, Flat(0.6), method=method)
    for handle in handles:
        handle.remove()
    assert not before & {id(value) for value in model.module.parameters() if value.requires_grad}
    assert found.sums.keys() == expected.sums.keys()
    assert all(torch.equal(found.sums[name], value) for name, value in expected.sums.items())


@every_method
def test_an_empty_batch_gives_a_zero_sum_of_every_parameter(method: Method) -> None:
    model = made("gpt")
    found = clipped_sum(model, TextBatch.of_rows([[1]]), Flat(1.0), method=method)
    assert list(found.sums) == [name for name, _ in model.module.named_parameters()]
    assert not any(value.any() for value in found.sums.values())


@every_method
def test_only_the_named_parameters_are_clipped_and_summed(method: Method) -> None:
    """Also those that are frozen otherwise; afterwards they still are."""
    model, batch = in_float64(made("lstm")), language.mixed_batch()
    chosen = ["layers.0.recurrence.weight", "head.bias"]
    model.module.requires_grad_(False)
    found = clipped_sum(model, batch, Flat(0.3), parameters=chosen, method=method)
    exact = plain_sum(model, batch, parameters=chosen, method=method)
    assert not any(value.requires_grad for value in model.module.parameters())
    for name in chosen:
        model.module.get_parameter(name).requires_grad_()
    names = [name for name, _ in model.module.named_parameters() if name in chosen]
    for sums, clip_norm in ((found.sums, 0.3), (exact.sums, 1e9)):
        wanted, _ = loop_over_rows(model, batch, Flat(clip_norm))
        assert_near({name: sums[name] for name in names}, wanted, EXACT)


@every_model
@every_method
@pytest.mark.parametrize("poison", [math.inf, math.nan, 1e38])
def test_rows_that_are_not_finite_count_as_zero_and_are_counted(name: str, poison: float, method: Method) -> None:
    model, batch = made(name), language.mixed_batch()
    bad = batch.weights.clone()
    bad[0, 0] = poison
    found = clipped_sum(model, TextBatch(batch.tokens, bad), Flat(0.5), method=method)
    rest = clipped_sum(model, batch.rows(torch.arange(1, len(batch))), Flat(0.5), method=method)
    assert found.non_finite == 1
    assert_near(found.sums, rest.sums, ROUNDED)


@every_method
def test_no_trace_is_left_after_a_pass_and_after_an_error(method: Method) -> None:
    model = made("gpt")
    model.module.train()
    frozen = model.module.get_parameter("transformer.wpe.weight").requires_grad_(False)
    before = {name: value.detach().clone() for name, value in model.module.state_dict().items()}
    clipped_sum(model, language.mixed_batch(), Flat(1.0), method=method)
    plain_sum(model, language.mixed_batch(), method=method)
    assert language.hooks_of(model.module) == 0
    assert model.module.training
    assert [name for name, value in model.module.named_parameters() if not value.requires_grad] == [
        "transformer.wpe.weight"
    ]
    assert not frozen.requires_grad
    assert all(value.grad is None for value in model.module.parameters())
    assert all(torch.equal(value, before[name]) for name, value in model.module.state_dict().items())
    broken = language.Net(language.Broken())
    with pytest.raises(RuntimeError, match="broken"):
        clipped_sum(broken, language.mixed_batch(), Flat(1.0), method=method)
    assert language.hooks_of(broken.module) == 0
    assert all(value.requires_grad for value in broken.module.parameters())


@every_method
def test_dropout_and_autocast_are_off(method: Method) -> None:
    """One row: its clipped gradient has length C to float32 precision, and is the same every time."""
    model = LSTM.new(LSTMConfig(VOCABULARY, 8, 8, dropout=0.5, embedding_dropout=0.5))
    model.module.train()
    batch = TextBatch.of_tokens(torch.randint(VOCABULARY, (1, 9)))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found, again = (clipped_sum(model, batch, Flat(0.01), method=method).sums for _ in range(2))
    assert length_of(found) == pytest.approx(0.01 / LONGER, rel=1e-5)
    assert all(torch.equal(value, again[name]) for name, value in found.items())


@every_method
def test_sums_are_float32_for_a_bfloat16_model(method: Method) -> None:
    model = made("gpt")
    model.module.bfloat16()
    batch = TextBatch.of_tokens(torch.randint(VOCABULARY, (4, 9)))
    found = clipped_sum(model, batch, Flat(0.5), method=method)
    assert {value.dtype for value in (*found.sums.values(), found.norms)} == {torch.float32}
    assert_near(found.sums, loop_over_rows(model, batch, Flat(0.5))[0], 0.1)
    assert length_of(found.sums) <= 4 * 0.5


@every_model
def test_a_row_taken_alone_does_not_depend_on_the_others_at_all(name: str) -> None:
    """Bit for bit: what other rows do to the shape of a batch cannot reach it."""
    model, batch = made(name), language.mixed_batch()
    together = clipped_sum(model, batch, Flat(0.6), method="rows")
    for row in (0, 3, 4):
        alone = clipped_sum(model, batch.rows(torch.tensor([row])), Flat(0.6), method="rows")
        assert torch.equal(together.norms[row], alone.norms[0])
        assert torch.equal(together.losses[row], alone.losses[0])


class Routed(nn.Module):
    """Each position goes to the better of two experts."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 8)
        self.router = nn.Linear(8, 2)
        self.experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))
        self.head = nn.Linear(8, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        states = self.embedding(tokens)
        best, which = torch.topk(torch.softmax(self.router(states), dim=-1), 1, dim=-1)
        both = torch.stack([expert(states) for expert in self.experts], dim=2)
        picked = both.gather(2, which.unsqueeze(3).expand(-1, -1, -1, 8)).squeeze(2)
        logits: Tensor = self.head(states + best * torch.tanh(picked))
        return logits


def test_a_model_that_chooses_takes_one_row_at_a_time(caplog: pytest.LogCaptureFixture) -> None:
    """Every layer has a rule, and all fast methods give the right sums: but rounding could tip a choice."""
    model = language.awakened(language.Net(Routed()))
    with caplog.at_level("WARNING", logger="tacit"):
        assert check_gradients(model) == "rows"
    assert "it chooses by comparing numbers (topk)" in caplog.text
    for method in ("fused", "layers", "rows"):
        assert_clipped_sums_are_exact(model, language.mixed_batch(), Flat(0.6), method=method)


def test_batch_normalization_is_refused_by_name() -> None:
    """In evaluation it mixes no rows, and still there is no gradient of a single row to train it with."""
    model = language.sequential(nn.Linear(10, 10), nn.Tanh())
    model.module.insert(2, nn.Sequential(nn.Flatten(0, 1), nn.BatchNorm1d(10), nn.Unflatten(0, (3, -1))))  # type: ignore[operator]
    with pytest.raises(GradientError, match=r"batch normalization.*found 2\.1"):
        check_gradients(model)


def test_a_head_that_cannot_be_found_is_not_needed() -> None:
    class Headless(language.Net):
        @property
        def head(self) -> nn.Module:
            return nn.Identity()

    model = language.awakened(Headless(language.Twice()))
    assert check_gradients(model) == "layers"
    assert_clipped_sums_are_exact(model, language.mixed_batch(), Flat(0.6), method="layers")


def test_a_wrong_clipping_is_found_whatever_the_method(monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control of the check: factors that are twice as large are right by no method."""
    factors = Flat.factors
    monkeypatch.setattr(Flat, "factors", lambda style, squares: 2 * factors(style, squares))
    with pytest.raises(GradientError, match=r"not fused.*not layers.*not rows: a difference in"):
        check_gradients(language.gpt(LoRAConfig(2)))
