"""The papers' public data as corpora that tacit reads: one JSON record a line.

    python benchmarks/reproduce/corpora.py NAME OUT.jsonl [--split train] [--records N]
    python benchmarks/reproduce/corpora.py gpt2 gpt2.json
    python benchmarks/reproduce/corpora.py stories15m FOLDER
    python benchmarks/reproduce/corpora.py --for RECIPE.yaml [--data FOLDER]

The data is looked for in the folder TACIT_DATA, by default ../shared/data beside the project. `--records` keeps the
first so many. CustomerSim, SGD and MultiWOZ have one dialog a record and gold spans; CoNLL-2003 has one sentence a
record, the document as its user and the named entities as spans; AG News has one item a record and its class as label;
SEC clauses have one clause a record, the company as user and the kind of contract as label; pii_synth has one sentence
a record, its template as user and gold spans; in `pii_synth-templates` a third of the templates is for test.

WikiText-2 (as the S-DP authors had it, with `<unk>`) has one line of the file a record, a paragraph or a heading, and
the article as its user. The authors' records are windows of 35 GPT-2 tokens that run across paragraphs: 9,996 batches
of 7 an epoch. `wikitext2-windows` has the windows that stay inside a paragraph and cut no word. `gpt2` writes GPT-2's
tokenizer as a tokenizer.json. Clean jokes have one joke a record. `detector` writes a policy file, and beside it the
folder of a detector that was trained on the paraphrases of CADP-LM's canary and on WikiText-2's validation lines.
`stories15m` and `stories15m-small` make a pretrained model (pretrained.py). `--for` makes what a recipe needs and is
not there yet.
"""

import argparse
import csv
import hashlib
import itertools
import json
import lzma
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import yaml

from tacit.data.corpus import write_jsonl
from tacit.data.records import Record, Span, resolve_overlaps
from tacit.data.tokenizer import Tokenizer, read_gpt2
from tacit.policies.detectors.encoder import DetectorSettings
from tacit.policies.detectors.paraphrase import phi_of
from tacit.policies.detectors.training import train as train_detector

HERE = Path(__file__).resolve()
DATA = Path(os.environ.get("TACIT_DATA", HERE.parents[3] / "shared" / "data"))


def lines_of(name: str) -> Iterator[str]:
    """The lines of one file of the data folder."""
    path = DATA / f"{name}.xz"
    if not path.exists():
        sys.exit(f"{path} is not there: set TACIT_DATA to the folder that holds {name}.xz")
    with lzma.open(path, "rt", encoding="utf-8", newline="") as file:
        yield from file


def customersim(split: str = "train") -> Iterator[Record]:
    """The S-DP authors' dialogs, without their ten canaries."""
    for line in lines_of(f"customersim/{split}.spans.jsonl"):
        row = json.loads(line)
        if not row["id"].startswith("canary"):
            spans = tuple(sorted(Span(*span) for span in row["spans"]))
            yield Record(_of(split, row["id"]), row["text"], spans=spans)


def _of(split: str, name: str) -> str:
    """A name that tells the splits apart."""
    return name if split == "train" else f"{split}-{name}"


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


def sgd_mixed(split: str) -> Iterator[Record]:
    """SGD's files go by domain; in a fixed order of hashes the first dialogs are of all domains."""
    everything = dialogs(f"sgd/{'dev' if split == 'valid' else split}.jsonl")
    named = (replace(record, id=_of(split, record.id)) for record in everything)
    return iter(sorted(named, key=lambda record: hashlib.sha256(record.id.encode()).digest()))


def conll2003(split: str = "train") -> Iterator[Record]:
    """Sentences of tokens joined by blanks; documents are users."""
    document, number, tokens = 0, 0, list[tuple[str, str]]()
    for line in itertools.chain(lines_of(f"conll2003/{split}.txt"), ["\n"]):
        fields = line.split()
        if fields[:1] == ["-DOCSTART-"]:
            document += 1
        elif fields:
            tokens.append((fields[0], fields[-1]))
        elif tokens:
            yield sentence(_of(split, f"{document}/{number}"), _of(split, f"document-{document}"), tokens)
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


def wikitext2(split: str) -> Iterator[Record]:
    """Lines that are not empty, with their line break; articles, whose titles stand between empty lines, are users."""
    lines = ["", *(line.strip() for line in lines_of(f"wikitext-2/wikitext-2.{split}.txt")), ""]
    article = 0
    for number, text in enumerate(lines[1:-1]):
        alone = not lines[number] and not lines[number + 2]
        article += alone and re.fullmatch(r"= [^=].* =", text) is not None
        if text:
            yield Record(f"{split}-{number}", f"{text}\n", f"{split}-article-{article}")


def wikitext2_windows(split: str, longest: int = 35) -> Iterator[Record]:
    """Stretches of at most so many GPT-2 tokens; a longer word stands alone."""
    tokenizer = gpt2()
    for record in wikitext2(split):
        words = re.findall(r"\s*\S+|\s+$", record.text)
        window, size, number = "", 0, 0
        for word, tokens in zip(words, tokenizer.encode_batch(words), strict=True):
            if window and size + len(tokens) > longest:
                yield Record(f"{record.id}/{number}", window, record.user)
                window, size, number = "", 0, number + 1
            window, size = window + word, size + len(tokens)
        yield Record(f"{record.id}/{number}", window, record.user)


def gpt2() -> Tokenizer:
    """GPT-2's own tokenizer."""
    folder = DATA / "gpt2_tokenizer"
    if not folder.exists():
        sys.exit(f"{folder} is not there: set TACIT_DATA to the folder that holds gpt2_tokenizer")
    return read_gpt2(folder / "encoder.json.xz", folder / "vocab.bpe.xz")


def ag_news() -> Iterator[Record]:
    """News items with their class."""
    for number, (label, text) in enumerate(csv.reader(lines_of("ag_news/train_subset.csv"))):
        yield Record(f"ag-{number}", text, label=label)


def sec_clauses() -> Iterator[Record]:
    """Clauses of contracts; companies are users."""
    for number, line in enumerate(lines_of("sec_contracts/clauses.jsonl")):
        row = json.loads(line)
        yield Record(f"clause-{number}", row["text"], row["cik"], row["type"])


def pii_synth() -> Iterator[Record]:
    """Sentences with labelled personal data, made from templates."""
    for number, row in enumerate(json.loads("".join(lines_of("pii_synth/synth_dataset_v2.json")))):
        spans = [Span(one["start_position"], one["end_position"], one["entity_type"]) for one in row["spans"]]
        yield Record(
            f"synth-{number}", row["full_text"], f"template-{row['template_id']}", spans=resolve_overlaps(spans)
        )


def pii_synth_templates(split: str) -> Iterator[Record]:
    """Every third template's sentences for test, the others' for training; kinds have CoNLL-2003's names, no titles."""
    names = {"GPE": "LOC", "NRP": "MISC"}
    for record in pii_synth():
        if (int(str(record.user).rpartition("-")[2]) % 3 == 0) == (split == "test") and split != "valid":
            spans = [
                one._replace(kind=names.get(one.kind, one.kind)) for one in record.spans or () if one.kind != "TITLE"
            ]
            yield replace(record, spans=tuple(spans))


def jokes(split: str) -> Iterator[Record]:
    """Reddit's clean jokes; every tenth one, from the tenth and from the fifth on, is for test and valid."""
    places = {0: "test", 5: "valid"}
    for number, row in enumerate(csv.DictReader(lines_of("jokes/reddit-cleanjokes.csv"))):
        if places.get(number % 10, "train") == split and row["Joke"].strip():
            yield Record(f"joke-{row['ID']}", row["Joke"])


def detector(out: Path) -> None:
    """A policy that flags records by their context."""
    folder = out.with_name(f"{out.stem}-detector")
    canary, negatives = folder.with_suffix(".txt"), folder.with_suffix(".jsonl")
    canary.write_text(f"{CANARY}\n", encoding="utf-8")
    write_jsonl(wikitext2("valid"), negatives)
    made = train_detector(folder, negatives, phi_of(), DetectorSettings(), lambda _: None, templates=canary)
    definition = yaml.safe_dump({"policy": {"detector": {"folder": folder.name, "level": "record"}}})
    out.write_text(f"# detector {made.detector.hash}\n{definition}", encoding="utf-8")


def of_uedp(name: str) -> Callable[[str], Iterator[Record]]:
    """A corpus of uedp_corpora.py."""

    def found(split: str) -> Iterator[Record]:
        import uedp_corpora

        return uedp_corpora.CORPORA[name](split)

    return found


CORPORA: dict[str, Callable[[], Iterator[Record]]] = {
    "customersim": customersim,
    "sgd": lambda: dialogs("sgd/train.jsonl"),
    "multiwoz": lambda: dialogs("multiwoz-2.1/val.jsonl"),
    "conll2003": conll2003,
    "ag_news": ag_news,
    "sec_clauses": sec_clauses,
    "pii_synth": pii_synth,
}

SPLITS: dict[str, Callable[[str], Iterator[Record]]] = {
    "ag_news-entities": of_uedp("ag_news"),
    "sec_clauses-entities": of_uedp("sec_clauses"),
    "customersim": customersim,
    "conll2003": conll2003,
    "jokes": jokes,
    "pii_synth-templates": pii_synth_templates,
    "sgd-mixed": sgd_mixed,
    "wikitext2": wikitext2,
    "wikitext2-windows": wikitext2_windows,
}
"""Those that come as train, valid and test."""
TOKENIZER, DETECTOR = "gpt2", "detector"
MODELS: dict[str, int | None] = {"stories15m": None, "stories15m-small": 4096}
"""Pretrained models, and how many merges of their vocabulary they keep."""
MODELS_OF_UEDP = ("news-gpt", "wiki-gpt", "minilm-2")
CANARY = "My bank security code is {3 digits}."


def make(name: str, out: Path, split: str, records: int | None) -> None:
    """One file."""
    if name == TOKENIZER:
        out.write_text(json.dumps(gpt2().codec.definition()["content"]), encoding="utf-8")
        return
    if name == DETECTOR:
        detector(out)
        return
    if name in MODELS_OF_UEDP:
        import uedp_corpora

        uedp_corpora.MODELS[name](out)
        return
    if name in MODELS:
        from pretrained import stories15m

        stories15m(out, MODELS[name])
        return
    if name not in SPLITS and split != "train":
        sys.exit(f"{name} has no split but train")
    found = SPLITS[name](split) if name in SPLITS else CORPORA[name]()
    write_jsonl(itertools.islice(found, records), out)


def make_for(recipe: Path, data: Path) -> None:
    """What a recipe needs, with the commands that it states, where it is not there yet."""
    data.mkdir(parents=True, exist_ok=True)
    for need in (yaml.safe_load(recipe.read_text(encoding="utf-8")).get("needs") or {}).values():
        command = shlex.split(need.get("made_by", "")) if isinstance(need, dict) else []
        if HERE.name in {Path(word).name for word in command} and not (data / need["file"]).exists():
            start = next(place for place, word in enumerate(command) if Path(word).name == HERE.name)
            place = data / need["file"]
            print(f"making {place}", file=sys.stderr)
            run([str(place) if word == "FILE" else word for word in command[start + 1 :]])


def run(words: list[str] | None = None) -> None:
    """Parse, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = {*CORPORA, *SPLITS, TOKENIZER, DETECTOR, *MODELS, *MODELS_OF_UEDP}
    parser.add_argument("name", nargs="?", choices=sorted(names))
    parser.add_argument("out", nargs="?", type=Path)
    parser.add_argument("--split", default="train", choices=["train", "valid", "test"])
    parser.add_argument("--records", type=int, help="keep the first so many")
    parser.add_argument("--for", dest="recipe", type=Path, help="make what this recipe needs")
    parser.add_argument("--data", type=Path, help="folder for --for (default: data, beside the recipe)")
    options = parser.parse_args(words)
    if options.recipe is not None:
        make_for(options.recipe, options.data or options.recipe.parent / "data")
    elif options.name is None or options.out is None:
        parser.error("give NAME and OUT, or --for RECIPE")
    else:
        make(options.name, options.out, options.split, options.records)


if __name__ == "__main__":
    run()
