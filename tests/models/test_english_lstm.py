"""The weights that come with tacit: which models begin with them, and what a claim says of that."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional

import tacit
from runs import write_corpus
from tacit.config.load import check_used, load_config
from tacit.config.model_schema import LSTMConfig
from tacit.config.schema import ENGLISH_LSTM, ENGLISH_TOKENS
from tacit.data.english_tokenizer import english_tokenizer
from tacit.errors import ConfigError
from tacit.mechanisms.mechanism import FOREIGN_BASE
from tacit.models.english_lstm import english_lstm
from tacit.models.lstm import LSTM

TEXT = "The river rises in the hills to the north of the town, and many of its people were born there."


def new_lstm() -> LSTM:
    tokens = english_tokenizer(ENGLISH_TOKENS).vocabulary_size
    return LSTM.new(LSTMConfig(vocabulary_size=tokens, **ENGLISH_LSTM))  # type: ignore[arg-type]


def nats(model: LSTM) -> float:
    tokens = torch.tensor([english_tokenizer(ENGLISH_TOKENS).encode(TEXT)])
    with torch.no_grad():
        logits = model.logits(tokens[:, :-1])
    return float(functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()))


def test_they_know_english() -> None:
    """A new model knows nothing: ln 2050 = 7.6 nats per token."""
    fresh = new_lstm()
    assert nats(fresh) == pytest.approx(7.6, abs=0.3)
    assert nats(english_lstm(fresh)) < 5


def words(**settings: Any) -> dict[str, Any]:  # noqa: ANN401
    return {"corpus": "c.jsonl", "plan": {"mechanism": "dpsgd", "epsilon": 2}, **settings}


@pytest.mark.parametrize(
    ("settings", "english"),
    [
        ({}, True),
        ({"vocabulary_size": 2048, "model_config": {"hidden_size": 200, "dropout": 0.1}}, True),
        ({"initial_weights": "random"}, False),
        ({"model_config": {"layers": 2}}, False),
        ({"vocabulary_size": 1024}, False),
        ({"tokenizer": "bytes"}, False),
        ({"task": "classification"}, False),
        ({"model": "gpt"}, False),
    ],
)
def test_models_that_fit_begin_with_them(settings: dict[str, Any], english: bool) -> None:
    assert load_config(words(**settings)).begins_english == english


@pytest.mark.parametrize(
    "settings", [{"model_config": {"layers": 2}}, {"tokenizer": "bytes"}, {"task": "classification"}, {"model": "gpt"}]
)
def test_others_cannot_have_them(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="initial_weights"):
        check_used(load_config(words(initial_weights="english", **settings)))


@pytest.mark.parametrize("initial_weights", ["english", "random"])
def test_a_claim_assumes_that_they_have_not_read_the_corpus(tmp_path: Path, initial_weights: str) -> None:
    corpus = write_corpus(tmp_path, 30)
    settings = {"steps": 1, "held_out": 0.2, "expected_batch_size": 4, "initial_weights": initial_weights}
    run = tacit.train(corpus, mechanism="dpsgd", epsilon=8, out=tmp_path / "run", settings=settings)
    assert (FOREIGN_BASE in run.guarantee.holds_if) == (initial_weights == "english")


def test_a_run_begins_with_them(tmp_path: Path) -> None:
    """Steps that move nothing leave what they were."""
    corpus = write_corpus(tmp_path, 20)
    settings = {"public_epochs": 1, "held_out": 0.2, "public.learning_rate": 1e-30}
    run = tacit.train(corpus, mechanism="plain", out=tmp_path / "run", settings=settings)
    expected = english_lstm(new_lstm()).module.state_dict()
    for name, value in run.model.module.state_dict().items():
        assert torch.equal(value, expected[name])
