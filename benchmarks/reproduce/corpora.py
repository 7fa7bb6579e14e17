"""The papers' public data as corpora that tacit reads: one JSON record a line.

    python benchmarks/reproduce/corpora.py NAME OUT.jsonl [--records N]

The data is looked for in the folder TACIT_DATA, by default ../shared/data beside the project. `--records` keeps the
first so many. CustomerSim, SGD and MultiWOZ have one dialog a record and gold spans; CoNLL-2003 has one sentence a
record, the document as its user and the named entities as spans; AG News has one item a record and its class as label;
SEC clauses have one clause a record, the company as user and the kind of contract as label.
"""

import argparse
import csv
import itertools
import json
import lzma
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from tacit.corpus.record import Record, Span, resolve_overlaps
from tacit.corpus.write import write_jsonl

HERE = Path(__file__).resolve()
DATA = Path(os.environ.get("TACIT_DATA", HERE.parents[3] / "shared" / "data"))


def lines_of(name: str) -> Iterator[str]:
    """The lines of one file of the data folder."""
    path = DATA / f"{name}.xz"
    if not path.exists():
        sys.exit(f"{path} is not there: set TACIT_DATA to the folder that holds {name}.xz")
    with lzma.open(path, "rt", encoding="utf-8", newline="") as file:
        yield from file


def customersim() -> Iterator[Record]:
    """The S-DP authors' training dialogs, without their ten canaries."""
    for line in lines_of("customersim/train.spans.jsonl"):
        row = json.loads(line)
        if not row["id"].startswith("canary"):
            yield Record(row["id"], row["text"], spans=tuple(sorted(Span(*span) for span in row["spans"])))


def dialogs(name: str) -> Iterator[Record]:
    """SGD's and MultiWOZ's shape: turns with spans [start, end, service, slot, ...]; the slot is the kind."""
    for line in lines_of(name):
        row = json.loads(line)
        text, spans = "", []
        for turn in row["turns"]:
            start = len(text) + len(turn["speaker"]) + 2
            spans += [Span(start + a, start + b, str(slot).upper()) for a, b, _, slot, *_ in turn["spans"]]
            text += f"{turn['speaker']}: {turn['text']}\n"
        yield Record(row["id"], text, spans=resolve_overlaps(spans))


def conll2003() -> Iterator[Record]:
    """Sentences of tokens joined by blanks; documents are users."""
    document, number, tokens = 0, 0, list[tuple[str, str]]()
    for line in itertools.chain(lines_of("conll2003/train.txt"), ["\n"]):
        fields = line.split()
        if fields[:1] == ["-DOCSTART-"]:
            document += 1
        elif fields:
            tokens.append((fields[0], fields[-1]))
        elif tokens:
            yield sentence(f"{document}/{number}", f"document-{document}", tokens)
            number, tokens = number + 1, []


def sentence(name: str, user: str, tokens: list[tuple[str, str]]) -> Record:
    """A record from tokens and their B-, I- or O tags."""
    text, spans = "", list[Span]()
    for word, tag in tokens:
        if tag.startswith("I-") and spans and spans[-1].end == len(text) - 1:
            spans[-1] = Span(spans[-1].start, len(text) + len(word), spans[-1].kind)
        elif tag != "O":
            spans.append(Span(len(text), len(text) + len(word), tag[2:]))
        text += word + " "
    return Record(name, text.rstrip(" "), user, spans=tuple(spans))


def ag_news() -> Iterator[Record]:
    """News items with their class."""
    for number, (label, text) in enumerate(csv.reader(lines_of("ag_news/train_subset.csv"))):
        yield Record(f"ag-{number}", text, label=label)


def sec_clauses() -> Iterator[Record]:
    """Clauses of contracts; companies are users."""
    for number, line in enumerate(lines_of("sec_contracts/clauses.jsonl")):
        row = json.loads(line)
        yield Record(f"clause-{number}", row["text"], row["cik"], row["type"])


CORPORA: dict[str, Callable[[], Iterator[Record]]] = {
    "customersim": customersim,
    "sgd": lambda: dialogs("sgd/train.jsonl"),
    "multiwoz": lambda: dialogs("multiwoz-2.1/val.jsonl"),
    "conll2003": conll2003,
    "ag_news": ag_news,
    "sec_clauses": sec_clauses,
}


def main() -> None:
    """Parse, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=list(CORPORA))
    parser.add_argument("out", type=Path)
    parser.add_argument("--records", type=int, help="keep the first so many")
    options = parser.parse_args()
    write_jsonl(itertools.islice(CORPORA[options.name](), options.records), options.out)


if __name__ == "__main__":
    main()
