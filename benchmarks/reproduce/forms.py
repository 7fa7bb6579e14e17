"""How well secrets can be invented without training a model: WikiText-2's words with digits, one number for each way.

    python benchmarks/reproduce/forms.py [--epsilon 0.5 1 2]

Learned are forms from the training part, with noise; scored are the secrets of the validation part: the perplexity per
GPT-2 token of a writer who knows the forms, and in one case of 100 writes any characters. It is what a model could
reach that learned nothing about secrets but the learned view. Beside it: whole strings counted exactly,
with and without the word before them, which no privacy protects.
"""

import argparse
import math
import random
from collections import Counter
from collections.abc import Callable, Iterable

from corpora import gpt2, wikitext2

from tacit.data.form_counts import context_of
from tacit.data.forms import Inventor, Secret, learn, usual_contexts, vector
from tacit.data.records import Record
from tacit.policies.patterns import Digits
from tacit.privacy.account import calibrate_noise
from tacit.privacy.events import Gaussian, Relation

DELTA = 1e-5
KIND = "DIGITS"
ANY = 0.01  # of secrets have any characters, of so many
CHARACTERS = 28
PRIOR = 20.0  # spans that an exact count behind a word borrows from all

Chance = Callable[[Secret], float]


def secrets_of(record: Record) -> list[Secret]:
    """The words with digits, each behind its context."""
    found, last = list[Secret](), -1
    for start, end, *_ in Digits().find(record):
        words = record.text[max(last, 0) : start].split()
        found.append(Secret(KIND, context_of(words, first=last < 0), record.text[start:end]))
        last = end
    return found


def perplexity(chance: Chance, held_out: list[Secret], tokens: int) -> float:
    """Per token of the secrets."""
    nats = 0.0
    for secret in held_out:
        nats -= math.log((1 - ANY) * chance(secret) + ANY * 0.5 * (0.5 / CHARACTERS) ** len(secret.text))
    return math.exp(nats / tokens)


def exact(records: list[list[Secret]], with_context: bool) -> Chance:
    """Shares of whole strings; behind a word that is new, those of all."""

    def key(secret: Secret) -> str:
        return secret.context if with_context else ""

    strings = Counter((key(one), one.text) for record in records for one in record)
    every = Counter(one.text for record in records for one in record)
    contexts = Counter(key(one) for record in records for one in record)
    total = every.total()

    def chance(secret: Secret) -> float:
        seen = contexts[key(secret)]
        return (strings[key(secret), secret.text] + PRIOR * every[secret.text] / total) / (seen + PRIOR)

    return chance


def learned(records: list[list[Secret]], epsilon: float) -> Chance:
    """Forms from one noisy sum that costs `epsilon`."""
    noise = calibrate_noise(lambda sigma: ((Gaussian(sigma, 1, Relation.ZERO_OUT), 1),), epsilon, DELTA)
    contexts = usual_contexts(((one.kind, one.context) for record in records for one in record), noise)
    sums = Counter[tuple[str, str]]()
    for record in records:
        sums.update(vector(record, contexts))
    inventor = Inventor(learn(sums, contexts, noise, random.Random(0)))
    return lambda secret: inventor.probability(secret.kind, secret.context, secret.text)


def tokens_in(secrets: Iterable[Secret]) -> int:
    """Of GPT-2, as a prepared store has them: the blank before a secret is public."""
    return sum(map(len, gpt2().encode_batch([secret.text for secret in secrets])))


def main() -> None:
    """Count, learn, score."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epsilon", nargs="+", type=float, default=[0.5, 1.0, 2.0])
    options = parser.parse_args()
    records = [found for record in wikitext2("train") if (found := secrets_of(record))]
    held_out = [secret for record in wikitext2("valid") for secret in secrets_of(record)]
    tokens = tokens_in(held_out)
    print(f"{len(records):,} records with secrets; {len(held_out):,} held-out secrets of {tokens:,} tokens")
    ways: dict[str, Chance] = {
        "whole strings, counted exactly": exact(records, with_context=False),
        "whole strings behind the word before": exact(records, with_context=True),
    }
    for epsilon in options.epsilon:
        ways[f"learned forms, epsilon {epsilon:g}"] = learned(records, epsilon)
    for name, chance in ways.items():
        print(f"{name:40} {perplexity(chance, held_out, tokens):7.1f}", flush=True)


if __name__ == "__main__":
    main()
