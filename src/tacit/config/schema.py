"""Every setting of a run, from a YAML file, from flags or from Python; what would be ignored is refused.

Every word with which a person asks for a mechanism, its type and its meaning; light to load.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from tacit.common.serialize import LARGEST_SEED
from tacit.config.choices import Duplicates, Mode, Pieces
from tacit.config.model_schema import (
    CausalLMConfig,
    LocalConfig,
    LoRAConfig,
    LSTMConfig,
    OptimizerConfig,
    class_numbers,
)
from tacit.data.canaries import CanaryPlan
from tacit.errors import ConfigError
from tacit.privacy.plan import ClipStyle, Moves, Noisy, Plan, Targets

BASELINES: dict[str, str] = {
    "noiseless": "plain",  # UeDP, section 5: "trained without any privacy-preserving mechanisms"; No-DP in S-DP
    "de-identification": "redaction",  # UeDP, section 5: listed entities are masked; the policy says which
    "anonymisation": "redaction",  # S-DP, section 5.4: all that the policy finds, there digits, becomes <num>
    "user-level": "user",  # UeDP, section 5: McMahan et al.
}
"""What papers call their baselines, and the mechanism that each is: the claim is that mechanism's."""

_INVENTING = ("selective", "twice")


class Vocabulary(BaseModel):
    """Every word, its type and its meaning."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    mechanism: str = Field(description="Name of the mechanism; `tacit plan --list` lists them.")
    epsilon: float | None = Field(None, gt=0, allow_inf_nan=False, description="Target; the noise is derived from it.")
    noise_multiplier: float | None = Field(None, gt=0, allow_inf_nan=False, description="Noise / clip norm, by hand.")
    delta: float | None = Field(None, gt=0, lt=1, description="Default: 1 / (10 x units).")
    records: int | None = Field(None, ge=1, description="Records in the corpus.")
    secret_records: int | None = Field(None, ge=1, description="Records with marked secrets. Default: all records.")
    flagged: int | None = Field(None, ge=1, description="Records routed to the protected set.")
    other_records: int | None = Field(None, ge=1, description="Records without a listed entity.")
    users: int | None = Field(None, ge=1, description="Users in the corpus.")
    batch: float | None = Field(None, gt=0, description="Expected units in a private draw.")
    sampling_rate: float | None = Field(None, gt=0, le=1, description="Probability of a unit in a private draw.")
    epochs: float | None = Field(None, gt=0, allow_inf_nan=False, description="Expected passes over the private units.")
    steps: int | None = Field(None, ge=1, description="Private steps.")
    clip_norm: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="Largest norm a unit's gradient keeps."
    )
    clip_style: ClipStyle | None = Field(
        None, description="How gradients are clipped: flat, automatic or per parameter."
    )
    moves: Moves | None = Field(None, description="What private steps move: all, head, biases or adapters.")
    public_batch: int | None = Field(None, ge=1, description="Records in a public batch.")
    public_epochs: float | None = Field(None, ge=0, allow_inf_nan=False, description="Passes over the public text.")
    public_view: Literal["redacted", "invented"] | None = Field(
        None,
        description="What public steps read for a secret: a placeholder (redacted), or an invented one of its kind. "
        "Default: invented for selective and twice, redacted elsewhere.",
    )
    targets: Targets | None = Field(None, description="Losses of private steps: private (default) or all tokens.")
    weight_cap: int | None = Field(None, ge=1, description="Records from which a user has full weight.")
    local_epochs: int | None = Field(None, ge=1, description="Passes of a user's local update.")
    user_cap: int | None = Field(None, ge=1, description="Most records a user keeps.")
    entity_cap: int | None = Field(None, ge=1, description="Most records an entity keeps.")
    entity_rate: float | None = Field(None, gt=0, le=1, description="UeDP as printed: q_e.")
    other_rate: float | None = Field(None, ge=0, le=1, description="UeDP as printed: q_s; 0 is the estimator f_E.")
    sensitive_share: float | None = Field(None, gt=0, le=1, description="UeDP as printed: sensitive / all sentences.")
    recall: float | None = Field(None, gt=0, le=1, description="CADP as printed: the detector's recall.")
    events_per_batch: float | None = Field(None, gt=0, description="S-DP as printed: private updates a batch.")
    segments_per_record: int | None = Field(None, ge=1, description="S-DP as printed: secrets of one record.")
    noised_states: int | None = Field(None, ge=0, description="S-DP as printed: hidden states noised a segment.")


def invents(mechanism: str, public_view: str | None) -> bool:
    """Whether public steps of the mechanism read invented secrets; `public_view` is what a person said, if anything."""
    return public_view == "invented" if public_view is not None else mechanism in _INVENTING


BUILT_IN = ("lstm", "gpt")
DEFAULT_HELD_OUT = 0.05
_DROPOUTS = ("dropout", "embedding_dropout", "weight_drop")
Shape = TypeVar("Shape", LSTMConfig, CausalLMConfig)
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
    policy: str = Field("pii", description="A policy's name, names with commas (any of them), or a YAML file.")
    plan: dict[str, Any] = Field(description="Mechanism, epsilon, and what else `tacit plan` knows.")
    conservative: str | None = Field(None, description="Second policy: what it finds routes a record to the protected.")
    coverage: str | None = Field(None, description="Miss rates from a labelled sample: what `tacit label read` wrote.")
    duplicates: Duplicates | None = Field(
        None,
        description="Of equal redacted texts keep all (keep), one (exact), or one of those that only the conservative"
        " policy flags (doubtful). Default: exact for crt, keep otherwise.",
    )
    pieces: Pieces = Field("record", description="What a record is: record (as in the corpus), turn or sentence.")
    canaries: list[CanaryPlan] = Field(
        [], description="Made-up secrets to plant, for the audit: {template: My ID is {6 digits}, count: 20, ...}."
    )
    inventions: dict[str, list[str]] = Field(
        {},
        description="With plan.public_view=invented: public examples of what a kind looks like, {ORDER: [AB-12345]}.",
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
    shape: dict[str, float] = Field(
        {}, description="Sizes of a new model: hidden_size, layers, ...; dropouts act in public steps."
    )
    lora: LoRAConfig | None = Field(None, description="Adapters for a gpt or a folder: {rank: 8}; the rest is frozen.")
    public: OptimizerConfig = Field(
        OptimizerConfig(learning_rate=5e-3, longest_gradient=1.0), description="Public steps."
    )
    private: OptimizerConfig = Field(OptimizerConfig(learning_rate=2e-3), description="Private steps.")
    local: LocalConfig = Field(LocalConfig(), description="A user's own training: learning_rate, batch_size.")
    positions: int | None = Field(None, ge=1, description="Positions in memory at a time. Default: by memory.")
    device: str = Field("cpu", pattern=r"^(cpu|cuda(:\d+)?)$", description="cpu, cuda or cuda:1.")
    precision: Literal["float32", "bfloat16"] = Field(
        "float32", description="Of activations in public steps. Private steps compute in float32."
    )
    checkpoint_steps: int = Field(1000, ge=1, description="Most steps between two checkpoints.")
    checkpoint_minutes: float = Field(2.0, gt=0, description="Most minutes between two checkpoints.")
    keep_every: int | None = Field(
        None, ge=1, description="Keep the model every so many steps in private/, for `tacit audit --checkpoints`."
    )
    choose_every: int | None = Field(None, ge=1, description="Look every so many steps, and keep the best model seen.")
    choose_on: str = Field("redacted", description="What is looked at: redacted, full, or a corpus declared public.")
    patience: int | None = Field(None, ge=1, description="Stop after so many looks without a better one.")
    log: Literal["none", "tensorboard"] = Field("none", description="tensorboard: event files in private/.")
    held_out: float | None = Field(
        None, gt=0, lt=1, description="Share of users (or records) kept for measuring. Default: 0.05."
    )
    held_out_corpus: str | None = Field(
        None, description="A file to measure with, such as a test set; then the whole corpus is for training."
    )
    mode: Mode = Field(
        Mode.RELEASE,
        description="release: randomness of the operating system; research: all of it from a seed, so that a run can be"
        " repeated, and nothing is guaranteed against anyone who knows or guesses the seed.",
    )
    seed: int | None = Field(None, ge=0, le=LARGEST_SEED, description="Of a research run (mode: research). Default: 0.")

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
    def held_out_share(self) -> float:
        """The share of users (or records) of the corpus that is kept for measuring."""
        if self.held_out_corpus is not None:
            return 0.0
        return DEFAULT_HELD_OUT if self.held_out is None else self.held_out

    @property
    def which_duplicates(self) -> Duplicates:
        """Which repeated redacted text is left out."""
        return self.duplicates or ("exact" if self.mechanism == "crt" else "keep")

    @property
    def tokenizer_name(self) -> str:
        """The tokenizer that was asked for, or the one that fits the model."""
        return self.tokenizer or ("bytes" if self.is_new else "model")

    @property
    def is_new(self) -> bool:
        """Whether the model is made here, with a shape of the settings; otherwise it comes from a folder."""
        from tacit.models.custom import is_own

        return self.model in BUILT_IN or is_own(self.model)


def check_used(experiment: Experiment) -> None:
    """Refuse settings that would be ignored."""
    is_new, adapts = experiment.is_new, experiment.model == "gpt" or not experiment.is_new
    of_bpe = experiment.vocabulary_size is not None or experiment.vocabulary_corpus is not None
    _require(not of_bpe or experiment.tokenizer_name == "bpe", "a vocabulary for a bpe only", "set tokenizer: bpe")
    _require(is_new or not experiment.shape, "a shape for a new model only", "a folder has its own shape")
    _require(not is_new or experiment.tokenizer_name != "model", "a folder with the tokenizer", "use bytes or bpe")
    _require(experiment.lora is None or adapts, "adapters for a gpt or a folder", "leave lora out")
    _require(
        experiment.choose_every is not None or experiment.patience is None, "choose_every with patience", "set both"
    )
    _check_held_out(experiment)
    _check_task(experiment)
    _check_shape(experiment)
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
    doubted = experiment.duplicates != "doubtful" or experiment.conservative is not None
    _require(doubted, "a conservative policy (of crt), which says what is doubtful", "leave duplicates out")
    invented = invents(mechanism, experiment.plan.get("public_view"))
    _require(invented or not experiment.inventions, "inventions with plan.public_view=invented", "leave them out")
    seeded = experiment.seed is not None
    released = seeded and experiment.mode == Mode.RELEASE
    _require(not released, "no seed in release mode", "leave the seed out, or set mode=research for a run to repeat")


def check_public_steps(experiment: Experiment, plan: Plan) -> None:
    """Refuse what acts in public steps alone where the plan has none: it would be ignored."""
    words = {f"shape.{word}": value for word, value in experiment.shape.items() if word in _DROPOUTS}
    words["lora.dropout"] = 0.0 if experiment.lora is None else experiment.lora.dropout
    given = [word for word, value in words.items() if value]
    given += ["precision"] if experiment.precision != "float32" else []
    if given and all(isinstance(step.update, Noisy) for step in plan.executions()):
        raise ConfigError(
            expected="settings that this plan uses: its private steps have no dropout and compute in float32",
            found=", ".join(given),
            way_out="leave them out, or choose a mechanism with public steps",
        )


def _check_held_out(experiment: Experiment) -> None:
    apart = experiment.held_out_corpus is not None
    _require(not apart or experiment.held_out is None, "held_out or held_out_corpus", "leave one of them out")
    on_it = experiment.choose_every is not None and experiment.choose_on in ("redacted", "full")
    on_it = on_it or _same_file(experiment.choose_on, experiment.held_out_corpus)
    _require(not (apart and on_it), "a choice that never looks at held_out_corpus", "choose_on: a file of its own")


def _same_file(one: str, other: str | None) -> bool:
    return other is not None and Path(one).resolve() == Path(other).resolve()


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
    classifies = experiment.model == "lstm" or not experiment.is_new
    _require(classifies, "an lstm or an encoder that classifies", "model: lstm, or an encoder's folder")


def shaped(kind: type[Shape], shape: Mapping[str, Any], fixed: Mapping[str, int]) -> Shape:
    """The settings of a new model: what a person says of its shape, and what is `fixed` by tokenizer and corpus."""
    known = [word for word in kind.__dataclass_fields__ if word not in fixed]
    for word in shape:
        if word not in known:
            raise ConfigError.unknown_name("word in shape", word, known)
    try:
        return TypeAdapter(kind).validate_python({**shape, **fixed})
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in fault["loc"])
        raise ConfigError(f"shape.{where}: {fault['msg']}", repr(fault["input"]), "correct the number") from None


def _check_shape(experiment: Experiment) -> None:
    if experiment.model == "lstm":
        shaped(LSTMConfig, experiment.shape, {"vocabulary_size": 1})
    elif experiment.model == "gpt":
        shaped(CausalLMConfig, experiment.shape, {"vocabulary_size": 1, "context": experiment.longest_full + 2})


def _require(holds: bool, expected: str, way_out: str) -> None:
    if not holds:
        raise ConfigError(expected, "settings that contradict each other", way_out)


"""Settings that may name a file or folder of the house: `private/` has them whole, `release/` their last part."""


"""Words of a plan that people give beside the settings, not under `plan`."""
