"""The whole private step on a device that is not the processor: no mixed devices, no waiting, nothing made on the host.

Real numbers on a simulated device (tests/support/devices.py): what is computed there must equal what the processor
computes, and inside the loop over micro-batches nothing may wait for a number or be built on the host.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic

import pytest
import torch
from torch import Tensor

from devices import NAME, Elsewhere, Watch, move_module, set_up
from tacit.config.model_schema import CausalLMConfig, ClassifierConfig, LoRAConfig, LSTMConfig, OptimizerConfig
from tacit.data.batches import BatchKind, LabeledBatch, RowsInParts, TextBatch
from tacit.models.causal_lm import CausalLM
from tacit.models.classifier import Classifier, EncoderClassifier, LSTMClassifier
from tacit.models.language_model import Learner
from tacit.models.lstm import LSTM
from tacit.training.gradients.clipped import Flat, clipped_sum
from tacit.training.optimizers import Optimizer
from tacit.training.randomness import NoiseStream

VOCABULARY, CLASSES = 50, ClassifierConfig(("a", "b", "c"))
ROWS = [[1, 2, 3, 2, 2, 9, 11], [4, 5], [7, 7, 7, 8], [3, 1, 2, 6, 6], [9, 9]]
Model = Learner | Classifier


def llama(lora: LoRAConfig | None = None) -> CausalLM:
    from transformers import LlamaConfig, LlamaForCausalLM

    shape: dict[str, Any] = {"num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2}
    config = LlamaConfig(vocab_size=VOCABULARY, hidden_size=16, intermediate_size=24, **shape)
    return CausalLM.of(LlamaForCausalLM(config), lora)  # type: ignore[no-untyped-call]


def encoder() -> EncoderClassifier:
    from transformers import BertConfig, BertModel

    shape: dict[str, Any] = {"num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = BertConfig(vocab_size=VOCABULARY, hidden_size=8, max_position_embeddings=16, **shape)
    return EncoderClassifier.of(BertModel(config), CLASSES)  # type: ignore[no-untyped-call]


MODELS: dict[str, Callable[[], Model]] = {
    "lstm": lambda: LSTM.new(LSTMConfig(VOCABULARY, 8, 12)),
    "tied lstm of two layers": lambda: LSTM.new(LSTMConfig(VOCABULARY, 8, 12, 2, tied=True)),
    "gpt": lambda: CausalLM.new(CausalLMConfig(VOCABULARY, 16, 2, 2, 32)),
    "gpt with adapters": lambda: CausalLM.new(CausalLMConfig(VOCABULARY, 16, 2, 2, 32), LoRAConfig(rank=2)),
    "llama": llama,
    "llama with adapters": lambda: llama(LoRAConfig(rank=2)),
    "lstm classifier": lambda: LSTMClassifier.new(LSTMConfig(VOCABULARY, 8, 12), CLASSES),
    "encoder": encoder,
}


def batch_of(model: Model) -> TextBatch | LabeledBatch:
    """Rows of several lengths, with targets that count, and some that do not."""
    if isinstance(model, Classifier):
        return LabeledBatch.of_rows(ROWS, [0, 1, 2, 0, 1])
    counts = [[float(place % 3 != 1) for place in range(len(row) - 1)] for row in ROWS]
    return TextBatch.of_rows(ROWS, counts)


@dataclass(frozen=True, eq=False)
class Marked(Generic[BatchKind]):
    """A batch on the device, whose parts tell the watch where the loop over them begins and ends."""

    batch: BatchKind
    watch: Watch
    inside: Callable[[], object] = lambda: None

    def __len__(self) -> int:
        return len(self.batch)

    def micro_batches(self, positions: int | None) -> Iterator[tuple[Tensor, BatchKind]]:
        parts = self.batch.micro_batches(positions)
        first = next(parts)
        with self.watch.loop():
            yield first
            for part in parts:
                self.inside()
                yield part


def step(model: Model, batch: RowsInParts[Any]) -> dict[str, Tensor]:
    """One private step: clipped sum, noise, optimizer; the parameters after it are returned."""
    sums = clipped_sum(model, batch, Flat(0.5), positions=12).sums
    NoiseStream(b"key", 0).add_(sums.values(), 0.25)
    parameters = {name: value for name, value in model.module.named_parameters() if value.requires_grad}
    Optimizer(OptimizerConfig(), 3).apply(parameters, {name: total / 5 for name, total in sums.items()}, 0.05)
    return {name: value.detach().clone() for name, value in parameters.items()}


def made(name: str) -> Model:
    torch.manual_seed(3)
    return MODELS[name]()


def home(values: Tensor) -> Tensor:
    assert isinstance(values, Elsewhere)
    return values.inner


@pytest.mark.parametrize("name", MODELS)
def test_a_private_step_runs_on_another_device(name: str) -> None:
    """Catches a tensor left on the host, a number read in the loop, and a path that computes something else there."""
    set_up()
    model = made(name)
    expected = step(model, batch_of(model))
    model = made(name)
    move_module(model.module)
    with Watch() as watch:
        found = step(model, Marked(batch_of(model).to(torch.device(NAME)), watch))
    assert watch.waits == []
    assert watch.hosts == []
    assert found.keys() == expected.keys()
    for parameter, value in expected.items():
        torch.testing.assert_close(home(found[parameter]), value, rtol=1e-3, atol=1e-5)
