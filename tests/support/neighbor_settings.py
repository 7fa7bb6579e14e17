"""Settings for the neighbor fuzzer: choices of `tacit.training.covered` with every allowed pair, and runs of them."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from itertools import combinations
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn

from tacit.data.tokenizer import Dependence, VocabularySource, train_bpe
from tacit.mechanisms import registry as mechanisms
from tacit.mechanisms.custom import Own
from tacit.mechanisms.mechanism import PrivateSteps, interleaved
from tacit.mechanisms.registry import register_mechanism
from tacit.mechanisms.settings import PlanSettings
from tacit.models import loading as own
from tacit.models.loading import register_model
from tacit.privacy.plan import Phase, Plan, Pool, Targets, Unit, View
from tacit.training.covered import COVERED, RULES, pairs

Pair = frozenset[tuple[str, str]]


def pairs_of(choice: Mapping[str, str]) -> set[Pair]:
    """The pairs of values that a choice has."""
    return {frozenset(pair) for pair in combinations(choice.items(), 2)}


Domains = dict[str, tuple[str, ...]]


def _narrowed(domains: Domains) -> Domains | None:
    """What is left of each setting's values when all that forbid one another are gone; None: nothing is left of one."""
    left, before = dict(domains), None
    while before != left:
        before = dict(left)
        for need in RULES:
            fitting = tuple(value for value in left[need.other] if value in need.allowed)
            if left[need.setting] == (need.value,):
                left[need.other] = fitting
            elif not fitting:
                left[need.setting] = tuple(value for value in left[need.setting] if value != need.value)
    return left if all(left.values()) else None


def completed(part: Mapping[str, str], wanted: set[Pair], chance: Random) -> dict[str, str] | None:
    """A choice with `part` in it, and with as many wanted pairs as can be had one by one; None: there is none."""
    start = {setting: (part[setting],) if setting in part else values for setting, values in COVERED.items()}
    return _completed(_narrowed(start), wanted, chance)


def _completed(domains: Domains | None, wanted: set[Pair], chance: Random) -> dict[str, str] | None:
    if domains is None:
        return None
    choice = {setting: values[0] for setting, values in domains.items() if len(values) == 1}
    if len(choice) == len(domains):
        return choice
    setting = chance.choice([setting for setting in domains if setting not in choice])
    values = chance.sample(domains[setting], len(domains[setting]))
    values.sort(key=lambda value: -sum(frozenset(((setting, value), had)) in wanted for had in choice.items()))
    found = (_completed(_narrowed({**domains, setting: (value,)}), wanted, chance) for value in values)
    return next((whole for whole in found if whole is not None), None)


@cache
def covering_choices(seed: int) -> tuple[tuple[dict[str, str], ...], int, int]:
    """Choices that together have every allowed pair; how many pairs that are, and how many a third setting forbids."""
    chance = Random(seed)
    listed = [frozenset(pair) for pair in pairs()]
    chance.shuffle(listed)
    wanted, forbidden = set(listed), 0
    choices: list[dict[str, str]] = []
    for pair in listed:
        if pair not in wanted:
            continue
        choice = completed(dict(pair), wanted, chance)
        if choice is None:
            forbidden += 1
            wanted.discard(pair)
        else:
            choices.append(choice)
            wanted -= pairs_of(choice)
    return tuple(choices), len(listed) - forbidden, forbidden


class OwnNetwork(nn.Module):
    """A causal network of somebody: what was read so far, on average, and a linear layer or two."""

    def __init__(self, vocabulary_size: int, context: int, shape: Mapping[str, float]) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary_size, 6)
        self.inner = nn.Linear(6, 6)
        self.norm = nn.LayerNorm(6)
        self.dropout = nn.Dropout(0.3)
        self.head = nn.Linear(6, vocabulary_size)

    def forward(self, tokens: Tensor) -> Tensor:
        read = self.embedding(tokens).cumsum(1) / torch.arange(1, tokens.shape[1] + 1)[:, None]
        scores: Tensor = self.head(self.dropout(torch.tanh(self.norm(self.inner(read)))))
        return scores


def _own(unit: Unit) -> Any:  # noqa: ANN401
    def build(words: PlanSettings) -> Own:
        records = int(words.need("records"))
        counted = {Unit.SECRETS: "secret_records", Unit.FLAGGED_RECORD: "flagged"}.get(unit, "records")
        private = words.private(words.count(counted))
        public = words.public(records)

        def schedule(chosen: PrivateSteps) -> Plan:
            if unit == Unit.SECRETS:
                step = public.step(View.INVENTED, Pool.EVERY, Targets.PUBLIC)
                noisy = chosen.step(View.FULL, Pool.WITH_SECRETS)
                return interleaved(step, public.steps, noisy, chosen.steps)
            if unit == Unit.FLAGGED_RECORD:
                step, noisy = public.step(View.FULL, Pool.CLEARED), chosen.step(View.INVENTED, Pool.FLAGGED)
                return interleaved(step, public.steps, noisy, chosen.steps)
            return Plan((Phase(((chosen.step(View.INVENTED, Pool.EVERY), chosen.steps),)),))

        return Own(f"own {unit}", private, schedule, unit)

    return build


@contextmanager
def published(folder: Path) -> Iterator[Path]:
    """Models and files of others in `folder`, own mechanisms and an own model in this process, and one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    make_folders(folder)
    with patch.dict(mechanisms._OWN), patch.dict(own._OWN):
        for unit in (Unit.SECRETS, Unit.RECORD, Unit.FLAGGED_RECORD):
            register_mechanism(f"own {unit}", "of somebody", _own(unit))
        register_model("neighbors", OwnNetwork)
        yield folder
    torch.set_num_threads(threads)


def make_folders(place: Path) -> None:
    """Model folders as others publish them, a tokenizer file and a public corpus."""
    from transformers import (
        BertConfig,
        BertModel,
        GPT2Config,
        GPT2LMHeadModel,
        GraniteConfig,
        GraniteForCausalLM,
        LlamaConfig,
        LlamaForCausalLM,
        MixtralConfig,
        MixtralForCausalLM,
    )
    from transformers.utils import logging

    text = "it rains on the small town and nobody came to the old station at nine"
    public = [{"id": str(number), "text": f"{text} {number}.", "label": "x", "spans": []} for number in (1, 2)]
    (place / "public.jsonl").write_text("".join(json.dumps(record) + "\n" for record in public))
    chats = [{**one, "messages": [{"role": "assistant", "content": one.pop("text"), "spans": []}]} for one in public]
    (place / "chats.jsonl").write_text("".join(json.dumps({**one, "spans": None}) + "\n" for one in chats))
    tokenizer = train_bpe([text] * 3, 270, Dependence(VocabularySource.PUBLIC_CORPUS, "elsewhere"))
    (place / "tokenizer.json").write_text(json.dumps(tokenizer.codec.definition()["content"]))
    torch.manual_seed(0)
    small: dict[str, Any] = {"vocab_size": 272, "bos_token_id": None, "eos_token_id": None}
    sizes: dict[str, Any] = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 8}
    gpt = GPT2Config(n_embd=8, n_layer=2, n_head=2, n_positions=64, **small)
    modules: dict[str, Any] = {
        "gpt2": GPT2LMHeadModel(gpt),  # type: ignore[no-untyped-call]
        "llama": LlamaForCausalLM(LlamaConfig(**sizes, **small)),  # type: ignore[no-untyped-call]
        "granite": GraniteForCausalLM(GraniteConfig(logits_scaling=4.0, **sizes, **small)),  # type: ignore[no-untyped-call]
        "mixtral": MixtralForCausalLM(MixtralConfig(num_local_experts=3, num_key_value_heads=1, **sizes, **small)),  # type: ignore[no-untyped-call]
        "bert": BertModel(BertConfig(vocab_size=272, max_position_embeddings=64, **sizes)),  # type: ignore[no-untyped-call]
    }
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    for name, module in modules.items():
        module.save_pretrained(place / name)
    for name in set(modules) - {"bert"}:
        modules[name].save_pretrained(place / f"{name}-chats")
        _make_chat_tokenizer(place / f"{name}-chats", tokenizer.codec.definition()["content"])


def _make_chat_tokenizer(folder: Path, content: dict[str, Any]) -> None:
    """A tokenizer with the special tokens of a chat template, which opens all texts and trims contents."""
    names = {"bos_token": "<s>", "eos_token": "</s>", "mask_token": "<mask>"}
    kept = sorted(content["model"]["vocab"], key=content["model"]["vocab"].get)[: -len(names)]
    content = {**content, "model": {**content["model"], "vocab": {token: n for n, token in enumerate(kept)}}}
    content["model"]["merges"] = [pair for pair in content["model"]["merges"] if "".join(pair) in kept]
    style = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    content["added_tokens"] = [
        {"id": len(kept) + number, "content": token, "special": True, **style}
        for number, token in enumerate(names.values())
    ]
    (folder / "tokenizer.json").write_text(json.dumps(content))
    (folder / "tokenizer_config.json").write_text(json.dumps({**names, "add_bos_token": True}))
    (folder / "chat_template.jinja").write_text(
        "{{ bos_token }}{% for message in messages %}{{ message.role[:1] }}:{{ message.content | trim }}{{ eos_token }}"
        "{% endfor %}"
    )


def words_of(choice: Mapping[str, str], place: Path, chance: Random) -> dict[str, Any]:
    """Settings of a run for a choice; numbers are drawn by chance. place: what `make_folders` made."""
    words: dict[str, Any] = {
        "mode": "research",
        "seed": chance.randrange(100),
        "max_tokens": chance.choice((24, 48)),
        "max_full_tokens": chance.choice((24, 60)),
        "plan": _plan(choice, chance),
        "policy": "digits" if choice["conservative_policy"] == "given" else "gold",
        "public": {
            "optimizer": choice["public.optimizer"],
            "learning_rate": 0.01,
            "max_grad_norm": chance.choice((None, 1.0)),
        },
        "private": {
            "optimizer": choice["private.optimizer"],
            "learning_rate": 0.01,
            "lr_scheduler": chance.choice(("none", "linear")),
        },
        **_model(choice, place, chance),
    }
    if choice["mechanism"] in ("selective-published", "cadp-published"):
        words["private"]["lr_scheduler"] = "none"  # as printed
    for setting in (
        "task",
        "segment_by",
        "train_on",
        "duplicates",
        "user_source",
        "precision",
        "gradient_checkpointing",
    ):
        words[setting] = choice[setting]
    if choice["task"] == "classification":
        words["classes"] = ["x", "y"]
    if choice["conservative_policy"] == "given":
        words["conservative_policy"] = "gold"
    words["canaries"] = []
    if choice["canaries"] == "some":
        canary = {"template": "my code is {4 digits}", "count": 2, "known": chance.random() < 0.5}
        words["canaries"] = [{**canary, "inside_probability": 1.0}]
    if choice["inventions"] == "given":
        words["inventions"] = {"ID": ["AB-12", "7"]}
    if choice["entity_kinds"] == "some":
        words["entity_kinds"] = ["NAME"]
    if choice["aliases"] == "given":
        words["aliases"] = "to be written"
    if choice["attn_implementation"] != "default":
        words["attn_implementation"] = choice["attn_implementation"]
    if choice["microbatch_tokens"] == "given":
        words["microbatch_tokens"] = chance.choice((1, 16, 40))
    if choice["private.max_grad_norm"] == "given":
        words["private"]["max_grad_norm"] = 0.5
    if choice["eval_on"] != "never":
        words |= {"eval_steps": 1, "early_stopping_patience": chance.choice((None, 2))}
        public = place / ("chats.jsonl" if choice["train_on"] == "assistant" else "public.jsonl")
        words["eval_on"] = "redacted" if choice["eval_on"] == "redacted" else str(public)
    if choice["held_out"] == "share":
        words["held_out"] = 0.3
    return words


def _plan(choice: Mapping[str, str], chance: Random) -> dict[str, Any]:
    mechanism = choice["mechanism"]
    plan: dict[str, Any] = {"mechanism": mechanism, "noise_multiplier": chance.choice((0.5, 1.0, 2.5))}
    plan |= {"clip_norm": chance.choice((0.1, 1.0, 3.0)), "sampling_rate": 0.5, "steps": 2}
    if mechanism in ("redaction", "invented"):
        plan = {"mechanism": mechanism}
    if mechanism == "own":
        drops = "some" in (choice["dropout"], choice["embedding_dropout"], choice["weight_drop"])
        exact = [Unit.SECRETS, Unit.FLAGGED_RECORD]  # with plain steps, in which models drop and are less precise
        public = choice["precision"] == "bfloat16" or drops
        plan["mechanism"] = f"own {chance.choice(exact if public else [*exact, Unit.RECORD])}"
    if mechanism in ("redaction", "invented", "selective", "twice", "cadp", "crt", "own") or choice["rest"] == "plain":
        plan |= {"public_epochs": 1, "public_batch_size": chance.randint(2, 5)}
    if mechanism in ("selective", "twice", "crt"):
        plan["public_view"] = choice["public_view"]
        if choice["public_view"] == "learned":
            plan["form_epsilon"] = chance.choice((0.5, 1000.0, 1000.0))  # in so small a corpus nothing else is learned
    if mechanism in ("selective", "twice"):
        plan["targets"] = choice["targets"]
    if choice["user_cap"] == "given":
        plan["user_cap"] = chance.randint(1, 3)
    elif mechanism == "user":
        plan |= {"weight_cap": chance.randint(1, 3), "local_epochs": chance.randint(1, 2)}
    if mechanism == "uedp":
        plan["entity_cap"] = chance.randint(1, 3)
    if mechanism == "uedp-published":
        plan["entity_rate"] = 0.6
    if mechanism == "cadp-published":
        plan["recall"] = 0.9
    if mechanism == "selective-published":
        plan["noised_states"] = chance.choice((0, 2))  # of its one layer
    for setting, default in (("clip_style", "flat"), ("trainable", "all")):
        if choice[setting] != default:
            plan[setting] = choice[setting]
    return plan


def _layers(choice: Mapping[str, str], chance: Random) -> int:
    return 1 if choice["mechanism"] == "selective-published" else chance.randint(1, 2)


def _model(choice: Mapping[str, str], place: Path, chance: Random) -> dict[str, Any]:
    model, classifies = choice["model"], choice["task"] == "classification"
    rate = {"none": 0.0, "some": 0.4}
    words: dict[str, Any] = {"model": {"own": "neighbors"}.get(model, model)}
    if model == "lstm":
        words["model_config"] = {"embedding_size": 5, "hidden_size": 6, "layers": _layers(choice, chance)}
        words["model_config"] |= {name: rate[choice[name]] for name in ("embedding_dropout", "weight_drop")}
        words["model_config"] |= {"locked": chance.random() < 0.5, "tied": choice["tied"] == "yes"}
    if model == "gpt":
        words["model_config"] = {"width": 8, "layers": 2 if choice["lora"] == "of some layers" else 1, "heads": 2}
    if choice["dropout"] == "none" and "model_config" in words:
        words["model_config"]["dropout"] = 0.0  # new models have some
    if model == "folder":
        families = ("gpt2", "llama", "granite", "mixtral")  # whose gradients are taken in each of the three ways
        causal = "gpt2" if choice["trainable"] == "biases" else chance.choice(families)  # the others have none
        causal = "llama" if choice["cache_activations"] == "on" else causal  # a gpt2 drops states
        words["model"] = str(place / ("bert" if classifies else causal))
    if choice["lora"] != "none":
        words["lora"] = {"rank": 2}
    if choice["lora"] == "of some layers":
        words["lora"]["layers_to_transform"] = [1]
    if choice["cache_activations"] == "on":
        words["cache_activations_gb"] = chance.choice((1e-5, 0.001))  # room for some rows, or for all
    if choice["chat_template"] == "given":
        return words | {"model": f"{words['model']}-chats", "tokenizer": "model"}
    if choice["tokenizer"].startswith("bpe"):
        words |= {"tokenizer": "bpe", "vocabulary_size": 260}
    else:
        words["tokenizer"] = "bytes" if choice["tokenizer"] == "bytes" else str(place / "tokenizer.json")
    if choice["tokenizer"] == "bpe of a public corpus":
        words["vocabulary_corpus"] = str(place / "public.jsonl")
    return words
