"""Model families of transformers: a tiny random model of each, and how its gradients are computed.

`docs/families.md` is this table in words; `tests/models/test_families.py` checks every row of it.
"""

import warnings
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from tacit.config.model_schema import ClassifierConfig, LoRAConfig
from tacit.data.batches import LabeledBatch, TextBatch
from tacit.models.causal_lm import CausalLM
from tacit.models.classifier import Classifier, EncoderClassifier
from tacit.models.language_model import Learner
from tacit.training.gradients.clipped import Method

VOCABULARY = 60
CONTEXT = 64
CLASSES = ("business", "sports", "world")
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 40,
    "max_position_embeddings": CONTEXT,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
GROUPED = {**SIZES, "num_key_value_heads": 2}
"""Two heads of queries share one of keys and values."""
VISION = {"hidden_size": 16, "intermediate_size": 20, "num_hidden_layers": 1, "num_attention_heads": 2}
OLD: dict[str, Any] = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": CONTEXT}
ENDS = {"vocab_size": VOCABULARY, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
LORA = LoRAConfig(rank=2)

Kind = Literal["causal", "encoder"]


@dataclass(frozen=True, slots=True)
class Family:
    """One architecture: its configuration, and the method for all weights and for adapters.

    A method that is None is refused; `refused` says so in the words of the error.
    """

    name: str
    config: dict[str, Any] = field(repr=False)
    whole: Method
    adapters: Method | None
    kind: Kind = "causal"
    refused: str = ""

    def __str__(self) -> str:
        return self.name


CAUSAL = (
    Family("Llama (also SmolLM)", {"model_type": "llama", **GROUPED}, "fused", "fused"),
    Family("Llama, tied", {"model_type": "llama", **GROUPED, "tie_word_embeddings": True}, "fused", "fused"),
    Family("Mistral", {"model_type": "mistral", **GROUPED, "sliding_window": 4}, "fused", "fused"),
    Family("Qwen2", {"model_type": "qwen2", **GROUPED}, "fused", "fused"),
    Family("Qwen3", {"model_type": "qwen3", **GROUPED, "head_dim": 8}, "fused", "fused"),
    Family("Gemma", {"model_type": "gemma", **GROUPED, "head_dim": 8}, "fused", "fused"),
    Family(
        "Gemma 2",
        {"model_type": "gemma2", **GROUPED, "head_dim": 8, "sliding_window": 4, "final_logit_softcapping": 3.0},
        "layers",
        "layers",
    ),
    Family("Gemma 3", {"model_type": "gemma3_text", **GROUPED, "head_dim": 8, "sliding_window": 4}, "fused", "fused"),
    Family(
        "Gemma 3 with vision",
        {
            "model_type": "gemma3",
            "text_config": {**GROUPED, "head_dim": 8, "sliding_window": 4},
            "vision_config": {**VISION, "image_size": 28, "patch_size": 14},
            "mm_tokens_per_image": 4,
            "image_token_index": VOCABULARY,
        },
        "fused",
        "fused",
    ),
    Family("Phi", {"model_type": "phi", **SIZES}, "fused", "fused"),
    Family("Phi-3", {"model_type": "phi3", **GROUPED, "sliding_window": 4}, "fused", "fused"),
    Family("GPT-2", {"model_type": "gpt2", **ENDS, **OLD}, "fused", "fused"),
    Family("GPT-NeoX (Pythia)", {"model_type": "gpt_neox", **SIZES}, "fused", "fused"),
    Family("OPT", {"model_type": "opt", **SIZES, "ffn_dim": 40, "word_embed_proj_dim": 32}, "fused", "fused"),
    Family("Falcon", {"model_type": "falcon", **SIZES}, "fused", "fused"),
    Family("StableLM", {"model_type": "stablelm", **GROUPED, "qk_layernorm": True}, "fused", "fused"),
    Family("SmolLM3", {"model_type": "smollm3", **GROUPED}, "fused", "fused"),
    Family("BLOOM", {"model_type": "bloom", **ENDS, "hidden_size": 32, "n_layer": 2, "n_head": 4}, "fused", "fused"),
    Family("GPT-J", {"model_type": "gptj", **ENDS, **OLD, "rotary_dim": 4}, "fused", "fused"),
    Family("MPT", {"model_type": "mpt", **ENDS, "d_model": 32, "n_layers": 2, "n_heads": 4}, "fused", "fused"),
    Family("OLMo 2", {"model_type": "olmo2", **GROUPED}, "fused", "fused"),
    Family("Granite", {"model_type": "granite", **GROUPED, "logits_scaling": 0.1}, "layers", "layers"),
    Family("Cohere", {"model_type": "cohere", **GROUPED, "logit_scale": 4.0, "use_qk_norm": True}, "layers", "layers"),
    Family("Mixtral", {"model_type": "mixtral", **GROUPED, "num_local_experts": 4}, "rows", "rows"),
    Family(
        "Qwen2-MoE",
        {
            "model_type": "qwen2_moe",
            **GROUPED,
            "num_experts": 4,
            "moe_intermediate_size": 8,
            "shared_expert_intermediate_size": 8,
            "decoder_sparse_step": 1,
        },
        "rows",
        "rows",
    ),
    Family(
        "Qwen3-MoE",
        {
            "model_type": "qwen3_moe",
            **GROUPED,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 8,
            "mlp_only_layers": [1],
        },
        "rows",
        "rows",
    ),
    Family(
        "DeepSeek-V3",
        {
            "model_type": "deepseek_v3",
            **SIZES,
            "num_key_value_heads": 4,
            "moe_intermediate_size": 8,
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "n_group": 2,
            "topk_group": 1,
            "first_k_dense_replace": 1,
            "q_lora_rank": 8,
            "kv_lora_rank": 8,
            "qk_rope_head_dim": 4,
            "qk_nope_head_dim": 4,
            "v_head_dim": 8,
        },
        "rows",
        "rows",
    ),
    Family(
        "GPT-OSS",
        {"model_type": "gpt_oss", **GROUPED, "head_dim": 8, "num_local_experts": 4, "sliding_window": 4},
        "rows",
        "rows",
    ),
    Family("StarCoder 2", {"model_type": "starcoder2", **GROUPED}, "fused", "fused"),
    Family("Mamba", {"model_type": "mamba", **SIZES, "state_size": 4}, "rows", None, refused="incompatible with Mamba"),
)
ENCODERS = (
    Family("BERT", {"model_type": "bert", **SIZES}, "fused", "fused", "encoder"),
    Family("RoBERTa", {"model_type": "roberta", **SIZES, "pad_token_id": 1}, "fused", "fused", "encoder"),
    Family(
        "DistilBERT",
        {**ENDS, "model_type": "distilbert", "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 40},
        "fused",
        "fused",
        "encoder",
    ),
    Family(
        "DeBERTa-v2",
        {
            "model_type": "deberta-v2",
            **SIZES,
            "relative_attention": True,
            "pos_att_type": ["p2c", "c2p"],
            "position_buckets": 8,
            "share_att_key": True,
            "norm_rel_ebd": "layer_norm",
            "position_biased_input": False,
        },
        "rows",
        "rows",
        "encoder",
    ),
    Family("ELECTRA", {"model_type": "electra", **SIZES, "embedding_size": 16}, "fused", "fused", "encoder"),
    Family("ModernBERT", {"model_type": "modernbert", **SIZES, "local_attention": 4}, "fused", "fused", "encoder"),
    Family("Llama, classifying", {"model_type": "llama", **GROUPED}, "layers", "layers", "encoder"),
)
FAMILIES = (*CAUSAL, *ENCODERS)


def make(family: Family, lora: LoRAConfig | None = None) -> Learner | Classifier:
    """A model with fresh weights from torch's global generator."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of torch.jit, which DeBERTa uses
        return _made(family, lora)


def _made(family: Family, lora: LoRAConfig | None) -> Learner | Classifier:
    if family.kind == "encoder":
        return EncoderClassifier.described(family.config, ClassifierConfig(CLASSES), lora)
    return CausalLM.described(family.config, None if lora is None else {"rank": lora.rank})


@torch.no_grad()
def awaken(model: Learner | Classifier, large_scores: float = 20.0) -> None:
    """Every weight away from where it began: norms from one, biases and adapters from zero; and scores that are large.

    Large ones are capped where a family caps scores.
    """
    for parameter in model.module.parameters():
        parameter.add_(0.1 * torch.randn_like(parameter))
    weight = model.head.get_parameter("weight")
    batch = batch_for(model)
    model.module.eval()
    weight.mul_(large_scores / model.logits(batch.inputs).abs().amax())


def batch_for(model: Learner | Classifier) -> TextBatch | LabeledBatch:
    """Rows of many lengths, weights that are not one, targets and rows that do not count."""
    chance = torch.Generator().manual_seed(5)
    rows = [torch.randint(3, VOCABULARY, (length,), generator=chance).tolist() for length in (9, 2, 13, 5, 6, 1)]
    if isinstance(model, Classifier):
        return LabeledBatch.of_rows(rows, [0, 1, 2, 2, 0, 1], [1.0, 1.0, 1e-2, 0.0, 0.5, 2.0])
    weights = [[1.0] * (len(row) - 1) for row in rows]
    weights[3] = [0.0, 0.0, 1.0, 0.5]
    weights[4] = [0.0] * 5
    return TextBatch.of_rows(rows, weights)


def documented(family: Family) -> str:
    """The row of a family in docs/families.md."""
    task = {"causal": "language", "encoder": "classification"}[family.kind]
    adapters = "refused" if family.adapters is None else f"`{family.adapters}`"
    return f"| {family.name} | {task} | `{family.whole}` | {adapters} |"
