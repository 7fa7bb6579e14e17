"""Which settings a claim may be made under: those whose neighbors were compared (theory, section 13).

`tests/claims/test_neighbors.py` draws settings from this table, makes two runs that differ in one unit, and compares
them; `make test-all` draws every pair of values that is allowed here. What the table does not have was never compared,
and is refused under a claim. Settings that are numbers (sizes, rates, limits) are drawn at random there and not listed;
a device other than a processor, on which nothing was compared, is an assumption of the claim. How many processes train,
and whether they share a base model (`execution.fsdp`), is not listed either: what moves then has the bits that it has
without shares (tests/training/test_group_shares.py). Nor are the weights that a model begins with: they are the same for
both neighbors, which are compared under random and extreme weights.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

from tacit.config.load import shaped
from tacit.config.model_schema import CausalLMConfig, LoRAConfig, LSTMConfig
from tacit.config.schema import Config, is_custom
from tacit.errors import ClaimRefused
from tacit.mechanisms.registry import REGISTRY, entries, entry_of
from tacit.mechanisms.settings import MechanismEntry
from tacit.privacy.plan import Unit
from tacit.training.canaries import plants
from tacit.training.chats import template_of
from tacit.training.checks import base_architecture, duplicates_of, public_choice, public_view

OWN = "own"
_CLAIMING = tuple(entry for entry in entries() if entry.units)


def _those(which: Callable[[MechanismEntry], bool]) -> tuple[str, ...]:
    return tuple(entry.name for entry in _CLAIMING if which(entry))


def _using(setting: str) -> tuple[str, ...]:
    return _those(lambda entry: setting in (entry.needs.settings or ()))


SECRETS_ONLY = _those(lambda entry: entry.units == (Unit.SECRETS,))
WITH_USERS = _those(lambda entry: entry.needs.users)
WITH_ENTITIES = _those(lambda entry: entry.needs.entities)
CAPPING_BOTH = _using("entity_cap")
ALWAYS_INVENTING = tuple(
    name for name in _those(lambda entry: entry.needs.public_view == "invented") if name not in _using("public_view")
)
INVENTING = (*_using("public_view"), *ALWAYS_INVENTING)
ROUTING = _those(lambda entry: entry.needs.conservative)
FOR_LANGUAGE = _those(lambda entry: entry.needs.tasks == ("language",))
FOR_LSTM = _those(lambda entry: entry.needs.models == ("lstm",))
OF_ONE_RULE = _those(lambda entry: entry.needs.private_rule is not None)
MASKING = (*_those(lambda entry: entry.needs.private_rule is None), OWN)
DROPPING = _those(lambda entry: entry.needs.duplicates != "keep")
CLIPPING = (*_using("clip_style"), OWN)
WITH_PUBLIC_STEPS = (*(name for name in _using("public_batch_size") if name not in WITH_ENTITIES), OWN)

COVERED: dict[str, tuple[str, ...]] = {
    "mechanism": (*(entry.name for entry in _CLAIMING), OWN),
    "task": ("language", "classification"),
    "segment_by": ("record", "turn", "sentence"),
    "train_on": ("all", "assistant"),
    "chat_template": ("none", "given"),
    "duplicates": ("keep", "exact", "doubtful"),
    "conservative_policy": ("none", "given"),
    "canaries": ("none", "some"),
    "public_view": ("redacted", "invented", "learned"),
    "inventions": ("none", "given"),
    "targets": ("all", "private"),
    "user_source": ("given", "documents", "dealt"),
    "entity_kinds": ("all", "some"),
    "aliases": ("none", "given"),
    "user_cap": ("none", "given"),
    "rest": ("none", "plain"),
    "clip_style": ("flat", "automatic", "per parameter"),
    "trainable": ("all", "head", "biases", "adapters"),
    "model": ("lstm", "gpt", "own", "folder"),
    "lora": ("none", "given", "of some layers"),
    "cache_activations": ("off", "on"),
    "dropout": ("none", "some", "of the model"),
    "embedding_dropout": ("none", "some"),
    "weight_drop": ("none", "some"),
    "tied": ("no", "yes"),
    "tokenizer": ("bytes", "bpe of the corpus", "bpe of a public corpus", "a file"),
    "precision": ("float32", "bfloat16"),
    "attn_implementation": ("default", "eager", "sdpa"),
    "gradient_checkpointing": ("none", "public"),
    "microbatch_tokens": ("default", "given"),
    "public.optimizer": ("adam", "sgd"),
    "private.optimizer": ("adam", "sgd"),
    "private.max_grad_norm": ("none", "given"),
    "eval_on": ("never", "redacted", "public"),
    "held_out": ("corpus", "share"),
}
"""The values of each setting that were compared; the first is what the fuzzer takes where nothing else is asked."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A value that another setting must go with."""

    setting: str
    value: str
    other: str
    allowed: tuple[str, ...]
    why: str

    def broken_by(self, choice: Mapping[str, str]) -> bool:
        """Whether the other setting has a value that does not go with it."""
        return choice[self.setting] == self.value and choice[self.other] not in self.allowed


def _rules(setting: str, values: tuple[str, ...], other: str, allowed: tuple[str, ...], why: str) -> Iterator[Rule]:
    return (Rule(setting, value, other, allowed, why) for value in values)


RULES: tuple[Rule, ...] = (
    Rule("train_on", "assistant", "task", ("language",), "a label is of the whole chat"),
    Rule("train_on", "assistant", "mechanism", MASKING, "algorithms as printed learn every token"),
    Rule("chat_template", "given", "task", ("language",), "a label is learned without it"),
    Rule("chat_template", "given", "model", ("folder",), "templates come with a model folder"),
    Rule("chat_template", "given", "tokenizer", ("a file",), "a template has the tokens of its own tokenizer"),
    Rule("conservative_policy", "given", "mechanism", ROUTING, "others do not route records by a second policy"),
    Rule("duplicates", "exact", "mechanism", (*SECRETS_ONLY, *DROPPING), "one record would decide about another"),
    Rule("duplicates", "doubtful", "conservative_policy", ("given",), "the conservative policy tells what is doubtful"),
    Rule("public_view", "invented", "mechanism", INVENTING, "others invent nothing"),
    *_rules("mechanism", ALWAYS_INVENTING, "public_view", ("invented",), "it invents always"),
    Rule("public_view", "learned", "mechanism", _using("form_epsilon"), "others count no forms"),
    Rule("inventions", "given", "public_view", ("invented", "learned"), "examples are for inventions"),
    Rule("targets", "private", "mechanism", _using("targets"), "others learn all tokens"),
    Rule("targets", "private", "task", ("language",), "a label is no secret"),
    Rule("user_source", "documents", "mechanism", WITH_USERS, "others do not ask for users"),
    Rule("user_source", "documents", "segment_by", ("record",), "pieces of a record have its user"),
    Rule("user_source", "dealt", "mechanism", WITH_USERS, "others do not ask for users"),
    Rule("entity_kinds", "some", "mechanism", WITH_ENTITIES, "others do not ask for entities"),
    Rule("aliases", "given", "mechanism", WITH_ENTITIES, "others do not ask for entities"),
    Rule("user_cap", "given", "mechanism", _using("user_cap"), "others cap nothing"),
    *_rules("mechanism", CAPPING_BOTH, "user_cap", ("given",), "its price is that of capped users"),
    Rule("rest", "plain", "mechanism", CAPPING_BOTH, "others have no rest"),
    *_rules("clip_style", COVERED["clip_style"][1:], "mechanism", CLIPPING, "algorithms as printed clip as printed"),
    *_rules("trainable", COVERED["trainable"][1:], "mechanism", CLIPPING, "algorithms as printed move everything"),
    Rule("trainable", "adapters", "lora", ("given", "of some layers"), "there are no other adapters"),
    Rule("trainable", "head", "lora", ("none",), "adapters move, the head does not"),
    Rule("trainable", "biases", "lora", ("none",), "adapters have no biases"),
    *_rules(
        "lora", ("given", "of some layers"), "model", ("gpt", "folder"), "the lstm and own models have no adapters"
    ),
    Rule("cache_activations", "on", "lora", ("of some layers",), "all layers change elsewhere"),
    Rule("cache_activations", "on", "task", ("language",), "an encoder's states are not kept"),
    Rule("cache_activations", "on", "dropout", ("none", "of the model"), "what drops at random is never the same"),
    Rule("cache_activations", "on", "precision", ("float32",), "states are kept in float32"),
    Rule("task", "classification", "model", ("lstm", "folder"), "others have no head for classes"),
    *_rules("mechanism", FOR_LANGUAGE, "task", ("language",), "it was printed for language models"),
    *_rules("mechanism", FOR_LSTM, "model", ("lstm",), "it noises the states of an lstm"),
    *_rules("mechanism", OF_ONE_RULE, "private.optimizer", ("sgd",), "algorithms as printed move as printed"),
    *_rules("mechanism", OF_ONE_RULE, "private.max_grad_norm", ("none",), "algorithms as printed move as printed"),
    Rule("dropout", "of the model", "model", ("own", "folder"), "new models have the dropouts of their shape"),
    *_rules("model", ("own", "folder"), "dropout", ("of the model",), "own models and folders have their own dropouts"),
    Rule("embedding_dropout", "some", "model", ("lstm",), "others have none"),
    Rule("embedding_dropout", "some", "mechanism", WITH_PUBLIC_STEPS, "private steps drop nothing"),
    Rule("weight_drop", "some", "model", ("lstm",), "others have none"),
    Rule("weight_drop", "some", "mechanism", WITH_PUBLIC_STEPS, "private steps drop nothing"),
    Rule("tied", "yes", "model", ("lstm",), "others decide it themselves"),
    Rule("tied", "yes", "task", ("language",), "the head of a classifier has other outputs"),
    Rule("tokenizer", "bpe of the corpus", "mechanism", SECRETS_ONLY, "a vocabulary of the corpus tells of records"),
    Rule("precision", "bfloat16", "model", ("gpt", "own", "folder"), "the lstm's kernels are float32"),
    Rule("precision", "bfloat16", "mechanism", WITH_PUBLIC_STEPS, "private steps are float32"),
    *_rules("attn_implementation", ("eager", "sdpa"), "model", ("folder",), "others have no other attention"),
    Rule("gradient_checkpointing", "public", "model", ("gpt", "folder"), "others keep their activations"),
    Rule("eval_on", "redacted", "mechanism", SECRETS_ONLY, "held-out records are protected too"),
    Rule("eval_on", "redacted", "held_out", ("share",), "a held-out file measures alone"),
)
"""All pairs of values that are refused under a claim, by the value that forbids the others."""


def pairs() -> Iterator[tuple[tuple[str, str], tuple[str, str]]]:
    """Every pair of values of two settings that is not refused."""
    for one, other in combinations(COVERED, 2):
        rules = [rule for rule in RULES if {rule.setting, rule.other} == {one, other}]
        for value, with_it in product(COVERED[one], COVERED[other]):
            if not any(rule.broken_by({one: value, other: with_it}) for rule in rules):
                yield (one, value), (other, with_it)


def choice_of(config: Config) -> dict[str, str]:
    """The value of each setting of the table."""
    plan, entry = config.plan, entry_of(config.plan.mechanism)
    settings = entry.needs.settings or frozenset()
    published_corpus = config.data.vocabulary_corpus is not None
    tokenizers = {"bytes": "bytes", "bpe": "bpe of a public corpus" if published_corpus else "bpe of the corpus"}
    on = config.training.eval_on if public_choice(config) is None else "public"
    base = base_architecture(config)
    model = config.model if config.is_new else _kind_of(base)
    return {
        "mechanism": entry.name if entry.name in REGISTRY else OWN,
        "task": config.task,
        "segment_by": config.data.segment_by,
        "train_on": config.data.train_on,
        "chat_template": _given(template_of(config)),
        "duplicates": duplicates_of(config),
        "conservative_policy": _given(config.marking.conservative_policy),
        "canaries": "some" if plants(config) else "none",
        "public_view": public_view(config),
        "inventions": "given" if config.marking.inventions else "none",
        "targets": str(plan.targets or ("private" if "targets" in settings else "all")),
        "user_source": config.data.user_source,
        "entity_kinds": "all" if config.marking.entity_kinds is None else "some",
        "aliases": _given(config.marking.aliases),
        "user_cap": _given(plan.user_cap),
        "rest": "plain" if "entity_cap" in settings and plan.public_epochs is not None else "none",
        "clip_style": str(plan.clip_style or "flat"),
        "trainable": str(plan.trainable or "all"),
        "model": "own" if is_custom(model) else model,
        "lora": _adapters(config.lora),
        "cache_activations": "off" if config.execution.cache_activations_gb is None else "on",
        **_dropouts(config, base),
        "tokenizer": tokenizers.get(config.tokenizer_name, "a file"),
        "precision": config.execution.precision,
        "attn_implementation": config.execution.attn_implementation or "default",
        "gradient_checkpointing": config.execution.gradient_checkpointing,
        "microbatch_tokens": "default" if config.execution.microbatch_tokens is None else "given",
        "public.optimizer": config.public.optimizer or "adam",
        "private.optimizer": (entry.needs.private_rule or config.private).optimizer or "adam",
        "private.max_grad_norm": _given(config.private.max_grad_norm),
        "eval_on": "never" if config.training.eval_steps is None else on,
        "held_out": "share" if config.data.held_out_corpus is None else "corpus",
    }


def check_covered(config: Config) -> None:
    """Refuse a claim under settings whose neighbors were never compared."""
    choice = choice_of(config)
    for setting, value in choice.items():
        if value not in COVERED[setting]:
            raise ClaimRefused(
                expected=f"{setting}: {' or '.join(COVERED[setting])}, which the neighbor fuzzer compared",
                found=f"{setting}: {value}, under the claim of {config.plan.mechanism}",
                way_out=f"change {setting}, or take mechanism: plain, which claims nothing",
            )
    for need in RULES:
        if need.broken_by(choice):
            raise ClaimRefused(
                expected=f"{need.other}: {' or '.join(need.allowed)} with {need.setting}: {need.value} ({need.why})",
                found=f"{need.other}: {choice[need.other]}",
                way_out=f"change {need.other} or {need.setting}",
            )


def _given(value: object) -> str:
    return "none" if value is None else "given"


def _adapters(lora: LoRAConfig | None) -> str:
    return "of some layers" if lora is not None and lora.layers_to_transform is not None else _given(lora)


def _kind_of(base: Mapping[str, Any] | None) -> str:
    """What a model is that is not new: that of a run may be an lstm, or one that somebody registered."""
    kind = "" if base is None else str(base.get("kind")).removesuffix(" classifier")
    return kind if kind == "lstm" or is_custom(kind) else "folder"


def _dropouts(config: Config, base: Mapping[str, Any] | None) -> dict[str, str]:
    """What drops; the shape decides of new models, and of an lstm that a run ended with."""
    if config.model == "lstm" or _kind_of(base) == "lstm":
        known = {"vocabulary_size": 1} if base is None else base.get("shape", base["settings"])
        shape = shaped(LSTMConfig, config.model_config, known)
        rates = ("dropout", "embedding_dropout", "weight_drop")
        found = {name: "some" if getattr(shape, name) else "none" for name in rates}
        return {**found, "tied": "yes" if shape.tied else "no"}
    of_gpt = {"vocabulary_size": 1, "context": config.data.max_full_tokens + 2}
    dropout = "of the model"
    if config.model == "gpt":
        dropout = "some" if shaped(CausalLMConfig, config.model_config, of_gpt).dropout else "none"
    return {"dropout": dropout, "embedding_dropout": "none", "weight_drop": "none", "tied": "no"}
