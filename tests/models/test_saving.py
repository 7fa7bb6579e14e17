"""Releases as Hugging Face folders: loaded without tacit they give the same logits and ids, and they name no path."""

import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from typer.testing import CliRunner

import tacit
from elsewhere import loaded_without_tacit
from readers import finish_plainly
from saved import release_files, save_pretrained, save_tokenizer
from tacit import api
from tacit.cli.main import app
from tacit.config.model_schema import CausalLMConfig, LoRAConfig, LSTMConfig
from tacit.data.folder_tokenizer import read_folder_tokenizer
from tacit.data.tokenizer import NOTHING, Tokenizer, byte_tokenizer, train_bpe
from tacit.errors import ConfigError, ModelError, PrepareError
from tacit.models.causal_lm import CausalLM
from tacit.models.language_model import Learner
from tacit.models.loading import load
from tacit.models.lstm import LSTM
from tacit.models.saving import without_places, write_release
from tacit.runs.folder import RunFolder
from tacit.runs.release import ReleaseFile
from tacit.runs.verify import verify

SECRET = "clinic-of-doctor-no"
TEXTS = ["The cat sat on the mat.", "naïve\u3000東京 \N{GRINNING FACE}", " two  blanks\n\ttab\x00", "", "<|en|d>"]
TEMPLATE = "{% for message in messages %}{{ message.content }}<|end|>{% endfor %}"
TOKENS = [[5, 9, 30, 77, 4], [8, 8, 200, 6, 1]]


@dataclass
class Case:
    """A release, and what was put into it."""

    run: Path
    learner: Learner
    tokenizer: Tokenizer
    base: Path | None = None


def logits(learner: Learner) -> Tensor:
    learner.module.eval()
    with torch.no_grad():
        return learner.logits(torch.tensor(TOKENS))


def released(place: Path, learner: Learner, tokenizer: Tokenizer, of_folder: bool = False) -> Case:
    """A finished run of `plain` with this model."""
    with torch.no_grad():
        for name, value in learner.module.named_parameters():
            if "lora_B" in name:
                value.add_(torch.randn_like(value))
    with RunFolder.create(place) as run:
        run.write(ReleaseFile.TOKENIZER, tokenizer.save)
        write_release(run, learner, tokenizer, of_folder)
        finish_plainly(run)
    return Case(place, learner, tokenizer, getattr(learner, "base", None))


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model as others publish it, under a path that nobody should read."""
    folder = tmp_path_factory.mktemp("models") / SECRET / "tiny"
    folder.mkdir(parents=True)
    save_tokenizer(TEXTS * 3, 300, folder)
    torch.manual_seed(0)
    save_pretrained(CausalLM.new(CausalLMConfig(300, 16, 2, 2, 64)), folder)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    places = {"name_or_path": str(folder), "vocab_file": f"{folder}/vocab.txt", "extra": {"where": f"{folder}/x"}}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | places))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    end = json.loads((folder / "tokenizer.json").read_text())["added_tokens"][0]["id"]
    generation = {"eos_token_id": [end, 7], "temperature": 0.3, "_name_or_path": str(folder)}
    (folder / "generation_config.json").write_text(json.dumps(generation))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"_name_or_path": str(folder)}))
    return folder


SHAPE = CausalLMConfig(258, 16, 1, 2, 64)


@pytest.fixture(scope="module")
def cases(base: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Case]:
    place, own = tmp_path_factory.mktemp("runs"), read_folder_tokenizer(base)
    torch.manual_seed(1)
    bpe = train_bpe(TEXTS * 3, 290, NOTHING)
    return {
        "whole": released(place / "whole", CausalLM.from_folder(base), own, of_folder=True),
        "adapters": released(place / "adapters", CausalLM.from_folder(base, LoRAConfig(2)), own, of_folder=True),
        "top layer": released(
            place / "top", CausalLM.from_folder(base, LoRAConfig(2, layers_to_transform=(1,))), own, of_folder=True
        ),
        "bytes": released(place / "bytes", CausalLM.new(SHAPE), byte_tokenizer()),
        "bpe": released(place / "bpe", CausalLM.new(CausalLMConfig(292, 16, 1, 2, 64)), bpe),
        "merged": released(place / "merged", CausalLM.new(SHAPE, LoRAConfig(2)), byte_tokenizer()),
        "other tokenizer": released(place / "other", CausalLM.from_folder(base, LoRAConfig(2)), byte_tokenizer()),
    }


@pytest.fixture(scope="module")
def elsewhere(cases: dict[str, Case], tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Tensor], Any]:
    """What a process without tacit makes of each; of adapters also by the name of their base model."""
    asked: dict[str, dict[str, Any]] = {}
    for name, case in cases.items():
        adapted = (case.run / "release" / "adapter_config.json").is_file()
        words = {"release": case.run / "release", "tokens": TOKENS, "texts": TEXTS}
        asked[name] = words | ({"base": case.base} if adapted else {})
    asked["by name"] = {**asked["adapters"], "by_name": True}
    at = cases["adapters"].base
    assert at is not None
    return loaded_without_tacit(asked, tmp_path_factory.mktemp("elsewhere"), at.parent)


NAMES = ("whole", "adapters", "top layer", "bytes", "bpe", "merged", "other tokenizer")


@pytest.mark.parametrize("name", NAMES)
def test_logits_are_the_same_without_tacit(name: str, cases: dict[str, Case], elsewhere: Any) -> None:  # noqa: ANN401
    ours = logits(cases[name].learner)
    assert torch.allclose(elsewhere[0][name], ours, rtol=1e-5, atol=1e-5)
    others = [cases[other] for other in NAMES if other != name]
    assert not any(
        torch.allclose(elsewhere[0][name], logits(one.learner), atol=1e-4) for one in others if similar(one, ours)
    )


def similar(case: Case, ours: Tensor) -> bool:
    return logits(case.learner).shape == ours.shape


def test_adapters_find_their_base_by_its_name(elsewhere: Any) -> None:  # noqa: ANN401
    assert torch.equal(elsewhere[0]["by name"], elsewhere[0]["adapters"])


@pytest.mark.parametrize("name", NAMES)
def test_ids_are_those_of_training(name: str, cases: dict[str, Case], elsewhere: Any) -> None:  # noqa: ANN401
    """On text that spells no special token, with other scripts, controls and nothing at all."""
    tokenizer, told = cases[name].tokenizer, elsewhere[1][name]
    assert told["ids"] == tokenizer.encode_batch(TEXTS)
    assert told["decoded"] == TEXTS
    assert told["special"][1:] == [tokenizer.end, tokenizer.placeholder]
    if name in ("whole", "adapters", "top layer"):
        assert told["framed"] == told["ids"], "the folder's tokenizer adds nothing"
    else:
        assert told["framed"] == [[tokenizer.begin, *ids] for ids in told["ids"]]
        assert told["special"][0] == tokenizer.begin


@pytest.mark.parametrize("name", ["whole", "adapters"])
def test_chat_template_and_generation_are_kept(name: str, cases: dict[str, Case], elsewhere: Any) -> None:  # noqa: ANN401
    assert elsewhere[1][name]["template"] == TEMPLATE
    generation = json.loads((cases[name].run / "release" / "generation_config.json").read_text())
    assert generation == {"eos_token_id": [cases[name].tokenizer.end, 7], "temperature": 0.3}


@pytest.mark.parametrize("name", NAMES)
def test_no_byte_of_a_release_names_a_path(name: str, cases: dict[str, Case], base: Path) -> None:
    assert SECRET in (base / "config.json").read_text(), "the negative control"
    for path in release_files(cases[name].run / "release"):
        assert SECRET.encode() not in path.read_bytes(), path.name


def test_places_are_left_out_whatever_they_are_called() -> None:
    content = {"a": "/home/ann/x", "b": ["~/x/y", "z", r"C:\ann"], "c_file": "x", "d": {"name_or_path": "x", "e": 1}}
    assert without_places(content) == {"b": ["z"], "d": {"e": 1}}
    assert without_places({"token": "</s>", "slash": "/", "template": "{{ '/' }}", 3: "x"}) == {
        "token": "</s>",
        "slash": "/",
        "template": "{{ '/' }}",
        3: "x",
    }


@pytest.mark.parametrize("name", NAMES)
def test_tacit_loads_them_too(name: str, cases: dict[str, Case]) -> None:
    case = cases[name]
    assert verify(case.run).holds
    sent = case.run.parent / f"sent {name}"
    shutil.copytree(case.run / "release", sent)
    again, tokenizer = load(sent, case.base)
    assert tokenizer.hash == case.tokenizer.hash
    assert torch.allclose(logits(again), logits(case.learner), rtol=1e-5, atol=1e-5)
    others = ["C:/ann/x", "../ann/x", "./x", "~/x", r"\\ann\x", "file:/x"]
    assert without_places({"a": others, "b": ["</s>", "/think", "~", "...", "s3://x"]}) == {
        "a": [],
        "b": ["</s>", "/think", "~", "...", "s3://x"],
    }


def test_adapters_without_their_base_are_refused(cases: dict[str, Case], tmp_path: Path) -> None:
    case = cases["adapters"]
    assert case.base is not None
    with pytest.raises(ModelError, match=r"the base model 'tiny'.*base=FOLDER"):
        load(case.run)
    other = Path(shutil.copytree(case.base, tmp_path / "other"))
    content = bytearray((other / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (other / "model.safetensors").write_bytes(content)
    with pytest.raises(ModelError, match="other weights in"):
        load(case.run, other)


def test_the_base_is_given_to_the_commands_that_ask_for_it(cases: dict[str, Case], tmp_path: Path) -> None:
    """Every command that a refusal names has --base, and takes it."""
    case = cases["adapters"]
    sent = Path(shutil.copytree(case.run / "release", tmp_path / "sent"))
    with pytest.raises(ModelError) as refused:
        tacit.load(sent).generate("The", tokens=3)
    named = re.findall(r"`tacit (\w+)` (?:and|have)", refused.value.way_out)
    assert named == ["generate", "export"]
    for verb, words in zip(named, (["--tokens", "3"], ["--merged", str(tmp_path / "out")]), strict=True):
        assert CliRunner().invoke(app, [verb, str(sent), *words]).exit_code != 0
        done = CliRunner().invoke(app, [verb, str(sent), *words, "--base", str(case.base)])
        assert done.exit_code == 0, done.output
    run = tacit.load(sent, base=case.base)
    said = run.generate("The", tokens=3)
    assert api.generate(run, "The", 3) == api.generate(sent, "The", 3, base=case.base) == said
    assert tacit.load(tmp_path / "out").generate("The", tokens=3).startswith("The")


def test_adapters_of_a_model_are_a_small_part_of_it(cases: dict[str, Case]) -> None:
    case = cases["adapters"]
    assert case.base is not None
    tensors = load_file(case.run / "release" / "adapter_model.safetensors")
    assert all(".lora_" in name and name.startswith("base_model.model.transformer.h.") for name in tensors)
    assert not (case.run / "release" / "model.safetensors").exists()


def test_export_merges(cases: dict[str, Case], tmp_path: Path) -> None:
    chosen = {name: cases[name] for name in ("whole", "adapters", "bytes")}
    for name, case in chosen.items():
        arguments = ["export", str(case.run), "--merged", str(tmp_path / name)]
        result = CliRunner().invoke(app, [*arguments, *([] if case.base is None else ["--base", str(case.base)])])
        assert result.exit_code == 0, result.output
        assert verify(tmp_path / name).holds
        with pytest.raises(PrepareError, match="does not exist yet"):
            api.export(case.run, tmp_path / name, base=case.base)
    asked = {name: {"release": tmp_path / name, "tokens": TOKENS, "texts": TEXTS} for name in chosen}
    found, told = loaded_without_tacit(asked, tmp_path)
    for name, case in chosen.items():
        assert torch.allclose(found[name], logits(case.learner), rtol=1e-4, atol=1e-5)
        assert told[name]["ids"] == case.tokenizer.encode_batch(TEXTS)


def test_export_of_other_models_is_refused(tmp_path: Path) -> None:
    shape = LSTMConfig(258, hidden_size=8, embedding_size=8)
    case = released(tmp_path / "run", LSTM.new(shape), byte_tokenizer())
    with pytest.raises(ModelError, match=r"tacit\.load"):
        tacit.load(case.run).export(tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["/home/ann/model", "./model", "~/model", "", "C:\\model", "file:model"])
def test_a_base_is_never_named_by_a_path(name: str) -> None:
    with pytest.raises(ConfigError, match="organization/model"):
        LoRAConfig(base_name=name)


def test_a_base_has_the_name_that_was_declared(base: Path, tmp_path: Path) -> None:
    lora = LoRAConfig(2, base_name="somebody/tiny")
    case = released(tmp_path / "run", CausalLM.from_folder(base, lora), read_folder_tokenizer(base), of_folder=True)
    config = json.loads((case.run / "release" / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == "somebody/tiny"
    assert config["peft_type"] == "LORA"
