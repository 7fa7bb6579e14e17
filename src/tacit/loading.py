"""Finished models: that of a run from its `release/` alone, or one of a local Hugging Face folder.

G1. A run that does not verify is refused, before anything of it is used.
"""

from pathlib import Path
from typing import Any, TypeVar

import torch

from tacit.errors import ModelError, RunError
from tacit.models import GPT, Classifier, Learner, build_classifier, build_model, generate
from tacit.pretrained import fill
from tacit.run import ReleaseFile, Run
from tacit.run.checkpoints import read_model
from tacit.tokenizer import Tokenizer, load_tokenizer, read_tokenizer_json
from tacit.verifying import AFTER_TRAINING, check_verified

AnyModel = TypeVar("AnyModel", Learner, Classifier)


def load(folder: Path) -> tuple[Learner, Tokenizer]:
    """The language model of a finished run, and its tokenizer; a copy of its `release/` will do."""
    run = Run.view(folder)
    check_verified(run, AFTER_TRAINING)
    return load_unchecked(run)


def load_unchecked(run: Run) -> tuple[Learner, Tokenizer]:
    """As `load`, of a run that was just verified."""
    architecture = run.read_json(dict, ReleaseFile.ARCHITECTURE)
    _check_kind(architecture, False, "train with task: language, or load the classifier with `load_classifier`")
    return _with_weights(build_model(architecture), run), load_tokenizer(run.path(ReleaseFile.TOKENIZER))


def load_classifier(folder: Path) -> tuple[Classifier, Tokenizer]:
    """The classifier of a finished run, and its tokenizer."""
    run = Run.view(folder)
    check_verified(run, AFTER_TRAINING)
    architecture = run.read_json(dict, ReleaseFile.ARCHITECTURE)
    _check_kind(architecture, True, "train with task: classification, or load the language model with `load`")
    return _with_weights(build_classifier(architecture), run), load_tokenizer(run.path(ReleaseFile.TOKENIZER))


def continued(folder: Path, prompt: str, tokens: int, temperature: float, seed: int) -> str:
    """What the language model of a finished run says after `prompt`, the prompt included."""
    learner, tokenizer = load(folder)
    start = torch.tensor([[tokenizer.end, *tokenizer.encode(prompt)]])
    said = generate(learner, start, tokens, torch.Generator().manual_seed(seed), temperature)[0].tolist()
    said = said[: said.index(tokenizer.end)] if tokenizer.end in said else said
    return prompt + tokenizer.decode([token for token in said if token < tokenizer.first_special])


def load_foreign(folder: Path) -> tuple[GPT, Tokenizer, int]:
    """A causal model from elsewhere, its own tokenizer, and the token that its texts begin with."""
    model = GPT.from_folder(folder)
    return model, read_tokenizer_json(folder / "tokenizer.json"), _opening(model, folder)


def _opening(model: GPT, folder: Path) -> int:
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


def _check_kind(architecture: dict[str, Any], classifies: bool, way_out: str) -> None:
    nouns = ("a language model", "a text classifier, which says no text")
    found = str(architecture.get("kind")).endswith("classifier")
    if found != classifies:
        raise RunError(f"the run of {nouns[classifies]}", nouns[found], way_out)


def _with_weights(model: AnyModel, run: Run) -> AnyModel:
    fill(model.module, read_model(run))
    return model
