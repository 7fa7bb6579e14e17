"""Hugging Face causal language models as Learners: GPT-2 from settings, or any local folder; LoRA as an option.

A proof by example, on tokens that are nobody's, that a language model does not look ahead.
"""

import copy
import sys
from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tacit.common.libraries import LOADING, Loading, foreign, from_folder, quietly
from tacit.config.model_schema import CausalLMConfig, LoRAConfig
from tacit.data.batches import wide
from tacit.errors import ModelError
from tacit.models.activations import ActivationCache
from tacit.models.adapter_targets import adapter_targets, text_trained
from tacit.models.language_model import DecoderState, Learner, Rereading, speaking
from tacit.models.transformers_model import TransformersModel


def pretrained(
    kind: Any,  # noqa: ANN401
    folder: Path,
    vocabulary_size: int,
    unread: Collection[str] = (),
    lora: LoRAConfig | None = None,
    loading: Loading = LOADING,
) -> nn.Module:
    """The model that a class of transformers makes of a local folder: whole but for parts that nobody reads.

    It gets room for `vocabulary_size` tokens if it has less: refused where only adapters (`lora`) will be saved.
    """
    module = from_folder(kind, folder, unread, loading)
    size = module.config.get_text_config().vocab_size
    if vocabulary_size > size:
        if lora is not None:
            raise ModelError(
                expected="a model whose vocabulary has a token for the end of a text and one to hide secrets with",
                found=f"a tokenizer of {vocabulary_size} tokens, and a model with {size}",
                way_out="train all weights (without lora): adapters cannot save new tokens",
            )
        with quietly():
            module.resize_token_embeddings(vocabulary_size, mean_resizing=not loading.sketched)
    loaded: nn.Module = module
    return loaded


def untrained(kind: Any, config: dict[str, Any]) -> nn.Module:  # noqa: ANN401
    """What a class of transformers makes of a configuration (as its `to_dict()` gives it), with fresh weights."""
    from transformers import AutoConfig

    content = {key: value for key, value in config.items() if key != "model_type"}
    module: nn.Module = kind.from_config(AutoConfig.for_model(config["model_type"], **content))
    return module


def with_adapters(module: nn.Module, lora: LoRAConfig, trained: Collection[nn.Module] = ()) -> nn.Module:
    """`module` with adapters on its linear layers (see `adapter_targets`), or on those of some; all else is frozen.

    trained: parts that are trained as they are, beside the adapters: what stands on top of an encoder.
    """
    from peft import LoraConfig, inject_adapter_in_model
    from transformers.pytorch_utils import Conv1D

    config = LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules=adapter_targets(module, trained),
        layers_to_transform=None if lora.layers_to_transform is None else list(lora.layers_to_transform),
        fan_in_fan_out=any(isinstance(part, Conv1D) for part in module.modules()),
        task_type="SEQ_CLS" if trained else "CAUSAL_LM",
    )
    with foreign(lambda found: ModelError("a model that PEFT can adapt", found, "train without lora")):
        adapted: nn.Module = inject_adapter_in_model(config, module)
    _require_adapters(adapted, lora.layers_to_transform or ())
    for part in trained:
        part.requires_grad_()
    return adapted


def _require_adapters(module: nn.Module, layers: Collection[int]) -> None:
    """Refuse numbers of layers that the model does not have: PEFT passes over them."""
    found = {
        int(part)
        for path, _ in module.named_parameters()
        if "lora_" in path
        for part in path.split(".")
        if part.isdigit()
    }
    missing = sorted(set(layers) - found)
    if missing:
        raise ModelError(
            expected="lora.layers_to_transform: numbers of layers that the model has",
            found=f"{', '.join(map(str, missing))}, where layers count from 0",
            way_out="the last of n layers is n - 1; correct the numbers",
        )


@dataclass(frozen=True, slots=True, eq=False)
class CausalLMState:
    """Keys and values of what was read, and what is expected next."""

    model: "CausalLM"
    cache: Any
    next_log_probabilities: Tensor

    def select(self, rows: Tensor) -> "CausalLMState":
        cache = _own(self.cache)
        cache.reorder_cache(rows)
        return CausalLMState(self.model, cache, self.next_log_probabilities[rows])

    def read(self, tokens: Tensor) -> "CausalLMState":
        return self.model.advance(tokens[:, None], _own(self.cache))

    def branch(self, rows: Tensor, tokens: Tensor) -> "CausalLMState":
        cache = _own(self.cache)
        cache.reorder_cache(rows)
        return self.model.advance(tokens[:, None], cache)

    @property
    def bytes_a_row(self) -> int:
        held = [value for layer in self.cache.layers for value in vars(layer).values() if isinstance(value, Tensor)]
        return sum(value.nbytes for value in (*held, self.next_log_probabilities)) // len(self.next_log_probabilities)


def _own(cache: Any) -> Any:  # noqa: ANN401  (a cache of transformers)
    """A cache that may be used up while the old one stays: its tensors are shared where none is written in place."""
    from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

    if any(type(layer) not in (DynamicLayer, DynamicSlidingWindowLayer) for layer in cache.layers):
        return copy.deepcopy(cache)
    own = copy.copy(cache)
    own.layers = [copy.copy(layer) for layer in cache.layers]
    return own


@dataclass(frozen=True, slots=True, eq=False)
class CausalLM(TransformersModel):
    """A causal language model of transformers, untouched, as a Learner.

    cache: what lower layers make of rows that were read before, for sums of gradients.
    """

    module: nn.Module
    lora: LoRAConfig | None = None
    cache: ActivationCache | None = None
    base: Path | None = None

    @classmethod
    def new(cls, settings: CausalLMConfig, lora: LoRAConfig | None = None) -> "CausalLM":
        """A GPT-2 with fresh weights from torch's global generator."""
        from transformers import AutoModelForCausalLM, GPT2Config

        config = GPT2Config(
            vocab_size=settings.vocabulary_size,
            n_embd=settings.width,
            n_layer=settings.layers,
            n_head=settings.heads,
            n_positions=settings.context,
            activation_function="gelu_pytorch_tanh",  # GPT-2's own function, as one operation instead of eight
            resid_pdrop=settings.dropout,
            embd_pdrop=settings.dropout,
            attn_pdrop=settings.dropout,
            bos_token_id=None,
            eos_token_id=None,
        )
        return cls.of(AutoModelForCausalLM.from_config(config), lora)  # type: ignore[no-untyped-call]

    @classmethod
    def of(cls, module: nn.Module, lora: LoRAConfig | None = None, base: Path | None = None) -> "CausalLM":
        """A model object of transformers; with `lora`, adapters are put into it and all else is frozen.

        base: the local folder that it is from.
        """
        return cls(module if lora is None else with_adapters(module, lora), lora, base=base)

    @classmethod
    def from_folder(
        cls, folder: Path, lora: LoRAConfig | None = None, vocabulary_size: int = 0, loading: Loading = LOADING
    ) -> "CausalLM":
        """The model of a local Hugging Face folder: safetensors only, no code from the folder, no network.

        It gets room for `vocabulary_size` tokens if it has less.
        """
        from transformers import AutoModelForCausalLM

        return cls.of(
            text_trained(pretrained(AutoModelForCausalLM, folder, vocabulary_size, (), lora, loading)), lora, folder
        )

    @property
    def vocabulary_size(self) -> int:
        return int(self._config.get_text_config().vocab_size)

    @property
    def _module(self) -> Any:  # noqa: ANN401
        return self.module

    @property
    def _config(self) -> Any:  # noqa: ANN401
        return self._module.config

    @property
    def head(self) -> nn.Module:
        """Of a model that names none, nothing: gradients are then computed without it."""
        layer: nn.Module | None = self._module.get_output_embeddings()
        return nn.Identity() if layer is None else layer

    @property
    def context(self) -> int:
        return int(getattr(self._config.get_text_config(), "max_position_embeddings", sys.maxsize))

    def logits(self, tokens: Tensor) -> Tensor:
        """(rows, time, vocabulary). Right padding needs no mask: attention is causal."""
        self.require_context(tokens)
        logits: Tensor = self.module(input_ids=tokens, use_cache=False).logits
        return logits

    def begin(self, tokens: Tensor) -> DecoderState:
        with speaking(self.module):
            answer = self.module(input_ids=tokens, use_cache=True)
        cache = answer.get("past_key_values")
        if cache is None:  # its state has another form, such as Mamba's
            return Rereading.of(self, tokens)
        return CausalLMState(self, cache, torch.log_softmax(wide(answer.logits[:, -1]), dim=-1))

    def advance(self, tokens: Tensor, cache: Any) -> CausalLMState:  # noqa: ANN401
        """The reading after (rows, length) more tokens; `cache` is used up."""
        with speaking(self.module):
            answer = self.module(input_ids=tokens, past_key_values=cache, use_cache=True)
        return CausalLMState(self, answer.past_key_values, torch.log_softmax(wide(answer.logits[:, -1]), dim=-1))

    def description(self) -> dict[str, Any]:
        lora = None if self.lora is None else asdict(self.lora)
        return {"kind": "gpt", "lora": lora, "config": self._config.to_dict()}

    @classmethod
    def described(cls, config: dict[str, Any], lora: dict[str, Any] | None) -> "CausalLM":
        """A model of this configuration, with weights that are still to be loaded."""
        from transformers import AutoModelForCausalLM

        return cls.of(
            text_trained(untrained(AutoModelForCausalLM, config)), None if lora is None else LoRAConfig(**lora)
        )


_TOLERANCE = 1e-5  # of the largest logit; nothing but rounding may differ, and mostly not even that


def require_causal(model: Learner, tokens: Tensor) -> None:
    """Refuse a model whose output at a position depends on later tokens: padding would then reveal other rows.

    Each place is one more pass. Any of them finds who looks ahead everywhere, however far; the first and the last also
    who does so at one end, or within blocks.
    """
    last = tokens.shape[1] - 1
    places = sorted({1, last // 3, 2 * last // 3, last} & set(range(1, last + 1)))
    others = (tokens + 1) % model.vocabulary_size
    with speaking(model.module):
        said = model.logits(tokens)
        changed = [model.logits(torch.cat((tokens[:, :place], others[:, place:]), dim=1)) for place in places]
    expected = (*tokens.shape, model.vocabulary_size)
    if said.shape != expected:
        raise ModelError(f"logits {expected}", str(tuple(said.shape)), "correct the model's `forward`")
    moved = [(said[:, :place] - after[:, :place]).abs().amax() for place, after in zip(places, changed, strict=True)]
    if moved and not float(torch.stack(moved).amax()) <= _TOLERANCE * float(said.abs().amax()):
        raise ModelError(
            expected="a causal language model, whose output at a place depends on this token and earlier ones only",
            found=f"{type(model.module).__name__}, which looks ahead",
            way_out="use a decoder such as GPT-2 or Llama; an encoder such as BERT can learn with task: classification",
        )
