"""A Hugging Face folder that is not whole is refused in one sentence: nothing random is trained in its place."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from saved import save_pretrained
from tacit.common.libraries import fill
from tacit.config.model_schema import CausalLMConfig, ClassifierConfig, LoRAConfig
from tacit.data.tokenizer import HuggingFace, read_tokenizer_json
from tacit.errors import ModelError, PrepareError
from tacit.models.causal_lm import CausalLM
from tacit.models.classifier import EncoderClassifier, build_classifier
from tacit.models.language_model import generate
from tacit.models.loading import build_model, load_foreign
from tacit.policies.token_classifier import _Model

WEIGHTS = "model.safetensors"
WHOLE = CausalLMConfig(vocabulary_size=40, width=8, layers=2, heads=2, context=16)


@pytest.fixture(scope="module")
def gpt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gpt")
    save_pretrained(CausalLM.new(WHOLE), folder)
    return folder


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from transformers import BertConfig, BertForMaskedLM

    folder = tmp_path_factory.mktemp("bert")
    shape: dict[str, Any] = {"num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = BertConfig(vocab_size=40, hidden_size=8, max_position_embeddings=16, **shape)
    BertForMaskedLM(config).save_pretrained(folder)  # type: ignore[no-untyped-call]
    return folder


@pytest.fixture
def copy(gpt: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(gpt, tmp_path / "copy"))


def _without(folder: Path, name: str) -> None:
    weights = load_file(folder / WEIGHTS)
    del weights[name]
    save_file(weights, folder / WEIGHTS, {"format": "pt"})


def _configured(**changes: object) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        content = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        (folder / "config.json").write_text(json.dumps(content | changes), encoding="utf-8")

    return change


def _cut(name: str, size: int) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:size])


def _written(name: str, data: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(data)


def test_a_missing_weight_is_named(copy: Path) -> None:
    """Catches a layer that is filled with random numbers and trained on as if it were the folder's."""
    _without(copy, "transformer.h.1.mlp.c_fc.weight")
    with pytest.raises(ModelError, match=r"none for transformer\.h\.1\.mlp\.c_fc\.weight"):
        CausalLM.from_folder(copy)
    with pytest.raises(ModelError, match=r"h\.1\.mlp"):
        load_foreign(copy)


def test_a_whole_folder_is_read_and_its_tied_head_is_not_missing(gpt: Path) -> None:
    assert CausalLM.from_folder(gpt).vocabulary_size == 40


def test_an_encoder_needs_no_pooler_and_a_token_classifier_needs_its_head(bert: Path, tmp_path: Path) -> None:
    classifier = EncoderClassifier.from_folder(bert, ClassifierConfig(("a", "b")))
    assert classifier.vocabulary_size == 40
    copy = Path(shutil.copytree(bert, tmp_path / "copy"))
    _without(copy, "bert.encoder.layer.0.output.dense.weight")
    with pytest.raises(ModelError, match=r"encoder\.layer\.0\.output\.dense\.weight"):
        EncoderClassifier.from_folder(copy, ClassifierConfig(("a", "b")))
    with pytest.raises(ModelError):
        _Model(str(bert))


BROKEN: dict[str, Callable[[Path], object]] = {
    "config cut off": _cut("config.json", 100),
    "config empty": _cut("config.json", 0),
    "config a list": _written("config.json", b"[]"),
    "config not text": _written("config.json", b"\xff\xfe\x00"),
    "config deep": _written("config.json", b"[" * 200_000),
    "config with a key twice": _written("config.json", b'{"model_type": "gpt2", "model_type": "gpt2"}'),
    "digits": _written("config.json", b'{"model_type": "gpt2", "n_embd": ' + b"9" * 5000 + b"}"),
    "heads that do not divide": _configured(n_head=3),
    "no heads": _configured(n_head=0),
    "text for a size": _configured(n_embd="x"),
    "size below 0": _configured(vocab_size=-1),
    "unknown model": _configured(model_type="nope"),
    "no model": _configured(model_type=None),
    "more layers": _configured(n_layer=3),
    "a million layers": _configured(n_layer=10**6),
    "other sizes": _configured(vocab_size=60),
    "sizes of a continent": _configured(n_positions=10**12),
    "unknown function": _configured(activation_function="boo"),
    "odd quantization": _configured(quantization_config={"a": 1}),
    "impossible dropout": _configured(resid_pdrop=2),
    "head of its own that is not there": _configured(tie_word_embeddings=False),
    "weights empty": _cut(WEIGHTS, 0),
    "weights cut in the header": _cut(WEIGHTS, 100),
    "weights cut at the end": _cut(WEIGHTS, 1000),
    "weights with a huge header": _written(WEIGHTS, b"\xff" * 64),
    "weights a folder": lambda folder: (folder / WEIGHTS).rename(folder / "others").with_name(WEIGHTS).mkdir(),
    "no config": lambda folder: (folder / "config.json").unlink(),
}


@pytest.mark.parametrize("damage", BROKEN)
def test_broken_folders_end_in_one_sentence(damage: str, copy: Path) -> None:
    """Catches what transformers raises by itself: RecursionError, ZeroDivisionError, SafetensorError and many more."""
    BROKEN[damage](copy)
    with pytest.raises(ModelError) as caught:
        CausalLM.from_folder(copy)
    assert len(caught.value.found) < 400
    assert "\n" not in caught.value.found


TOKENIZERS = [
    b"",
    b"[]",
    b"{}",
    b'{"model": 5}',
    b'{"model": {"type": "BPE", "vocab": {"a": -1}, "merges": []}}',
    b'{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [["a", "b"]]}}',
    b'{"model": {"type": "nope"}}',
    b"[" * 200_000,
    b'{"model": {"type": "WordLevel", "vocab": {"a": 99999999999999999999}}}',
    b"\xff",
]


@pytest.mark.parametrize("content", TOKENIZERS, ids=range(len(TOKENIZERS)))
def test_broken_tokenizers_end_in_one_sentence(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(PrepareError) as caught:
        read_tokenizer_json(tmp_path / "tokenizer.json")
    assert len(str(caught.value)) < 700


def test_a_panic_of_rust_is_a_sentence_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches `except Exception`: a panic is not an Exception."""

    class PanicException(BaseException):
        pass

    def panics(content: str) -> None:
        raise PanicException("index out of bounds")

    monkeypatch.setattr("tokenizers.Tokenizer.from_str", panics)
    with pytest.raises(PrepareError, match="index out of bounds"):
        HuggingFace({"model": {}})


@pytest.mark.parametrize(
    "description",
    [
        {"kind": "lstm"},
        {"kind": "lstm", "settings": {"vocabulary_size": "x"}},
        {"kind": "lstm", "settings": {"vocabulary_size": 5, "other": 1}},
        {"kind": "lstm", "settings": None},
        {"kind": "gpt", "config": {}, "lora": None},
        {"kind": "gpt", "lora": None},
        {"kind": ["lstm"]},
        {"kind": None},
        {},
    ],
)
def test_a_description_without_settings_ends_in_one_sentence(description: dict[str, Any], tmp_path: Path) -> None:
    """Catches the KeyError of a model.json without settings."""
    with pytest.raises(ModelError):
        build_model(description)
    with pytest.raises(ModelError):
        build_classifier(description)
    with pytest.raises(ModelError):
        build_classifier(description | {"kind": "lstm classifier"})


def test_weights_that_do_not_cover_a_run_s_model_are_refused() -> None:
    """Catches `strict=False`, which leaves what is missing as random as it was made."""
    model = CausalLM.new(WHOLE)
    tensors = {name: value.detach() for name, value in model.module.named_parameters()}  # the tied head by one name
    fill(CausalLM.new(WHOLE).module, tensors)
    name = "transformer.h.0.ln_1.weight"
    with pytest.raises(ModelError, match=r"none for transformer\.h\.0\.ln_1\.weight"):
        fill(CausalLM.new(WHOLE).module, {key: value for key, value in tensors.items() if key != name})
    with pytest.raises(ModelError, match="unknown ones: other"):
        fill(CausalLM.new(WHOLE).module, {**tensors, "other": torch.zeros(1)})
    with pytest.raises(ModelError, match="other sizes"):
        fill(CausalLM.new(WHOLE).module, {**tensors, name: torch.zeros(3)})


def test_adapters_that_are_missing_are_refused() -> None:
    model = CausalLM.new(WHOLE, LoRAConfig(rank=2))
    tensors = {name: value.detach() for name, value in model.module.named_parameters()}
    fill(model.module, tensors)
    first = min(name for name in tensors if ".lora_" in name)
    with pytest.raises(ModelError, match="none for"):
        fill(model.module, {name: value for name, value in tensors.items() if name != first})


def test_generation_bears_any_temperature_and_damaged_weights() -> None:
    """Catches torch's error about probabilities that are not finite."""
    model, start = CausalLM.new(WHOLE), torch.tensor([[1, 2]])
    cold = generate(model, start, 3, torch.Generator(), 1e-320)
    assert torch.equal(cold, generate(model, start, 3, torch.Generator(), 0.0))
    for temperature in (float("nan"), float("inf"), -1.0):
        with pytest.raises(ModelError, match="temperature"):
            generate(model, start, 3, torch.Generator(), temperature)
    with torch.no_grad():
        next(model.module.parameters()).fill_(float("nan"))
    for temperature in (0.0, 1.0):
        with pytest.raises(ModelError, match="damaged"):
            generate(model, start, 3, torch.Generator(), temperature)
