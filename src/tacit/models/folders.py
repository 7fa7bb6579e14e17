"""What can be known of a local model folder before its weights are in memory, and before anything is written.

The model is made as a sketch: by the code that will load it, with shapes and without numbers (torch's meta device).
A sketch that computes scores shows that heads, layers and tokens fit together; its parameters are counted for memory.

What a tokenizer must not do to text that a language model learns: forget parts of it, such as case or accents. Measures
per character would then be of another text, and a secret could not be compared with what the model generates.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from tacit.common.formatting import size_of
from tacit.common.libraries import foreign
from tacit.common.model_files import refused
from tacit.data.tokenizer import Tokenizer
from tacit.errors import ModelError, PrepareError
from tacit.models.classifier import Classifier
from tacit.models.language_model import Learner, speaking
from tacit.models.shards import blocks_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel

TOKENIZER = "tokenizer.json"
_OTHER_TOKENIZERS = ("tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "vocab.txt", "vocab.json")
_ROWS, _LENGTH = 2, 4
_NUMBER = 4  # bytes of float32
_KEPT = 2  # numbers that a layer keeps for each of its outputs, beside the gradient: its input, and what is in between
_SAMPLE = "Zoë's ID:\t42-A7,  naïve Straße\n(№ 9) E-Mail: x_y@ž.example; 漢字, 🙂 ﬁn."
_UNSEEN = ("meta tensor", "data-dependent")  # what sketches do not have, and real models do


def check_tokenizer_file(folder: Path) -> None:
    """Refuse a model folder without its tokenizer."""
    if (folder / TOKENIZER).exists():
        return
    others = [name for name in _OTHER_TOKENIZERS if (folder / name).exists()]
    raise ModelError(
        expected=f"a tokenizer in {folder}: the file {TOKENIZER}",
        found=f"none, but {others[0]}" if others else "none",
        way_out="save it there with AutoTokenizer.from_pretrained(SOURCE).save_pretrained(folder), or use tokenizer: "
        "bytes",
    )


def check_restores(tokenizer: Tokenizer) -> None:
    """Refuse a tokenizer that forgets parts of a text; spaces at its ends, where pieces are joined, do not count."""
    with foreign(lambda found: _forgets(found)):
        restored = "" if tokenizer.lossless else tokenizer.decode(tokenizer.encode(_SAMPLE))
    if not tokenizer.lossless and restored.strip() != _SAMPLE.strip():
        raise _forgets(f"one that makes {restored.strip()[:60]!r} of {_SAMPLE[:60]!r}")


def _forgets(found: str) -> PrepareError:
    return PrepareError(
        expected="a lossless tokenizer, which gives back the text that it read, to train a language model with",
        found=found,
        way_out="use tokenizer: bytes or a byte-level tokenizer.json; with this one, task: classification",
    )


def check_sketch(folder: Path, sketch: Learner | Classifier) -> None:
    """Refuse a model that cannot compute: heads that do not divide, sizes that do not fit together."""
    model = _transformer(sketch.module)
    _check_heads(folder, model)
    model.set_experts_implementation("eager")  # the others need numbers, or bfloat16
    tokens = torch.zeros(_ROWS, _LENGTH, dtype=torch.int64, device="meta")
    try:
        with foreign(lambda found: refused(folder, f"a config.json whose sizes do not fit together ({found})")):
            _speak(sketch, tokens)
    except ModelError as error:
        if not isinstance(error.__cause__, NotImplementedError) and not any(part in error.found for part in _UNSEEN):
            raise


def _transformer(module: nn.Module) -> "PreTrainedModel":
    """The model of transformers, which adapters may be wrapped around."""
    from transformers import PreTrainedModel

    return next(part for part in module.modules() if isinstance(part, PreTrainedModel))


def _check_heads(folder: Path, model: "PreTrainedModel") -> None:
    """Attention without numbers repeats key heads to any size."""
    config = model.config.get_text_config()
    heads, key_heads = (getattr(config, f"num_{name}_heads", None) for name in ("attention", "key_value"))
    if isinstance(heads, int) and isinstance(key_heads, int) and (key_heads < 1 or heads % key_heads):
        raise refused(folder, f"a config.json with {heads} attention heads, no multiple of {key_heads} key-value heads")


def _speak(sketch: Learner | Classifier, tokens: Tensor) -> None:
    with speaking(sketch.module):
        sketch.logits(tokens)


def checkpoint_activations(module: nn.Module) -> None:
    """Have a model of transformers compute activations twice while it trains, instead of keeping them.

    It does so in training mode alone. Private steps are in evaluation mode: their activations are needed for norms.
    """
    way_out = "leave gradient_checkpointing out; reduce execution.microbatch_tokens instead"
    with foreign(lambda found: ModelError("a model that can compute its activations twice", found, way_out)):
        _transformer(module).gradient_checkpointing_enable({"use_reentrant": False})


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """Bytes that training needs at least, roughly."""

    weights: int
    updates: int  # sums of gradients, and what optimizers keep
    activations: int

    @property
    def total(self) -> int:
        return self.weights + self.updates + self.activations

    def check(self, available: int | None) -> None:
        """Refuse a model that does not fit."""
        if available is None or self.total <= available:
            return
        raise ModelError(
            expected=f"memory for the model: about {size_of(self.total)} (weights {size_of(self.weights)}, gradients "
            f"and optimizers {size_of(self.updates)}, activations {size_of(self.activations)})",
            found=f"{size_of(available)} available",
            way_out="train adapters (--lora-rank 8), let several machines share the base model of adapters "
            "(execution.fsdp: base), use a smaller model or smaller execution.microbatch_tokens, or close programs",
        )


def memory_need(sketch: Learner | Classifier, positions: int, copies: int, shares: int = 1) -> MemoryNeed:
    """Of a model through which `positions` pass at a time.

    copies: how many numbers are kept for every number that is trained. shares: among how many processes its frozen
    layers are shared.
    """
    parameters = list(sketch.module.parameters())
    layers = [value for block in blocks_of(sketch.module) for value in block.parameters() if not value.requires_grad]
    elsewhere = sum(one.numel() for one in layers) * (shares - 1) // shares
    trained = sum(one.numel() for one in parameters if one.requires_grad)
    outputs = sum(_outputs(layer) for layer in sketch.module.modules() if layer is not sketch.head)
    scores = len(sketch.head.get_parameter("weight"))
    return MemoryNeed(
        weights=_NUMBER * (sum(one.numel() for one in parameters) - elsewhere),
        updates=_NUMBER * copies * trained,
        activations=_NUMBER * positions * (_KEPT * outputs + scores),
    )


def _outputs(layer: nn.Module) -> int:
    """How many numbers a layer with a weight matrix gives for each position."""
    weight = dict(layer.named_parameters(recurse=False)).get("weight")
    if weight is None or weight.dim() != 2:
        return 0
    return int(weight.shape[0] if isinstance(layer, nn.Linear) else weight.shape[1])
