"""What a person gets who chooses nothing but a mechanism and `--epsilon 8`, on corpora on which no default was chosen.

    python benchmarks/no_options.py
    python benchmarks/no_options.py --model SMOLLM2

MultiWOZ 2.1, clauses of SEC filings and sentences of CoNLL-2003: 400,000 tokens each for the LSTM; 40,000 for adapters
of a pretrained model, with three passes. Each mechanism runs with the default learning rate, with half and with twice
of it. Printed are the perplexity of each, as a multiple of `plain` and of the best of the three, and processor time.
Each case is trained once, and kept in no_options.results.json.
"""

import argparse
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from defaults import Known, Measured, Settings, written
from tacit.config.load import load_config
from tacit.config.model_schema import OptimizerConfig
from tacit.data.english_tokenizer import english_tokenizer
from tacit.data.records import Record
from tacit.training.checks import check_start
from tacit.training.defaults import with_defaults

from corpora import conll2003, dialogs, sec_clauses  # isort: skip  (`defaults` knows where it is)

RESULTS = Path(__file__).with_suffix(".results.json")
HELD_OUT = 10  # of the tokens, one in so many
FACTORS = (1.0, 0.5, 2.0)
MECHANISMS = ("plain", "invented", "dpsgd", "selective", "crt", "user")
CORPORA: Mapping[str, Callable[[], Iterator[Record]]] = {
    "MultiWOZ": lambda: dialogs("multiwoz-2.1/train_restaurant_subset.jsonl"),
    "SEC clauses": sec_clauses,
    "CoNLL": conll2003,
}
WITH_USERS = frozenset({"SEC clauses", "CoNLL"})


def taken(records: Iterator[Record], tokens: int) -> list[Record]:
    """The next records, until they have so many tokens."""
    found, left, tokenizer = list[Record](), tokens, english_tokenizer()
    for record in records:
        found.append(record)
        left -= len(tokenizer.encode(record.text))
        if left <= 0:
            break
    return found


def corpus(name: str, tokens: int) -> Callable[[Path], Settings]:
    """Makes the files of a corpus. What is held out comes first: users of both parts are told apart by that."""

    def make(folder: Path) -> Settings:
        records = CORPORA[name]()
        held_out = taken(records, tokens // HELD_OUT)
        users = {record.user for record in held_out} - {None}
        return written(folder, taken((one for one in records if one.user not in users), tokens), held_out)

    return make


def with_rate(settings: Settings, factor: float) -> Settings:
    """The settings with the learning rate of their most important steps, as a multiple of the default."""
    if factor == 1.0:
        return settings
    config = load_config({"corpus": "corpus.jsonl", **settings})
    whole = with_defaults(config, check_start(config).plan())
    noisy = whole.plan.mechanism not in ("plain", "invented")
    rule: OptimizerConfig = whole.private if noisy else whole.public
    steps = "private" if noisy else "public"
    assert rule.learning_rate is not None
    return settings | {
        f"{steps}.optimizer": rule.optimizer,
        f"{steps}.lr_scheduler": rule.lr_scheduler,
        f"{steps}.learning_rate": rule.learning_rate * factor,
    }


def settings_of(mechanism: str, model: str | None) -> Settings:
    """No options, except that a pretrained model takes adapters and three passes."""
    target = {} if mechanism in ("plain", "invented") else {"plan.epsilon": 8}
    pretrained = {} if model is None else {"model": model, "lora": {"rank": 8}, "plan.epochs": 3}
    return {"plan.mechanism": mechanism, **target, **pretrained}


def rows(known: Known, names: Iterable[str], mechanisms: Iterable[str], model: str | None) -> Iterator[str]:
    """One line for each corpus and mechanism."""
    tokens = 400_000 if model is None else 40_000
    for name in names:
        plain: Measured | None = None
        for mechanism in mechanisms:
            if mechanism == "user" and name not in WITH_USERS:
                continue
            settings, make = settings_of(mechanism, model), corpus(name, tokens)
            kind = "lstm" if model is None else "adapters"
            found = [
                known.measured(f"{kind} {name} {mechanism} {factor:g}", make, with_rate(settings, factor))
                for factor in FACTORS
            ]
            plain = plain or found[0]
            own, best = found[0]["perplexity"], min(one["perplexity"] for one in found)
            others = ", ".join(f"{one['perplexity']:.4g}" for one in found[1:])
            yield (
                f"{name:12} {mechanism:10} {own:8.4g} ({others})  {own / plain['perplexity']:6.2f} of plain,"
                f" {own / best:5.2f} of the best, {found[0]['seconds']:.0f} s"
            )


def main() -> None:
    """Train what is not known yet, and print all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a pretrained model; without it, the LSTM")
    parser.add_argument("--only", nargs="+", choices=CORPORA, default=list(CORPORA))
    parser.add_argument("--mechanisms", nargs="+", choices=MECHANISMS, default=list(MECHANISMS))
    options = parser.parse_args()
    for row in rows(Known(RESULTS), options.only, options.mechanisms, options.model):
        print(row, flush=True)


if __name__ == "__main__":
    main()
