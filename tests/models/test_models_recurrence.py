"""The hand-written LSTM against torch's own, forward and backward; its dropouts against their definitions."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from oracles import EXACT, in_float64
from tacit.config.model_schema import LSTMConfig
from tacit.data.batches import TextBatch
from tacit.models.lstm import LSTM, LSTMLayer, Recurrence
from tacit.training.gradients.check import check_gradients
from tacit.training.gradients.clipped import Flat, clipped_sum, plain_sum


@pytest.fixture(autouse=True)
def _seeded_and_on_one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(2)
    yield
    torch.set_num_threads(threads)


def torchs_twin(layer: LSTMLayer, mask: Tensor | None) -> nn.LSTM:
    """nn.LSTM with the same weights; its gates stand in the order i, f, g, o, ours in o, i, f, g."""
    size = layer.recurrence.hidden_size
    twin = nn.LSTM(layer.projection.in_features, size, batch_first=True, dtype=layer.projection.weight.dtype)

    def reordered(value: Tensor) -> Tensor:
        output, entry, keep, candidate = value.detach().chunk(4)
        return torch.cat([entry, keep, candidate, output])

    recurrent = layer.recurrence.weight if mask is None else layer.recurrence.weight * mask
    with torch.no_grad():
        twin.get_parameter("weight_ih_l0").copy_(reordered(layer.projection.weight))
        twin.get_parameter("weight_hh_l0").copy_(reordered(recurrent))
        twin.get_parameter("bias_ih_l0").copy_(reordered(layer.projection.bias))
        twin.get_parameter("bias_hh_l0").zero_()
    return twin


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, EXACT), (torch.float32, 1e-4)])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("rows", "time"), [(1, 1), (3, 1), (1, 7), (4, 33)])
def test_hidden_states_and_gradients_are_torchs(
    rows: int, time: int, masked: bool, dtype: torch.dtype, tolerance: float
) -> None:
    layer = LSTMLayer(5, 6).to(dtype)
    mask = (torch.rand(24, 6) > 0.5).to(dtype) * 2 if masked else None
    twin = torchs_twin(layer, mask)
    chance = torch.Generator().manual_seed(1)
    ours = torch.randn(rows, time, 5, dtype=dtype, generator=chance).requires_grad_()
    theirs = ours.detach().clone().requires_grad_()
    wanted = twin(theirs)[0]
    found = layer(ours, mask)
    torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance)
    direction = torch.randn_like(wanted)
    wanted.backward(direction)
    found.backward(direction)
    assert ours.grad is not None
    assert theirs.grad is not None
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=tolerance, atol=tolerance)
    assert layer.recurrence.weight.grad is not None
    recurrent = twin.get_parameter("weight_hh_l0").grad
    assert recurrent is not None
    entry, keep, candidate, output = recurrent.chunk(4)
    gradient = torch.cat([output, entry, keep, candidate])
    torch.testing.assert_close(
        layer.recurrence.weight.grad, gradient if mask is None else gradient * mask, rtol=tolerance, atol=tolerance
    )


def test_gradients_agree_with_finite_differences() -> None:
    layer = Recurrence(3).double()
    projections = torch.randn(2, 4, 12, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda values: layer(values), (projections,))


def test_the_large_model_has_the_sizes_of_its_paper_and_its_ties() -> None:
    with torch.device("meta"):
        model = LSTM.new(LSTMConfig.awd(1000))
    sizes = [layer.recurrence.hidden_size for layer in model.module.stack()]
    assert sizes == [1150, 1150, 100]
    assert model.module.head.weight is model.module.embedding.weight


def test_embedding_dropout_drops_whole_words_and_keeps_the_mean() -> None:
    model = LSTM.new(LSTMConfig(50, 8, 8, dropout=0.0, embedding_dropout=0.5))
    tokens = torch.arange(50).repeat(2, 1)
    dropped = model.module._embedded(tokens)
    plain = model.module.embedding(tokens)
    kept = dropped.abs().sum(dim=2) > 0
    assert torch.equal(kept[0], kept[1])
    assert 5 < int(kept[0].sum()) < 45
    torch.testing.assert_close(dropped[kept], 2 * plain[kept])


def test_locked_dropout_is_the_same_at_every_step_and_differs_between_rows() -> None:
    model = LSTM.new(LSTMConfig(50, 8, 40, dropout=0.5, locked=True))
    kept = model.module._dropped(torch.ones(3, 9, 40)) > 0
    assert torch.equal(kept, kept[:, :1].expand_as(kept))
    assert not torch.equal(kept[0], kept[1])


def test_dropouts_are_off_when_the_model_does_not_train() -> None:
    model = LSTM.new(LSTMConfig(50, 8, 8, 2, 0.5, locked=True, embedding_dropout=0.5, weight_drop=0.5))
    model.module.eval()
    tokens = torch.randint(50, (2, 6))
    assert torch.equal(model.logits(tokens), model.logits(tokens))
    model.module.train()
    assert not torch.equal(model.logits(tokens), model.logits(tokens))


def test_clipped_sums_are_without_dropout_and_plain_ones_with() -> None:
    """Private steps have no mask that rows could share; the same random state gives plain sums autograd's masks."""
    shape = LSTMConfig(30, 8, 10, 2, 0.4, locked=True, embedding_dropout=0.3, weight_drop=0.5, tied=True)
    model = in_float64(LSTM.new(shape))
    batch = TextBatch.of_tokens(torch.randint(30, (3, 8)))
    parameters = list(model.module.parameters())
    torch.manual_seed(9)
    dropped = plain_sum(model, batch).sums
    torch.manual_seed(9)
    wanted = torch.autograd.grad(model.token_losses(batch).total, parameters)
    for total, value in zip(dropped.values(), wanted, strict=True):
        torch.testing.assert_close(total, value, rtol=EXACT, atol=EXACT)
    found = clipped_sum(model, batch, Flat(1e9)).sums
    assert model.module.training
    model.module.eval()
    whole = torch.autograd.grad(model.token_losses(batch).total, parameters)
    for total, value, other in zip(found.values(), whole, wanted, strict=True):
        torch.testing.assert_close(total, value, rtol=EXACT, atol=EXACT)
        assert not torch.allclose(value, other, rtol=1e-2)
    check_gradients(model)
