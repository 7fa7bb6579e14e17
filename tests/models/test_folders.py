"""Model folders that cannot be trained are refused in one sentence, by the whole verb, and nothing is written."""

import json
import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from saved import save_pretrained
from tacit.api import train
from tacit.common.machine import available_memory
from tacit.config.model_schema import LoRAConfig
from tacit.data.tokenizer import NOTHING, HuggingFace, Tokenizer, train_bpe
from tacit.errors import ModelError, TacitError
from tacit.models.causal_lm import CausalLM
from tacit.models.folders import MemoryNeed, check_restores, memory_need
from tacit.simulation.simulate import simulate
from tacit.training.checks import check_start, load_checked
from tacit.training.parts import make_learner
from tacit.training.starting import check_model
from tacit.training.tokenizers import given_tokenizer

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
Damage = Callable[[Path], object]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("corpus") / "corpus.jsonl"
    lines = (json.dumps({"id": one.id, "text": one.text}) for one in simulate("customersim", 60, seed=1))
    file.write_text("\n".join(lines), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama with grouped queries and its tokenizer, as others publish them."""
    from transformers import LlamaConfig, LlamaForCausalLM

    folder = tmp_path_factory.mktemp("llama")
    tokenizer = train_bpe(["My ID is 34 and 17"] * 3, 280, NOTHING)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer.codec.definition()["content"]), encoding="utf-8")
    settings = {"eos_token": "a", "unk_token": {"content": "b"}, "add_bos_token": False, "chat_template": "{{ x }}"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    shape: dict[str, Any] = {"num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2}
    config = LlamaConfig(vocab_size=290, hidden_size=16, intermediate_size=24, max_position_embeddings=600, **shape)
    model = LlamaForCausalLM(config)  # type: ignore[no-untyped-call]
    save_pretrained(CausalLM.of(model), folder)
    return folder


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "copy"))


def configured(**changes: object) -> Damage:
    def change(folder: Path) -> None:
        content = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        (folder / "config.json").write_text(json.dumps(content | changes), encoding="utf-8")

    return change


def without(*names: str) -> Damage:
    def change(folder: Path) -> None:
        for name in names:
            (folder / name).unlink()

    return change


def written(name: str, content: bytes | str) -> Damage:
    data = content.encode() if isinstance(content, str) else content
    return lambda folder: (folder / name).write_bytes(data)


def weights(change: Callable[[dict[str, torch.Tensor]], object]) -> Damage:
    def changed(folder: Path) -> None:
        tensors = load_file(folder / WEIGHTS)
        change(tensors)
        save_file(tensors, folder / WEIGHTS, {"format": "pt"})

    return changed


def sharded(index: object) -> Damage:
    """Weights in one shard, and an index that says something else."""

    def change(folder: Path) -> None:
        (folder / WEIGHTS).rename(folder / "model-00001-of-00001.safetensors")
        (folder / INDEX).write_text(index if isinstance(index, str) else json.dumps(index), encoding="utf-8")

    return change


def header(**entry: object) -> Damage:
    """A file whose header describes one tensor in another way than its bytes."""

    def change(folder: Path) -> None:
        described = {"model.norm.weight": {"dtype": "F32", "shape": [16], "data_offsets": [0, 64]} | entry}
        raw = json.dumps(described).encode()
        (folder / WEIGHTS).write_bytes(struct.pack("<Q", len(raw)) + raw + bytes(64))

    return change


def tokenizer(**changes: object) -> Damage:
    def change(folder: Path) -> None:
        content = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
        (folder / "tokenizer.json").write_text(json.dumps(content | changes), encoding="utf-8")

    return change


def looped(folder: Path) -> None:
    (folder / "config.json").unlink()
    (folder / "config.json").symlink_to(folder / "config.json")


def adapters_alone(folder: Path) -> None:
    (folder / WEIGHTS).rename(folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "elsewhere"}', encoding="utf-8")


def far_id(folder: Path) -> None:
    content = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    content["model"]["vocab"]["far"] = 2**31
    (folder / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")


def more_key_heads(folder: Path) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig.from_pretrained(folder)
    config.num_key_value_heads = 8
    LlamaForCausalLM(config).save_pretrained(folder)  # type: ignore[no-untyped-call]


NESTED = json.loads('{"type":"Sequence","normalizers":[' * 90 + "]}" * 90)
NORM, GATE = "model.norm.weight", "model.layers.1.mlp.gate_proj.weight"
DAMAGES: dict[str, tuple[Damage, str]] = {
    "no tokenizer": (without("tokenizer.json"), r"a tokenizer in .*found none"),
    "another tokenizer": (lambda f: (f / "tokenizer.json").rename(f / "vocab.txt"), "none, but vocab.txt"),
    "a tokenizer that forgets case": (tokenizer(normalizer={"type": "Lowercase"}), "lossless"),
    "odd settings of a tokenizer": (written("tokenizer_config.json", "[1]"), "settings beside it"),
    "a short context": (configured(max_position_embeddings=100), "max_full_tokens: 98"),
    "no config": (without("config.json"), "No such file"),
    "config not JSON": (written("config.json", "{"), "cannot be read"),
    "unknown model": (configured(model_type="nope"), "model_type 'nope'"),
    "model_type a list": (configured(model_type=["llama"]), "model_type"),
    "code in the folder": (configured(model_type="own", auto_map={"AutoConfig": "code.Own"}), "never runs"),
    "heads below 0": (configured(num_attention_heads=-1), "num_attention_heads of -1"),
    "a size in words": (configured(hidden_size="sixteen"), "whole model"),
    "heads that do not divide": (configured(num_attention_heads=3), "config.json"),
    "key heads that do not divide": (configured(num_attention_heads=4, num_key_value_heads=3), "config.json"),
    "more key heads than heads": (more_key_heads, "no multiple of 8 key-value heads"),
    "vocabulary below 0": (configured(vocab_size=-5), "whole model"),
    "a huge vocabulary": (configured(vocab_size=2**31), "vocab_size of 2.15e"),
    "a large vocabulary": (configured(vocab_size=2**30), "other sizes"),
    "a broken header": (written(WEIGHTS, b"\x10" + bytes(30)), "damaged"),
    "cut off": (lambda f: (f / WEIGHTS).write_bytes((f / WEIGHTS).read_bytes()[:-9]), "damaged"),
    "an offset beyond the file": (header(data_offsets=[0, 640]), "damaged"),
    "a shape of another size": (header(shape=[17]), "damaged"),
    "a kind nobody knows": (header(dtype="Q4"), "damaged"),
    "integers": (weights(lambda t: t.update({NORM: t[NORM].to(torch.int8)})), "not quantized"),
    "other shapes": (weights(lambda t: t.update({NORM: torch.ones(15)})), "other sizes"),
    "a tensor missing": (weights(lambda t: t.pop(GATE)), f"none for {GATE}"),
    "a layer too many": (weights(lambda t: t.update({GATE.replace("1", "2"): t[GATE].clone()})), "leaves out"),
    "an index that is no JSON": (sharded("{]"), "cannot be read"),
    "an index without a map": (sharded({"metadata": {}}), "no weight_map"),
    "a shard missing": (sharded({"weight_map": {NORM: "model-00002-of-00002.safetensors"}}), "1 of 1 files"),
    "a shard outside": (sharded({"weight_map": {NORM: "../other/model.safetensors"}}), "no safetensors file of this"),
    "an absolute shard": (sharded({"weight_map": {NORM: "/etc/passwd"}}), "no safetensors file of this"),
    "nested tokenizer": (written("tokenizer.json", '{"model":' * 5000 + "1" + "}" * 5000), "tokenizer"),
    "deep tokenizer": (tokenizer(normalizer=NESTED), "tokenizer.json"),
    "a tokenizer without model": (tokenizer(model=None), "tokenizer.json"),
    "ids of another world": (far_id, "ids below"),
    "a pickle": (lambda f: (f / WEIGHTS).rename(f / "pytorch_model.bin"), "pytorch_model.bin, a pickle"),
    "no weights": (without(WEIGHTS), "no safetensors"),
    "another format": (lambda f: (f / WEIGHTS).rename(f / "model.gguf"), "but model.gguf"),
    "a loop of links": (looped, "cannot be read"),
    "adapters alone": (adapters_alone, "adapters"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_folder_that_cannot_be_trained_is_refused_before_anything_is_written(
    name: str, copy: Path, corpus: Path
) -> None:
    """Catches tracebacks of transformers, safetensors and tokenizers, and refusals after the corpus was marked."""
    damage, words = DAMAGES[name]
    damage(copy)
    before = sorted(copy.parent.rglob("*"))
    with pytest.raises(TacitError, match=words) as caught:
        train(corpus, model=str(copy), mechanism="dpsgd", epsilon=8, epochs=1, out=copy.parent / "run")
    assert len(str(caught.value)) < 900
    assert "\n" not in str(caught.value)
    assert sorted(copy.parent.rglob("*")) == before


SETTINGS: dict[str, Any] = {"mechanism": "dpsgd", "epsilon": 8, "epochs": 1}
ODD: tuple[Any, ...] = (None, -1, 0, 1, 3, 7, 2**31, 1e308, 0.5, "x", "", [], {}, True, [1, -1], {"a": 1})
FUZZED = 300


def checked(folder: Path, corpus: Path, **settings: Any) -> None:  # noqa: ANN401
    """What `train` does before it writes, and then the model itself with one pass through it."""
    config = load_checked(corpus, {"model": str(folder), **SETTINGS}, settings)
    check_model(config, check_start(config).plan())
    tokenizer = given_tokenizer(config)
    assert tokenizer is not None
    make_learner(config, tokenizer).logits(torch.tensor([tokenizer.encode("ab 12")]))


def mutated(content: Any, chance: random.Random) -> Any:  # noqa: ANN401
    """A JSON document with one value replaced, removed, or moved deeper."""
    here = chance.random() < 0.3 or not isinstance(content, dict | list) or not content
    if here:
        return chance.choice(ODD)
    place = chance.choice(list(content) if isinstance(content, dict) else range(len(content)))
    changed = content.copy()
    if chance.random() < 0.15:
        del changed[place]
    else:
        changed[place] = mutated(content[place], chance)
    return changed


def corrupted(folder: Path, chance: random.Random) -> str:
    """Damage one file of a folder; what was done is returned."""
    name = chance.choice(("config.json", "tokenizer.json", "tokenizer_config.json", WEIGHTS))
    data = (folder / name).read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    how = chance.choice(("value", "value", "value", "byte", "cut"))
    if how == "byte":
        place = chance.randrange(min(len(data), 8 + size if name == WEIGHTS else len(data)))
        data = data[:place] + bytes([chance.randrange(256)]) + data[place + 1 :]
    elif how == "cut":
        data = data[: chance.randrange(len(data))]
    elif name == WEIGHTS:
        raw = json.dumps(mutated(json.loads(data[8 : 8 + size]), chance)).encode()
        data = struct.pack("<Q", len(raw)) + raw + data[8 + size :]
    else:
        data = json.dumps(mutated(json.loads(data), chance)).encode()
    (folder / name).write_bytes(data)
    return f"{how} of {name}"


def test_a_folder_damaged_at_random_is_refused_in_one_sentence_or_works(
    whole: Path, corpus: Path, tmp_path: Path
) -> None:
    """Catches what nobody thought of: whatever is in the files, no traceback and nothing written.

    One of 300 seeded damages is tried at a time; the counts show that both outcomes occur.
    """
    refused = 0
    for seed in range(FUZZED):
        folder = Path(shutil.copytree(whole, tmp_path / str(seed)))
        chance = random.Random(seed)
        done = corrupted(folder, chance)
        before = sorted(folder.rglob("*"))
        try:
            checked(folder, corpus)
        except TacitError:
            refused += 1
        except Exception as error:
            raise AssertionError(f"seed {seed}, {done}") from error
        assert sorted(folder.rglob("*")) == before
        shutil.rmtree(folder)
    assert FUZZED // 4 < refused < FUZZED


def test_a_whole_folder_passes_whatever_its_weights_are_stored_in(copy: Path, corpus: Path) -> None:
    """The control of all refusals; and weights in bfloat16 become float32, in which private steps compute."""
    checked(copy, corpus)
    weights(lambda tensors: tensors.update({name: value.bfloat16() for name, value in tensors.items()}))(copy)
    configured(dtype="bfloat16")(copy)
    checked(copy, corpus)
    assert {one.dtype for one in CausalLM.from_folder(copy).module.parameters()} == {torch.float32}


def test_parts_that_a_model_of_this_kind_does_not_have_are_left_alone(copy: Path, corpus: Path) -> None:
    """Catches a refusal of folders that also hold the head of another task, or vision."""
    weights(lambda tensors: tensors.update({"score.weight": torch.ones(2, 16), "vision.0.weight": torch.ones(3)}))(copy)
    checked(copy, corpus)


def test_an_encoder_may_have_a_tokenizer_that_forgets_case(copy: Path, corpus: Path) -> None:
    tokenizer(normalizer={"type": "Lowercase"})(copy)
    with pytest.raises(TacitError, match="lossless"):
        checked(copy, corpus)
    with pytest.raises(
        TacitError, match="a pad_token_id, by which LlamaForSequenceClassification finds the last token"
    ):
        checked(copy, corpus, task="classification", classes=["a", "b"])
    configured(pad_token_id=0)(copy)
    checked(copy, corpus, task="classification", classes=["a", "b"])


def test_a_tokenizer_that_only_adds_a_space_in_front_restores_text() -> None:
    """SentencePiece as in Llama 2: not lossless when pieces are joined, but nothing of a text is lost."""
    content = json.loads(SENTENCEPIECE)
    made = Tokenizer(HuggingFace(content), NOTHING)
    assert not made.lossless
    check_restores(made)
    content["decoder"] = None  # bytes are then spelled out
    with pytest.raises(TacitError, match="lossless"):
        check_restores(Tokenizer(HuggingFace(content), NOTHING))


BYTES = {f"<0x{byte:02X}>": byte for byte in range(256)}
SENTENCEPIECE = json.dumps(
    {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                {"type": "Prepend", "prepend": "\u2581"},
                {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
            ],
        },
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0},
            ],
        },
        "model": {
            "type": "BPE",
            "vocab": {**BYTES, "\u2581": 256, "<unk>": 257},
            "merges": [],
            "unk_token": "<unk>",
            "byte_fallback": True,
            "fuse_unk": True,
        },
    }
)


def test_a_model_larger_than_memory_is_refused_with_both_numbers(
    copy: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tacit.training.starting.available_memory", lambda: 2_000_000)
    with pytest.raises(ModelError, match=r"about 2\d\.\d MB .*found 2 MB available.*adapters"):
        checked(copy, corpus)
    checked(copy, corpus, execution={"microbatch_tokens": 64})


def test_the_need_for_memory_is_counted_from_shapes(whole: Path) -> None:
    """By hand: 290 x 16 embeddings twice, two layers of 16 x (16 + 8 + 8 + 16 + 24 + 24) + 24 x 16 and norms."""
    model = CausalLM.from_folder(whole)
    numbers = 2 * 290 * 16 + 2 * (16 * 96 + 24 * 16 + 2 * 16) + 16
    outputs = 16 + 2 * (16 + 8 + 8 + 16 + 24 + 24 + 16)
    need = memory_need(model, positions=10, copies=5)
    assert need == MemoryNeed(4 * numbers, 5 * 4 * numbers, 4 * 10 * (2 * outputs + 290))
    few = memory_need(CausalLM.from_folder(whole, LoRAConfig(rank=1)), positions=10, copies=5)
    assert need.weights < few.weights < 1.1 * need.weights
    assert few.updates < 0.1 * need.updates


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, 3_072_000),
        ({"sys/box/memory.max": "max", "sys/box/memory.current": "5"}, 3_072_000),
        ({"sys/box/memory.max": "9000", "sys/box/memory.current": "5000"}, 4_000),
        ({"sys/memory.max": "9000", "sys/memory.current": "5000", "sys/memory.stat": "inactive_file 700"}, 4_700),
    ],
)
def test_memory_is_that_of_the_machine_and_of_the_control_groups(
    files: dict[str, str], expected: int, tmp_path: Path
) -> None:
    """Catches a container whose limit is far below what the machine has."""
    fixed = {"proc/meminfo": "MemTotal: 9000 kB\nMemAvailable: 3000 kB\n", "proc/self/cgroup": "0::/box\n"}
    for name, text in {**fixed, **files}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert available_memory(tmp_path / "proc", tmp_path / "sys") == expected
