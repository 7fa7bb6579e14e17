"""Updates and whole runs of adapters to a base model that the ranks share, and the same without shares."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.distributed.tensor import DTensor

from forked_ranks import Work, in_group
from neighbor_settings import make_folders
from rank_cases import SGD, WORDS, Case, all_parts
from runs import Parts, experiment, quiet, write_corpus
from tacit.common.libraries import quietly
from tacit.config.model_schema import LoRAConfig
from tacit.data.corpus import write_jsonl
from tacit.data.records import Record
from tacit.errors import RunError
from tacit.models.causal_lm import CausalLM
from tacit.models.evaluation import evaluate
from tacit.models.shards import blocks_of, cut_on_arrival
from tacit.training.gradients.check import check_gradients
from tacit.training.gradients.clipped import Method
from tacit.training.group import Group, Passes, joined
from tacit.training.sharing import share_model
from tacit.training.stages import resume, train
from tacit.training.updates import UpdateSettings

FAMILIES = ("llama", "gpt2", "mixtral")
PLANS = ("dpsgd", "user", "selective")
DRAWS: dict[str, tuple[tuple[int, ...], ...]] = {
    "empty": ((), (1, 2, 3)),
    "nothing for a rank": ((5,),),
    "one huge record": ((24, 1, 2, 3, 4, 5, 6),),
}
METHODS: dict[str, Method] = {"method layers": "layers", "method rows": "rows"}
QUICK = ("user", *(f"draw {name}" for name in DRAWS))
CASES = (*QUICK, "dpsgd", "selective", *METHODS, *(f"family {name}" for name in FAMILIES), "some layers")
_FEW_POSITIONS = 64  # so that ranks have different numbers of passes


def _lora(name: str) -> LoRAConfig:
    return LoRAConfig(2, layers_to_transform=(1,) if name == "some layers" else None)


def load(folder: Path, lora: LoRAConfig, group: Group | None) -> CausalLM:
    """The base model with adapters, whose second halves are not zero; with a group, its layers are shared."""
    torch.manual_seed(0)
    if group is None:
        learner = CausalLM.from_folder(folder, lora)
    else:
        with cut_on_arrival(group.rank, group.size) as kept:
            learner = CausalLM.from_folder(folder, lora)
        share_model(learner, kept, group)
        assert all(isinstance(one, DTensor) for block in blocks_of(learner.module) for one in _frozen(block))
    with torch.no_grad():
        for value in learner.module.parameters():
            if value.requires_grad:
                value.add_(torch.randn(value.shape) * 0.1)
    return learner


def _frozen(module: torch.nn.Module) -> Iterator[Tensor]:
    return (value for value in module.parameters() if not value.requires_grad)


def _carried_out(name: str, parts: dict[str, Parts], place: Path, group: Group, shared: bool) -> dict[str, Tensor]:
    """What moves, and what the updates and an evaluation say; with shares, or without."""
    group = replace(group, passes=Passes())
    kind, _, what = name.partition(" ")
    family = what if kind == "family" else "llama"
    model = load(place / family, _lora(name), group if shared else None)
    used = parts[name if name in PLANS else "dpsgd"]
    settings = UpdateSettings(public=SGD, private=SGD, positions=_FEW_POSITIONS)
    method = METHODS.get(name) or check_gradients(model, longest=20)
    case = Case(model, used.reader, used, used.mechanism.plan(), settings, method, DRAWS.get(what))
    found = case.carry_out(group)
    utility, contributions = evaluate(model, used.store, used.reader, 1, lambda _: None, group)
    moved = {key: value for key, value in found.items() if "lora_" in key or key == "facts"}
    measured = torch.tensor([utility.overall.nats, float(contributions.vectors.sum())], dtype=torch.float64)
    return {**moved, "measured": measured, "method": torch.tensor([len(method)])}


def make_bases(place: Path) -> None:
    """Small base models of three families, with an odd number of rows in some weights: shares differ in size."""
    from transformers import (
        GPT2Config,
        GPT2LMHeadModel,
        LlamaConfig,
        LlamaForCausalLM,
        MixtralConfig,
        MixtralForCausalLM,
    )

    torch.manual_seed(0)
    small: dict[str, Any] = {"vocab_size": WORDS, "bos_token_id": None, "eos_token_id": None}
    sizes: dict[str, Any] = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 8}
    gpt = GPT2Config(n_embd=8, n_layer=2, n_head=2, n_positions=512, **small)
    modules: dict[str, Any] = {
        "llama": LlamaForCausalLM(LlamaConfig(**{**sizes, "intermediate_size": 7}, **small)),  # type: ignore[no-untyped-call]
        "gpt2": GPT2LMHeadModel(gpt),  # type: ignore[no-untyped-call]
        "mixtral": MixtralForCausalLM(MixtralConfig(num_local_experts=3, num_key_value_heads=1, **sizes, **small)),  # type: ignore[no-untyped-call]
    }
    with quietly():
        for name, module in modules.items():
            module.save_pretrained(place / name)


def quick_cases(folder: Path) -> Work:
    """As `every_case`, for a few."""
    return _work(folder, QUICK)


def every_case(folder: Path) -> Work:
    """Work for each rank: all cases, in `SIZE-RANK-shared-CASE.safetensors` and `SIZE-RANK-whole-CASE.safetensors`."""
    return _work(folder, CASES)


def _work(folder: Path, cases: tuple[str, ...]) -> Work:
    place = folder / "models"
    place.mkdir()
    make_bases(place)
    parts = all_parts(folder, PLANS)
    load(place / "llama", _lora(""), None)  # what it imports, every rank then has

    def work(group: Group) -> None:
        for name in cases:
            for kind, shared in (("whole", False), ("shared", True)):
                if group.size == 1 and shared:
                    continue
                found = _carried_out(name, parts, place, group, shared)
                save_file(found, folder / f"{group.size}-{group.rank}-{kind}-{name}.safetensors")

    return in_group(work)


RUNS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "chosen": ("selective", {"steps": 3, "expected_batch_size": 6}, {"eval_steps": 2, "eval_on": "redacted"}),
    "encoder": ("dpsgd", {"steps": 2, "expected_batch_size": 6}, {"task": "classification", "classes": ["a", "b"]}),
    "checkpointed": ("plain", {"epochs": 1}, {"gradient_checkpointing": "public", "save_steps": 2}),
}

SETTINGS: dict[str, Any] = {"lora": {"rank": 2}, "max_tokens": 32, "max_full_tokens": 60}


def every_run(folder: Path) -> Work:
    """Work for each process: all runs with and without shares, in `NAME-FSDP`; each is resumed when it is finished."""
    place = folder / "models"
    place.mkdir()
    make_folders(place)
    corpus, labeled = write_corpus(folder, 30), folder / "labeled.jsonl"
    texts = (Record(f"r{number}", f"text {number}", f"u{number}", "ab"[number % 2], ()) for number in range(40))
    write_jsonl(texts, labeled)
    load(place / "llama", _lora(""), None)

    def work() -> None:
        for name, (mechanism, words, more) in RUNS.items():
            for fsdp in ("none", "base"):
                encodes, out = name == "encoder", folder / f"{name}-{fsdp}"
                settings = {**SETTINGS, **more, "tokenizer": str(place / "tokenizer.json"), "fsdp": fsdp}
                settings["model"] = str(place / ("bert" if encodes else "llama"))
                begun = train(experiment(labeled if encodes else corpus, mechanism, words, **settings), out, quiet)
                again = resume(out, quiet)
                assert begun.utility == again.utility

    return work


def other_bases(folder: Path) -> Work:
    """Work for each rank: each has a base model of its own; all must stop."""
    make_bases(folder)
    load(folder / "llama", _lora(""), None)

    def work(group: Group) -> None:
        try:
            load(folder / FAMILIES[group.rank], _lora(""), group)
        except RunError:
            (folder / f"stopped {group.rank}").touch()

    return in_group(work)


def without_the_others(folder: Path) -> Work:
    """Work for each rank: a draw in which a rank without rows does not join the pass of the other; it must fail."""
    make_bases(folder)
    parts = all_parts(folder, PLANS)
    load(folder / "llama", _lora(""), None)

    def work() -> None:
        with joined("cpu", timedelta(seconds=5)) as group, patch.object(Group, "finish_passes"):
            _carried_out("draw nothing for a rank", parts, folder, group, True)

    return work
