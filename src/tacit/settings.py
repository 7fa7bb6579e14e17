"""Every setting of a run, from a YAML file, from flags or from Python; what would be ignored is refused."""

from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field

from tacit.codec import from_words
from tacit.corpus.pieces import Pieces
from tacit.errors import ConfigError
from tacit.local import LocalSettings
from tacit.models.classifier import class_numbers
from tacit.models.huggingface import LoRASettings
from tacit.optimisers import OptimiserSettings
from tacit.prepare import Duplicates
from tacit.prepare.canaries import CanaryPlan
from tacit.randomness import Mode
from tacit.vocabulary import BASELINES

BUILT_IN = ("lstm", "gpt")
ClassName = Annotated[str, Field(coerce_numbers_to_str=True)]  # labels 0 and 1 are names too


class Experiment(BaseModel):
    """Every setting of a run."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    corpus: str = Field(description="The corpus file.")
    task: Literal["language", "classification"] = Field(
        "language", description="language: predict the next token; classification: predict a record's label."
    )
    classes: list[ClassName] | None = Field(
        None,
        description="Names of all classes, for classification: a public list, never one collected from the corpus.",
    )
    policy: str = Field("pii", description="A policy's name, names with commas between them, or a YAML file.")
    plan: dict[str, Any] = Field(description="Mechanism, epsilon, and what else `tacit plan` knows.")
    conservative: str | None = Field(None, description="Second policy: what it finds routes a record to the protected.")
    coverage: str | None = Field(None, description="Miss rates from a labelled sample: what `tacit label read` wrote.")
    duplicates: Duplicates | None = Field(
        None, description="keep, exact, or without a claim bloom or near. Default: exact for crt, keep otherwise."
    )
    pieces: Pieces = Field("record", description="What a record is: record (as in the corpus), turn or sentence.")
    canaries: list[CanaryPlan] = Field(
        [], description="Made-up secrets to plant, for the audit: {template: My ID is {6 digits}, count: 20, ...}."
    )
    users: Literal["given", "documents", "dealt"] = Field(
        "given",
        description="given in the corpus; documents: each record is a user; dealt: at random, ~15 records each.",
    )
    entity_kinds: list[str] | None = Field(None, description="Kinds of spans that are entities. Default: all.")
    aliases: str | None = Field(None, description="Other names of entities: a line each, tabs between names.")
    tokenizer: str | None = Field(
        None, description="bytes, bpe, model (the model folder's own) or a tokenizer.json that is public."
    )
    vocabulary_corpus: str | None = Field(None, description="Corpus declared public; without it, the redacted view.")
    vocabulary_size: int | None = Field(None, ge=256, description="Ordinary ids of a BPE. Default: 1000.")
    max_tokens: int = Field(256, ge=8, description="Longest redacted piece of a record.")
    longest_full: int = Field(512, ge=8, description="Where the full view of a piece ends.")
    model: str = Field("lstm", description="lstm, gpt, or a local Hugging Face folder: a causal model, or an encoder.")
    shape: dict[str, float] = Field({}, description="Sizes and dropouts of a new model: hidden_size, layers, ...")
    lora: LoRASettings | None = Field(
        None, description="Adapters for a gpt or a folder: {rank: 8}; the rest is frozen."
    )
    public: OptimiserSettings = Field(
        OptimiserSettings(learning_rate=5e-3, longest_gradient=1.0), description="Public steps."
    )
    private: OptimiserSettings = Field(OptimiserSettings(learning_rate=2e-3), description="Private steps.")
    local: LocalSettings = Field(LocalSettings(), description="A user's own training: learning_rate, batch_size.")
    positions: int | None = Field(None, ge=1, description="Positions in memory at a time. Default: by memory.")
    device: str = Field("cpu", description="cpu, or cuda.")
    precision: Literal["float32", "bfloat16"] = Field("float32", description="Of activations; sums are float32 always.")
    checkpoint_steps: int = Field(1000, ge=1, description="Most steps between two checkpoints.")
    checkpoint_minutes: float = Field(2.0, gt=0, description="Most minutes between two checkpoints.")
    keep_every: int | None = Field(
        None, ge=1, description="Keep the model every so many steps in private/, for `tacit audit --checkpoints`."
    )
    choose_every: int | None = Field(None, ge=1, description="Look every so many steps, and keep the best model seen.")
    choose_on: str = Field("redacted", description="What is looked at: redacted, full, or a corpus declared public.")
    patience: int | None = Field(None, ge=1, description="Stop after so many looks without a better one.")
    log: Literal["none", "tensorboard"] = Field("none", description="tensorboard: event files in private/.")
    held_out: float = Field(0.05, gt=0, lt=1, description="Share of users (or records) kept for measuring.")
    mode: Mode = Field(Mode.RESEARCH, description="research: seeded; release: randomness of the operating system.")
    seed: int | None = Field(None, ge=0, description="Of a research run. Default: 0.")

    @property
    def classifies(self) -> bool:
        """Whether labels are learned, not text."""
        return self.task == "classification"

    @property
    def mechanism(self) -> str:
        """The mechanism, whatever a paper calls it."""
        name = str(self.plan.get("mechanism"))
        return BASELINES.get(name, name)

    @property
    def protects_entities(self) -> bool:
        """Whether the claim is about listed entities: which string stands where is then public annotation."""
        return self.mechanism in ("uedp", "uedp-published")

    @property
    def which_duplicates(self) -> Duplicates:
        """Which repeated redacted text is left out."""
        return self.duplicates or ("exact" if self.mechanism == "crt" else "keep")

    @property
    def tokenizer_name(self) -> str:
        """The tokenizer that was asked for, or the one that fits the model."""
        return self.tokenizer or ("bytes" if self.model in BUILT_IN else "model")


def check_used(experiment: Experiment) -> None:
    """Refuse settings that would be ignored."""
    built_in = experiment.model in BUILT_IN
    of_bpe = experiment.vocabulary_size is not None or experiment.vocabulary_corpus is not None
    _require(not of_bpe or experiment.tokenizer_name == "bpe", "a vocabulary for a bpe only", "set tokenizer: bpe")
    _require(built_in or not experiment.shape, "a shape for a new lstm or gpt only", "a folder has its own shape")
    _require(
        built_in is False or experiment.tokenizer_name != "model", "a folder with the tokenizer", "use bytes or bpe"
    )
    _require(experiment.lora is None or experiment.model != "lstm", "adapters for a gpt or a folder", "leave lora out")
    _require(
        experiment.choose_every is not None or experiment.patience is None, "choose_every with patience", "set both"
    )
    _check_task(experiment)
    bfloat = experiment.precision == "bfloat16"
    _require(not (bfloat and experiment.model == "lstm"), "float32 for the lstm", "leave precision out")
    mechanism = experiment.mechanism
    listed = experiment.entity_kinds is not None or experiment.aliases is not None
    _require(not listed or experiment.protects_entities, "entities for uedp", "leave entity_kinds and aliases out")
    routed = experiment.conservative is None or mechanism == "crt"
    _require(routed, "a conservative policy for crt", "leave conservative out")
    owned = experiment.users == "given" or mechanism == "user" or experiment.protects_entities
    whole = experiment.users != "documents" or experiment.pieces == "record"
    _require(whole, "documents that are not cut", "leave users out: a text without a user is the user of its pieces")
    _require(owned, "users for user, uedp and uedp-published", "leave users out")
    _require(experiment.local.epochs == 1, "local passes in the plan", "set plan.local_epochs instead of local.epochs")
    seeded = experiment.seed is not None
    _require(not (seeded and experiment.mode == Mode.RELEASE), "no seed in release mode", "leave the seed out")


def _check_task(experiment: Experiment) -> None:
    kept = experiment.classifies and experiment.keep_every is not None
    _require(not kept, "keep_every for a language model, which an audit attacks", "leave keep_every out")
    classes = experiment.classes
    if not experiment.classifies:
        _require(classes is None, "classes with task: classification", "set the task, or leave classes out")
        return
    if classes is None:
        raise ConfigError("a public list of classes", "none", "classes: [name, name, ...]")
    class_numbers(classes)
    _require(experiment.model != "gpt", "an lstm or an encoder that classifies", "model: lstm, or an encoder's folder")


def _require(holds: bool, expected: str, way_out: str) -> None:
    if not holds:
        raise ConfigError(expected, "settings that contradict each other", way_out)


def read_experiment(path: Path, over: dict[str, Any]) -> Experiment:
    """Settings of a YAML file, with `over` laid over them."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError("a readable YAML file", f"{path}: {type(error).__name__}", "check path and syntax") from error
    if not isinstance(content, dict):
        raise ConfigError(f"settings in {path}", type(content).__name__, "write `corpus: ...` and `plan: {...}`")
    return from_words(Experiment, merged(content, over))


def merged(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """`over` laid over `under`, word by word inside groups such as `plan`."""
    result = dict(under)
    for word, value in over.items():
        below = result.get(word)
        result[word] = merged(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return result
