"""Cutting long records."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_prepare_views import TOKENIZERS, Parts, parts
from tokenizers import Tokenizer as HuggingFaceTokenizer
from tokenizers import models, normalizers

from tacit.data.records import sentences
from tacit.data.tokenizer import UNKNOWN, HuggingFace, Tokenizer, byte_tokenizer
from tacit.data.views import Chunk, PublicText, cut, divide, encode_all, join
from tacit.errors import PrepareError

every_tokenizer = pytest.mark.parametrize("tokenizer", TOKENIZERS, ids=["bytes", "bpe"])
limits = st.integers(8, 60)


def pieces_of(text: str, max_tokens: int) -> list[str]:
    pieces = cut(PublicText((text,), ()), byte_tokenizer(), max_tokens)
    return [piece.text.segments[0] for piece in pieces]


@every_tokenizer
@given(parts=parts(), max_tokens=limits)
@settings(deadline=None)
def test_g1_secrets_move_no_cut(tokenizer: Tokenizer, parts: Parts, max_tokens: int) -> None:
    one, other = (divide(record.text, record.spans or ())[0] for record in parts.twins())
    assert cut(one, tokenizer, max_tokens) == cut(other, tokenizer, max_tokens)


def test_g1_negative_control_sentence_ends_of_the_full_text_would_leak() -> None:
    one, other = Parts(("I saw Mr. ", " there. It rained."), ("NAME",), ("Li. He is",), ("Li",)).twins()
    assert len(sentences(one.text)) != len(sentences(other.text))


@every_tokenizer
@given(parts=parts(), max_tokens=limits)
@settings(deadline=None)
def test_g2_no_piece_is_too_long(tokenizer: Tokenizer, parts: Parts, max_tokens: int) -> None:
    record = parts.twins()[0]
    for piece in cut(divide(record.text, record.spans or ())[0], tokenizer, max_tokens):
        assert 0 < len(piece.tokens.tokens) <= max_tokens


@every_tokenizer
@given(parts=parts(), max_tokens=limits)
@settings(deadline=None)
def test_g3_the_pieces_in_a_row_are_the_record(tokenizer: Tokenizer, parts: Parts, max_tokens: int) -> None:
    record = parts.twins()[0]
    public = divide(record.text, record.spans or ())[0]
    pieces = cut(public, tokenizer, max_tokens)
    assert _joined(pieces) == public
    whole = join(public, encode_all(public.segments, tokenizer), tokenizer)
    assert tokenizer.decode(token for piece in pieces for token in piece.tokens.tokens) == tokenizer.decode(
        whole.tokens
    )
    for piece in pieces:
        assert [piece.tokens.tokens[place] for place in piece.tokens.positions] == [tokenizer.placeholder] * len(
            piece.text.kinds
        )


def _joined(pieces: list[Chunk]) -> PublicText:
    segments = [""]
    kinds: list[str] = []
    for piece in pieces:
        segments[-1] += piece.text.segments[0]
        segments += piece.text.segments[1:]
        kinds += piece.text.kinds
    return PublicText(tuple(segments), tuple(kinds))


def test_cuts_are_at_sentence_ends_and_keep_the_space_with_the_next_word() -> None:
    assert pieces_of("One two. Three four. Five six.", 20) == ["One two. Three four.", " Five six."]
    assert pieces_of("One two. Three four. Five six.", 19) == ["One two.", " Three four.", " Five six."]


def test_a_long_sentence_is_halved_at_white_space_or_between_characters() -> None:
    assert pieces_of("one two three four", 10) == ["one two", " three", " four"]
    assert pieces_of("abcdefghijkl", 8) == ["abcdef", "ghijkl"]
    assert pieces_of("東京東京", 8) == ["東京", "東京"]


def test_a_huge_stretch_is_cut_in_reasonable_time() -> None:
    pieces = pieces_of("x" * 200_000, 64)
    assert "".join(pieces) == "x" * 200_000
    assert max(map(len, pieces)) <= 64


def test_a_character_that_never_fits_is_refused() -> None:
    swollen = HuggingFaceTokenizer(models.BPE({"a": 0}, []))
    swollen.normalizer = normalizers.Replace("b", "a" * 20)
    tokenizer = Tokenizer(HuggingFace(json.loads(swollen.to_str())), UNKNOWN)
    with pytest.raises(PrepareError):
        cut(PublicText(("aab",), ()), tokenizer, 8)
