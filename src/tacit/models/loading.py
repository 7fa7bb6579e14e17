"""Finished models: that of a run from its `release/` alone, or one of a local Hugging Face folder.

JSON describes a model and safetensors hold its weights: nothing is ever unpickled.

G1. A run that does not verify is refused, before anything of it is used.
"""

from pathlib import Path
from typing import Any, TypeVar

import torch

from tacit.common.libraries import fill, foreign
from tacit.config.model_schema import LSTMConfig
from tacit.config.schema import is_custom
from tacit.data.tokenizer import Tokenizer, load_tokenizer, read_tokenizer_json
from tacit.errors import ModelError, RunError
from tacit.models.causal_lm import CausalLM
from tacit.models.classifier import Classifier, build_classifier
from tacit.models.custom import CustomModel
from tacit.models.language_model import Learner, generate
from tacit.models.lstm import LSTM
from tacit.runs.files import ReleaseFile
from tacit.runs.folder import RunFolder
from tacit.runs.verify import AFTER_TRAINING, check_verified
from tacit.runs.weights import read_model


def build_model(description: dict[str, Any]) -> Learner:
    """The model that `description()` describes; its weights still have to be loaded."""
    kind = description.get("kind")
    if kind not in ("lstm", "gpt") and not is_custom(kind):
        raise ModelError(
            expected="a model of kind lstm or gpt, or one that was registered in this process",
            found=repr(kind),
            way_out="use a file that tacit wrote; an own model is loaded from Python, after `register_model`",
        )
    with foreign(lambda found: ModelError("the description of a model", found, "use a file that tacit wrote")):
        if kind == "lstm":
            return LSTM.new(LSTMConfig(**description["settings"]))
        if kind == "gpt":
            return CausalLM.described(description["config"], description["lora"])
        return CustomModel.described(description["kind"], description["settings"])


AnyModel = TypeVar("AnyModel", Learner, Classifier)


def load(folder: Path) -> tuple[Learner, Tokenizer]:
    """The language model of a finished run, and its tokenizer; a copy of its `release/` will do."""
    run = RunFolder.view(folder)
    check_verified(run, AFTER_TRAINING)
    return load_unchecked(run)


def load_unchecked(run: RunFolder) -> tuple[Learner, Tokenizer]:
    """As `load`, of a run that was just verified."""
    architecture = run.read_json(dict, ReleaseFile.ARCHITECTURE)
    _check_kind(architecture, False, "train with task: language, or load the classifier with `load_classifier`")
    return _with_weights(build_model(architecture), run), load_tokenizer(run.path(ReleaseFile.TOKENIZER))


def load_classifier(folder: Path) -> tuple[Classifier, Tokenizer]:
    """The classifier of a finished run, and its tokenizer."""
    run = RunFolder.view(folder)
    check_verified(run, AFTER_TRAINING)
    architecture = run.read_json(dict, ReleaseFile.ARCHITECTURE)
    _check_kind(architecture, True, "train with task: classification, or load the language model with `load`")
    return _with_weights(build_classifier(architecture), run), load_tokenizer(run.path(ReleaseFile.TOKENIZER))


def load_any(folder: Path) -> tuple[Learner | Classifier, Tokenizer]:
    """The model of a finished run, whatever its task, and its tokenizer."""
    run = RunFolder.view(folder)
    check_verified(run, AFTER_TRAINING)
    architecture = run.read_json(dict, ReleaseFile.ARCHITECTURE)
    tokenizer = load_tokenizer(run.path(ReleaseFile.TOKENIZER))
    if _is_classifier(architecture):
        return _with_weights(build_classifier(architecture), run), tokenizer
    return _with_weights(build_model(architecture), run), tokenizer


def continued(
    learner: Learner | Classifier, tokenizer: Tokenizer, prompt: str, tokens: int, temperature: float, seed: int
) -> str:
    """What a language model continues `prompt` with, the prompt included."""
    if isinstance(learner, Classifier):
        raise RunError("a language model", "a text classifier, which generates no text", "train with task: language")
    start = torch.tensor([[tokenizer.end, *tokenizer.encode(prompt)]])
    said = generate(learner, start, tokens, torch.Generator().manual_seed(seed), temperature)[0].tolist()
    said = said[: said.index(tokenizer.end)] if tokenizer.end in said else said
    return prompt + tokenizer.decode([token for token in said if token < tokenizer.first_special])


def load_foreign(folder: Path) -> tuple[CausalLM, Tokenizer, int]:
    """A causal model from elsewhere, its own tokenizer, and the token that its texts begin with."""
    model = CausalLM.from_folder(folder)
    return model, read_tokenizer_json(folder / "tokenizer.json"), _opening(model, folder)


def _opening(model: CausalLM, folder: Path) -> int:
    """What a text begins with: the token that opens one, or the one that ends the text before."""
    config = model.description()["config"]
    for name in ("bos_token_id", "eos_token_id"):
        token = config.get(name)
        token = token[0] if isinstance(token, list) and token else token
        if isinstance(token, int):
            return token
    raise ModelError(
        expected="a token that texts begin with",
        found=f"neither bos_token_id nor eos_token_id in {folder / 'config.json'}",
        way_out="set one of them to the token that training put before each text",
    )


def _is_classifier(architecture: dict[str, Any]) -> bool:
    return str(architecture.get("kind")).endswith("classifier")


def _check_kind(architecture: dict[str, Any], classifies: bool, way_out: str) -> None:
    nouns = ("a language model", "a text classifier, which generates no text")
    found = _is_classifier(architecture)
    if found != classifies:
        raise RunError(f"the run of {nouns[classifies]}", nouns[found], way_out)


def _with_weights(model: AnyModel, run: RunFolder) -> AnyModel:
    fill(model.module, read_model(run))
    return model
