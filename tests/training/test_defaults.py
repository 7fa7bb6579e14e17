"""What optimizers do where nobody chose: by the kind of model and of steps, and never half of one rule with another."""

import json
from pathlib import Path
from typing import Any

import pytest

from runs import PLANS, experiment, quiet, write_corpus
from tacit.api import load
from tacit.config.load import load_config
from tacit.config.model_schema import OptimizerConfig
from tacit.config.schema import Config
from tacit.errors import ConfigError
from tacit.runs.release import ReleaseFile
from tacit.training.checks import check_start
from tacit.training.defaults import ALONE, BESIDE, PUBLIC, kind_of, with_defaults
from tacit.training.stages import train


def resolved(mechanism: str, flagged_share: float | None = None, **settings: Any) -> Config:  # noqa: ANN401
    config = experiment(Path("corpus.jsonl"), mechanism, **settings)
    return with_defaults(config, check_start(config).plan(), flagged_share)


def rule(given: OptimizerConfig) -> tuple[str | None, float | None, str | None]:
    return given.optimizer, given.learning_rate, given.lr_scheduler


@pytest.mark.parametrize("mechanism", PLANS)
def test_every_mechanism_has_a_rate(mechanism: str) -> None:
    config = resolved(mechanism, flagged_share=0.4)
    for one in (config.public, config.private):
        assert one.optimizer is not None
        assert one.learning_rate is not None
        assert one.lr_scheduler == {"adam": "linear", "sgd": "none"}[one.optimizer]


def test_private_steps_alone_are_adams_and_beside_exact_ones_they_are_careful() -> None:
    assert rule(resolved("dpsgd").private) == ("adam", ALONE["lstm"].learning_rate, "linear")
    assert rule(resolved("selective").private) == ("sgd", BESIDE["lstm"].learning_rate, "none")
    assert rule(resolved("uedp").private)[0] == "adam", "without a rest, all its steps are private"
    rest = {**PLANS["uedp"], "public_epochs": 1}
    assert rule(resolved("uedp", words=rest).private)[0] == "sgd"


@pytest.mark.parametrize("mechanism", ["crt", "cadp"])
def test_private_steps_on_most_of_the_records_are_adams(mechanism: str) -> None:
    """How many records are flagged is a public count, known after marking: before, nothing is decided."""
    assert rule(resolved(mechanism).private) == (None, None, None)
    assert rule(resolved(mechanism, 0.9).private) == ("adam", ALONE["lstm"].learning_rate, "linear")
    assert rule(resolved(mechanism, 0.1).private) == ("sgd", BESIDE["lstm"].learning_rate, "none")
    assert rule(resolved(mechanism, 0.9, private={"learning_rate": 1e-3}).private) == ("adam", 1e-3, "linear")


@pytest.mark.parametrize(("names", "optimizer"), [(54, "adam"), (20, "sgd")])
def test_a_run_counts_what_was_flagged(tmp_path: Path, names: int, optimizer: str) -> None:
    texts = [f"My name is {'Anna Smith' if number < names else 'not given'}." for number in range(60)]
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(json.dumps({"id": str(n), "text": text}) + "\n" for n, text in enumerate(texts)))
    train(experiment(corpus, "cadp", policy="pii"), tmp_path / "run", quiet)
    taken = load(tmp_path / "run").read(dict, ReleaseFile.CONFIG)
    assert taken is not None
    assert taken["private"]["optimizer"] == optimizer


def test_a_rate_alone_is_one_of_adams() -> None:
    """Whoever gives Adam's rate and gets SGD learns nothing, and is not told."""
    assert rule(resolved("selective", private={"learning_rate": 1e-3}).private) == ("adam", 1e-3, "linear")
    assert rule(resolved("dpsgd", private={"learning_rate": 1e-3}).private) == ("adam", 1e-3, "linear")


@pytest.mark.parametrize(("mechanism", "optimizer"), [("dpsgd", "sgd"), ("selective", "adam")])
def test_another_optimizer_needs_its_rate(mechanism: str, optimizer: str) -> None:
    with pytest.raises(ConfigError, match=r"private\.learning_rate"):
        resolved(mechanism, private={"optimizer": optimizer})
    given = resolved(mechanism, private={"optimizer": optimizer, "learning_rate": 0.1}).private
    assert rule(given) == (optimizer, 0.1, {"adam": "linear", "sgd": "none"}[optimizer])


def test_what_a_person_gives_stays() -> None:
    given = {
        "optimizer": "sgd",
        "learning_rate": 0.7,
        "lr_scheduler": "linear",
        "warmup_steps": 3,
        "max_grad_norm": 2.0,
    }
    assert resolved("dpsgd", private=given).private == OptimizerConfig(**given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        ({}, "english"),
        ({"initial_weights": "random"}, "lstm"),
        ({"model_config": {"hidden_size": 8}}, "lstm"),
        ({"tokenizer": "bytes"}, "lstm"),
        ({"model": "gpt"}, "gpt"),
        ({"model": "gpt", "lora": {"rank": 2}}, "adapters"),
        ({"model": "some/folder", "lora": {"rank": 2}}, "adapters"),
        ({"model": "some/folder"}, "folder"),
    ],
)
def test_kinds_of_models(settings: dict[str, Any], kind: str) -> None:
    words = {"corpus": "c.jsonl", "plan": {"mechanism": "dpsgd", "epsilon": 2}, **settings}
    assert kind_of(load_config(words)) == kind


def test_pretrained_weights_move_more_slowly_than_new_ones() -> None:
    for rates in (PUBLIC, ALONE):
        assert rates["folder"].learning_rate < rates["adapters"].learning_rate <= rates["lstm"].learning_rate  # type: ignore[operator]


def test_a_run_says_which_rates_it_took(tmp_path: Path) -> None:
    train(experiment(write_corpus(tmp_path, 20), "selective"), tmp_path / "run", quiet)
    config = load(tmp_path / "run").config
    assert config["private"]["learning_rate"] == BESIDE["lstm"].learning_rate
    assert config["public"]["learning_rate"] == PUBLIC["lstm"].learning_rate
