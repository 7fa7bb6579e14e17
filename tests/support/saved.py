"""Models on the disk: as a release has them, and as Hugging Face folders."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import tokenizers
from safetensors.torch import load_file

from tacit.common.libraries import fill, quietly
from tacit.data.tokenizer import Dependence, VocabularySource, train_bpe
from tacit.models.causal_lm import CausalLM
from tacit.models.language_model import ModuleModel
from tacit.runs.weights import save_tensors

Model = TypeVar("Model")


def release_files(release: Path) -> list[Path]:
    """All files of a release folder and its tacit/."""
    return sorted(path for path in release.rglob("*") if not path.is_dir())


def released(model: Any, folder: Path) -> None:  # noqa: ANN401
    """Its description and its weights."""
    save_tensors(folder / "model.safetensors", dict(model.module.named_parameters()))
    (folder / "model.json").write_text(json.dumps(model.description()), encoding="utf-8")


def reloaded(build: Callable[[dict[str, Any]], Model], folder: Path) -> Model:
    """What a reader of the release makes of them."""
    model = build(json.loads((folder / "model.json").read_text(encoding="utf-8")))
    assert isinstance(model, ModuleModel)
    fill(model.module, load_file(folder / "model.safetensors"))
    return model


def save_tokenizer(texts: Iterable[str], size: int, folder: Path) -> None:
    """A tokenizer of `size` ids as others publish it: a BPE, what texts end with, and what hides a word."""
    learned = train_bpe(texts, size - 2, Dependence(VocabularySource.PUBLIC_CORPUS, "elsewhere"))
    bpe = tokenizers.Tokenizer.from_str(json.dumps(learned.codec.definition()["content"]))
    bpe.add_special_tokens(["<|end|>", "<|mask|>"])
    bpe.save(str(folder / "tokenizer.json"))
    words = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|end|>", "mask_token": "<|mask|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(words), encoding="utf-8")


def save_pretrained(model: CausalLM, folder: Path) -> None:
    """A folder as others publish it."""
    module: Any = model.module
    with quietly():
        module.save_pretrained(folder)
