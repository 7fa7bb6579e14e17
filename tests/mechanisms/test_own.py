"""Policies, mechanisms and models of one's own: what they may be, and that none of them can claim more than is true."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from runs import mechanism_of
from saved import released, reloaded
from tacit.api import audit, generate, report, train
from tacit.config.load import check_used, load_config
from tacit.data.corpus import write_jsonl
from tacit.errors import ClaimRefused, ConfigError, ModelError
from tacit.mechanisms.build import plan
from tacit.mechanisms.custom import Own
from tacit.mechanisms.dpsgd import DPSGD
from tacit.mechanisms.mechanism import PrivateSteps
from tacit.mechanisms.registry import register_mechanism
from tacit.mechanisms.settings import PlanSettings
from tacit.models.loading import CustomModel, build_model, register_model
from tacit.policies.patterns import Digits, Regex
from tacit.policies.registry import parse_policy, register_policy
from tacit.privacy.ledger import read_entries
from tacit.privacy.noisy_utility import HELD_OUT_ALONE
from tacit.privacy.plan import (
    Neighbors,
    Noisy,
    Phase,
    Plan,
    PoissonRecords,
    Pool,
    ShuffledBatch,
    ShuffledPass,
    SplitBatch,
    Step,
    Targets,
    Unit,
    View,
    cost,
)
from tacit.simulation.simulate import simulate
from tacit.training.gradients.check import check_gradients

WORDS = {"records": 1000, "epochs": 2, "expected_batch_size": 50}


def scheduled(schedule: Callable[[PrivateSteps], Plan], unit: Unit = Unit.SECRETS) -> Callable[[PlanSettings], Own]:
    return lambda words: Own("mine", words.private(words.need("records")), schedule, unit)


def noisy_steps(private: PrivateSteps) -> Plan:
    return Plan((Phase(((private.step(View.FULL, Pool.WITH_SECRETS, Targets.PRIVATE), private.steps),)),))


def test_g1_figures_are_the_price_of_the_listed_steps_and_noise_is_derived_from_epsilon() -> None:
    register_mechanism("mine", "a test's", scheduled(noisy_steps))
    mine = plan({"mechanism": "mine", "epsilon": 3, **WORDS})
    selective = plan({"mechanism": "selective", "epsilon": 3, **WORDS})
    assert mine.mechanism.private == selective.mechanism.private
    assert [one.epsilon for one in mine.guarantee.figures] == [one.epsilon for one in selective.guarantee.figures[:2]]


def test_g1_steps_that_read_secrets_without_noise_are_refused() -> None:
    def careless(private: PrivateSteps) -> Plan:
        plain = Step("plain", View.FULL, Pool.EVERY, ShuffledBatch(8), _plain(), "public")
        return Plan((*noisy_steps(private).phases, Phase(((plain, 1),))))

    register_mechanism("mine", "a test's", scheduled(careless))
    with pytest.raises(ClaimRefused, match="without noise"):
        plan({"mechanism": "mine", "noise_multiplier": 1, **WORDS})


def _plain() -> Any:  # noqa: ANN401
    from tacit.privacy.plan import Plain

    return Plain()


@pytest.mark.parametrize("unit", [Unit.SECRETS, Unit.RECORD, Unit.FLAGGED_RECORD])
def test_g2_the_sentence_names_the_unit_and_both_figures(unit: Unit) -> None:
    register_mechanism("mine", "a test's", scheduled(noisy_steps, unit))
    guarantee = plan({"mechanism": "mine", "noise_multiplier": 1, **WORDS}).guarantee
    assert str(unit) in guarantee.claim
    assert all(str(one) in guarantee.claim for one in guarantee.figures)
    assert guarantee.not_protected
    assert ("Coverage" in guarantee.sentence()) == (unit != Unit.RECORD)


class Liar(DPSGD):
    """Claims what DP-SGD claims, and does something else."""

    def plan(self) -> Plan:
        return Plan((Phase(((Step("plain", View.FULL, Pool.EVERY, ShuffledBatch(8), _plain(), "public"), 10),)),))


@pytest.mark.parametrize(
    "build",
    [
        lambda words: Liar(words.private(words.need("records"))),
        lambda words: Own("crt", words.private(words.need("records")), noisy_steps, Unit.RECORD),
        lambda words: Own("mine", words.private(8), noisy_steps, Unit.RECORD),
    ],
    ids=["another class", "a borrowed name", "fewer units, so a larger delta"],
)
def test_g2_what_could_claim_more_is_refused(build: Callable[[PlanSettings], Own]) -> None:
    register_mechanism("mine", "a test's", build)
    with pytest.raises(ClaimRefused, match=r"an Own called|units of the corpus"):
        plan({"mechanism": "mine", "noise_multiplier": 1, "records": 1000, "epochs": 2, "expected_batch_size": 5})


@pytest.mark.parametrize("unit", [Unit.SECRETS, Unit.RECORD, Unit.FLAGGED_RECORD])
@pytest.mark.parametrize("pool", [Pool.CAPPED, Pool.NO_ENTITY])
def test_pools_that_protected_content_decides_about_have_no_price(unit: Unit, pool: Pool) -> None:
    """Which records caps keep depends on who and what stands in them."""
    step = Step("public", View.REDACTED, pool, ShuffledBatch(8), _plain(), "public")
    with pytest.raises(ClaimRefused, match="decides about"):
        cost(step, Neighbors(unit))


@pytest.mark.parametrize(
    ("draw", "update"),
    [
        (PoissonRecords(0.1), SplitBatch(1.0, 1.0, 50.0, "segments")),
        (ShuffledPass(50), Noisy(1.0, 1.0, 50.0)),
        (PoissonRecords(0.1), _plain()),
    ],
    ids=["visible draw", "whole pass", "plain on a private draw"],
)
def test_g3_steps_that_would_make_a_printed_condition_false_are_refused(draw: Any, update: Any) -> None:  # noqa: ANN401
    def odd(private: PrivateSteps) -> Plan:
        return Plan((Phase(((Step("odd", View.FULL, Pool.WITH_SECRETS, draw, update, "private"), 1),)),))

    register_mechanism("mine", "a test's", scheduled(odd))
    with pytest.raises(ClaimRefused, match="Poisson draws"):
        plan({"mechanism": "mine", "noise_multiplier": 1, **WORDS})


def test_g3_two_steps_of_one_name_are_refused() -> None:
    def two(private: PrivateSteps) -> Plan:
        all_targets = private.step(View.FULL, Pool.WITH_SECRETS)
        return Plan((*noisy_steps(private).phases, Phase(((all_targets, 1),))))

    register_mechanism("mine", "a test's", scheduled(two))
    with pytest.raises(ConfigError, match="two steps called private"):
        plan({"mechanism": "mine", "noise_multiplier": 1, **WORDS})


@pytest.mark.parametrize("unit", [Unit.USER, Unit.ENTITY, Unit.USER_AND_ENTITY])
def test_g4_claims_that_rest_on_caps_are_refused(unit: Unit) -> None:
    register_mechanism("mine", "a test's", scheduled(noisy_steps, unit))
    with pytest.raises(ClaimRefused, match="uedp"):
        plan({"mechanism": "mine", "noise_multiplier": 1, **WORDS})


def test_names_that_are_taken_are_refused() -> None:
    for name in ("selective", "noiseless"):
        with pytest.raises(ConfigError, match="not taken"):
            register_mechanism(name, "a test's", scheduled(noisy_steps))
    for name in ("pii", "regex", "a,b", "mine.yaml"):
        with pytest.raises(ConfigError, match="not taken"):
            register_policy(name, Digits)
    for name in ("lstm", "gpt", "my-classifier"):
        with pytest.raises(ModelError, match="not taken"):
            register_model(name, Plainly)
    with pytest.raises(ConfigError, match="mechanism"):
        mechanism_of({"mechanism": "nobody-s"})


def test_own_policies_are_words_like_the_others() -> None:
    register_policy("shouting", lambda: Regex("[A-Z]{3,}", "LOUD"))
    assert parse_policy("shouting").hash == Regex("[A-Z]{3,}", "LOUD").hash
    assert parse_policy("digits, shouting").id == "(digits | regex:LOUD)"


class Plainly(nn.Module):
    """Each token predicts the next."""

    def __init__(self, vocabulary_size: int, context: int, shape: Mapping[str, float]) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary_size, int(shape.get("width", 8)))
        self.dropout = nn.Dropout(0.5)
        self.head = nn.Linear(int(shape.get("width", 8)), vocabulary_size)

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.head(self.between(self.dropout(self.embedding(tokens))))
        return logits

    def between(self, states: Tensor) -> Tensor:
        return states


class Ahead(Plainly):
    def between(self, states: Tensor) -> Tensor:
        return states.flip(1)


class FarAhead(Plainly):
    """Where a text is short, it looks innocent."""

    def between(self, states: Tensor) -> Tensor:
        return states + states.roll(-16, 1) if states.shape[1] > 16 else states


class MixingMany(Plainly):
    """Two rows are left apart."""

    def between(self, states: Tensor) -> Tensor:
        return states - states.mean(0) if len(states) > 2 else states


class Mixing(Plainly):
    """Batch normalisation without parameters: no rule of the gradients would notice, and nothing mixes in `eval`."""

    def __init__(self, vocabulary_size: int, context: int, shape: Mapping[str, float]) -> None:
        super().__init__(vocabulary_size, context, shape)
        self.norm = nn.BatchNorm1d(8, affine=False, track_running_stats=False)

    def between(self, states: Tensor) -> Tensor:
        return (states - states.mean(0)) if self.training else states


class Remembering(Plainly):
    def __init__(self, vocabulary_size: int, context: int, shape: Mapping[str, float]) -> None:
        super().__init__(vocabulary_size, context, shape)
        self.register_buffer("seen", torch.zeros(()))

    def between(self, states: Tensor) -> Tensor:
        self.get_buffer("seen").add_(1.0)
        return states


class Headless(nn.Module):
    def __init__(self, vocabulary_size: int, context: int, shape: Mapping[str, float]) -> None:
        super().__init__()


class Short(Plainly):
    def forward(self, tokens: Tensor) -> Tensor:
        return super().forward(tokens)[:, :-1]


@pytest.mark.parametrize(
    ("network", "reason"),
    [
        (Ahead, "looks ahead"),
        (FarAhead, "looks ahead"),
        (Mixing, "mix"),
        (MixingMany, "mix"),
        (Remembering, "buffer"),
        (Headless, "head"),
        (Short, "logits"),
    ],
)
def test_model_g1_g2_networks_whose_rows_have_no_bound_are_refused(network: type[nn.Module], reason: str) -> None:
    register_model("wrong", network)
    with pytest.raises(ModelError, match=reason):
        CustomModel.new("wrong", 20, 64, {})


def test_a_weight_used_behind_its_layers_back_is_found_before_training() -> None:
    class Behind(Plainly):
        def between(self, states: Tensor) -> Tensor:
            return states @ self.embedding.weight.T @ self.embedding.weight

    register_model("behind", Behind)
    assert check_gradients(CustomModel.new("behind", 20, 16, {})) == "rows"
    register_model("plainly", Plainly)
    assert check_gradients(CustomModel.new("plainly", 20, 16, {})) == "fused"


def test_model_g3_a_folder_is_read_only_where_its_name_is_known(tmp_path: Path) -> None:
    register_model("plainly", Plainly)
    model = CustomModel.new("plainly", 20, 16, {"width": 4})
    released(model, tmp_path)
    tokens = torch.randint(20, (2, 6))
    again = reloaded(build_model, tmp_path)
    again.module.eval(), model.module.eval()
    assert torch.equal(again.logits(tokens), model.logits(tokens))
    description = json.loads((tmp_path / "model.json").read_text())
    assert build_model(description).vocabulary_size == 20
    with pytest.raises(ModelError, match="register_model"):
        build_model({**description, "kind": "os.system"})


def test_settings_that_an_own_model_would_ignore_are_refused() -> None:
    register_model("plainly", Plainly)
    base: dict[str, Any] = {"corpus": "c.jsonl", "plan": {"mechanism": "plain"}, "model": "plainly"}
    check_used(load_config(base, {"model_config": {"width": 4}}))
    for more in ({"lora": {"rank": 4}}, {"task": "classification", "classes": ["a", "b"]}, {"tokenizer": "model"}):
        with pytest.raises(ConfigError):
            check_used(load_config(base, more))


def test_own_policy_mechanism_and_model_together_go_the_whole_way(tmp_path: Path) -> None:
    """The guarantee is the ledger's: its charges, priced by `cost`, for the steps that were listed."""
    register_policy("numbers", lambda: Regex(r"\d[\d.-]+", "NUMBER"))
    register_mechanism("mine", "a test's", scheduled(noisy_steps))
    register_model("plainly", Plainly)
    write_jsonl(simulate("customersim", 40), tmp_path / "corpus.jsonl")
    run = tmp_path / "run"
    trained = train(
        tmp_path / "corpus.jsonl",
        out=run,
        policy="numbers",
        mechanism="mine",
        model="plainly",
        settings={
            "held_out": 0.3,
            "max_tokens": 64,
            "max_full_tokens": 64,
            "model_config": {"width": 4},
            "plan": {"noise_multiplier": 1, "steps": 3, "expected_batch_size": 8},
            "canaries": [{"template": "My ID is {2 digits}.", "count": 4, "inside_probability": 1.0}],
        },
    )
    (step,) = trained.plan.executions()
    entries = read_entries(run / "release" / "tacit" / "ledger.jsonl")
    assert entries.charges() == {"private": 3, "utility": 1}
    spent = ((cost(step, Neighbors(Unit.SECRETS)), 3), (HELD_OUT_ALONE, 1))
    assert entries.compositions()[str(Neighbors(Unit.SECRETS))] == spent
    assert trained.guarantee.mechanism == "mine"
    assert audit(run, settings={"candidates": 10}).verdict.exit_code == 0
    assert report(run).page.exists()
    assert generate(run, "Hello", tokens=3).startswith("Hello")
