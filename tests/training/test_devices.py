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

from devices import NAME, Elsewhere, MixedDevices, Watch, move_module, set_up
from tacit.config.model_schema import CausalLMConfig, ClassifierConfig, LoRAConfig, LSTMConfig, OptimizerConfig
from tacit.data.batches import BatchKind, LabeledBatch, RowsInParts, TextBatch
from tacit.models.causal_lm import CausalLM
from tacit.models.classifier import Classifier, EncoderClassifier, LSTMClassifier
from tacit.models.language_model import Learner
from tacit.models.lstm import LSTM
from tacit.training.gradients.clipped import Automatic, Flat, Method, clipped_sum, plain_sum
from tacit.training.gradients.contributions import _found_groups, _groups_of_fixed_number
from tacit.training.optimizers import Optimizer
from tacit.training.randomness import NoiseStream

VOCABULARY, CLASSES = 50, ClassifierConfig(("a", "b", "c"))
ROWS = [[1, 2, 3, 2, 2, 9, 11], [4, 5], [7, 7, 7, 8], [3, 1, 2, 6, 6], [9, 9]]
Model = Learner | Classifier
POSITIONS, PASSES = 12, 3
OF_TRANSFORMERS = "_local_scalar_dense at masking_utils.py"  # it looks at its mask once per pass


def llama(lora: LoRAConfig | None = None) -> CausalLM:
    from transformers import LlamaConfig, LlamaForCausalLM

    shape: dict[str, Any] = {"num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2}
    config = LlamaConfig(vocab_size=VOCABULARY, hidden_size=16, intermediate_size=24, **shape)
    return CausalLM.of(LlamaForCausalLM(config), lora)  # type: ignore[no-untyped-call]


def encoder() -> EncoderClassifier:
    from transformers import BertConfig, BertForSequenceClassification

    shape: dict[str, Any] = {"num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16, "num_labels": 3}
    config = BertConfig(vocab_size=VOCABULARY, hidden_size=8, max_position_embeddings=16, **shape)
    return EncoderClassifier.of(BertForSequenceClassification(config), CLASSES)  # type: ignore[no-untyped-call]


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

    @property
    def weights(self) -> Tensor:
        return self.batch.weights

    def micro_batches(self, positions: int | None) -> Iterator[tuple[Tensor, BatchKind]]:
        parts = self.batch.micro_batches(positions)
        first = next(parts)
        with self.watch.loop():
            yield first
            for part in parts:
                self.inside()
                yield part


def step(model: Model, batch: RowsInParts[Any], method: Method = "fused") -> dict[str, Tensor]:
    """One private step: clipped sum, noise, optimizer; the parameters after it are returned."""
    sums = clipped_sum(model, batch, Flat(0.5), positions=POSITIONS, method=method).sums
    NoiseStream(b"key", 0).add_(sums.values(), 0.25)
    parameters = {name: value for name, value in model.module.named_parameters() if value.requires_grad}
    Optimizer(OptimizerConfig("adam", 2e-3), 3).apply(
        parameters, {name: total / 5 for name, total in sums.items()}, 0.05
    )
    return {name: value.detach().clone() for name, value in parameters.items()}


def made(name: str) -> Model:
    torch.manual_seed(3)
    return MODELS[name]()


def home(values: Tensor) -> Tensor:
    assert isinstance(values, Elsewhere)
    return values.numbers


SLOWER: list[tuple[str, Method]] = [
    ("llama", "layers"),
    ("encoder", "layers"),
    ("tied lstm of two layers", "rows"),
    ("llama", "rows"),
    ("gpt with adapters", "rows"),
    ("encoder", "rows"),
]


@pytest.mark.parametrize(("name", "method"), [*((name, "fused") for name in MODELS), *SLOWER])
def test_a_private_step_runs_on_another_device(name: str, method: Method) -> None:
    """Catches a tensor left on the host, a number read in the loop, and a path that computes something else there."""
    set_up()
    model = made(name)
    expected = step(model, batch_of(model), method)
    model = made(name)
    move_module(model.module)
    with Watch() as watch:
        found = step(model, Marked(batch_of(model).to(torch.device(NAME)), watch), method)
    assert [wait for wait in watch.waits if not wait.startswith(OF_TRANSFORMERS)] == []
    assert len(watch.waits) <= (len(ROWS) if method == "rows" else PASSES)
    assert watch.hosts == []
    assert found.keys() == expected.keys()
    for parameter, value in expected.items():
        torch.testing.assert_close(home(found[parameter]), value, rtol=1e-3, atol=1e-5)


def test_a_public_step_runs_on_another_device() -> None:
    set_up()
    model, batch = llama(), TextBatch.of_rows(ROWS)
    expected = plain_sum(model, batch, positions=POSITIONS)
    move_module(model.module)
    with Watch() as watch:
        parts: Any = Marked(batch.to(torch.device(NAME)), watch)
        found = plain_sum(model, parts, positions=POSITIONS)
    assert [wait for wait in watch.waits if not wait.startswith(OF_TRANSFORMERS)] == []
    assert watch.hosts == []
    assert found.loss == pytest.approx(expected.loss, rel=1e-5)
    for name, value in expected.sums.items():
        torch.testing.assert_close(home(found.sums[name]), value, rtol=1e-3, atol=1e-5)


def test_an_optimizer_resumes_on_another_device() -> None:
    """A checkpoint is read on the host. Catches moments that stay there."""
    set_up()
    settings = OptimizerConfig("adam", 2e-3)
    before, weights, gradients = Optimizer(settings, 3), {"w": torch.ones(4)}, {"w": torch.arange(4.0)}
    before.apply(weights, gradients)
    resumed = [Optimizer(settings, 3) for _ in range(2)]
    for one in resumed:
        one.restore({name: value.clone() for name, value in before.state().items()})
    with Watch():
        there = {"w": weights["w"].to(NAME)}
        resumed[1].apply(there, {"w": gradients["w"].to(NAME)})
    resumed[0].apply(weights, gradients)
    assert torch.equal(home(there["w"]), weights["w"])
    for name, value in resumed[0].state().items():
        assert name == "done" or torch.equal(home(resumed[1].state()[name]), value)


def test_a_row_that_is_not_finite_adds_nothing_on_another_device() -> None:
    """Catches NaN times zero, where nobody asks whether there is a NaN."""
    set_up()
    results = []
    for elsewhere in (False, True):
        model = made("lstm")
        with torch.no_grad():
            next(model.module.parameters())[11] = torch.inf  # the embedding of a token of the first row alone
        batch = TextBatch.of_rows([[1, 11, 3, 2], [4, 5, 6], [7, 7, 8]])
        with Watch():
            if elsewhere:
                move_module(model.module)
                batch = batch.to(torch.device(NAME))
            results.append(clipped_sum(model, batch, Automatic(1.0)))
    expected, found = results
    assert expected.non_finite == found.non_finite == 1
    assert expected.targets == found.targets == 7
    for name, value in expected.sums.items():
        assert value.isfinite().all()
        torch.testing.assert_close(home(found.sums[name]), value, rtol=1e-3, atol=1e-6)


def test_noise_is_the_same_elsewhere_and_comes_in_one_transfer() -> None:
    set_up()
    here = [torch.zeros(3, 5), torch.zeros(140_000), torch.zeros(2)]
    NoiseStream(b"key", 0).add_(here, 2.0)
    with Watch() as watch:
        there = [torch.zeros(one.shape, device=NAME) for one in here]
        NoiseStream(b"key", 0).add_(there, 2.0)
    assert watch.copies == 1
    for one, other in zip(here, there, strict=True):
        assert torch.equal(home(other), one)


@pytest.mark.parametrize("seed", range(5))
def test_groups_of_equal_tokens_are_the_same_with_a_fixed_number(seed: int) -> None:
    """Against torch.unique, whose number of groups the host would have to wait for."""
    chance = torch.Generator().manual_seed(seed)
    indices = torch.randint(6, (4, 7), generator=chance)
    gradients = torch.randn(4, 7, 3, generator=chance, dtype=torch.float64)
    factors, sums = torch.rand(4, generator=chance, dtype=torch.float64), []
    for grouped in (_found_groups, _groups_of_fixed_number):
        rows, tokens, places = grouped(indices, 6)
        found = torch.zeros(len(rows), 3, dtype=torch.float64)
        found.index_add_(0, places.flatten(), gradients.flatten(0, 1))
        norms = torch.zeros(4, dtype=torch.float64).index_add_(0, rows, found.square().sum(dim=1))
        total = torch.zeros(6, 3, dtype=torch.float64).index_add_(0, tokens, found * factors[rows][:, None])
        sums.append((norms, total))
    for one, other in zip(*sums, strict=True):
        torch.testing.assert_close(one, other)


READS: list[Callable[[Tensor], object]] = [
    lambda values: values.item(),
    lambda values: values.tolist(),
    lambda values: bool(values),
    lambda values: values.cpu(),
    lambda values: values.nonzero(),
    torch.unique,
]


class TestTheWatchSeesWhatItMust:
    """Controls: each of these would make a GPU wait, or fail there."""

    @pytest.fixture(autouse=True)
    def _ready(self) -> None:
        set_up()

    def watched(self, inside: Callable[[], object]) -> Watch:
        model = made("lstm")
        move_module(model.module)
        watch = Watch()
        with watch:
            step(model, Marked(batch_of(model).to(torch.device(NAME)), watch, inside))
        return watch

    @pytest.mark.parametrize("read", READS)
    def test_a_number_that_is_read(self, read: Callable[[Tensor], object]) -> None:
        values = Elsewhere(torch.ones(1))
        watch = self.watched(lambda: read(values))
        assert watch.waits
        assert "test_devices.py" in watch.waits[0]
        assert watch.hosts == []

    def test_a_mask_of_numbers_as_an_index(self) -> None:
        values = Elsewhere(torch.ones(3))
        assert self.watched(lambda: values[values > 0]).waits

    def test_a_tensor_made_on_the_host(self) -> None:
        assert self.watched(lambda: torch.zeros(2).to(NAME)).hosts

    def test_tensors_of_two_devices(self) -> None:
        with pytest.raises(MixedDevices):
            self.watched(lambda: Elsewhere(torch.ones(2)) + torch.ones(2))

    def test_a_number_that_a_backward_hook_reads(self) -> None:
        def backward() -> None:
            values = Elsewhere(torch.ones(2)).requires_grad_()
            values.register_hook(lambda gradient: print(gradient.sum().item()))  # type: ignore[no-untyped-call]
            torch.autograd.backward(values.sum())

        assert self.watched(backward).waits

    def test_what_is_read_outside_of_the_loop_is_allowed(self) -> None:
        with Watch() as watch:
            Elsewhere(torch.ones(1)).item()
        assert watch.waits == []
