"""The model of a finished run, from its `release/` alone."""

from pathlib import Path
from typing import Any, TypeVar

from tacit.errors import RunError
from tacit.models import Classifier, Learner, build_classifier, build_model
from tacit.run import ReleaseFile, Run
from tacit.run.checkpoints import read_model
from tacit.tokenizer import Tokenizer, load_tokenizer

AnyModel = TypeVar("AnyModel", Learner, Classifier)


def load(folder: Path) -> tuple[Learner, Tokenizer]:
    """The language model of a finished run, and its tokenizer."""
    run = Run.view(folder)
    architecture = run.read_json(dict, ReleaseFile.ARCHITECTURE)
    _check_kind(architecture, False, "train with task: language, or load the classifier with `load_classifier`")
    return _with_weights(build_model(architecture), run), load_tokenizer(run.path(ReleaseFile.TOKENIZER))


def load_classifier(folder: Path) -> tuple[Classifier, Tokenizer]:
    """The classifier of a finished run, and its tokenizer."""
    run = Run.view(folder)
    architecture = run.read_json(dict, ReleaseFile.ARCHITECTURE)
    _check_kind(architecture, True, "train with task: classification, or load the language model with `load`")
    return _with_weights(build_classifier(architecture), run), load_tokenizer(run.path(ReleaseFile.TOKENIZER))


def _check_kind(architecture: dict[str, Any], classifies: bool, way_out: str) -> None:
    nouns = ("a language model", "a text classifier, which says no text")
    found = str(architecture.get("kind")).endswith("classifier")
    if found != classifies:
        raise RunError(f"the run of {nouns[classifies]}", nouns[found], way_out)


def _with_weights(model: AnyModel, run: Run) -> AnyModel:
    model.module.load_state_dict(read_model(run), strict=False)  # a tied weight has one name
    return model
