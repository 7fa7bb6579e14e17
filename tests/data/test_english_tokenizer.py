"""The vocabulary that comes with the package."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tacit
from runs import write_corpus
from tacit.data.english_tokenizer import english_tokenizer
from tacit.data.tokenizer import VocabularySource
from tacit.errors import ConfigError, PrepareError
from tacit.simulation.simulate import simulate


@pytest.mark.parametrize("size", [256, 257, 4096, 16_384])
def test_it_has_as_many_tokens_as_asked_for_and_the_smaller_ones_mean_the_same(size: int) -> None:
    tokenizer, largest = english_tokenizer(size), english_tokenizer(16_384)
    assert tokenizer.codec.size == size
    assert [tokenizer.decode([token]) for token in range(0, size, 97)] == [
        largest.decode([token]) for token in range(0, size, 97)
    ]


@given(st.text())
def test_every_text_comes_back(text: str) -> None:
    tokenizer = english_tokenizer(300)
    assert tokenizer.lossless
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_english_takes_a_third_of_its_bytes() -> None:
    """Catches merges that do not fit the pre-tokenizer: text would stay bytes."""
    texts = [record.text for record in simulate("customersim", 20, split="test")]
    texts.append("The river rises in the hills and flows through three old towns before it reaches the sea.")
    tokens = english_tokenizer(4096).encode_batch(texts)
    assert len(texts[-1]) / len(tokens[-1]) > 3.5
    assert sum(map(len, texts)) / sum(map(len, tokens)) > 2.5


def test_it_is_public() -> None:
    assert english_tokenizer().depends_on.source == VocabularySource.PUBLIC_CORPUS


@pytest.mark.parametrize("size", [255, 16_385])
def test_other_sizes_are_refused(size: int) -> None:
    with pytest.raises(PrepareError, match="between 256 and 16,384"):
        english_tokenizer(size)


def test_a_model_is_trained_with_it(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path, 30)
    settings = {"vocabulary_size": 600, "steps": 2, "held_out": 0.2, "model_config": {"hidden_size": 8}}
    words: dict[str, Any] = {"mechanism": "dpsgd", "epsilon": 8, "expected_batch_size": 8}
    tacit.train(corpus, tokenizer="english", out=tmp_path / "run", settings=settings, **words)
    assert tacit.load(tmp_path / "run").tokenizer.codec.size == 600


def test_a_size_that_would_be_ignored_is_refused(tmp_path: Path) -> None:
    words: dict[str, Any] = {"mechanism": "plain", "out": tmp_path / "run"}
    corpus = write_corpus(tmp_path, 3)
    with pytest.raises(ConfigError, match="vocabulary_size"):
        tacit.train(corpus, tokenizer="bytes", settings={"vocabulary_size": 600}, **words)
    with pytest.raises(ConfigError, match="vocabulary_corpus"):
        tacit.train(corpus, tokenizer="english", settings={"vocabulary_corpus": str(corpus)}, **words)
