"""Adapters in upper layers alone: nothing below is differentiated, and what is kept of it changes no sum."""

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from tacit.config.load import check_used, load_config
from tacit.config.model_schema import CausalLMConfig, LoRAConfig
from tacit.data.batches import TextBatch
from tacit.errors import ConfigError, ModelError, TacitError
from tacit.models.activations import ActivationCache, activation_cache
from tacit.models.causal_lm import CausalLM
from tacit.models.lower_layers import LowerLayers
from tacit.training.gradients.check import check_gradients
from tacit.training.gradients.clipped import Flat, clipped_sum, plain_sum

VOCABULARY, WIDTH = 23, 16


@pytest.fixture(autouse=True)
def _seeded_and_on_one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(3)
    yield
    torch.set_num_threads(threads)


def gpt(layers: tuple[int, ...] | None = (2, 3), dropout: float = 0.0) -> CausalLM:
    return CausalLM.new(CausalLMConfig(VOCABULARY, WIDTH, 4, 2, 32, dropout), LoRAConfig(2, layers_to_transform=layers))


def llama(layers: tuple[int, ...] | None = (1, 2)) -> CausalLM:
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes: dict[str, Any] = {"hidden_size": WIDTH, "intermediate_size": 24, "num_hidden_layers": 3}
    heads: dict[str, Any] = {"num_attention_heads": 2, "num_key_value_heads": 1, "bos_token_id": None}
    module = LlamaForCausalLM(LlamaConfig(vocab_size=VOCABULARY, eos_token_id=None, **sizes, **heads))  # type: ignore[no-untyped-call]
    return CausalLM.of(module, LoRAConfig(2, layers_to_transform=layers))


MODELS = {"gpt": gpt, "llama": llama}


def awakened(model: CausalLM) -> CausalLM:
    """Adapters begin at zero; here they do something."""
    with torch.no_grad():
        for name, value in model.module.named_parameters():
            if "lora_" in name:
                value.normal_(std=0.3)
    return model


def batch() -> TextBatch:
    """Rows of several lengths, one of whose last targets do not count, so that it is cut or padded by the others."""
    rows = [torch.randint(VOCABULARY, (length,)).tolist() for length in (9, 4, 14, 2, 9)]
    weights = [[1.0] * (len(row) - 1) for row in rows]
    weights[2][5:] = [0.0] * 8
    return TextBatch.of_rows(rows, weights)


class Kept(NamedTuple):
    model: CausalLM
    cache: ActivationCache
    read: list[Tensor]  # rows that the lower layers read


@pytest.fixture
def kept(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kept]:
    """A model whose lower layers are kept, with room for so many positions; and which rows they were asked for."""
    name, positions = request.param
    model = awakened(MODELS[name]())
    lower, read, states = LowerLayers(model), list[Tensor](), LowerLayers.states

    def watched(own: LowerLayers, row: Tensor) -> Tensor:
        read.append(row)
        return states(own, row)

    monkeypatch.setattr(LowerLayers, "states", watched)
    with activation_cache(lower, tmp_path, 1.0, positions) as cache:
        yield Kept(CausalLM(model.module, model.lora, cache), cache, read)


def apart(first: dict[str, Tensor], second: dict[str, Tensor]) -> float:
    length = float(torch.stack([value.norm() for value in second.values()]).norm())
    return float(torch.stack([(first[name] - value).norm() for name, value in second.items()]).norm()) / length


@pytest.mark.parametrize("name", MODELS)
def test_nothing_below_the_first_adapter_is_differentiated(name: str) -> None:
    model = awakened(MODELS[name]())
    learned = {path.split(".")[2] for path, value in model.module.named_parameters() if value.requires_grad}
    first = min(map(int, learned))
    layers = model.module.get_submodule("transformer.h" if name == "gpt" else "model.layers")
    differentiated: dict[int, bool] = {}

    def look(number: int) -> Any:  # noqa: ANN401
        return lambda _, __, output: differentiated.update({number: output.requires_grad})

    handles = [layer.register_forward_hook(look(number)) for number, layer in enumerate(layers.children())]
    for is_private in (True, False):
        sums = clipped_sum(model, batch(), Flat(1.0)).sums if is_private else plain_sum(model, batch()).sums
        assert differentiated == {number: number >= first for number in range(len(handles))}
        assert {path.split(".")[2] for path in sums} == learned
        differentiated.clear()


def test_layers_that_the_model_does_not_have_are_refused() -> None:
    with pytest.raises(ModelError, match="4, 7"):
        gpt((3, 7, 4))


@pytest.mark.parametrize("kept", [(name, room) for name in MODELS for room in (1000, 12, 0)], indirect=True)
def test_sums_are_those_without_a_cache_and_the_same_bits_in_every_pass(kept: Kept) -> None:
    """Room for all rows, for one or two, for none; a batch again, in another order, and in parts."""
    without, rows = CausalLM(kept.model.module, kept.model.lora), batch()
    found = [clipped_sum(kept.model, rows, Flat(0.7)).sums for _ in range(3)]
    expected = clipped_sum(without, rows, Flat(0.7)).sums
    assert apart(found[0], expected) < 1e-5
    for again in found[1:]:
        assert all(torch.equal(value, again[name]) for name, value in found[0].items())
    turned = rows.rows(torch.tensor([4, 3, 2, 1, 0]))
    assert apart(clipped_sum(kept.model, turned, Flat(0.7), positions=12).sums, expected) < 1e-5
    assert apart(plain_sum(kept.model, rows).sums, plain_sum(without, rows).sums) < 1e-5


@pytest.mark.parametrize("kept", [("gpt", 1000), ("llama", 1000)], indirect=True)
def test_sums_are_those_of_single_rows_in_float64(kept: Kept) -> None:
    rows = batch()
    found = [clipped_sum(kept.model, rows, Flat(0.7)) for _ in range(2)][-1]
    module = kept.model.module.double()
    exact = CausalLM(module, kept.model.lora)
    total = {name: torch.zeros_like(value) for name, value in module.named_parameters() if value.requires_grad}
    for row in range(len(rows)):
        loss = exact.token_losses(rows.rows(torch.tensor([row]))).total
        gradients = torch.autograd.grad(loss, [module.get_parameter(name) for name in total])
        norm = torch.stack([value.norm() for value in gradients]).norm()
        for name, value in zip(total, gradients, strict=True):
            total[name] += value * min(1.0, 0.7 / float(norm))
    assert apart({name: value.double() for name, value in found.sums.items()}, total) < 2e-3  # the margin of norms


@pytest.mark.parametrize("kept", [("gpt", 1000)], indirect=True)
def test_a_row_is_computed_once_and_alone(kept: Kept) -> None:
    rows = batch()
    clipped_sum(kept.model, rows, Flat(0.7), positions=12)
    assert sorted(len(row) for row in kept.read) == sorted(rows.reach.tolist())
    assert all(row.dim() == 1 for row in kept.read)
    clipped_sum(kept.model, rows, Flat(0.7))
    assert len(kept.read) == len(rows)


@pytest.mark.parametrize("kept", [("gpt", 20)], indirect=True)
def test_rows_without_room_are_computed_again(kept: Kept) -> None:
    rows = batch()
    for _ in range(2):
        clipped_sum(kept.model, rows, Flat(0.7))
    assert len(rows) < len(kept.read) < 2 * len(rows)


@pytest.mark.parametrize("kept", [("gpt", 1000)], indirect=True)
def test_states_of_another_row_would_be_noticed(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: keys that do not tell rows apart."""
    rows = batch().rows(torch.tensor([0, 4]))
    expected = clipped_sum(CausalLM(kept.model.module, kept.model.lora), rows, Flat(0.7)).sums

    class Same:
        def __init__(self, *_: object, **__: object) -> None: ...
        def digest(self) -> bytes:
            return b"same"

    monkeypatch.setattr("tacit.models.activations.hashlib.blake2b", Same)
    assert apart(clipped_sum(kept.model, rows, Flat(0.7)).sums, expected) > 0.01


@pytest.mark.parametrize("kept", [("gpt", 1000), ("llama", 1000)], indirect=True)
def test_the_check_before_training_covers_the_cache(kept: Kept) -> None:
    check_gradients(kept.model)
    assert kept.read


def test_the_file_is_private_has_no_name_and_is_never_larger_than_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lower, made, make = LowerLayers(gpt()), list[Any](), tempfile.TemporaryFile

    def watched(dir: Path) -> Any:  # noqa: ANN401
        made.append(make(dir=dir))
        return made[-1]

    monkeypatch.setattr(tempfile, "TemporaryFile", watched)
    with activation_cache(lower, tmp_path, 1e-6, 1000) as cache:
        facts = os.fstat(made[0].fileno())
        assert len(cache.mapped) == 1000 // (4 * WIDTH)
        assert facts.st_size <= 1000
        assert stat.S_IMODE(facts.st_mode) == 0o600
        assert list(tmp_path.iterdir()) == []
    assert made[0].closed


def test_a_disk_without_room_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(100, 99, 1))
    with pytest.raises(ConfigError, match="room"), activation_cache(LowerLayers(gpt()), tmp_path, 1.0, 1000):
        pass


def test_models_that_cannot_be_cut_are_refused_and_left_as_they_were() -> None:
    for model, reason in ((gpt(dropout=0.2), "dropout"), (CausalLM(gpt().module.lm_head), "adapters")):  # type: ignore[arg-type]
        modes = [part.training for part in model.module.modules()]
        with pytest.raises((ModelError, AttributeError), match=reason):
            LowerLayers(model)
        assert [part.training for part in model.module.modules()] == modes
        assert not any("forward" in vars(part) or part._forward_pre_hooks for part in model.module.modules())


UPPER = {"layers_to_transform": [1]}


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ({"lora": {"rank": 2}}, "below the first"),
        ({"lora": {"layers_to_transform": [0, 1]}}, "below the first"),
        ({"lora": None}, "below the first"),
        ({"lora": UPPER, "precision": "bfloat16"}, "float32"),
        ({"lora": UPPER, "model": "a folder", "task": "classification", "classes": ["a", "b"]}, "language"),
        ({"lora": {"layers_to_transform": []}}, "layers to adapt"),
        ({"lora": {"layers_to_transform": [-1]}}, "layers_to_transform"),
    ],
)
def test_settings_that_would_keep_nothing_are_refused(words: dict[str, Any], reason: str) -> None:
    base = {"corpus": "corpus.jsonl", "model": "gpt", "plan": {"mechanism": "dpsgd", "epsilon": 8}}
    check_used(load_config({**base, "lora": UPPER, "cache_activations_gb": 1.0}))
    with pytest.raises(TacitError, match=reason):
        check_used(load_config({**base, "cache_activations_gb": 1.0, **words}))
