"""What a person gets who chooses nothing but a mechanism and `--epsilon 8`, on corpora on which no default was chosen.

    python benchmarks/no_options.py
    python benchmarks/no_options.py --random
    python benchmarks/no_options.py --model SMOLLM2

MultiWOZ 2.1, clauses of SEC filings and sentences of CoNLL-2003: 400,000 tokens each for the LSTM; 40,000 for adapters
of a pretrained model, with three passes. With --random the LSTM begins with random weights. Each private mechanism runs
with the default learning rate, with half and with twice of it. Printed are the perplexity of each, as a multiple of
`plain` and of the best of the three, and processor time. Each case is trained once, default rates first, and kept in
no_options.results.json.
"""

import argparse
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, product
from pathlib import Path

from defaults import Known, Measured, Settings, written
from tacit.config.load import load_config
from tacit.data.english_tokenizer import english_tokenizer
from tacit.data.records import Record
from tacit.training.checks import check_start
from tacit.training.defaults import with_defaults

from corpora import conll2003, dialogs, sec_clauses  # isort: skip  (`defaults` knows where it is)

RESULTS = Path(__file__).with_suffix(".results.json")
HELD_OUT = 10  # of the tokens, one in so many
FACTORS = (1.0, 0.5, 2.0)
EXACT = ("plain", "invented")
MECHANISMS = (*EXACT, "dpsgd", "selective", "crt", "user")
CORPORA: Mapping[str, Callable[[], Iterator[Record]]] = {
    "MultiWOZ": lambda: chain(dialogs("multiwoz-2.1/val.jsonl"), dialogs("multiwoz-2.1/test.jsonl")),
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
    """The settings with the learning rate of their private steps as a multiple of the default."""
    if factor == 1.0:
        return settings
    config = load_config({"corpus": "corpus.jsonl", **settings})
    rule = with_defaults(config, check_start(config).plan(), flagged_share=1.0).private  # nearly all, on these corpora
    assert rule.learning_rate is not None
    return settings | {
        "private.optimizer": rule.optimizer,
        "private.lr_scheduler": rule.lr_scheduler,
        "private.learning_rate": rule.learning_rate * factor,
    }


@dataclass(frozen=True, slots=True)
class Beginning:
    """What models begin with: settings for it, the name of its cases, and how many tokens they read."""

    name: str
    settings: Settings
    tokens: int

    @classmethod
    def of(cls, model: str | None, random: bool) -> "Beginning":
        """A pretrained model takes adapters and three passes."""
        if model is not None:
            return cls("adapters", {"model": model, "lora": {"rank": 8}, "plan.epochs": 3}, 40_000)
        return cls("random", {"initial_weights": "random"}, 400_000) if random else cls("lstm", {}, 400_000)


def settings_of(mechanism: str, beginning: Beginning) -> Settings:
    """No options, except for what the model begins with."""
    target = {} if mechanism in EXACT else {"plan.epsilon": 8}
    return {"plan.mechanism": mechanism, **target, **beginning.settings}


def cases(names: Iterable[str], mechanisms: Iterable[str]) -> Iterator[tuple[str, str, float]]:
    """Corpus, mechanism and factor on the learning rate; default rates of all come first."""
    for factor, name, mechanism in product(FACTORS, names, mechanisms):
        of_users = mechanism != "user" or name in WITH_USERS
        if of_users and (factor == 1.0 or mechanism not in EXACT):
            yield name, mechanism, factor


def measured(known: Known, case: tuple[str, str, float], beginning: Beginning) -> Measured:
    """From the file, or trained now."""
    name, mechanism, factor = case
    settings = with_rate(settings_of(mechanism, beginning), factor)
    return known.measured(f"{beginning.name} {name} {mechanism} {factor:g}", corpus(name, beginning.tokens), settings)


def row(name: str, mechanism: str, plain: Measured, found: Mapping[float, Measured]) -> str:
    """One line for a corpus and a mechanism."""
    own = found[1.0]
    line = f"{name:12} {mechanism:10} {own['perplexity']:8.4g}  {own['perplexity'] / plain['perplexity']:6.2f} of plain"
    if mechanism not in EXACT:
        best = min(one["perplexity"] for one in found.values())
        others = ", ".join(f"{found[factor]['perplexity']:.4g}" for factor in FACTORS[1:])
        line += f", {own['perplexity'] / best:5.2f} of the best (others {others})"
    return f"{line}, {own['seconds']:.0f} s"


def main() -> None:
    """Train what is not known yet, and print all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a pretrained model; without it, the LSTM")
    parser.add_argument("--random", action="store_true", help="the LSTM begins with random weights")
    parser.add_argument("--only", nargs="+", choices=CORPORA, default=list(CORPORA))
    parser.add_argument("--mechanisms", nargs="+", choices=MECHANISMS, default=list(MECHANISMS))
    options = parser.parse_args()
    beginning = Beginning.of(options.model, options.random)
    known, found = Known(RESULTS), dict[tuple[str, str], dict[float, Measured]]()
    for case in cases(options.only, options.mechanisms):
        found.setdefault(case[:2], {})[case[2]] = measured(known, case, beginning)
        print(*case, f"{found[case[:2]][case[2]]['perplexity']:.4g}", flush=True)
    for (name, mechanism), measurements in found.items():
        plain = measured(known, (name, "plain", 1.0), beginning)
        print(row(name, mechanism, plain, measurements))


if __name__ == "__main__":
    main()
