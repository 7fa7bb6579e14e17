"""Models that look ahead, or whose rows depend on the longest row of a batch, are refused before training.

Padding would otherwise carry one record into the gradients of others: with BERT, removing one long row from a batch of
30 short ones moved a sum of clipped gradients by 6.6 C.
"""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from oracles import length_of
from tacit.config.model_schema import LoRAConfig, LSTMConfig
from tacit.data.batches import TextBatch
from tacit.errors import GradientError, ModelError
from tacit.models.causal_lm import CausalLM
from tacit.models.lstm import LSTM
from tacit.training.gradients.check import check_gradients
from tacit.training.gradients.clipped import Flat, clipped_sum

VOCABULARY = 23
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 20,
    "max_position_embeddings": 64,
}
GEMMA = {**SIZES, "num_key_value_heads": 1, "head_dim": 8}
SPECIAL = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"))
AHEAD: dict[str, dict[str, Any]] = {
    "bert": {"model_type": "bert", **SIZES},
    "electra": {"model_type": "electra", "embedding_size": 16, **SIZES},
    "roberta": {"model_type": "roberta", **SIZES, "pad_token_id": 1},
    "gemma3_text": {"model_type": "gemma3_text", **GEMMA, **SPECIAL, "use_bidirectional_attention": True},
}
CAUSAL: dict[str, dict[str, Any]] = {
    "gpt2": {
        "model_type": "gpt2",
        "vocab_size": VOCABULARY,
        "n_embd": 16,
        "n_layer": 2,
        "n_head": 2,
        "n_positions": 64,
    },
    "llama": {"model_type": "llama", **SIZES},
    "bert as a decoder": {"model_type": "bert", **SIZES, "is_decoder": True},
}
LORA = [None, LoRAConfig(2)]
with_and_without_adapters = pytest.mark.parametrize("lora", LORA, ids=["whole", "lora"])


@pytest.fixture(autouse=True)
def _seeded_and_on_one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(3)
    yield
    torch.set_num_threads(threads)


def made(config: dict[str, Any], lora: LoRAConfig | None = None) -> CausalLM:
    return CausalLM.described({**SPECIAL, **config}, None if lora is None else {"rank": lora.rank})


@with_and_without_adapters
@pytest.mark.parametrize("name", AHEAD)
def test_models_that_look_ahead_are_refused_by_name(name: str, lora: LoRAConfig | None) -> None:
    """Catches encoders that transformers hands out as causal models; fresh adapters and biases are zero and hide it."""
    model = made(AHEAD[name], lora)
    with pytest.raises(ModelError, match=r"(Bert|Electra|Roberta|Gemma3)\w*, which looks ahead.*classification"):
        check_gradients(model)


@with_and_without_adapters
@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_decoders_pass_and_are_left_as_they_were(name: str, lora: LoRAConfig | None) -> None:
    model = made(CAUSAL[name], lora)
    model.module.train()
    before = {key: value.clone() for key, value in model.module.state_dict().items()}
    check_gradients(model, longest=40)
    assert all(torch.equal(value, before[key]) for key, value in model.module.state_dict().items())
    assert model.module.training
    assert all(value.grad is None for value in model.module.parameters())


@pytest.mark.parametrize("lora", LORA[1:], ids=["lora"])
def test_an_encoder_made_a_decoder_passes(lora: LoRAConfig) -> None:
    check_gradients(made(CAUSAL["bert as a decoder"], lora))


def test_the_longest_row_would_move_the_others() -> None:
    """Why: the mistake itself, in numbers. Thirty short rows, and one long row that pads them."""
    model = made(AHEAD["bert"], LoRAConfig(2))
    with torch.no_grad():
        for parameter in model.module.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    rows = torch.randint(VOCABULARY, (31, 60))
    short = [row[:4].tolist() for row in rows[:30]]
    sums = [
        clipped_sum(model, TextBatch.of_rows(part), Flat(0.1)).sums for part in (short, [*short, rows[30].tolist()])
    ]
    assert length_of({name: sums[1][name] - sums[0][name] for name in sums[0]}) > 1.2 * 0.1


def test_positions_that_depend_on_the_longest_row_are_refused() -> None:
    """LongRoPE encodes the positions of every row of a batch anew once one row is longer than 16."""
    rope = {"rope_type": "longrope", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 16}
    model = made({**CAUSAL["llama"], "rope_parameters": {**rope, "short_factor": [1.0] * 4, "long_factor": [9.0] * 4}})
    check_gradients(model, longest=16)
    with pytest.raises(GradientError, match=r"Llama\w*, whose logits for a row depend on the other rows"):
        check_gradients(model, longest=64)


class Gated(nn.Module):
    """A gate that begins at zero hides what lets one row read the others, or the norms of rows that are too small."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.Linear(8, 8, bias=False)
        nn.init.zeros_(self.norm.weight)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        mixed: torch.Tensor = self.norm(states).mean(dim=0, keepdim=True)
        return states + mixed


def test_weights_are_shifted_so_that_zeros_hide_nothing() -> None:
    model = LSTM.new(LSTMConfig(VOCABULARY, 8, 8, dropout=0.0))
    layer = model.module.stack()[0]
    layer.projection = nn.Sequential(Gated(), layer.projection)  # type: ignore[assignment]
    with pytest.raises(GradientError, match="depend on the other rows"):
        check_gradients(model)


def test_weights_in_few_digits_are_refused() -> None:
    model = made(CAUSAL["gpt2"])
    model.module.bfloat16()
    with pytest.raises(GradientError, match=r"torch.bfloat16. Way out: call model.float"):
        check_gradients(model)
