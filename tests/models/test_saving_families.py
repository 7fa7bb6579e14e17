"""Every family of models: saved, loaded without tacit, with equal logits; whole and by adapters."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from elsewhere import loaded_without_tacit
from families import CLASSES, FAMILIES, LORA, VOCABULARY, Family, make
from tacit.common.libraries import quietly
from tacit.config.model_schema import ClassifierConfig
from tacit.data.tokenizer import NOTHING, HuggingFace, Tokenizer
from tacit.models.causal_lm import CausalLM
from tacit.models.classifier import Classifier, EncoderClassifier
from tacit.models.language_model import Learner
from tacit.models.saving import write_release
from tacit.runs.folder import RunFolder

TOKENS = [[5, 9, 30, 7, 4, 12], [8, 8, 20, 6, 1, 40]]
CASES = [(family, way) for family in FAMILIES for way in ("whole", "adapters") if way == "whole" or family.adapters]


def words() -> Tokenizer:
    """A tokenizer with as many ids as the models have."""
    vocabulary = {f"w{number}": number for number in range(VOCABULARY - 2)}
    model = {"type": "WordLevel", "vocab": vocabulary, "unk_token": "w0"}
    parts = ("normalizer", "pre_tokenizer", "post_processor", "decoder", "truncation", "padding")
    return Tokenizer(
        HuggingFace({"version": "1.0", "added_tokens": [], "model": model, **dict.fromkeys(parts)}), NOTHING
    )


def released(family: Family, way: str, place: Path) -> tuple[dict[str, Any], Tensor]:
    """A release of a model whose every weight was moved, what to load, and its logits."""
    torch.manual_seed(3)
    base = place / "base"
    module: Any = make(family).module
    with quietly():
        module.save_pretrained(base)
    lora = LORA if way == "adapters" else None
    model: Learner | Classifier
    if family.kind == "encoder":
        model = EncoderClassifier.from_folder(base, ClassifierConfig(CLASSES), lora)
    else:
        model = CausalLM.from_folder(base, lora)
    with torch.no_grad():
        for value in model.module.parameters():
            if value.requires_grad:
                value.add_(0.1 * torch.randn_like(value))
        model.module.eval()
        logits = model.logits(torch.tensor(TOKENS))
    with RunFolder.create(place / "run") as run:
        write_release(run, model, words(), of_folder=False)
    case = {"release": place / "run" / "release", "tokens": TOKENS}
    if family.kind == "encoder":
        case |= {"kind": "classifier", "labels": len(CLASSES)}
        logits = logits[:, 0]
    return case | ({} if lora is None else {"base": base}), logits


@pytest.fixture(scope="module")
def all_logits(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Tensor, Tensor]]:
    """Ours and theirs, of every case; one process loads them all."""
    place = tmp_path_factory.mktemp("families")
    made = {}
    for number, (family, way) in enumerate(CASES):
        made[f"{family} {way}"] = released(family, way, place / str(number))
    theirs, _ = loaded_without_tacit({name: case for name, (case, _) in made.items()}, place)
    return {name: (ours, theirs[name]) for name, (_, ours) in made.items()}


@pytest.mark.slow
@pytest.mark.parametrize(("family", "way"), CASES, ids=str)
def test_a_release_of_every_family_is_loaded_without_tacit(
    family: Family, way: str, all_logits: dict[str, tuple[Tensor, Tensor]]
) -> None:
    ours, theirs = all_logits[f"{family} {way}"]
    assert float((ours - theirs).abs().max()) <= 1e-5 * max(1.0, float(ours.abs().max()))
    others = [one for name, (one, _) in all_logits.items() if name != f"{family} {way}" and one.shape == ours.shape]
    assert all(float((ours - other).abs().max()) > 1e-3 for other in others), "no two cases are alike"
