"""A token classifier of your own: an encoder of Hugging Face learns the labeled secrets of your corpora, for a policy.

    python examples/train_tagger.py [ENCODER OUT CORPUS ... [--epochs 4]]

ENCODER is a local folder with an encoder (of BERT's kind) and its fast tokenizer; every CORPUS has gold spans, and one
that is listed twice is read twice per epoch. OUT becomes a folder for the policy `token-classifier`; it has the model
after the last epoch that was finished. Without arguments, a tiny encoder learns simulated dialogs on the spot.

This training is not private: weights can remember what they were trained on, so do not release them. Never measure a
tagger on text that it was trained on.
"""

import argparse
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from transformers import (
    AutoModelForTokenClassification,
    AutoTokenizer,
    BertConfig,
    BertModel,
    PreTrainedTokenizerFast,
    get_linear_schedule_with_warmup,
)

import tacit
from tacit.api import simulate
from tacit.data.corpus import read
from tacit.data.records import Record, Span, common_kind
from tacit.policies.registry import build_policy

LONGEST = 192
BATCH_TOKENS = 2048
MOST_JOINED = 6
WARMUP = 0.1
Example = tuple[list[int], list[int]]
"""The tokens of a text, and the label of each."""


def joined(records: list[Record], rng: random.Random) -> Iterator[tuple[str, list[Span]]]:
    """One to six records on end, so that the tagger meets short texts and long ones."""
    at = 0
    while at < len(records):
        text, spans = "", list[Span]()
        for record in records[at : at + rng.randint(1, MOST_JOINED)]:
            text += "\n" if text else ""
            spans += [Span(len(text) + one.start, len(text) + one.end, one.kind) for one in record.spans or ()]
            text, at = text + record.text, at + 1
        yield text, spans


def examples(text: str, spans: list[Span], tokenizer: Any, numbers: dict[str, int]) -> Iterator[Example]:  # noqa: ANN401
    """The windows of a text. Each token that touches a span has its kind: B- where the span begins, I- after that."""
    encoded = tokenizer(
        text, truncation=True, max_length=LONGEST, return_overflowing_tokens=True, return_offsets_mapping=True
    )
    for ids, offsets in zip(encoded["input_ids"], encoded["offset_mapping"], strict=True):
        labels, last = [], None
        for start, end in offsets:
            span = next((one for one in spans if one.start < end and start < one.end), None)
            place = "I" if span is last else "B"
            labels.append(0 if span is None else numbers[f"{place}-{common_kind(span.kind)}"])
            last = span
        yield ids, labels


def batches(examples: list[Example], padding: int, rng: random.Random) -> list[dict[str, torch.Tensor]]:
    """All examples in batches of similar lengths, in random order."""
    by_length = sorted(examples, key=lambda one: (len(one[0]), rng.random()))
    found, group = [], list[Example]()
    for one in [*by_length, None]:
        if group and (one is None or (len(group) + 1) * len(one[0]) > BATCH_TOKENS):
            longest = len(group[-1][0])
            rows = [(ids + [padding] * (longest - len(ids)), [1] * len(ids), labels) for ids, labels in group]
            found.append(
                {
                    "input_ids": torch.tensor([ids for ids, _, _ in rows]),
                    "attention_mask": torch.tensor([ones + [0] * (longest - len(ones)) for _, ones, _ in rows]),
                    "labels": torch.tensor([labels + [-100] * (longest - len(labels)) for _, _, labels in rows]),
                }
            )
            group = []
        if one is not None:
            group.append(one)
    rng.shuffle(found)
    return found


def train_tagger(encoder: Path, out: Path, records: list[Record], epochs: int, learning_rate: float = 3e-4) -> None:
    """Fine-tune the whole encoder with a new head, and save it after each epoch."""
    rng = random.Random(0)
    torch.manual_seed(0)
    kinds = sorted({common_kind(span.kind) for record in records for span in record.spans or ()})
    names = ["O", *(f"{place}-{kind}" for kind in kinds for place in "BI")]
    numbers = {name: number for number, name in enumerate(names)}
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    model = AutoModelForTokenClassification.from_pretrained(encoder, id2label=dict(enumerate(names)), label2id=numbers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=0.01)
    plan = [
        batches(
            [window for text in joined(records, rng) for window in examples(*text, tokenizer, numbers)],
            tokenizer.pad_token_id or 0,
            rng,
        )
        for _ in range(epochs)
    ]
    steps = sum(len(epoch) for epoch in plan)
    schedule = get_linear_schedule_with_warmup(optimizer, int(WARMUP * steps), steps)
    print(f"{len(records):,} records, {len(kinds)} kinds, {steps:,} steps")
    for number, epoch in enumerate(plan, 1):
        model.train()
        total = 0.0
        for batch in epoch:
            loss = model(**batch).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            total += loss.item()
        model.save_pretrained(out)
        tokenizer.save_pretrained(out)
        print(f"epoch {number}: loss {total / len(epoch):.3f}, saved", flush=True)


def tiny(folder: Path, texts: list[str]) -> None:
    """An encoder with fresh weights that reads lower-case words and single characters, saved as any other."""
    splitter = pre_tokenizers.BertPreTokenizer()
    words = {word.lower() for text in texts for word, _ in splitter.pre_tokenize_str(text)}
    letters = {mark + letter for letter in set("".join(words)) for mark in ("", "##")}
    known = ["[PAD]", "[UNK]", *sorted(words | letters)]
    pieces = Tokenizer(models.WordPiece({word: number for number, word in enumerate(known)}, unk_token="[UNK]"))
    pieces.normalizer, pieces.pre_tokenizer = normalizers.Lowercase(), splitter
    PreTrainedTokenizerFast(tokenizer_object=pieces, pad_token="[PAD]", unk_token="[UNK]").save_pretrained(folder)
    config = BertConfig(
        vocab_size=len(known),
        hidden_size=48,
        intermediate_size=96,
        num_hidden_layers=1,
        num_attention_heads=4,
        max_position_embeddings=LONGEST,
    )
    BertModel(config).save_pretrained(folder)


def shown(folder: Path) -> None:
    """Train on simulated dialogs, and measure on others."""
    simulate("customersim", dialogs=120, seed=1, out=folder / "train.jsonl")
    simulate("customersim", dialogs=20, seed=2, out=folder / "test.jsonl")
    records = list(read(folder / "train.jsonl"))
    tiny(folder / "encoder", [record.text for record in records])
    train_tagger(folder / "encoder", folder / "tagger", records, epochs=6, learning_rate=1e-2)
    policy = build_policy({"token-classifier": "tagger"}, folder)
    card = tacit.scan(folder / "test.jsonl", policy, processes=1, stability=0).card
    assert card is not None, "the simulated corpus has gold spans"
    print(f"{policy.id} finds {card.overall.recall.value:.0%} of the secrets of other dialogs")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("encoder", type=Path, nargs="?")
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("corpora", type=Path, nargs="*", metavar="corpus")
    parser.add_argument("--epochs", type=int, default=4)
    given = parser.parse_args()
    if given.corpora:
        train_tagger(given.encoder, given.out, [one for path in given.corpora for one in read(path)], given.epochs)
    else:
        with tempfile.TemporaryDirectory() as temporary:
            shown(Path(temporary))
