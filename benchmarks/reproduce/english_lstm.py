"""Train the weights that come with tacit (`initial_weights: english`) on public text, without protection.

    python benchmarks/reproduce/english_lstm.py FOLDER [FILE]

It reads WikiText-2's training part (CC BY-SA 3.0) and SGD's training dialogs (CC BY-SA 4.0) from the folder that
TACIT_DATA names, but for the first paragraphs and dialogs, with which defaults are chosen (benchmarks/defaults.py). The
run is kept in FOLDER, and resumed there. With FILE the weights are written there as halves.
"""

import sys
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path

from corpora import dialogs
from english_merges import wikipedia
from safetensors.torch import load_file, save_file

from tacit import api
from tacit.data.corpus import write_jsonl
from tacit.data.records import Record

FIRST_PARAGRAPH, FIRST_DIALOG = 3_000, 1_000
"""Those before are for choosing defaults."""
SETTINGS = {
    "policy": "digits",
    "mode": "research",
    "plan.mechanism": "plain",
    "plan.public_epochs": 4,
    "plan.public_batch_size": 64,
    "public.learning_rate": 5e-3,
    "model_config.dropout": 0.0,
    "initial_weights": "random",
    "audit.canaries": [],
}


def texts() -> Iterator[Record]:
    """Paragraphs, then dialogs."""
    for number, text in enumerate(islice(wikipedia("train"), FIRST_PARAGRAPH, None)):
        yield Record(f"paragraph-{number}", text)
    for dialog in islice(dialogs("sgd/train.jsonl"), FIRST_DIALOG, None):
        yield Record(dialog.id, dialog.text)


def held_out() -> Iterator[Record]:
    """Paragraphs and dialogs that are not trained on."""
    paragraphs = (Record(f"valid-{number}", text) for number, text in enumerate(islice(wikipedia("valid"), 300)))
    return chain(paragraphs, (Record(one.id, one.text) for one in islice(dialogs("sgd/train.jsonl"), 200)))


def main() -> None:
    """Train, print the perplexity, and write."""
    folder = Path(sys.argv[1])
    run = folder / "run"
    if run.exists():
        trained = api.resume(run)
    else:
        folder.mkdir(parents=True, exist_ok=True)
        write_jsonl(texts(), folder / "corpus.jsonl")
        write_jsonl(held_out(), folder / "held-out.jsonl")
        settings = SETTINGS | {"data.held_out_corpus": str(folder / "held-out.jsonl")}
        trained = api.train_config(api.config(folder / "corpus.jsonl", settings=settings), run)
    print(f"perplexity {trained.utility.overall.perplexity:.4g} on text that was not trained on")
    if len(sys.argv) > 2:
        weights = load_file(run / "release" / "model.safetensors")
        save_file({name: value.half() for name, value in weights.items()}, sys.argv[2])


if __name__ == "__main__":
    main()
