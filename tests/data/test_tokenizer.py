"""Tokenizers: one test a guarantee, run over every kind of codec, and what each may claim."""

import json
import lzma
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as HuggingFaceTokenizer
from tokenizers import models, pre_tokenizers

from tacit.data.tokenizer import (
    NOTHING,
    UNKNOWN,
    Dependence,
    HuggingFace,
    SpecialIds,
    Tokenizer,
    VocabularySource,
    byte_tokenizer,
    load_tokenizer,
    read_gpt2,
    read_tokenizer_json,
    train_bpe,
)
from tacit.errors import PrepareError

DATA = Path(os.environ.get("TACIT_DATA", Path(__file__).parents[3] / "shared" / "data"))
PUBLIC = Dependence(VocabularySource.PUBLIC_CORPUS, corpus="sentences")
SENTENCES = ("The cat sat on the mat.", "A cat may look at a king.", "the the the cat cat") * 3
HOSTILE = ("<MASK>", "<END>", "<|endoftext|>", " <NAME>\n", "\x00", "a\ufffcb", "zero\u200bwidth", "e\u0301\u00e9", "")


def with_special_tokens() -> dict[str, Any]:
    """A tokenizer.json that does all it can to break G1 and G2."""
    content: dict[str, Any] = json.loads(json.dumps(train_bpe(SENTENCES, 300, PUBLIC).codec.definition()["content"]))
    hostile = HuggingFaceTokenizer.from_str(json.dumps(content))
    hostile.add_special_tokens(["<|endoftext|>", "<MASK>"])
    hostile.enable_truncation(3)
    hostile.enable_padding(pad_to_multiple_of=8)
    content = json.loads(hostile.to_str())
    content["model"]["dropout"] = 0.5
    return content


def with_spelled_tokens() -> Tokenizer:
    """Special ids of the vocabulary itself, which its merges spell: text would have them."""
    learned = train_bpe(SENTENCES, 300, PUBLIC).codec.definition()["content"]
    spelled = sorted((token for token in learned["model"]["vocab"] if token.isalpha()), key=len)[-3:]
    bpe = HuggingFaceTokenizer.from_str(json.dumps(learned))
    bpe.add_special_tokens(spelled)
    ids = [bpe.get_vocab()[token] for token in spelled]
    assert ids[0] in bpe.encode(spelled[0], add_special_tokens=False).ids
    return Tokenizer(HuggingFace(json.loads(bpe.to_str())), PUBLIC, SpecialIds(*ids))


TOKENIZERS = {
    "bytes": byte_tokenizer(),
    "bpe": train_bpe(SENTENCES, 300, PUBLIC),
    "tokenizer.json": Tokenizer(HuggingFace(with_special_tokens()), UNKNOWN),
    "own special ids": with_spelled_tokens(),
}
every_tokenizer = pytest.mark.parametrize("tokenizer", TOKENIZERS.values(), ids=TOKENIZERS.keys())
texts = st.text() | st.sampled_from(HOSTILE) | st.lists(st.sampled_from(HOSTILE + SENTENCES)).map("".join)


@every_tokenizer
@given(text=texts)
@settings(deadline=None)
def test_g1_ordinary_text_never_becomes_a_special_id(tokenizer: Tokenizer, text: str) -> None:
    encoded = set(tokenizer.encode(text))
    assert encoded <= set(range(tokenizer.codec.size)) - tokenizer.specials
    assert {tokenizer.begin, tokenizer.end, tokenizer.placeholder} <= tokenizer.specials


def test_g1_special_tokens_of_the_vocabulary_are_read_as_text() -> None:
    tokenizer = TOKENIZERS["tokenizer.json"]
    plain = HuggingFaceTokenizer.from_str(json.dumps(with_special_tokens()))
    special = {plain.token_to_id("<|endoftext|>"), plain.token_to_id("<MASK>")}
    assert special & set(plain.encode("<|endoftext|>").ids), "the negative control must parse them"
    assert not special & set(tokenizer.encode("a<|endoftext|> <MASK> b"))


@every_tokenizer
@given(batch=st.lists(texts, max_size=4))
@settings(deadline=None)
def test_g2_a_text_is_encoded_alike_alone_in_a_batch_and_again(tokenizer: Tokenizer, batch: list[str]) -> None:
    assert tokenizer.encode_batch(batch) == [tokenizer.encode(text) for text in batch] == tokenizer.encode_batch(batch)


@every_tokenizer
@given(parts=st.lists(texts, max_size=4))
@settings(deadline=None)
def test_g3_texts_encoded_apart_decode_joined(tokenizer: Tokenizer, parts: list[str]) -> None:
    assert tokenizer.lossless
    assert tokenizer.decode(token for part in parts for token in tokenizer.encode(part)) == "".join(parts)


@every_tokenizer
def test_g3_a_lone_surrogate_becomes_the_replacement_character(tokenizer: Tokenizer) -> None:
    assert tokenizer.decode(tokenizer.encode("a\ud800b")) == "a\ufffdb"


@every_tokenizer
def test_g4_saved_and_loaded_it_is_the_same(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path / "tokenizer.json")
    again = load_tokenizer(tmp_path / "tokenizer.json")
    assert (again.hash, again.depends_on) == (tokenizer.hash, tokenizer.depends_on)
    assert again.special == tokenizer.special
    assert again.vocabulary_size == tokenizer.vocabulary_size
    assert all(again.encode(text) == tokenizer.encode(text) for text in HOSTILE + SENTENCES)


def test_g4_the_hash_covers_the_special_ids() -> None:
    bpe = TOKENIZERS["bpe"]
    others = [Tokenizer(bpe.codec, PUBLIC, SpecialIds(*ids)) for ids in ((1, 1, 2), (2, 1, 2), (1, 1, 3), (1, 2, 2))]
    assert len({bpe.hash, *(one.hash for one in others)}) == 5


def test_what_is_spoken_ends_with_the_row_and_has_no_special_token() -> None:
    tokenizer = TOKENIZERS["own special ids"]
    text = tokenizer.encode("A king")
    assert tokenizer.spoken([tokenizer.begin, *text, tokenizer.placeholder, tokenizer.end, *text]) == "A king"


def test_g4_different_tokenizers_have_different_hashes() -> None:
    others = [train_bpe(SENTENCES, 280, PUBLIC), train_bpe(SENTENCES[:1], 300, PUBLIC)]
    hashes = {tokenizer.hash for tokenizer in [*TOKENIZERS.values(), *others]}
    assert len(hashes) == len(TOKENIZERS) + len(others)


@given(order=st.permutations(SENTENCES))
@settings(deadline=None, max_examples=20)
def test_g5_a_bpe_depends_on_the_segments_and_not_on_their_order(order: list[str]) -> None:
    assert train_bpe(order, 300, PUBLIC).hash == train_bpe(SENTENCES, 300, PUBLIC).hash


def test_a_bpe_learns() -> None:
    assert len(TOKENIZERS["bpe"].encode("the cat")) < len("the cat")


def test_special_ids_are_shown_to_people() -> None:
    tokenizer = TOKENIZERS["bpe"]
    tokens = [*tokenizer.encode("I am "), tokenizer.placeholder, tokenizer.end]
    assert tokenizer.decode(tokens) == "I am <MASK><END>"


@pytest.mark.parametrize("token", [-1, 10**9])
def test_an_id_outside_the_vocabulary_is_refused(token: int) -> None:
    with pytest.raises(PrepareError):
        byte_tokenizer().decode([65, token])


def test_what_each_dependence_is_free_for() -> None:
    redacted = Dependence(VocabularySource.REDACTED_VIEW, corpus="mail", policy_hash="a")
    assert NOTHING.free_for_records
    assert PUBLIC.free_for_records
    assert PUBLIC.free_for_secrets("a")
    assert redacted.free_for_secrets("a")
    assert not redacted.free_for_secrets("b")
    assert not redacted.free_for_records
    assert not UNKNOWN.free_for_records
    assert not UNKNOWN.free_for_secrets("a")


@pytest.mark.parametrize(
    ("source", "corpus", "policy_hash"),
    [
        (VocabularySource.NOTHING, "mail", None),
        (VocabularySource.PUBLIC_CORPUS, None, None),
        (VocabularySource.PUBLIC_CORPUS, "mail", "a"),
        (VocabularySource.REDACTED_VIEW, "mail", None),
        (VocabularySource.UNKNOWN, None, "a"),
    ],
)
def test_half_a_dependence_is_refused(source: VocabularySource, corpus: str | None, policy_hash: str | None) -> None:
    with pytest.raises(PrepareError):
        Dependence(source, corpus, policy_hash)


def test_a_lossy_tokenizer_says_so(tmp_path: Path) -> None:
    lossy = HuggingFaceTokenizer(models.WordLevel({"cat": 0, "[UNK]": 1}, unk_token="[UNK]"))
    lossy.pre_tokenizer = pre_tokenizers.Whitespace()
    (tmp_path / "tokenizer.json").write_text(lossy.to_str())
    tokenizer = read_tokenizer_json(tmp_path / "tokenizer.json")
    assert not tokenizer.lossless
    assert tokenizer.encode("cat  dog") == [0, 1]
    assert tokenizer.depends_on == UNKNOWN


def test_a_prefix_space_is_not_lossless() -> None:
    content = TOKENIZERS["bpe"].codec.definition()["content"]
    prefixed = {**content, "pre_tokenizer": {**content["pre_tokenizer"], "add_prefix_space": True}}
    assert not HuggingFace(prefixed).lossless


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"format": "tacit-tokenizer", "version": 1}', '{"format": "tacit-tokenizer"}', "\x80"]
)
def test_a_damaged_file_is_refused(content: str, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content.encode("latin-1"))
    for read in (load_tokenizer, read_tokenizer_json):
        with pytest.raises(PrepareError):
            read(path)


def test_an_edited_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    TOKENIZERS["bpe"].save(path)
    path.write_text(path.read_text().replace('"codec": "tokenizer.json"', '"codec": "bytes"'))
    with pytest.raises(PrepareError):
        load_tokenizer(path)
    with pytest.raises(PrepareError):
        load_tokenizer(tmp_path / "nowhere.json")


def test_a_gpt2_pair_is_read_plain_or_compressed(tmp_path: Path) -> None:
    bpe = TOKENIZERS["bpe"]
    model = bpe.codec.definition()["content"]["model"]
    (tmp_path / "vocab.json").write_text(json.dumps(model["vocab"]))
    merges = "\n".join(["#version: 0.2", *(" ".join(merge) for merge in model["merges"]), ""])
    (tmp_path / "merges.txt.xz").write_bytes(lzma.compress(merges.encode()))
    tokenizer = read_gpt2(tmp_path / "vocab.json", tmp_path / "merges.txt.xz")
    assert tokenizer.hash == bpe.hash
    (tmp_path / "merges.txt").write_text("nothing known\n")
    with pytest.raises(PrepareError):
        read_gpt2(tmp_path / "vocab.json", tmp_path / "merges.txt")


@pytest.mark.shared_data
def test_the_gpt2_vocabulary() -> None:
    folder = DATA / "gpt2_tokenizer"
    if not folder.exists():
        pytest.skip("no gpt2_tokenizer in TACIT_DATA")
    tokenizer = read_gpt2(folder / "encoder.json.xz", folder / "vocab.bpe.xz")
    assert tokenizer.encode("Hello world") == [15496, 995]
    assert (tokenizer.codec.size, tokenizer.lossless) == (50257, True)
    assert 50256 not in tokenizer.encode("<|endoftext|>")
    assert tokenizer.decode(tokenizer.encode("naïve\u3000東京 <|endoftext|>")) == "naïve\u3000東京 <|endoftext|>"
