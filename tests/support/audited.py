"""What tests of audits share: a small corpus of distinct secrets, and runs of a model that is quick to overfit."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runs import quiet
from tacit.audits.attacks.epsilon import PlanBound, plan_bounds
from tacit.audits.attacks.exposure import PlanExposure, plan_exposures
from tacit.audits.attacks.extraction import ExtractionResult, extraction
from tacit.audits.attacks.membership import MembershipResult, membership
from tacit.audits.target import Target
from tacit.config.audit_schema import AuditConfig
from tacit.config.load import load_config
from tacit.data.corpus import write_jsonl
from tacit.data.records import Record, Span
from tacit.models.language_model import Learner
from tacit.papers.two_stage import TwoStageResult, measure_two_stage
from tacit.runs.folder import RunFolder
from tacit.training.stages import train

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
SECRET = slice(10, 16)
KNOWN = {"template": "My ID is {4 digits}", "count": 12, "repetitions": 4}
HIDDEN = {"template": "Key {8 letters}", "count": 12, "repetitions": 4, "known": False}
ALWAYS = {"template": "or {4 digits}", "count": 16, "repetitions": 2, "inside_probability": 1.0}
OVERFIT = {"mechanism": "plain", "public_epochs": 100, "public_batch_size": 12}
NOISY = {"mechanism": "dpsgd", "noise_multiplier": 60.0, "steps": 90, "expected_batch_size": 100}
FAST = {"optimizer": "sgd", "lr_scheduler": "none", "learning_rate": 12.0}
MANY = {"template": "ID {4 digits}", "count": 200}


def secret_records(count: int) -> Iterator[Record]:
    """`No 417 is qwerty`: the number is public, the word behind it is secret."""
    rng = random.Random(1)
    for number, code in enumerate(rng.sample(range(1000), count)):
        word = "".join(rng.choice(_LETTERS) for _ in range(SECRET.stop - SECRET.start))
        yield Record(
            f"r{number}", f"No {code:03} is {word}", f"u{number}", None, (Span(SECRET.start, SECRET.stop, "NAME"),)
        )


def train_run(
    folder: Path,
    plan: dict[str, Any],
    canaries: list[dict[str, Any]],
    records: int = 60,
    **more: Any,  # noqa: ANN401
) -> Path:
    """A run in `folder`/run."""
    corpus = folder / "corpus.jsonl"
    if "corpus" not in more:
        write_jsonl(secret_records(records), corpus)
    words: dict[str, Any] = {
        "corpus": str(corpus),
        "mode": "research",
        "policy": "gold",
        "tokenizer": "bytes",
        "held_out": 0.5,
        "max_tokens": 32,
        "max_full_tokens": 32,
        "model_config": {"hidden_size": 96, "embedding_size": 32, "dropout": 0.0},
        "public": {"learning_rate": 1e-2},
        "plan": plan,
        "canaries": canaries,
        **more,
    }
    train(load_config(words), folder / "run", quiet)
    return folder / "run"


@dataclass(frozen=True)
class Results:
    """What each attack measured on one run, before it is put into findings."""

    canaries: tuple[PlanExposure, ...]
    membership: MembershipResult | None
    extraction: ExtractionResult | None
    bounds: tuple[PlanBound, ...]
    two_stage: TwoStageResult | None


def measure(folder: Path, config: AuditConfig, reference: Learner | None = None) -> Results:
    """Every attack on the run in `folder`."""
    target = Target.of(RunFolder.view(folder), reference)
    return Results(
        plan_exposures(target, config, quiet),
        membership(target, config, quiet),
        extraction(target, config, quiet),
        plan_bounds(target, config),
        measure_two_stage(target, config),
    )
