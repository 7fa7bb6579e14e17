"""Every setting of a run, declared once: flags, YAML, Python, documentation and what is released follow from it."""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import Field

from tacit.common.serialize import LARGEST_SEED
from tacit.config.audit_schema import AuditConfig
from tacit.config.model_schema import (
    CausalLMConfig,
    LocalConfig,
    LoRAConfig,
    LSTMConfig,
    OptimizerConfig,
    PublicOptimizerConfig,
    constant,
)
from tacit.config.plan_schema import PlanConfig
from tacit.config.setting import NAME, REQUIRED, VALUE, Duplicates, Mode, SegmentBy, TrainOn, section, setting

BUILT_IN = ("lstm", "gpt")
ENGLISH_TOKENS = 2048
ENGLISH_LSTM = {"embedding_size": 200, "hidden_size": 200, "layers": 1, "tied": False}
"""Of the weights that come with tacit; dropouts are free."""
CUSTOM_MODELS: dict[str, Callable[..., Any]] = {}
"""What `tacit.models.loading` registered in this process, by name."""
DEFAULT_HELD_OUT = 0.05
SHORTEST_CHUNK = 8
MOST_TOKENS = 131_072  # a row of as many tokens is made to check gradients; 32 million took 21 GB
ClassName = Annotated[str, Field(coerce_numbers_to_str=True)]  # labels 0 and 1 are names too
file_name = partial(setting, release=NAME, why="the name of a file, not its content")


@section
class DataConfig:
    """From the corpus to rows of tokens."""

    text_field: str = setting("text", "Field of the corpus that contains the text.", flag=True)
    id_field: str = setting("id", "Field that contains the id.", flag=True)
    user_field: str = setting("user", "Field that contains the user.", flag=True)
    label_field: str = setting("label", "Field that contains the label.", flag=True)
    spans_field: str = setting("spans", "Field that contains gold spans.", flag=True)
    turns_field: str = setting("turns", "Field that contains the turns of a dialog.", flag=True)
    messages_field: str = setting("messages", "Field that contains the messages of a chat.", flag=True)
    train_on: TrainOn = constant(
        "all", "What is learned of a chat: all of it, or the assistant's messages (and completions) alone."
    )
    segment_by: SegmentBy = constant("record", "What one record is: record (as in the corpus), turn or sentence.")
    user_source: Literal["given", "documents", "dealt"] = constant(
        "given", "given in the corpus; documents: each record is a user; dealt: at random, about 15 records each."
    )
    held_out: float | None = constant(
        None, "Share of users (or of records without users) kept for measuring.", gt=0, lt=1, auto=DEFAULT_HELD_OUT
    )
    held_out_corpus: str | None = setting(
        None, "A file with the same fields to measure with, such as a test set; the whole corpus is then for training."
    )
    duplicates: Duplicates | None = constant(
        None,
        "Of equal redacted texts keep all (keep), one (exact), or one of those that only the conservative policy flags"
        " (doubtful).",
        auto="exact for crt, keep elsewhere",
    )
    max_tokens: int = constant(
        256, "Tokens in a redacted chunk; longer records are cut.", ge=SHORTEST_CHUNK, le=MOST_TOKENS
    )
    max_full_tokens: int = constant(
        512, "Tokens at which the full view of a chunk ends.", ge=SHORTEST_CHUNK, le=MOST_TOKENS
    )
    vocabulary_corpus: str | None = file_name(
        None, "Corpus declared public that a BPE is learned from.", auto="the redacted view"
    )
    vocabulary_size: int | None = constant(
        None, "Ordinary tokens of a vocabulary: english or bpe.", ge=256, auto="2048 for english, 1000 for bpe"
    )


@section
class MarkingConfig:
    """What is secret, beside the policy itself."""

    conservative_policy: str | None = file_name(
        None, "Second policy, for crt: what it finds routes a record to the protected set."
    )
    coverage: str | None = file_name(None, "Miss rates from a labeled sample: the file that `tacit label read` wrote.")
    entity_kinds: tuple[str, ...] | None = constant(None, "Kinds of spans that are entities.", auto="all")
    aliases: str | None = file_name(None, "File with other names of entities: one line per entity, tabs between names.")
    inventions: dict[str, list[str]] = setting(
        dict, "With plan.public_view=invented: public examples of what a kind looks like, {ORDER: [AB-12345]}."
    )


@section
class TrainingConfig:
    """How long a model trains, and what is watched and kept meanwhile."""

    minutes: float | None = constant(
        None,
        "Train for at most about so many minutes, instead of giving epochs or steps: up to 20 passes, then larger"
        " private batches, by the speed of made-up rows.",
        gt=0,
        allow_inf_nan=False,
        flag=True,
    )
    eval_steps: int | None = constant(None, "Evaluate every so many steps and keep the best model.", ge=1, auto="never")
    eval_on: str = file_name("redacted", "What to evaluate on: redacted, full, or a corpus declared public.")
    early_stopping_patience: int | None = constant(
        None, "Stop after so many evaluations without a better one.", ge=1, auto="never"
    )
    save_steps: int | None = constant(
        None, "Keep the model every so many steps in private/, for `tacit audit --checkpoints`.", ge=1, auto="never"
    )
    report_to: Literal["none", "tensorboard"] = constant("none", "tensorboard: event files in private/.")


@section
class ExecutionConfig:
    """How fast and where; nothing here moves a price."""

    device: str = constant("cpu", "cpu, cuda or cuda:1.", pattern=r"^(cpu|cuda(:\d+)?)$")
    precision: Literal["float32", "bfloat16"] = constant(
        "float32", "Of activations in public steps; private steps compute in float32."
    )
    attn_implementation: Literal["eager", "sdpa"] | None = constant(
        None, "How a model from a folder computes attention: eager or sdpa.", auto="the choice of transformers"
    )
    gradient_checkpointing: Literal["none", "public"] = constant(
        "none",
        "public: public steps of a gpt or a folder compute activations twice instead of keeping them, if you run out of"
        " memory; private steps need them for the norms of single records.",
    )
    fsdp: Literal["none", "base"] = constant(
        "none",
        "base: each of several processes keeps only its share of the frozen layers of a base model with adapters; use"
        " it if the base does not fit into the memory of each (docs/scale.md).",
    )
    threads: int | None = constant(
        None, "Threads of torch; reduce to leave cores to others.", ge=1, le=1024, auto="OMP_NUM_THREADS, or all cores"
    )
    microbatch_tokens: int | None = constant(
        None,
        "Tokens in memory at a time; reduce to 2048 or 512 if you run out of memory.",
        ge=1,
        auto="512 to 8192, by vocabulary",
    )
    cache_activations_gb: float | None = constant(
        None,
        "Keep what the layers below the first adapter compute, in at most so many gigabytes of disk; needs"
        " lora.layers_to_transform. Use it if every record is drawn several times.",
        gt=0,
        auto="nothing is kept",
    )
    checkpoint_steps: int = constant(1000, "Maximum steps between checkpoints.", ge=1)
    checkpoint_minutes: float = constant(2.0, "Maximum minutes between checkpoints.", gt=0)
    timeout_minutes: float = constant(
        30.0,
        "How long one process of several waits for the others before it stops; raise it for very slow steps.",
        gt=0,
    )


@section
class Config:
    """Every setting of a run."""

    corpus: str = setting(REQUIRED, "The corpus file.")
    policy: str = file_name(
        "pii", "What is secret: a policy's name, names with commas (any of them), or a YAML file.", flag=True
    )
    model: str = file_name(
        "lstm",
        "lstm, gpt, a local Hugging Face folder (a causal model, or an encoder), or the folder of an earlier run.",
        flag=True,
    )
    task: Literal["language", "classification"] = constant(
        "language", "language: predict the next token; classification: predict a record's label.", flag=True
    )
    classes: tuple[ClassName, ...] | None = setting(
        None,
        "Names of all classes, for classification: a public list, never one collected from the corpus.",
        release=VALUE,
        why="a public list",
    )
    tokenizer: str | None = file_name(
        None,
        "bytes, english (words and parts of words; it comes with tacit), bpe (learned), model (the folder's own) or "
        "a tokenizer.json that is public.",
        auto="english for a new model, model for a folder",
        flag=True,
    )
    mode: Mode = constant(
        Mode.RELEASE,
        "release: randomness of the operating system; research: everything from a seed, so that a run can be repeated,"
        " and nothing is guaranteed against anyone who knows or guesses the seed.",
        flag=True,
    )
    seed: int | None = setting(
        None, "Seed of a research run (--mode research).", ge=0, le=LARGEST_SEED, auto=0, flag=True
    )
    data: DataConfig = setting(DataConfig, "From the corpus to rows of tokens.")
    marking: MarkingConfig = setting(MarkingConfig, "What is secret, beside the policy.")
    plan: PlanConfig = setting(REQUIRED, "Mechanism, epsilon and what else decides a price.")
    model_config: dict[str, float] = constant(
        dict,
        "Sizes of a new model: {hidden_size: 300, layers: 2}; dropouts act in public steps.",
        names=(LSTMConfig, CausalLMConfig),
    )
    initial_weights: Literal["english", "random"] | None = constant(
        None,
        "What a new lstm begins with: english (a small model of public text that comes with tacit) or random.",
        auto="english for a language model with default sizes and tokenizer, random elsewhere",
    )
    lora: LoRAConfig | None = setting(None, "Adapters for a gpt or a folder: {rank: 8}; the rest is frozen.")
    public: PublicOptimizerConfig = setting(PublicOptimizerConfig, "Public steps.")
    private: OptimizerConfig = setting(OptimizerConfig, "Private steps.")
    local: LocalConfig = setting(LocalConfig, "A user's own training.")
    training: TrainingConfig = setting(TrainingConfig, "What is watched and kept while a model trains.")
    execution: ExecutionConfig = setting(ExecutionConfig, "How fast and where; nothing that moves a price.")
    audit: AuditConfig = setting(AuditConfig, "Canaries, and how hard an audit attacks.")

    @property
    def classifies(self) -> bool:
        return self.task == "classification"

    @property
    def held_out_share(self) -> float:
        """The share of users (or records) of the corpus that is kept for measuring."""
        if self.data.held_out_corpus is not None:
            return 0.0
        return DEFAULT_HELD_OUT if self.data.held_out is None else self.data.held_out

    @property
    def tokenizer_name(self) -> str:
        """The tokenizer that was asked for, or the one that fits the model."""
        return self.tokenizer or ("english" if self.is_new else "model")

    @property
    def begins_english(self) -> bool:
        """Whether the model begins with the weights that come with tacit."""
        return self.fits_english if self.initial_weights is None else self.initial_weights == "english"

    @property
    def fits_english(self) -> bool:
        """Whether the model has the task, the sizes and the tokens of those weights."""
        sizes = all(ENGLISH_LSTM.get(name, value) == value for name, value in self.model_config.items())
        tokens = self.tokenizer_name == "english" and self.data.vocabulary_size in (None, ENGLISH_TOKENS)
        return self.model == "lstm" and not self.classifies and sizes and tokens

    @property
    def is_new(self) -> bool:
        """Whether the model is made here, with sizes of the settings; otherwise it comes from a folder."""
        return self.model in BUILT_IN or is_custom(self.model)


def is_custom(model: object) -> bool:
    """Whether a model of this name was registered in this process."""
    return isinstance(model, str) and model in CUSTOM_MODELS
