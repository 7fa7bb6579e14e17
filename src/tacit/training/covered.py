"""Which settings a claim may be made under: those whose neighbours were compared (theory, section 13).

`tests/claims/test_neighbours.py` draws settings from this table, makes two runs that differ in one unit, and compares
them; `make test-all` draws every pair of values that is allowed here. What the table does not have was never compared,
and is refused under a claim. Settings that are numbers (sizes, rates, limits) are drawn at random there and not listed;
a device other than a processor, on which nothing was compared, is an assumption of the claim.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tacit.config.model_schema import CausalLMConfig, LSTMConfig
from tacit.config.schema import Experiment, invents, shaped
from tacit.errors import ClaimRefused
from tacit.mechanisms.registry import REGISTRY
from tacit.models.custom import is_own

SettingChoice = Mapping[str, str]
"""A value for each setting of the table."""

SECRETS_ONLY = ("redaction", "selective", "twice", "selective-published")
WITH_USERS = ("user", "uedp", "uedp-published")
WITH_ENTITIES = ("uedp", "uedp-published")
CLIPPING = ("dpsgd", "selective", "twice", "cadp", "crt", "user", "uedp", "uedp-published", "own")
WITH_PUBLIC_STEPS = ("redaction", "selective", "twice", "cadp", "crt", "own")

COVERED: dict[str, tuple[str, ...]] = {
    "mechanism": (*(name for name in REGISTRY if name != "plain"), "own"),
    "task": ("language", "classification"),
    "pieces": ("record", "turn", "sentence"),
    "duplicates": ("keep", "exact", "doubtful"),
    "conservative": ("none", "given"),
    "canaries": ("none", "some"),
    "public_view": ("redacted", "invented"),
    "inventions": ("none", "given"),
    "targets": ("all", "private"),
    "users": ("given", "documents", "dealt"),
    "entity_kinds": ("all", "some"),
    "aliases": ("none", "given"),
    "user_cap": ("none", "given"),
    "rest": ("none", "plain"),
    "clip_style": ("flat", "automatic", "per parameter"),
    "moves": ("all", "head", "biases", "adapters"),
    "model": ("lstm", "gpt", "own", "folder"),
    "lora": ("none", "given"),
    "dropout": ("none", "some", "of the model"),
    "embedding_dropout": ("none", "some"),
    "weight_drop": ("none", "some"),
    "tied": ("no", "yes"),
    "tokenizer": ("bytes", "bpe of the corpus", "bpe of a public corpus", "a file"),
    "precision": ("float32", "bfloat16"),
    "positions": ("default", "given"),
    "public.rule": ("adam", "sgd"),
    "private.rule": ("adam", "sgd"),
    "private.longest_gradient": ("none", "given"),
    "choose_on": ("never", "redacted", "public"),
    "held_out": ("corpus", "share"),
}
"""The values of each setting that were compared; the first is what the fuzzer takes where nothing else is asked."""


@dataclass(frozen=True, slots=True)
class Needs:
    """A value that another setting must go with."""

    setting: str
    value: str
    other: str
    allowed: tuple[str, ...]
    why: str

    def broken_by(self, choice: SettingChoice) -> bool:
        """Whether the other setting has a value that does not go with it."""
        return choice[self.setting] == self.value and choice[self.other] not in self.allowed


NEEDS: tuple[Needs, ...] = (
    Needs("conservative", "given", "mechanism", ("crt",), "only crt routes records by a second policy"),
    Needs("duplicates", "exact", "mechanism", (*SECRETS_ONLY, "crt"), "one record would decide about another"),
    Needs("duplicates", "doubtful", "conservative", ("given",), "the conservative policy tells what is doubtful"),
    Needs("public_view", "invented", "mechanism", ("redaction", "selective", "twice"), "others invent nothing"),
    Needs("inventions", "given", "public_view", ("invented",), "examples are for inventions"),
    Needs("targets", "private", "mechanism", ("selective", "twice"), "others learn all tokens"),
    Needs("targets", "private", "task", ("language",), "a label is no secret"),
    Needs("users", "documents", "mechanism", WITH_USERS, "others do not ask for users"),
    Needs("users", "documents", "pieces", ("record",), "pieces of a record have its user"),
    Needs("users", "dealt", "mechanism", WITH_USERS, "others do not ask for users"),
    Needs("entity_kinds", "some", "mechanism", WITH_ENTITIES, "others do not ask for entities"),
    Needs("aliases", "given", "mechanism", WITH_ENTITIES, "others do not ask for entities"),
    Needs("user_cap", "given", "mechanism", ("user", "uedp"), "others cap nothing"),
    Needs("mechanism", "uedp", "user_cap", ("given",), "its price is that of capped users"),
    Needs("rest", "plain", "mechanism", ("uedp",), "others have no rest"),
    Needs("clip_style", "automatic", "mechanism", CLIPPING, "algorithms as printed clip as printed"),
    Needs("clip_style", "per parameter", "mechanism", CLIPPING, "algorithms as printed clip as printed"),
    *(
        Needs("moves", value, "mechanism", CLIPPING, "algorithms as printed move everything")
        for value in ("head", "biases", "adapters")
    ),
    Needs("moves", "adapters", "lora", ("given",), "there are no other adapters"),
    Needs("moves", "head", "lora", ("none",), "adapters move, the head does not"),
    Needs("moves", "biases", "lora", ("none",), "adapters have no biases"),
    Needs("lora", "given", "model", ("gpt", "folder"), "the lstm and own models have no adapters"),
    Needs("task", "classification", "model", ("lstm", "folder"), "others have no head for classes"),
    *(
        Needs("mechanism", name, "task", ("language",), "it was printed for language models")
        for name in ("selective-published", "cadp-published")
    ),
    Needs("mechanism", "selective-published", "model", ("lstm",), "it noises the states of an lstm"),
    Needs("dropout", "of the model", "model", ("own", "folder"), "new models have the dropouts of their shape"),
    Needs("model", "own", "dropout", ("of the model",), "own models and folders have their own dropouts"),
    Needs("model", "folder", "dropout", ("of the model",), "own models and folders have their own dropouts"),
    Needs("embedding_dropout", "some", "model", ("lstm",), "others have none"),
    Needs("embedding_dropout", "some", "mechanism", WITH_PUBLIC_STEPS, "private steps drop nothing"),
    Needs("weight_drop", "some", "model", ("lstm",), "others have none"),
    Needs("weight_drop", "some", "mechanism", WITH_PUBLIC_STEPS, "private steps drop nothing"),
    Needs("tied", "yes", "model", ("lstm",), "others decide it themselves"),
    Needs("tied", "yes", "task", ("language",), "the head of a classifier has other outputs"),
    Needs("tokenizer", "bpe of the corpus", "mechanism", SECRETS_ONLY, "a vocabulary of the corpus tells of records"),
    Needs("precision", "bfloat16", "model", ("gpt", "own", "folder"), "the lstm's kernels are float32"),
    Needs("precision", "bfloat16", "mechanism", WITH_PUBLIC_STEPS, "private steps are float32"),
    Needs("choose_on", "redacted", "mechanism", SECRETS_ONLY, "held-out records are protected too"),
    Needs("choose_on", "redacted", "held_out", ("share",), "a held-out file measures alone"),
)
"""All pairs of values that are refused under a claim, by the value that forbids the others."""


def pairs() -> Iterator[tuple[tuple[str, str], tuple[str, str]]]:
    """Every pair of values of two settings that is not refused."""
    settings = list(COVERED)
    for place, one in enumerate(settings):
        for other in settings[place + 1 :]:
            for value in COVERED[one]:
                for with_it in COVERED[other]:
                    if _allowed(one, value, other, with_it):
                        yield (one, value), (other, with_it)


def _allowed(one: str, value: str, other: str, with_it: str) -> bool:
    chosen = {one: value, other: with_it}
    return not any(need.broken_by(chosen) for need in NEEDS if need.setting in chosen and need.other in chosen)


def choice_of(experiment: Experiment) -> dict[str, str]:
    """The value of each setting of the table."""
    plan, mechanism = experiment.plan, experiment.mechanism
    dropouts = _dropouts(experiment)
    inventing = invents(mechanism, plan.get("public_view"))
    published_corpus = experiment.vocabulary_corpus is not None
    tokenizers = {"bytes": "bytes", "bpe": "bpe of a public corpus" if published_corpus else "bpe of the corpus"}
    choosing = experiment.choose_every is not None
    return {
        "mechanism": mechanism if mechanism in REGISTRY else "own",
        "task": experiment.task,
        "pieces": experiment.pieces,
        "duplicates": experiment.which_duplicates,
        "conservative": _given(experiment.conservative),
        "canaries": "some" if experiment.canaries else "none",
        "public_view": "invented" if inventing else "redacted",
        "inventions": "given" if experiment.inventions else "none",
        "targets": str(plan.get("targets") or ("private" if mechanism in ("selective", "twice") else "all")),
        "users": experiment.users,
        "entity_kinds": "all" if experiment.entity_kinds is None else "some",
        "aliases": _given(experiment.aliases),
        "user_cap": _given(plan.get("user_cap")),
        "rest": "plain" if mechanism == "uedp" and plan.get("public_epochs") is not None else "none",
        "clip_style": str(plan.get("clip_style") or "flat"),
        "moves": str(plan.get("moves") or "all"),
        "model": _model(experiment),
        "lora": _given(experiment.lora),
        **dropouts,
        "tokenizer": tokenizers.get(experiment.tokenizer_name, "a file"),
        "precision": experiment.precision,
        "positions": "default" if experiment.positions is None else "given",
        "public.rule": experiment.public.rule,
        "private.rule": experiment.private.rule,
        "private.longest_gradient": _given(experiment.private.longest_gradient),
        "choose_on": _looked_at(experiment) if choosing else "never",
        "held_out": "share" if experiment.held_out_corpus is None else "corpus",
    }


def check_covered(experiment: Experiment) -> None:
    """Refuse a claim under settings whose neighbours were never compared."""
    choice = choice_of(experiment)
    for setting, value in choice.items():
        if value not in COVERED[setting]:
            raise ClaimRefused(
                expected=f"{setting}: {' or '.join(COVERED[setting])}, which the neighbour fuzzer compared",
                found=f"{setting}: {value}, under the claim of {experiment.mechanism}",
                way_out=f"change {setting}, or take mechanism: plain, which claims nothing",
            )
    for need in NEEDS:
        if need.broken_by(choice):
            raise ClaimRefused(
                expected=f"{need.other}: {' or '.join(need.allowed)} with {need.setting}: {need.value} ({need.why})",
                found=f"{need.other}: {choice[need.other]}",
                way_out=f"change {need.other} or {need.setting}",
            )


def _given(value: object) -> str:
    return "none" if value is None else "given"


def _model(experiment: Experiment) -> str:
    if is_own(experiment.model):
        return "own"
    return experiment.model if experiment.is_new else "folder"


def _looked_at(experiment: Experiment) -> str:
    return experiment.choose_on if experiment.choose_on in ("redacted", "full") else "public"


def _dropouts(experiment: Experiment) -> dict[str, str]:
    """What drops; of new models the shape decides."""
    if experiment.model == "lstm":
        shape = shaped(LSTMConfig, experiment.shape, {"vocabulary_size": 1})
        rates = (shape.dropout, shape.embedding_dropout, shape.weight_drop)
        found = ["some" if rate else "none" for rate in rates]
        names = ("dropout", "embedding_dropout", "weight_drop")
        return {**dict(zip(names, found, strict=True)), "tied": "yes" if shape.tied else "no"}
    of_gpt = {"vocabulary_size": 1, "context": experiment.longest_full + 2}
    gpt = experiment.model == "gpt" and shaped(CausalLMConfig, experiment.shape, of_gpt).dropout
    dropout = ("some" if gpt else "none") if experiment.model == "gpt" else "of the model"
    return {"dropout": dropout, "embedding_dropout": "none", "weight_drop": "none", "tied": "no"}
