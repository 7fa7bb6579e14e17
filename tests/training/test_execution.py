"""How attention is computed, activations that are computed twice, bfloat16 and threads: how fast, never what."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from oracles import assert_clipped_sums_are_exact, assert_near
from saved import save_pretrained
from tacit.common.libraries import Loading
from tacit.config.load import load_config
from tacit.config.model_schema import CausalLMConfig, LoRAConfig, LSTMConfig
from tacit.config.schema import Config
from tacit.data.batches import TextBatch
from tacit.errors import ConfigError, GradientError, ModelError
from tacit.models.causal_lm import CausalLM
from tacit.models.folders import checkpoint_activations
from tacit.models.lstm import LSTM
from tacit.training.checks import check_run
from tacit.training.gradients.check import check_gradients
from tacit.training.gradients.clipped import Flat, clipped_sum, plain_sum
from tacit.training.starting import set_threads

SHAPE = CausalLMConfig(vocabulary_size=40, width=8, layers=2, heads=2, context=16, dropout=0.3)
BATCH = TextBatch.of_rows([[1, 2, 3, 4, 5], [6, 7], [8, 9, 8, 9]])


def asked(corpus: Path, **settings: Any) -> Config:  # noqa: ANN401
    config = load_config(corpus, {"mechanism": "plain", "epochs": 1}, settings)
    check_run(config)
    return config


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    (tmp_path / "c.jsonl").write_text('{"id": "a", "text": "hello"}\n', encoding="utf-8")
    return tmp_path / "c.jsonl"


def made(lora: LoRAConfig | None = None) -> CausalLM:
    torch.manual_seed(5)
    return CausalLM.new(SHAPE, lora)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_attention_is_computed_as_asked_and_its_gradients_are_exact(attention: str, tmp_path: Path) -> None:
    save_pretrained(made(), tmp_path)
    model = CausalLM.from_folder(tmp_path, loading=Loading(attention))
    config: Any = model.module.config
    assert config._attn_implementation == attention
    assert_clipped_sums_are_exact(model, BATCH, Flat(0.3))


def test_other_attention_and_new_models_are_refused(corpus: Path) -> None:
    """16-bit attention has no place in private steps, which compute in float32."""
    with pytest.raises(ConfigError, match="attn_implementation"):
        asked(corpus, attn_implementation="flash_attention_2")
    with pytest.raises(ConfigError, match="attn_implementation for a folder"):
        asked(corpus, attn_implementation="eager")
    with pytest.raises(ConfigError, match="gradient_checkpointing for a gpt or a folder"):
        asked(corpus, gradient_checkpointing="public")
    asked(corpus, gradient_checkpointing="public", model="gpt")


def forwards(model: CausalLM) -> list[int]:
    """Counts the forward passes of one layer from now on."""
    count = [0]
    layer = model.module.get_submodule("transformer.h.0.mlp.c_fc")
    layer.register_forward_pre_hook(lambda *_: count.__setitem__(0, count[0] + 1))
    return count


@pytest.mark.parametrize("lora", [None, LoRAConfig(rank=2, dropout=0.2)])
def test_public_steps_with_checkpoints_compute_the_same_numbers_twice(lora: LoRAConfig | None) -> None:
    """With dropout, whose masks are the same the second time."""
    sums = []
    for checkpoints in (False, True):
        model = made(lora)
        if checkpoints:
            checkpoint_activations(model.module)
        model.module.train()
        count = forwards(model)
        torch.manual_seed(1)
        sums.append(plain_sum(model, BATCH).sums)
        assert count == [2 if checkpoints else 1]
    assert_near(sums[1], sums[0], 1e-6)


def test_private_steps_keep_their_activations_and_stay_exact() -> None:
    """Catches hooks that fire twice: the layers are in evaluation mode, in which nothing is computed again."""
    model = made()
    plain = clipped_sum(model, BATCH, Flat(0.3))
    checkpoint_activations(model.module)
    model.module.train()
    count = forwards(model)
    found = clipped_sum(model, BATCH, Flat(0.3))
    assert count == [1]
    for name, value in plain.sums.items():
        assert torch.equal(found.sums[name], value)
    assert_clipped_sums_are_exact(model, BATCH, Flat(0.3))


def test_a_model_that_cannot_compute_twice_is_refused() -> None:
    with pytest.raises(ModelError, match="compute its activations twice"):
        checkpoint_activations(LSTM.new(LSTMConfig(40)).module)


def test_bfloat16_is_for_activations_of_public_steps() -> None:
    """Sums stay in float32, also under the caller's autocast; a model whose weights are in bfloat16 is refused."""
    model = made()
    exact = clipped_sum(model, BATCH, Flat(0.3))
    with torch.autocast("cpu", torch.bfloat16):
        public, private = plain_sum(model, BATCH), clipped_sum(model, BATCH, Flat(0.3))
    assert {value.dtype for value in (*public.sums.values(), *private.sums.values(), private.norms)} == {torch.float32}
    for name, value in exact.sums.items():
        assert torch.equal(private.sums[name], value)
    with pytest.raises(GradientError, match="float32"):
        check_gradients(CausalLM.of(made().module.to(torch.bfloat16)))


class TestThreads:
    @pytest.fixture(autouse=True)
    def _as_before(self) -> Any:  # noqa: ANN401
        before = torch.get_num_threads()
        yield
        torch.set_num_threads(before)

    def test_a_number_that_was_asked_for(self, corpus: Path) -> None:
        set_threads(asked(corpus, threads=3))
        assert torch.get_num_threads() == 3

    def test_otherwise_the_number_is_left_alone(self, corpus: Path) -> None:
        torch.set_num_threads(4)
        set_threads(asked(corpus))
        assert torch.get_num_threads() == 4

    def test_sums_are_those_of_one_thread(self) -> None:
        model = made()
        one = clipped_sum(model, BATCH, Flat(0.3)).sums
        torch.set_num_threads(3)
        assert_near(clipped_sum(model, BATCH, Flat(0.3)).sums, one, 1e-5)


@pytest.mark.parametrize(
    ("program", "given", "expected"),
    [
        ("import tacit", {}, "PASSIVE"),
        ("import tacit", {"OMP_WAIT_POLICY": "active"}, "active"),
        ("import tacit", {"GOMP_SPINCOUNT": "7"}, "None"),
        ("import torch, tacit", {}, "None"),
    ],
)
def test_threads_sleep_while_they_wait_unless_somebody_decided_otherwise(
    program: str, given: dict[str, str], expected: str
) -> None:
    """Threads that spin beside other work take its core, and it theirs: steps took up to twenty times as long."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_", "KMP_"))}
    words = [sys.executable, "-c", f"{program}, os; print(os.environ.get('OMP_WAIT_POLICY'))"]
    done = subprocess.run(words, env=kept | given, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == expected
