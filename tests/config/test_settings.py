"""Settings: each is declared once, and names, flags, YAML, checks and what is released follow from that."""

from dataclasses import MISSING, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from tacit.cli.main import app
from tacit.cli.output import name_of
from tacit.cli.train import FLAGS
from tacit.common.serialize import json_values
from tacit.config.load import full_name, load, load_config, parse_set, released, to_flat, to_yaml
from tacit.config.plan_schema import CorpusCounts, PlanConfig
from tacit.config.schema import Config
from tacit.config.setting import NO, VALUE, every_section, every_setting, section, setting
from tacit.errors import ConfigError

BASE = {"corpus": "c.jsonl", "mechanism": "dpsgd"}
EVERY = [*every_setting(Config), *every_setting(CorpusCounts)]


@pytest.mark.parametrize("one", EVERY, ids=lambda one: one.name)
def test_every_setting_has_help_and_a_reason_to_leave_or_stays(one: Any) -> None:  # noqa: ANN401
    assert len(one.help) > 3
    assert one.help.endswith(".")
    assert (one.release != NO) == bool(one.why)


def test_adding_a_setting_is_one_line() -> None:
    """The line below is a name in YAML and --set, a type, a limit, a help and a released value."""

    @section
    class Toy:
        breadth: int = setting(3, "How broad it is.", ge=1, release=VALUE, why="a constant")

    (one,) = every_setting(Toy)
    assert (one.name, one.default, one.release) == ("breadth", 3, VALUE)
    assert load(Toy, parse_set("breadth=5")) == Toy(breadth=5)
    with pytest.raises(ConfigError, match=r"breadth: .*How broad it is"):
        load(Toy, {"breadth": 0})
    with pytest.raises(ConfigError, match="did you mean breadth"):
        load(Toy, {"bredth": 1})


def test_every_setting_can_be_given_by_its_full_name() -> None:
    listed = [one for one in every_setting(Config) if "[]" not in one.name]
    assert len(listed) > 80
    for one in listed:
        assert full_name(Config, one.name) == one.name


def test_short_names_in_the_documents_are_unique() -> None:
    for short in ("held_out", "max_tokens", "mechanism", "epsilon", "epochs", "expected_batch_size", "clip_norm"):
        assert full_name(Config, short).endswith(f".{short}")
    assert full_name(Config, "seed") == "seed"  # a full name comes before the end of another: audit.seed
    assert full_name(Config, "model_config.anything") == "model_config.anything"


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ({"clip_nrom": 1}, "did you mean plan.clip_norm"),
        ({"plan": {"clip_nrom": 1}}, "did you mean plan.clip_norm"),
        ({"plan.clip_nrom": 1}, "did you mean plan.clip_norm"),
        ({"audit": {"exposure": {"drwas": 300}}}, "did you mean audit.exposure.draws"),
        ({"plan": {"held_out": 0.1}}, "did you mean data.held_out"),
        ({"learning_rate": 1}, "write public.learning_rate, private.learning_rate or local.learning_rate"),
        ({"max_tokens": True}, "takes no boolean"),
        ({"plan": 3}, "settings under plan"),
        ({"clip_norm": -1}, "greater than 0"),
        ({"data": {"max_tokens": "many"}}, "data.max_tokens: .*integer"),
        ({"local": {"epochs": 2}}, "name of a setting"),
        ({"entity_cap": "pii"}, "plan.entity_cap: .*integer"),
        ({"max_full_tokens": 31_999_999}, "data.max_full_tokens: .*less than or equal to 131072"),
    ],
)
def test_what_cannot_be_meant_is_answered(words: dict[str, Any], answer: str) -> None:
    with pytest.raises(ConfigError, match=answer):
        load_config(BASE, words)


def test_layers_go_over_each_other_name_by_name(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(
        "corpus: c.jsonl\nplan: {mechanism: dpsgd, epsilon: 2}\nmodel_config: {layers: 2}\nlora: {rank: 4}\n"
    )
    found = load_config(file, {"epsilon": 3}, {"hidden_size": 8}, {"plan": {}}, {"lora": None})
    assert (found.plan.mechanism, found.plan.epsilon, found.lora) == ("dpsgd", 3, None)
    assert found.model_config == {"layers": 2, "hidden_size": 8}
    assert load_config(tmp_path / "corpus.jsonl", {"mechanism": "plain"}).corpus == str(tmp_path / "corpus.jsonl")


def test_auto_is_nothing_given() -> None:
    assert load_config(BASE, {"expected_batch_size": "auto"}) == load_config(BASE)
    with pytest.raises(ConfigError, match="integer"):
        load_config(BASE, {"steps": "auto"})


SOME = st.fixed_dictionaries(
    {},
    optional={
        "epsilon": st.floats(0.01, 50),
        "max_tokens": st.integers(8, 5000),
        "classes": st.lists(st.text("abc", min_size=1), max_size=3),
        "model_config": st.dictionaries(st.sampled_from(["layers", "width"]), st.integers(1, 9)),
        "lora": st.none() | st.fixed_dictionaries({"rank": st.integers(1, 9)}),
        "canaries": st.just([{"template": "{6 digits}", "count": 2}]),
    },
)


@given(SOME)
def test_yaml_gives_the_same_settings_again(words: dict[str, Any]) -> None:
    found = load_config(BASE, words)
    assert load_config(yaml.safe_load(to_yaml(found))) == found
    assert set(to_flat(found)) <= {*(one.name for one in every_setting(Config)), *every_section(Config)}


def test_what_is_not_declared_to_leave_stays() -> None:
    outside = released(load_config(BASE, {"mode": "research", "seed": 3, "inventions": {"ORDER": ["AB-1"]}}))
    assert "corpus" not in outside
    assert "seed" not in outside
    assert "AB-1" not in str(outside)
    assert outside["plan"] == {"mechanism": "dpsgd", "disjoint_from_model": False}


def test_flags_are_those_that_are_declared() -> None:
    shown = CliRunner().invoke(app, ["train", "--help"], env={"COLUMNS": "250"}).output
    declared = {one.name for one in every_setting(Config) if one.flag}
    assert {one.name for one in FLAGS} == declared
    assert len(declared) >= 10
    for one in FLAGS:
        assert f"--{name_of(one).replace('_', '-')}" in shown


def test_only_the_mechanism_and_the_corpus_have_no_default() -> None:
    needed = [one.name for one in every_setting(Config) if one.default is MISSING and "[]" not in one.name]
    assert needed == ["corpus", "plan.mechanism"]
    with pytest.raises(ConfigError, match=r"plan\.mechanism.*tacit plan --list"):
        load_config({"corpus": "c.jsonl"})
    assert PlanConfig("dpsgd").epsilon is None


@pytest.mark.parametrize("given", [{"public.optimizer": "sgd"}, {"public": {"optimizer": "sgd"}}, {}])
def test_a_given_setting_leaves_the_defaults_of_its_neighbors(given: dict[str, Any]) -> None:
    config = load_config({**BASE, **given})
    assert config.public == replace(Config("c.jsonl", plan=config.plan).public, optimizer="sgd" if given else None)
    assert (config.public.learning_rate, config.public.max_grad_norm) == (None, 1.0)
    assert load_config({**BASE, "public": {"max_grad_norm": None}}).public.max_grad_norm is None


def test_declared_defaults_are_those_of_a_config() -> None:
    values = to_flat(load_config({**BASE, "lora": {}}))
    for one in every_setting(Config):
        if one.name in values and one.default is not MISSING and not one.open:
            assert json_values((values[one.name],)) == json_values((one.default,)), one.name
