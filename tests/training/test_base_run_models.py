"""Every kind of model can be the beginning of another run: LSTM, gpt, folders, adapters, classifiers."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import Tensor
from transformers import BertConfig, BertModel

from runs import quiet
from saved import save_pretrained, save_tokenizer
from tacit import api
from tacit.config.load import load_config
from tacit.config.model_schema import CausalLMConfig, LoRAConfig
from tacit.data.corpus import write_jsonl
from tacit.data.records import Record
from tacit.errors import ConfigError
from tacit.models.causal_lm import CausalLM
from tacit.models.loading import load_any
from tacit.privacy.guarantee import Status
from tacit.runs.release import ReleaseFile
from tacit.runs.verify import verify
from tacit.simulation.simulate import simulate
from tacit.training.stages import Trained, train

STEPS = {"mechanism": "dpsgd", "noise_multiplier": 1.0, "steps": 2, "expected_batch_size": 8}
WORDS: dict[str, Any] = {"policy": "gold", "held_out": 0.2, "max_tokens": 64, "max_full_tokens": 60, "plan": STEPS}
GPT = {"width": 16, "layers": 1, "heads": 2}
STILL = {"private": {"learning_rate": 1e-12}}
FIRST: dict[str, dict[str, Any]] = {
    "lstm": {"model": "lstm", "model_config": {"hidden_size": 8, "embedding_size": 8}},
    "gpt": {"model": "gpt", "model_config": GPT},
    "merged adapters": {"model": "gpt", "model_config": GPT, "lora": {"rank": 2}},
    "folder": {"model": "folder"},
    "adapters": {"model": "folder", "lora": {"rank": 2, "base_name": "somebody/model"}},
    "encoder": {"model": "encoder", "task": "classification", "classes": ["even", "odd"]},
    "encoder with adapters": {
        "model": "encoder",
        "task": "classification",
        "classes": ["even", "odd"],
        "lora": {"rank": 2},
    },
    "classifier": {
        "model": "lstm",
        "model_config": {"hidden_size": 8, "embedding_size": 8},
        "task": "classification",
        "classes": ["even", "odd"],
    },
}
LATER: dict[str, dict[str, Any]] = {
    kind: {"task": "classification", "classes": ["even", "odd"]} if "task" in words else {}
    for kind, words in FIRST.items()
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus with labels, and beside it a model as others publish it."""
    folder = tmp_path_factory.mktemp("models")
    records = simulate("customersim", 60)
    labeled = (Record(one.id, one.text, one.user, ("even", "odd")[n % 2], one.spans) for n, one in enumerate(records))
    write_jsonl(labeled, folder / "corpus.jsonl")
    (folder / "folder").mkdir()
    save_tokenizer((record.text for record in simulate("customersim", 50, seed=9)), 300, folder / "folder")
    save_pretrained(CausalLM.new(CausalLMConfig(300, 16, 1, 2, 64)), folder / "folder")
    shutil.copytree(folder / "folder", folder / "encoder")
    sizes: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = BertConfig(vocab_size=300, max_position_embeddings=64, intermediate_size=16, **sizes)
    BertModel(config).save_pretrained(folder / "encoder")  # type: ignore[no-untyped-call]
    return folder


def run(place: Path, out: str, **words: Any) -> Trained:  # noqa: ANN401
    if words.get("model") in ("folder", "encoder"):
        words["model"] = str(place / words["model"])
    return train(load_config({**WORDS, "corpus": str(place / "corpus.jsonl"), **words}), place / out, quiet)


def weights(folder: Path) -> dict[str, Tensor]:
    return {name: value.detach() for name, value in load_any(folder)[0].module.named_parameters()}


@pytest.mark.parametrize("kind", FIRST)
def test_a_second_and_a_third_run_go_on_with_the_model(kind: str, place: Path) -> None:
    """With steps that move nothing, the weights stay; with steps that move, they move. The third reads the second."""
    first = run(place, f"{kind} one", **FIRST[kind])
    second = run(place, f"{kind} two", **LATER[kind], **STILL, model=str(first.folder))
    before, after = weights(first.folder), weights(second.folder)
    assert before.keys() == after.keys()
    assert all(torch.allclose(before[name], after[name], atol=1e-6) for name in before)
    third = run(place, f"{kind} three", **LATER[kind], model=str(second.folder / "release"))
    moved = weights(third.folder)
    assert any(not torch.allclose(moved[name], after[name], atol=1e-4) for name in moved)
    assert third.guarantee.figures[0].epsilon > second.guarantee.figures[0].epsilon > first.guarantee.figures[0].epsilon
    assert verify(third.folder).holds
    assert load_any(first.folder)[1].hash == load_any(third.folder)[1].hash
    foreign = [one.status for one in third.guarantee.holds_if if "base model was not trained on this" in one.text]
    assert foreign == ([Status.ASSUMED] if FIRST[kind]["model"] in ("folder", "encoder") else [])


@pytest.mark.parametrize(
    ("kind", "library", "base", "task"),
    [
        ("lstm", "tacit", None, "text-generation"),
        ("gpt", "transformers", None, "text-generation"),
        ("folder", "transformers", None, "text-generation"),
        ("adapters", "peft", "somebody/model", "text-generation"),
        ("encoder", "transformers", None, "text-classification"),
        ("encoder with adapters", "peft", "encoder", "text-classification"),
        ("classifier", "tacit", None, "text-classification"),
    ],
)
def test_the_model_card_says_what_loads_the_model(
    kind: str, library: str, base: str | None, task: str, place: Path
) -> None:
    folder = run(place, f"{kind} with a card", **FIRST[kind]).folder
    api.report(folder)
    front = front_matter(folder / "release")
    assert (front["library_name"], front.get("base_model"), front["pipeline_tag"]) == (library, base, task)
    assert front["model-index"][0]["results"][0]["task"]["type"] == task
    if base is not None:
        merged = front_matter(api.export(folder, place / f"{kind} with a card, merged"))
        assert merged == front | {"library_name": "transformers"}


def test_a_base_model_that_no_hub_can_have_is_not_in_the_card(place: Path) -> None:
    odd = shutil.copytree(place / "folder", place / "my model: [copy]")
    folder = run(place, "odd base", model=str(odd), lora={"rank": 2}).folder
    api.report(folder)
    front = front_matter(folder / "release")
    assert front["library_name"] == "peft"
    assert "base_model" not in front


def front_matter(release: Path) -> dict[str, Any]:
    start, front, _ = (release / ReleaseFile.MODEL_CARD).read_text().split("---\n", 2)
    assert not start
    content: dict[str, Any] = yaml.safe_load(front)
    return content


def test_the_export_of_a_classifier_goes_on_as_the_run_does(place: Path) -> None:
    kind = "encoder with adapters"
    first = run(place, "to export", **FIRST[kind], private={"learning_rate": 0.01})
    export = api.export(first.folder, place / "exported")
    tokens = torch.tensor([[5, 9, 30, 77, 4], [8, 8, 200, 6, 1]])
    ours, theirs = (load_any(folder)[0] for folder in (first.folder, export))
    with torch.no_grad():
        assert torch.allclose(ours.logits(tokens), theirs.logits(tokens), rtol=1e-4, atol=1e-5)
    by_run, by_export = (run(place, f"{at.name} on", **LATER[kind], model=str(at)) for at in (first.folder, export))
    assert by_export.guarantee == by_run.guarantee
    with pytest.raises(ConfigError, match=r"leave lora out to train on what the run has$"):
        run(place, "refused", **LATER[kind], model=str(first.folder), lora={"rank": 4})


def test_adapters_train_on_and_no_others(place: Path) -> None:
    """The same base, the same settings: what is released are adapters to the model from elsewhere."""
    first = run(place, "adapted", **FIRST["adapters"])
    second = run(place, "adapted again", model=str(first.folder))
    learner = load_any(second.folder)[0]
    assert isinstance(learner, CausalLM)
    assert learner.lora == LoRAConfig(rank=2, base_name="somebody/model")
    assert learner.base == place / "folder"
    assert (second.folder / "release" / ReleaseFile.ADAPTERS).is_file()
    assert not (second.folder / "release" / ReleaseFile.MODEL).exists()
    trained = {name for name, value in learner.module.named_parameters() if value.requires_grad}
    assert trained
    assert all("lora_" in name for name in trained)
    run(place, "adapted with its own settings", model=str(first.folder), lora={"rank": 2})
    with pytest.raises(ConfigError, match="tacit export RUN --merged"):
        run(place, "adapted otherwise", model=str(first.folder), lora={"rank": 4})


def test_a_whole_model_may_get_adapters(place: Path) -> None:
    first = run(place, "whole", **FIRST["gpt"])
    second = run(place, "with adapters", model=str(first.folder), lora={"rank": 2})
    learner = load_any(second.folder)[0]
    assert isinstance(learner, CausalLM)
    assert learner.base == first.folder / "release"
    assert learner.lora is not None
    assert learner.lora.base_name == "whole"
    third = run(place, "with these adapters", model=str(second.folder))
    assert weights(third.folder).keys() == weights(second.folder).keys()
    assert third.guarantee.figures[0].epsilon > second.guarantee.figures[0].epsilon


def test_a_classifier_goes_on_as_one_with_its_classes(place: Path) -> None:
    first = run(place, "classes", **FIRST["classifier"])
    for words, says in (
        ({}, "task: language"),
        ({"task": "classification", "classes": ["odd", "even"]}, "the classes of the earlier run in its order: even"),
        (
            {"task": "classification", "classes": ["even", "odd"], "lora": {"rank": 2}},
            "adapters for a model that has none",
        ),
    ):
        with pytest.raises(ConfigError, match=says):
            run(place, "refused", **words, model=str(first.folder))
    assert not (place / "refused").exists()
