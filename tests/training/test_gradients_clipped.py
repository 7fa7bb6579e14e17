"""Fast clipped sums against a loop over single rows; sensitivity; what is refused; that no trace stays."""

import gc
import logging
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from oracles import (
    EXACT,
    LONGER,
    ROUNDED,
    assert_clipped_sums_are_exact,
    assert_near,
    in_float64,
    length_of,
    loop_over_rows,
    tolerance_of,
)
from tacit.config.model_schema import CausalLMConfig, LoRAConfig, LSTMConfig
from tacit.data.batches import TextBatch, TokenLosses
from tacit.errors import GradientError
from tacit.models.causal_lm import CausalLM
from tacit.models.language_model import DecoderState, Learner, losses_of
from tacit.models.lstm import LSTM, Recurrence
from tacit.training.gradients.check import check_gradients
from tacit.training.gradients.clipped import Automatic, Clipping, Flat, PerParameter, clipped_sum, plain_sum

VOCABULARY = 23


class Net:
    """Any module from tokens to logits as a Learner."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.vocabulary_size = VOCABULARY
        self.context = 1 << 20

    @property
    def head(self) -> nn.Module:
        return self.module[-1] if isinstance(self.module, nn.Sequential) else self.module.get_submodule("head")

    def logits(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.module(tokens)
        return logits

    def token_losses(self, batch: TextBatch) -> TokenLosses:
        return losses_of(self.logits(batch.inputs), batch)

    def log_probabilities(self, batch: TextBatch) -> Tensor:
        return -self.token_losses(batch).losses.detach()

    def begin(self, tokens: Tensor) -> DecoderState:
        raise NotImplementedError

    def description(self) -> dict[str, Any]:
        raise NotImplementedError

    def save(self, folder: object) -> None:
        raise NotImplementedError


class Positions(nn.Module):
    """Token and position embeddings; positions are looked up once for all rows."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width, padding_idx=3)
        self.positions = nn.Embedding(400, width)

    def forward(self, tokens: Tensor) -> Tensor:
        summed: Tensor = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1])[None])
        return summed


class Twice(nn.Module):
    """One linear layer used twice, and a head tied to the embedding through another shape."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 12)
        self.body = nn.Linear(12, 12)
        self.norm = nn.LayerNorm(12)
        self.head = nn.Linear(12, VOCABULARY)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        states = self.norm(torch.tanh(self.body(self.embedding(tokens))))
        states = states + self.norm(torch.tanh(self.body(states)))
        logits: Tensor = self.head(states)
        return logits


class Recurrent(nn.Module):
    """The recurrence alone between two linear layers."""

    def __init__(self, mask: Tensor | None = None) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 24)
        self.recurrence = Recurrence(6)
        self.head = nn.Linear(6, VOCABULARY, bias=False)
        self.mask = mask

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.head(self.recurrence(self.embedding(tokens), self.mask))
        return logits


def sequential(*middle: nn.Module, width: int = 10) -> Learner:
    return Net(nn.Sequential(Positions(10), *middle, nn.Linear(width, VOCABULARY)))


def awakened(model: Learner) -> Learner:
    """Every weight that moves gets a value: norms away from one, biases and adapters away from zero."""
    with torch.no_grad():
        for parameter in model.module.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def conv1d() -> Learner:
    from transformers.pytorch_utils import Conv1D

    return sequential(Conv1D(14, 10), nn.GELU(), width=14)  # type: ignore[no-untyped-call]


def llama_norm() -> Learner:
    from transformers.models.llama.modeling_llama import LlamaRMSNorm

    return sequential(LlamaRMSNorm(10))


def gemma_norm() -> Learner:
    from transformers.models.gemma3.modeling_gemma3 import Gemma3RMSNorm

    return sequential(Gemma3RMSNorm(10))


def cohere_norm() -> Learner:
    """Over heads: a scale for each of two heads of five."""
    from transformers.models.cohere.modeling_cohere import CohereLayerNorm

    norm = CohereLayerNorm((2, 5))  # type: ignore[no-untyped-call]
    return sequential(nn.Unflatten(2, (2, 5)), norm, nn.Flatten(2, 3))


def falcon_linear() -> Learner:
    from transformers.models.falcon.modeling_falcon import FalconLinear

    return sequential(FalconLinear(10, 10), nn.Tanh())


def gemma_embedding() -> Learner:
    from transformers.models.gemma3.modeling_gemma3 import Gemma3TextScaledWordEmbedding

    table = Gemma3TextScaledWordEmbedding(VOCABULARY, 6, padding_idx=3, embed_scale=2.5)
    return Net(nn.Sequential(table, nn.Linear(6, VOCABULARY)))


class InALine(nn.Module):
    """A block whose layers get all positions of all rows in a line, as OPT's do."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.body = nn.LayerNorm(10), nn.Linear(10, 10)

    def forward(self, states: Tensor) -> Tensor:
        found: Tensor = torch.tanh(self.body(self.norm(states.flatten(0, 1))))
        return states + found.view_as(states)


def llama(tied: bool, lora: LoRAConfig | None = None) -> Learner:
    from transformers import AutoModelForCausalLM, LlamaConfig

    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=16,
        intermediate_size=20,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=512,
        tie_word_embeddings=tied,
    )
    return CausalLM.of(AutoModelForCausalLM.from_config(config), lora)  # type: ignore[no-untyped-call]


def gpt(lora: LoRAConfig | None = None) -> Learner:
    return CausalLM.new(CausalLMConfig(VOCABULARY, 16, 2, 2, 512, dropout=0.0), lora)


def lstm(layers: int = 1, tied: bool = False) -> Learner:
    return LSTM.new(LSTMConfig(VOCABULARY, 9, 11, layers, dropout=0.0, tied=tied))


MODELS: dict[str, Callable[[], Learner]] = {
    "linear": lambda: sequential(nn.Linear(10, 10), nn.Tanh()),
    "linear without bias": lambda: sequential(nn.Linear(10, 10, bias=False), nn.Tanh()),
    "conv1d": conv1d,
    "layer norm": lambda: sequential(nn.LayerNorm(10)),
    "layer norm without bias": lambda: sequential(nn.LayerNorm(10, bias=False)),
    "rms norm": lambda: sequential(nn.RMSNorm(10)),
    "llama's rms norm": llama_norm,
    "gemma's rms norm": gemma_norm,
    "cohere's layer norm": cohere_norm,
    "falcon's linear": falcon_linear,
    "gemma's embedding": gemma_embedding,
    "positions in a line": lambda: sequential(InALine()),
    "used twice and tied": lambda: Net(Twice()),
    "recurrence": lambda: Net(Recurrent()),
    "lstm": lstm,
    "lstm of three layers, tied": lambda: lstm(3, tied=True),
    "gpt": gpt,
    "gpt with lora": lambda: gpt(LoRAConfig(2)),
    "llama": lambda: llama(tied=False),
    "llama, tied": lambda: llama(tied=True),
    "llama with lora": lambda: llama(tied=False, lora=LoRAConfig(2)),
}
STYLES: tuple[Clipping, ...] = (Flat(0.7), Automatic(0.7), PerParameter(0.7))


@pytest.fixture(autouse=True)
def _seeded_and_on_one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(7)
    yield
    torch.set_num_threads(threads)


def mixed_batch() -> TextBatch:
    """Rows of many lengths: one without a target, one whose targets do not count, weights that are not one."""
    chance = torch.Generator().manual_seed(5)
    rows = [torch.randint(VOCABULARY, (length,), generator=chance).tolist() for length in (9, 2, 1, 14, 5, 6, 9)]
    weights = [[1.0] * max(len(row) - 1, 0) for row in rows]
    weights[4] = [0.0, 0.0, 1.0, 0.5]
    weights[5] = [0.0] * 5
    return TextBatch.of_rows(rows, weights)


@pytest.mark.parametrize("style", STYLES, ids=lambda style: type(style).__name__)
@pytest.mark.parametrize("name", MODELS)
def test_sum_equals_a_loop_over_rows(name: str, style: Clipping) -> None:
    model, batch = awakened(MODELS[name]()), mixed_batch()
    found, norms = assert_clipped_sums_are_exact(model, batch, style)
    assert min(norms) < style.clip_norm < max(norms)
    assert found.sensitivity == style.clip_norm


@pytest.mark.parametrize("length", [1, 2, 40, 300])
@pytest.mark.parametrize("name", ["lstm", "lstm of three layers, tied", "gpt", "llama, tied", "used twice and tied"])
def test_sum_equals_the_loop_at_any_length(name: str, length: int) -> None:
    """Short rows take Gram matrices, long ones the direct products; both are met here."""
    model = awakened(MODELS[name]())
    batch = TextBatch.of_tokens(torch.randint(VOCABULARY, (3, length + 1)))
    assert_clipped_sums_are_exact(model, batch, Flat(0.5))


@pytest.mark.parametrize("name", MODELS)
def test_one_row_alone(name: str) -> None:
    model, batch = awakened(MODELS[name]()), TextBatch.of_tokens(torch.randint(VOCABULARY, (1, 8)))
    assert_clipped_sums_are_exact(model, batch, Flat(0.5))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    "batch", [TextBatch.of_rows([]), TextBatch.of_rows([[1]]), TextBatch.of_rows([[1, 2]], [[0.0]])]
)
def test_an_empty_batch_gives_a_zero_sum_of_every_parameter(name: str, batch: TextBatch) -> None:
    model = MODELS[name]()
    found = clipped_sum(model, batch, Flat(1.0))
    assert list(found.sums) == [name for name, value in model.module.named_parameters() if value.requires_grad]
    assert all(not value.any() and value.dtype == torch.float32 for value in found.sums.values())
    assert len(found.norms) == len(batch)


@pytest.mark.parametrize("positions", [1, 7, 20, 1000])
@pytest.mark.parametrize("name", ["lstm", "gpt", "used twice and tied"])
def test_micro_batches_change_nothing(name: str, positions: int) -> None:
    model, batch = awakened(MODELS[name]()), mixed_batch()
    model.module.double()
    whole, parts = clipped_sum(model, batch, Flat(0.6)), clipped_sum(model, batch, Flat(0.6), positions=positions)
    assert_near(parts.sums, whole.sums, EXACT)
    torch.testing.assert_close(parts.norms, whole.norms, rtol=EXACT, atol=EXACT)
    torch.testing.assert_close(parts.losses, whole.losses, rtol=EXACT, atol=EXACT)


def sparse_batch() -> TextBatch:
    """Few targets count: the head leaves the other positions out."""
    rows = torch.randint(VOCABULARY, (5, 30), generator=torch.Generator().manual_seed(8))
    weights = (torch.rand(5, 29, generator=torch.Generator().manual_seed(9)) < 0.2).float()
    return TextBatch(rows, weights)


@pytest.mark.parametrize("name", MODELS)
def test_positions_that_do_not_count_are_left_out_exactly(name: str) -> None:
    model, batch = awakened(MODELS[name]()), sparse_batch()
    found, _ = assert_clipped_sums_are_exact(model, batch, Flat(0.7))
    assert found.losses.tolist() == pytest.approx(model.token_losses(batch).per_row.tolist(), rel=ROUNDED)


@pytest.mark.parametrize("name", ["lstm", "gpt", "llama with lora"])
def test_losses_are_the_models(name: str) -> None:
    model, batch = in_float64(MODELS[name]()), mixed_batch()
    wanted = model.token_losses(batch).per_row.detach()
    tolerance = tolerance_of(model.module)
    torch.testing.assert_close(clipped_sum(model, batch, Flat(1.0)).losses, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("chosen", [["head.weight", "head.bias"], ["layers.0.recurrence.weight"], ["head.bias"]])
def test_only_the_named_parameters_are_clipped_and_summed(chosen: list[str]) -> None:
    model, batch = in_float64(lstm()), mixed_batch()
    found = clipped_sum(model, batch, Flat(0.3), parameters=chosen)
    for name, value in model.module.named_parameters():
        value.requires_grad_(name in chosen)
    assert_near(found.sums, loop_over_rows(model, batch, Flat(0.3))[0], EXACT)


# sensitivity: see also test_row_bound.py


def test_cancelling_steps_do_not_hide_a_long_gradient() -> None:
    """Steps whose gradients cancel to a thousandth: rounding in Gram matrices must not let a unit exceed C."""
    torch.manual_seed(3)
    model = sequential(nn.Linear(10, 10), nn.Tanh())
    worst = 0.0
    for scale in (1e2, 1e4, 1e6):
        rows, weights = [[5, 6] * 6], [[scale, -scale] * 5 + [scale]]
        found = clipped_sum(model, TextBatch.of_rows(rows, weights), Flat(1.0))
        worst = max(worst, math.sqrt(sum(float(value.double().square().sum()) for value in found.sums.values())))
    assert worst <= 1


# non-finite rows


@pytest.mark.parametrize("name", ["lstm", "gpt", "used twice and tied", "conv1d", "gpt with lora"])
@pytest.mark.parametrize("poison", [math.inf, math.nan, 1e38])
def test_rows_that_are_not_finite_count_as_zero_and_are_counted(name: str, poison: float) -> None:
    model, batch = awakened(MODELS[name]()), mixed_batch()
    bad = batch.weights.clone()
    bad[0, 0] = poison
    found = clipped_sum(model, TextBatch(batch.tokens, bad), Flat(0.5))
    rest = clipped_sum(model, batch.rows(torch.arange(1, len(batch))), Flat(0.5))
    assert found.non_finite == 1
    assert_near(found.sums, rest.sums, ROUNDED)


# what is refused, and what is left behind


class Odd(nn.Module):
    """A weight of its own that no rule knows."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 4)
        self.scale = nn.Parameter(torch.ones(4))
        self.head = nn.Linear(4, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.head(self.embedding(tokens) * self.scale)
        return logits


class Hidden(nn.Module):
    """The embedding's weight is used outside its forward as well, where no hook can see it."""

    def __init__(self, only: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 4)
        self.head = nn.Linear(4, VOCABULARY)
        self.only = only

    def forward(self, tokens: Tensor) -> Tensor:
        states = functional.embedding(tokens, self.embedding.weight)
        logits: Tensor = self.head(states if self.only else states + self.embedding(tokens))
        return logits


def test_a_parameter_without_a_rule_is_refused_by_name() -> None:
    with pytest.raises(GradientError, match=r"scale \(Odd\).*Way out: freeze"):
        clipped_sum(Net(Odd()), mixed_batch(), Flat(1.0))


def test_a_frozen_parameter_needs_no_rule() -> None:
    model = Net(Odd())
    model.module.get_parameter("scale").requires_grad_(False)
    assert_clipped_sums_are_exact(model, mixed_batch(), Flat(1.0))


def test_an_embedding_with_rescaled_gradients_is_refused() -> None:
    module = nn.Sequential(nn.Embedding(VOCABULARY, 4, scale_grad_by_freq=True), nn.Linear(4, VOCABULARY))
    with pytest.raises(GradientError, match=r"0\.weight"):
        clipped_sum(Net(module), mixed_batch(), Flat(1.0))


class Expert(nn.Module):
    """A layer that gets some of the positions alone, as an expert does."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 4)
        self.body = nn.Linear(4, 4)
        self.head = nn.Linear(4, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        states = self.embedding(tokens)
        chosen = tokens % 2 == 0
        logits: Tensor = self.head(states.masked_scatter(chosen.unsqueeze(2), self.body(states[chosen])))
        return logits


def test_a_layer_that_loses_the_rows_is_refused() -> None:
    with pytest.raises(GradientError, match=r"first dimension is the batch of 2 rows; found Linear with \(5, 4\)"):
        clipped_sum(Net(Expert()), TextBatch.of_rows([[2, 4, 1, 7], [6, 2, 4, 1]]), Flat(1.0))


def test_a_parameter_that_takes_no_part_is_refused_by_name() -> None:
    with pytest.raises(GradientError, match=r"no gradient for embedding.weight"):
        clipped_sum(Net(Hidden(only=True)), mixed_batch(), Flat(1.0))


@pytest.mark.parametrize("only", [False, True])
def test_the_check_finds_a_use_that_hooks_cannot_see(only: bool, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="tacit"):
        assert check_gradients(Net(Hidden(only))) == "rows"
    assert ("no gradient for" if only else "a difference in") + " embedding.weight" in caplog.text


def test_layers_that_no_rule_reads_are_taken_by_rows() -> None:
    assert check_gradients(Net(Odd())) == "rows"
    assert check_gradients(Net(Expert())) == "rows"


class Capped(nn.Module):
    """Scores that are changed after the head."""

    def __init__(self, cap: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 4)
        self.head = nn.Linear(4, VOCABULARY)
        self.cap = cap

    def forward(self, tokens: Tensor) -> Tensor:
        return self.cap(self.head(self.embedding(tokens)))


CAPS: dict[str, Callable[[Tensor], Tensor]] = {
    "scaled": lambda scores: scores * 0.5,
    "soft": lambda scores: 300 * torch.tanh(scores / 300),
    "hard": lambda scores: scores.clamp(-300, 300),
}


@pytest.mark.parametrize("cap", CAPS)
def test_the_check_finds_scores_that_are_changed_after_the_head(cap: str, caplog: pytest.LogCaptureFixture) -> None:
    """Scores of fresh weights are near one, where a cap of 300 does nothing that comparing gradients would find."""
    model = Net(Capped(CAPS[cap]))
    with caplog.at_level(logging.INFO, logger="tacit"):
        assert check_gradients(model) == "layers"
    assert "scores are changed after the head" in caplog.text
    with torch.no_grad():
        model.head.get_parameter("weight").mul_(600.0)
    assert_clipped_sums_are_exact(model, mixed_batch(), Flat(1.0), method="layers")


def test_a_head_that_is_not_called_on_states_is_refused() -> None:
    module = nn.Sequential(nn.Embedding(VOCABULARY, 4), nn.Flatten(0, 1), nn.Linear(4, VOCABULARY))
    with pytest.raises(GradientError, match="head that is called once"):
        clipped_sum(Net(module), mixed_batch(), Flat(1.0))


class Centred(nn.Module):
    """Takes the mean of the batch off: no parameter of its own, and still it ties rows together."""

    def forward(self, states: Tensor) -> Tensor:
        return states - states.mean(dim=0, keepdim=True)


def test_the_check_finds_rows_that_influence_each_other() -> None:
    with pytest.raises(GradientError, match="depend on the other rows"):
        check_gradients(sequential(Centred()))


@pytest.mark.parametrize("name", MODELS)
def test_the_check_passes_every_supported_model(name: str) -> None:
    check_gradients(awakened(MODELS[name]()))


def test_unknown_names_are_refused() -> None:
    with pytest.raises(GradientError, match="nonsense"):
        clipped_sum(lstm(), mixed_batch(), Flat(1.0), parameters=["nonsense"])


def hooks_of(module: nn.Module) -> int:
    return sum(
        len(part._forward_hooks) + len(part._forward_pre_hooks) + len(part._backward_hooks) for part in module.modules()
    )


class Broken(nn.Module):
    """Fails in the middle of its forward."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 4)
        self.head = nn.Linear(4, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        self.embedding(tokens)
        raise RuntimeError("broken")


def test_no_trace_is_left_after_a_pass_and_after_an_error() -> None:
    model = gpt()
    frozen = model.module.get_parameter("transformer.wpe.weight").requires_grad_(False)
    before = {name: value.detach().clone() for name, value in model.module.state_dict().items()}
    clipped_sum(model, mixed_batch(), Flat(1.0))
    assert hooks_of(model.module) == 0
    assert [value.requires_grad for value in model.module.parameters() if value is not frozen] == [True] * 27
    assert not frozen.requires_grad
    assert all(value.grad is None for value in model.module.parameters())
    assert all(torch.equal(value, before[name]) for name, value in model.module.state_dict().items())
    broken = Net(Broken())
    with pytest.raises(RuntimeError, match="broken"):
        clipped_sum(broken, mixed_batch(), Flat(1.0))
    assert hooks_of(broken.module) == 0
    assert all(value.requires_grad for value in broken.module.parameters())


def _tensors() -> int:
    return sum(type(value) is Tensor for value in gc.get_objects())


@pytest.mark.parametrize("name", ["lstm", "gpt", "llama with lora", "used twice and tied"])
def test_nothing_waits_for_the_garbage_collector(name: str) -> None:
    """Activations that only the collector frees pile up over the micro-batches of a large draw."""
    model, batch = MODELS[name](), mixed_batch()
    clipped_sum(model, batch, Flat(1.0))
    plain_sum(model, batch)
    gc.collect()
    gc.disable()
    try:
        before = _tensors()
        clipped_sum(model, batch, Flat(1.0), positions=20)
        plain_sum(model, batch, positions=20)
        assert _tensors() == before
    finally:
        gc.enable()


def test_a_model_edited_between_steps_is_seen_as_it_is() -> None:
    model = gpt()
    clipped_sum(model, mixed_batch(), Flat(1.0))
    adapted = awakened(CausalLM.of(model.module, LoRAConfig(2)))
    assert_clipped_sums_are_exact(adapted, mixed_batch(), Flat(1.0))


def test_adapters_move_and_nothing_else_does() -> None:
    """Fresh adapters: B is zero, so that A has no gradient at first, and moves in the second step."""
    model = gpt(LoRAConfig(2))
    moving = {name: value for name, value in model.module.named_parameters() if value.requires_grad}
    start = {name: value.detach().clone() for name, value in model.module.named_parameters()}
    for _ in range(2):
        for name, value in clipped_sum(model, mixed_batch(), Flat(1.0)).sums.items():
            moving[name].data -= value
    assert all("lora_" in name for name in moving)
    for name, value in model.module.named_parameters():
        assert torch.equal(value, start[name]) == (name not in moving), name


# precision


@pytest.mark.parametrize("name", ["lstm", "gpt", "llama, tied"])
def test_sums_are_float32_for_a_bfloat16_model_and_near_its_own_autograd(name: str) -> None:
    model = MODELS[name]()
    model.module.bfloat16()
    batch = TextBatch.of_tokens(torch.randint(VOCABULARY, (4, 9)))
    found = clipped_sum(model, batch, Flat(0.5))
    assert {value.dtype for value in found.sums.values()} == {torch.float32}
    assert_near(found.sums, loop_over_rows(model, batch, Flat(0.5))[0], 0.1)
    assert length_of(found.sums) <= 4 * 0.5


def test_norms_and_sums_stay_in_float32_under_autocast() -> None:
    """One row: its clipped gradient has length C to float32 precision, though the forward was bfloat16."""
    model = gpt()
    batch = TextBatch.of_tokens(torch.randint(VOCABULARY, (1, 9)))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = clipped_sum(model, batch, Flat(0.01))
    assert length_of(found.sums) == pytest.approx(0.01 / LONGER, rel=1e-5)


# plain sums


@pytest.mark.parametrize("name", ["lstm", "gpt", "gpt with lora"])
def test_plain_sum_is_autograds(name: str) -> None:
    model, batch = in_float64(awakened(MODELS[name]())), mixed_batch()
    wanted, _ = loop_over_rows(model, batch, Flat(1e9))
    found = plain_sum(model, batch, positions=20)
    assert_near(found.sums, wanted, EXACT)
    assert found.loss == pytest.approx(float(model.token_losses(batch).total.detach()), rel=EXACT)
    assert found.weight == float(batch.weights.sum())
    assert all(value.grad is None for value in model.module.parameters())
