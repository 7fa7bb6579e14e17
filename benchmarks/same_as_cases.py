"""The runs of `same_as.py`: every mechanism with every kind of model, and some with unusual settings."""

from collections.abc import Mapping
from dataclasses import dataclass

SETTINGS = {
    "held_out": "data.held_out",
    "max_tokens": "data.max_tokens",
    "longest_full": "data.max_full_tokens",
    "duplicates": "data.duplicates",
    "pieces": "data.segment_by",
    "users": "data.user_source",
    "vocabulary_size": "data.vocabulary_size",
    "conservative": "marking.conservative_policy",
    "entity_kinds": "marking.entity_kinds",
    "inventions": "marking.inventions",
    "plan.batch": "plan.expected_batch_size",
    "plan.public_batch": "plan.public_batch_size",
    "plan.moves": "plan.trainable",
    "shape": "model_config",
    "public.rule": "public.optimizer",
    "public.warm_up": "public.warmup_steps",
    "public.decay": "public.lr_scheduler",
    "public.longest_gradient": "public.max_grad_norm",
    "private.rule": "private.optimizer",
    "choose_every": "training.eval_steps",
    "patience": "training.early_stopping_patience",
    "keep_every": "training.save_steps",
    "positions": "execution.microbatch_tokens",
    "precision": "execution.precision",
    "canaries": "audit.canaries",
}
"""A setting's name in this script, and its newer one: used where `tacit config` or `tacit plan --help` show it."""


def settings(text: str) -> dict[str, str]:
    """`a=1 b=2` as a dict."""
    return {name: value for name, _, value in (word.partition("=") for word in text.split())}


SMALL = settings("mode=research policy=gold held_out=0.2 max_tokens=64 longest_full=64")
LSTM = settings("shape.hidden_size=12 shape.embedding_size=8")
MODELS = {
    "lstm": LSTM,
    "gpt": settings("model=gpt shape.width=16 shape.layers=1 shape.heads=2"),
    "classifier": {**LSTM, **settings("task=classification classes=[even,odd]")},
}
POLICIES = {"forgetful.yaml": 0.9, "cautious.yaml": 0.8}
"""Policies and how many gold spans they miss, so that some records are cleared."""
NOISY = "plan.noise_multiplier=1.0 plan.steps=3 plan.batch=8 plan.clip_norm=0.02 "  # shorter than all gradients
MIXED = NOISY + "plan.public_epochs=1 "
ENTITIES = "users=documents entity_kinds=[NAME] "
MECHANISMS = {
    "plain": "plan.public_epochs=1",
    "redaction": "plan.public_epochs=1",
    "invented": "plan.public_epochs=1",
    "dpsgd": NOISY,
    "selective": MIXED,
    "twice": MIXED,
    "cadp": MIXED + "policy=forgetful.yaml",
    "crt": MIXED + "policy=forgetful.yaml conservative=cautious.yaml",
    "user": NOISY + "plan.weight_cap=2 plan.local_epochs=2",
    "uedp": NOISY + ENTITIES + "plan.user_cap=2 plan.entity_cap=1",
    "selective-published": NOISY,
    "cadp-published": NOISY + "policy=forgetful.yaml plan.recall=0.98",
    "uedp-published": NOISY + ENTITIES + "plan.entity_rate=0.5",
}
LEARNS_LABELS = {name: {"plan.targets": "all"} for name in ("selective-classifier", "twice-classifier")}
REFUSED = {"selective-published-gpt", "selective-published-classifier", "cadp-published-classifier"}
"""Cases that are refused; a refusal of any other counts as a difference."""


@dataclass(frozen=True, slots=True)
class Case:
    """One run: its settings by their names of this file."""

    name: str
    mechanism: str
    settings: Mapping[str, str]
    audited: bool = False


def _case(name: str, mechanism: str, model: str, text: str) -> Case:
    return Case(name, mechanism, {**SMALL, **MODELS[model], **settings(text), **LEARNS_LABELS.get(name, {})})


def cases() -> list[Case]:
    """Every run."""
    usual = [
        _case(f"{mechanism}-{model}", mechanism, model, text)
        for mechanism, text in MECHANISMS.items()
        for model in MODELS
    ]
    return [
        *usual,
        Case("options", "selective", {**SMALL, **LSTM, **OPTIONS}, audited=True),
        _case("adapters", "dpsgd", "gpt", NOISY + "lora.rank=2 plan.moves=adapters"),
        _case("halves", "plain", "gpt", "precision=bfloat16 plan.public_epochs=1"),
        Case("layers", "dpsgd", {**SMALL, **LSTM, **settings(NOISY), **LAYERS}),
        _case("sentences", "redaction", "lstm", "pieces=sentence duplicates=exact plan.public_epochs=1"),
        _case("dealt", "user", "lstm", NOISY + "plan.batch=2 users=dealt local.learning_rate=0.5"),
        _case("capped", "user", "lstm", NOISY + "plan.user_cap=2"),
    ]


LAYERS = {"shape.layers": "2", "plan.clip_style": "per parameter"}
OPTIONS = {
    "canaries": "[{template: 'My ID is {6 digits}', count: 20, repetitions: 3}]",
    "inventions": "{ORDER: [AB-12345]}",
    **settings("tokenizer=bpe vocabulary_size=300 pieces=turn positions=500 choose_every=2 patience=9 keep_every=2"),
    **settings("public.rule=sgd public.learning_rate=0.002 public.warm_up=2 public.decay=none"),
    "public.longest_gradient": "0.5",
    **settings("private.rule=sgd private.learning_rate=0.1 plan.epsilon=8 plan.epochs=1 plan.batch=40"),
    **settings("plan.public_batch=40 plan.public_epochs=1 plan.clip_norm=0.5 plan.clip_style=automatic"),
    **settings("plan.targets=all"),
}


def translate(name: str, known: set[str]) -> str:
    """What a side with these `known` settings calls the setting."""
    for old, new in SETTINGS.items():
        if (name == old or name.startswith(f"{old}.")) and new in known:
            return new + name.removeprefix(old)
    return name
