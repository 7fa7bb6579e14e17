"""Reading a model folder: JSON says what it is, safetensors hold the weights; nothing is ever unpickled."""

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from tacit.errors import ModelError
from tacit.models.base import Learner
from tacit.models.gpt import GPT
from tacit.models.lstm import LSTM, SETTINGS_FILE, LSTMSettings
from tacit.models.own import OwnModel, is_own


def build_model(description: dict[str, Any]) -> Learner:
    """The model that `description()` told of, with weights that are still to be loaded."""
    if description.get("kind") == "lstm":
        return LSTM.new(LSTMSettings(**description["settings"]))
    if description.get("kind") == "gpt":
        return GPT.described(description["config"], description["lora"])
    if is_own(description.get("kind")):
        return OwnModel.described(description["kind"], description["settings"])
    raise _unknown(description.get("kind"))


def load_model(folder: Path) -> Learner:
    """The model that `save` wrote into `folder`, or the one of a plain Hugging Face folder."""
    file = folder / SETTINGS_FILE
    if not file.is_file():
        return GPT.from_folder(folder)
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        kind = content["kind"]
        if kind == "lstm":
            return LSTM.load(folder, content["settings"])
        if kind == "gpt":
            return GPT.load(folder, content["lora"])
        if is_own(kind):
            return OwnModel.load(kind, folder, content["settings"])
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        raise ModelError(f"a whole model in {folder}", type(error).__name__, "save the model again") from error
    raise _unknown(kind)


def _unknown(kind: object) -> ModelError:
    return ModelError(
        expected="a model of kind lstm or gpt, or one that was registered in this process",
        found=repr(kind),
        way_out="use a file that tacit wrote; an own model is loaded from Python, after `register_model`",
    )
