"""Finished models: that of a run from its `release/` alone, or one of a local Hugging Face folder.

JSON describes a model and safetensors contain its weights: nothing is ever unpickled. A run that does not verify is
refused, before anything of it is used.

Custom models: any causal network of layers whose per-row gradients are known, registered by name.

    class Mine(nn.Module):
        def __init__(self, vocabulary_size: int, context: int, shape: Mapping[str, float]) -> None:
            ...
            self.head = nn.Linear(width, vocabulary_size)     # its output is what forward returns, unchanged

        def forward(self, tokens: Tensor) -> Tensor: ...      # (rows, time) to (rows, time, vocabulary)

    register_model("mine", Mine)

Whether its gradients can be had a row at a time is checked before training (`gradients.check`).

G1 (causal). A network whose output depends on later tokens is refused: padding would then reveal other rows.
G2 (apart). A network that mixes rows while it trains, or remembers them in a buffer, is refused: such influence has no
   bound. Dropout is `nn.Dropout`, which is switched off for this check.
   Both are checked by example, on five rows of up to 128 random tokens: who means to hide a mixture can.
G3 (by name). A release folder never makes tacit run code: only names registered in this process are known.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from tacit.common.libraries import fill, foreign
from tacit.config.model_schema import ClassifierConfig, LoRAConfig, LSTMConfig
from tacit.config.schema import CUSTOM_MODELS, is_custom
from tacit.data.tokenizer import Tokenizer, load_tokenizer, read_tokenizer_json
from tacit.errors import ModelError, RunError
from tacit.models.causal_lm import CausalLM, require_causal
from tacit.models.classifier import Classifier, EncoderClassifier, build_classifier
from tacit.models.language_model import Learner, ModuleModel, Rereading, generate, speaking
from tacit.models.lstm import LSTM
from tacit.models.transformers_model import GIVE_BASE, BaseModel, put_adapters
from tacit.runs.folder import RunFolder, is_run, whole_run
from tacit.runs.release import PrivateFile, ReleaseFile
from tacit.runs.verify import AFTER_TRAINING, check_verified
from tacit.runs.weights import read_adapters, read_model

Build = Callable[[int, int, Mapping[str, float]], nn.Module]
"""From the number of tokens, the longest row and what is under `model_config` to a network with a `head`."""


_OWN: dict[str, Build] = CUSTOM_MODELS
_TAKEN = ("lstm", "gpt")
_ROWS, _LENGTH = 5, 128
_DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)


def register_model(name: str, build: Build) -> None:
    """From now on, in this process, `model: name` asks for the network that `build` makes."""
    if name in _TAKEN or name.endswith("classifier"):
        raise ModelError("a name for an own model that is not taken", name, "choose another name")
    _OWN[name] = build


@dataclass(frozen=True, slots=True, eq=False)
class CustomModel(ModuleModel):
    """A registered network as a Learner; it evaluates the whole text again for every generated token."""

    name: str
    module: nn.Module
    vocabulary_size: int
    longest: int
    shape: Mapping[str, float]

    @classmethod
    def new(cls, name: str, vocabulary_size: int, longest: int, shape: Mapping[str, float]) -> "CustomModel":
        """With fresh weights from torch's global generator."""
        model = cls(name, _OWN[name](vocabulary_size, longest, shape), vocabulary_size, longest, dict(shape))
        _check(model)
        return model

    @classmethod
    def described(cls, name: str, settings: Mapping[str, Any]) -> "CustomModel":
        """The model that `description()` describes; its weights still have to be loaded."""
        return cls.new(name, settings["vocabulary_size"], settings["longest"], settings["shape"])

    @property
    def head(self) -> nn.Module:
        return self.module.get_submodule("head")

    def begin(self, tokens: Tensor) -> Rereading:
        return Rereading.of(self, tokens)

    def description(self) -> dict[str, Any]:
        settings = {"vocabulary_size": self.vocabulary_size, "longest": self.longest, "shape": dict(self.shape)}
        return {"kind": self.name, "settings": settings}


def _check(model: CustomModel) -> None:
    if not isinstance(getattr(model.module, "head", None), nn.Module):
        raise ModelError(f"a network {model.name} with a layer `head`", "none", "self.head = nn.Linear(..., tokens)")
    length = min(_LENGTH, model.longest)
    tokens = torch.randint(model.vocabulary_size, (_ROWS, length), generator=torch.Generator().manual_seed(0))
    require_causal(model, tokens)
    _check_apart(model, tokens)


def _check_apart(model: CustomModel, tokens: Tensor) -> None:
    buffers = {name: value.clone() for name, value in model.module.named_buffers()}
    with speaking(model.module):
        for part in model.module.modules():
            part.training = not isinstance(part, _DROPOUTS)
        together, alone = model.logits(tokens)[1:], model.logits(tokens[1:])
    remembers = any(not torch.equal(value, buffers[name]) for name, value in model.module.named_buffers())
    if remembers or not torch.allclose(together, alone, rtol=1e-4, atol=1e-5):
        raise ModelError(
            expected="a network that computes each row from that row alone, and remembers none",
            found="rows that mix while training, a buffer that changes, or chance outside nn.Dropout",
            way_out="replace batch normalization by layer normalization, and use nn.Dropout for dropout",
        )


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


def load(folder: Path, base: Path | None = None) -> tuple[Learner, Tokenizer]:
    """The language model of a finished run, and its tokenizer; a copy of its `release/` will do.

    base: the folder of the base model, for adapters in such a copy; a run knows the folder that it was trained with.
    """
    run = RunFolder.view(folder)
    check_verified(run, AFTER_TRAINING)
    return load_unchecked(run, base)


def load_unchecked(run: RunFolder, base: Path | None = None) -> tuple[Learner, Tokenizer]:
    """As `load`, of a run that was just verified."""
    architecture = run.read_json(dict, ReleaseFile.ARCHITECTURE)
    if _is_classifier(architecture):
        way_out = "train with task: language, or load the classifier with `load_classifier`"
        raise RunError("the run of a language model", "a text classifier, which generates no text", way_out)
    tokenizer = load_tokenizer(run.path(ReleaseFile.TOKENIZER))
    if architecture.get("kind") != "gpt":
        return _with_weights(build_model(architecture), run), tokenizer
    folder, lora = _base_folder(run, architecture, base)
    return _with_adapters(CausalLM.from_folder(folder or run.release, lora), run), tokenizer


def _classifier(run: RunFolder, architecture: dict[str, Any], base: Path | None) -> Classifier:
    if architecture.get("kind") != "sequence-classifier":
        return _with_weights(build_classifier(architecture), run)
    folder, lora = _base_folder(run, architecture, base)
    with foreign(lambda found: ModelError("the description of a classifier", found, "use a file that tacit wrote")):
        settings = ClassifierConfig(tuple(architecture["settings"]["classes"]))
    return _with_adapters(EncoderClassifier.from_folder(folder or run.release, settings, lora), run)


Adaptable = TypeVar("Adaptable", CausalLM, EncoderClassifier)


def _with_adapters(model: Adaptable, run: RunFolder) -> Adaptable:
    if model.lora is not None:
        put_adapters(model, read_adapters(run))
    return model


def _base_folder(
    run: RunFolder, architecture: dict[str, Any], given: Path | None
) -> tuple[Path | None, LoRAConfig | None]:
    """The folder of the base model that the adapters of a run belong to, checked, and their settings; None without."""
    if architecture.get("base") is None:
        return None, None
    with foreign(lambda found: ModelError("the description of adapters", found, "use a file that tacit wrote")):
        described, lora = BaseModel(**architecture["base"]), LoRAConfig(**architecture["lora"])
    settings = run.read_optional(dict, PrivateFile.SETTINGS) or {}
    folder = given or (_weights_of(Path(settings["model"])) if "model" in settings else None)
    if folder is None or not folder.is_dir():
        raise ModelError(
            expected=f"the folder of the base model {described.name!r}, which the release does not contain",
            found="none" if folder is None else f"no folder {folder}",
            way_out=f"give it: {GIVE_BASE}",
        )
    described.check(folder)
    return folder, lora


def _weights_of(model: Path) -> Path:
    """The folder with the weights that a run began with: of another run its release, or what its adapters belong to."""
    if not is_run(model):
        return model
    run = RunFolder.view(whole_run(model))
    described = run.read_json(dict, ReleaseFile.ARCHITECTURE)
    settings = run.read_optional(dict, PrivateFile.SETTINGS) or {}
    if described.get("base") is None or "model" not in settings:
        return run.release
    return _weights_of(Path(settings["model"]))


def load_to_train(folder: Path, lora: LoRAConfig | None) -> Learner | Classifier:
    """The model of a finished run, to train on: with its own adapters, or with new ones in a model without."""
    run = RunFolder.view(whole_run(folder))
    described = run.read_json(dict, ReleaseFile.ARCHITECTURE)
    if lora is None or described.get("lora") is not None or _is_classifier(described):
        return load_any(run.folder)[0]
    check_verified(run, AFTER_TRAINING)
    return CausalLM.from_folder(run.release, replace(lora, base_name=lora.base_name or run.folder.name))


def load_classifier(folder: Path) -> tuple[Classifier, Tokenizer]:
    """The classifier of a finished run, and its tokenizer."""
    model, tokenizer = load_any(folder)
    if not isinstance(model, Classifier):
        way_out = "train with task: classification, or load the language model with `load`"
        raise RunError("the run of a text classifier", "a language model", way_out)
    return model, tokenizer


def load_any(folder: Path, base: Path | None = None) -> tuple[Learner | Classifier, Tokenizer]:
    """The model of a finished run, whatever its task, and its tokenizer. base: as in `load`."""
    run = RunFolder.view(folder)
    check_verified(run, AFTER_TRAINING)
    architecture = run.read_json(dict, ReleaseFile.ARCHITECTURE)
    if not _is_classifier(architecture):
        return load_unchecked(run, base)
    return _classifier(run, architecture, base), load_tokenizer(run.path(ReleaseFile.TOKENIZER))


def require_language(learner: Learner | Classifier) -> Learner:
    """The language model; a classifier is refused."""
    if isinstance(learner, Classifier):
        raise RunError("a language model", "a text classifier, which generates no text", "train with task: language")
    return learner


def continued(
    learner: Learner | Classifier, tokenizer: Tokenizer, prompt: str, tokens: int, temperature: float, seed: int
) -> str:
    """What a language model continues `prompt` with, the prompt included."""
    start = torch.tensor([[tokenizer.begin, *tokenizer.encode(prompt)]])
    said = generate(require_language(learner), start, tokens, torch.Generator().manual_seed(seed), temperature)
    return prompt + tokenizer.spoken(said[0].tolist())


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


def _with_weights(model: AnyModel, run: RunFolder) -> AnyModel:
    fill(model.module, read_model(run))
    model.module.eval()
    return model
