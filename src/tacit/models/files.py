"""Reading a model folder: JSON says what it is, safetensors hold the weights; nothing is ever unpickled."""

from pathlib import Path
from typing import Any

from tacit.documents import read_json
from tacit.errors import ModelError
from tacit.models.base import Learner
from tacit.models.gpt import GPT
from tacit.models.lstm import LSTM, SETTINGS_FILE, LSTMSettings
from tacit.models.own import OwnModel, is_own
from tacit.pretrained import foreign


def build_model(description: dict[str, Any]) -> Learner:
    """The model that `description()` told of, with weights that are still to be loaded."""
    kind = description.get("kind")
    if kind not in ("lstm", "gpt") and not is_own(kind):
        raise _unknown(kind)
    with foreign(lambda found: ModelError("the description of a model", found, "use a file that tacit wrote")):
        if kind == "lstm":
            return LSTM.new(LSTMSettings(**description["settings"]))
        if kind == "gpt":
            return GPT.described(description["config"], description["lora"])
        return OwnModel.described(description["kind"], description["settings"])


def load_model(folder: Path) -> Learner:
    """The model that `save` wrote into `folder`, or the one of a plain Hugging Face folder."""
    file = folder / SETTINGS_FILE
    if not file.is_file():
        return GPT.from_folder(folder)
    with foreign(lambda found: ModelError(f"a whole model in {folder}", found, "save the model again")):
        content = read_json(file)
        kind = content["kind"]
        if kind == "lstm":
            return LSTM.load(folder, content["settings"])
        if kind == "gpt":
            return GPT.load(folder, content["lora"])
        if is_own(kind):
            return OwnModel.load(kind, folder, content["settings"])
        raise _unknown(kind)


def _unknown(kind: object) -> ModelError:
    return ModelError(
        expected="a model of kind lstm or gpt, or one that was registered in this process",
        found=repr(kind),
        way_out="use a file that tacit wrote; an own model is loaded from Python, after `register_model`",
    )
