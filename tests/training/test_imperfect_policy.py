"""What a policy misses: `redaction` and `selective` say it, `crt` does not (S-DP section 5.4.2, CRT's Figure 3).

Canaries are planted ten times each; a forgetful policy misses a share of them. The ranks of the missed ones among all
values are compared with those of twins that were never planted, by the exact test of Mann and Whitney: under chance a
p-value below `ALARM` comes with probability `ALARM`. Where a leak is to be seen, the p-value must be below it, which is
the control of the runs where none may be.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from marking import records_of
from tacit.config.audit_schema import CanaryPlan
from tacit.config.load import load_config
from tacit.config.schema import Config
from tacit.data.batches import TextBatch
from tacit.data.corpus import write_jsonl
from tacit.data.marked import CANARY, CanaryRecord, Split, draw_canaries, plant
from tacit.data.records import Record, Span, segment_records
from tacit.models.loading import load
from tacit.policies.registry import parse_policy
from tacit.simulation.simulate import simulate
from tacit.training.stages import train

ALARM = 1e-4
CANARIES = CanaryPlan("my code is {3 digits}", 24, repetitions=10, inside_probability=1.0)
MISS_RATES = (0.0, 0.25, 0.5)
PLANS: dict[str, dict[str, object]] = {
    "redaction": {"public_epochs": 25},
    "selective": {"public_epochs": 25, "epsilon": 2, "steps": 20, "expected_batch_size": 32},
    "crt": {"public_epochs": 25, "epsilon": 2, "steps": 20, "expected_batch_size": 32},
}


@pytest.fixture(scope="module")
def canaries() -> tuple[CanaryRecord, ...]:
    return draw_canaries(CANARIES, np.random.default_rng(5))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory, canaries: tuple[CanaryRecord, ...]) -> Path:
    """Turns of simulated dialogs with the canaries among them; gold spans mark both."""
    folder = tmp_path_factory.mktemp("corpus")
    turns = list(segment_records(simulate("customersim", 25), "turn"))
    planted = plant(turns, CANARIES, canaries, len(turns), np.random.default_rng(6))
    write_jsonl(planted, folder / "corpus.jsonl")
    return folder / "corpus.jsonl"


def _policy(corpus: Path, miss_rate: float) -> str:
    path = corpus.parent / f"forgetful-{miss_rate}.yaml"
    path.write_text(f"policy: {{forgetful: {{policy: gold, miss_rate: {miss_rate}, seed: 1}}}}")
    return str(path)


def _experiment(corpus: Path, mechanism: str, miss_rate: float) -> Config:
    words: dict[str, Any] = {
        "corpus": str(corpus),
        "mode": "research",
        "policy": _policy(corpus, miss_rate),
        "conservative_policy": "digits" if mechanism == "crt" else None,
        "plan": {"mechanism": mechanism, **PLANS[mechanism]},
        "max_tokens": 128,
        "max_full_tokens": 128,
        "model_config": {"embedding_size": 32, "hidden_size": 96, "dropout": 0.0},
        "held_out": 0.02,
    }
    return load_config(words)


def _ranks(folder: Path, values: list[str]) -> list[int]:
    """The place of each value among all thousand, each scored whole."""
    learner, tokenizer = load(folder)
    learner.module.eval()
    texts = [CANARIES.slot.text(value) for value in CANARIES.slot.values()]
    with torch.no_grad():
        batch = TextBatch.of_rows([[tokenizer.end, *tokenizer.encode(text)] for text in texts])
        scores = learner.log_probabilities(batch).sum(dim=1)
    return [1 + int((scores > scores[int(value)]).sum()) for value in values]


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.parametrize("miss_rate", MISS_RATES)
@pytest.mark.parametrize("mechanism", PLANS)
def test_who_says_what_the_policy_missed(
    mechanism: str, miss_rate: float, corpus: Path, canaries: tuple[CanaryRecord, ...], tmp_path: Path
) -> None:
    experiment = _experiment(corpus, mechanism, miss_rate)
    train(experiment, tmp_path / "run", lambda _: None)
    policy, trained = parse_policy(experiment.policy), {record.user for record in records_of(experiment, Split.TRAIN)}
    inside = [canary for canary in canaries if canary.id in trained]
    start = len(CANARIES.slot.before)
    spans = {canary.id: (Span(start, start + len(canary.value), CANARY),) for canary in inside}
    found = [bool(policy.find(Record(canary.id, canary.text, spans=spans[canary.id]))) for canary in inside]
    ranks = _ranks(tmp_path / "run", [canary.value for canary in inside])
    twins = _ranks(tmp_path / "run", [canary.twin_value for canary in inside])
    covered = [rank for rank, known in zip(ranks, found, strict=True) if known]
    missed = [rank for rank, known in zip(ranks, found, strict=True) if not known]
    assert len(missed) == 0 if miss_rate == 0 else 5 <= len(missed) <= 18
    assert _p_value(covered, twins) > ALARM
    if missed and mechanism != "crt":
        assert _p_value(missed, twins) < ALARM
        assert np.median(missed) < 100
    elif missed:
        assert _p_value(missed, twins) > ALARM


def _p_value(ranks: list[int], twins: list[int]) -> float:
    """Of ranks that are no better than the twins'."""
    return float(stats.mannwhitneyu(ranks, twins, alternative="less").pvalue)
