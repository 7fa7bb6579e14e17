"""A proof by example, on tokens that are nobody's, that a language model does not look ahead."""

import torch
from torch import Tensor

from tacit.errors import ModelError
from tacit.models.base import Learner
from tacit.models.speech import speaking

_TOLERANCE = 1e-5  # of the largest logit; nothing but rounding may differ, and mostly not even that


def require_causal(model: Learner, tokens: Tensor) -> None:
    """Refuse a model whose output at a place changes with later tokens: padding would then tell of others."""
    places = sorted({*range(1, tokens.shape[1], max(1, tokens.shape[1] // 8)), tokens.shape[1] - 1} - {0})
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
