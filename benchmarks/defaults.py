"""The measurements by which defaults were chosen: one setting at a time is varied, on corpora that nobody tests on.

    python benchmarks/defaults.py lstm-dpsgd lstm-batch --only dialogs
    python benchmarks/defaults.py adapters-dpsgd --folder SMOLLM2
    python benchmarks/defaults.py

Corpora: simulated dialogs, lines of WikiText-2's training part (measured on its validation part), dialogs of SGD's
training part (measured on others of them) and items of AG News (likewise). The weights that come with tacit have read
other lines of WikiText-2 and dialogs of SGD: rates of models that begin with them are chosen on the other two corpora.
Each case is trained once, and kept in defaults.results.json with its nats per character, its perplexities and its
processor time; what is there is not trained again. Without a group, all that is known is printed.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tacit import api
from tacit.data.corpus import write_jsonl
from tacit.data.records import Record

sys.path.insert(0, str(Path(__file__).parent / "reproduce"))
from corpora import ag_news, dialogs, wikitext2

RESULTS = Path(__file__).with_suffix(".results.json")
Settings = dict[str, Any]
Measured = dict[str, Any]
"""Figures, and what the model writes."""


def written(folder: Path, training: Iterable[Record], held_out: Iterable[Record]) -> Settings:
    """Both parts as files, and the settings that name them."""
    write_jsonl(training, folder / "training.jsonl")
    write_jsonl(held_out, folder / "held-out.jsonl")
    return {"corpus": str(folder / "training.jsonl"), "data.held_out_corpus": str(folder / "held-out.jsonl")}


def simulated(folder: Path, dialogs: int = 400, held_out: int = 100) -> Settings:
    """Simulated dialogs as files, and the settings that name them."""
    api.simulate("customersim", dialogs, folder / "training.jsonl", seed=7)
    api.simulate("customersim", held_out, folder / "held-out.jsonl", seed=7, split="validation")
    return {"corpus": str(folder / "training.jsonl"), "data.held_out_corpus": str(folder / "held-out.jsonl")}


def _wikitext(folder: Path) -> Settings:
    return written(folder, islice(wikitext2("train"), 1500), islice(wikitext2("valid"), 300)) | {"policy": "digits"}


def _sgd(folder: Path) -> Settings:
    found = dialogs("sgd/train.jsonl")
    return written(folder, islice(found, 200), islice(found, 60))


def _news(folder: Path) -> Settings:
    found = ag_news()
    return written(folder, islice(found, 1000), islice(found, 300))


CORPORA: Mapping[str, Callable[[Path], Settings]] = {
    "dialogs": simulated,
    "wikitext": _wikitext,
    "sgd": _sgd,
    "news": _news,
}
ENGLISH: Settings = {"tokenizer": "english", "vocabulary_size": 2048}
NOISY: Settings = {"plan.mechanism": "dpsgd", "plan.epsilon": 8}
MIXED: Settings = {"plan.mechanism": "selective", "plan.epsilon": 8, "public_epochs": 10, "epochs": 5}
EXACT: Settings = {"plan.mechanism": "plain", "public_epochs": 10}
SHORT: Settings = {"data.max_tokens": 64, "data.max_full_tokens": 96, "lora": {"rank": 8}}


def _rates(steps: str, rates: Iterable[float], optimizer: str | None = None) -> list[Settings]:
    rule = {} if optimizer is None else {f"{steps}.optimizer": optimizer, f"{steps}.lr_scheduler": "none"}
    return [rule | {f"{steps}.learning_rate": rate} for rate in rates]


def _each(base: Settings, variations: Iterable[Settings]) -> list[Settings]:
    return [base | one for one in variations]


FAST: Settings = {"private.learning_rate": 2e-2}
SMALL: Settings = {"model_config": {"embedding_size": 64, "hidden_size": 128}}
_PASSES: list[Settings] = [{"epochs": 2}, {"epochs": 5, **SMALL}, {"epochs": 5}, {"epochs": 10, **SMALL}]
"""In pairs that take about the same time."""
GROUPS: Mapping[str, list[Settings]] = {
    "vocabulary": _each(
        NOISY | {"tokenizer": "english", "private.learning_rate": 1e-2},
        [{"vocabulary_size": size, "model_config.tied": tied} for size in (1024, 2048, 4096) for tied in (False, True)],
    ),
    "lstm-dpsgd": _each(NOISY | ENGLISH, _rates("private", (5e-3, 1e-2, 2e-2, 5e-2))),
    "lstm-batch": _each(
        NOISY | ENGLISH | FAST,
        [
            {"expected_batch_size": 64, "epochs": 40},
            {"expected_batch_size": 128, "epochs": 20},
            {"expected_batch_size": 128, "epochs": 40},
        ],
    ),
    "lstm-selective": _each(
        MIXED | ENGLISH, [*_rates("private", (0.1, 0.3, 1.0), "sgd"), *_rates("private", (1e-3, 5e-3))]
    ),
    "views": _each(MIXED | ENGLISH, [{"public_view": view} for view in ("redacted", "invented", "learned")]),
    "english-dpsgd": _each(NOISY | {"epochs": 10}, _rates("private", (1e-3, 3e-3, 6e-3, 8e-3))),
    "english-selective": _each(MIXED, [*_rates("private", (0.1, 0.3, 1.0), "sgd"), *_rates("private", (1e-3,))]),
    "english-plain": _each(EXACT, _rates("public", (1e-3, 2e-3, 5e-3))),
    "lstm-plain": _each(EXACT | ENGLISH, _rates("public", (2e-3, 5e-3, 1e-2))),
    "lstm-sizes": [*_each(NOISY | ENGLISH, _PASSES), *_each({"plan.mechanism": "plain"} | ENGLISH, _PASSES)],
    "gpt-dpsgd": _each(NOISY | ENGLISH | {"model": "gpt"}, _rates("private", (1e-3, 3e-3, 1e-2))),
    "gpt-plain": _each(EXACT | ENGLISH | {"model": "gpt"}, _rates("public", (3e-4, 1e-3, 3e-3))),
    "adapters-dpsgd": _each(NOISY | SHORT | {"steps": 30}, _rates("private", (5e-4, 2e-3, 5e-3))),
    "adapters-plain": _each(EXACT | SHORT | {"public_epochs": 1}, _rates("public", (3e-4, 1e-3, 3e-3))),
}


def measure(make: Callable[[Path], Settings], settings: Settings) -> Measured:
    """Train once, on a corpus that is made for it; what the model is worth, and what it took."""
    with TemporaryDirectory() as place:
        asked = {"policy": "pii", "mode": "research", **make(Path(place)), **settings}
        began = time.process_time()
        run = api.train_config(api.config(asked.pop("corpus"), settings=asked), Path(place, "run"))
        found, spent = run.utility, time.process_time() - began
        sample = run.generate(tokens=60, seed=1)
    return {
        "nats": found.nats_a_character,
        "perplexity": found.overall.perplexity,
        "public": found.public.perplexity,
        "secret": found.private.perplexity,
        "seconds": round(spent),
        "sample": sample,
    }


class Known:
    """What was measured before, in a file that several processes may add to."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def cases(self) -> dict[str, Measured]:
        """All that is in the file by now."""
        return json.loads(self._path.read_text()) if self._path.exists() else {}

    def measured(self, name: str, make: Callable[[Path], Settings], settings: Settings) -> Measured:
        """From the file, or measured now and kept."""
        if name not in self.cases:
            found = measure(make, settings)
            self._path.write_text(json.dumps(self.cases | {name: found}, indent=1) + "\n")
        return self.cases[name]


def _beginning(group: str, folder: str | None) -> Settings:
    """What the models of a group begin with."""
    if group.startswith("adapters"):
        return {"model": folder}
    return {} if group.startswith(("english", "gpt")) else {"initial_weights": "random"}


def show(name: str, found: Measured) -> None:
    """One line."""
    print(f"{found['nats']:.3f} nats per character, {found['seconds']:4.0f} s  {name}", flush=True)


def main() -> None:
    """Train what is not known yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs="*", choices=[*GROUPS, []])
    parser.add_argument("--only", nargs="+", choices=CORPORA, default=list(CORPORA))
    parser.add_argument("--folder", help="a pretrained model, for adapters")
    options = parser.parse_args()
    known = Known(RESULTS)
    if not options.groups:
        for name, found in known.cases.items():
            show(name, found)
    for group in options.groups:
        for corpus in options.only:
            for settings in GROUPS[group]:
                name = f"{corpus} {group} {json.dumps(settings, sort_keys=True)}"
                beginning = _beginning(group, options.folder)
                show(name, known.measured(name, CORPORA[corpus], settings | beginning))


if __name__ == "__main__":
    main()
