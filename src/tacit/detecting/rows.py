"""From prompts and public sentences to the rows a classifier is fitted to: masked words, one window each.

A detector must not learn that short is sensitive, that a number at the end is, or that a prompt stands alone: prompts
of both kinds come bare, before a number, and amid public words; public sentences are cut to the lengths of prompts too.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tacit.policy.detector.features import NUMBER, Window, masked


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Masked texts of at most one window, and which of them are sensitive."""

    lines: list[str]
    sensitive: npt.NDArray[np.bool_]


def make_rows(
    sensitive: Sequence[str], harmless: Sequence[str], public: Sequence[str], window: Window, seed: int
) -> Rows:
    """Rows of both kinds; the same arguments give the same rows."""
    rng = random.Random(seed)
    around = [words for words in (line.split() for line in masked(public)) if words]
    rows: list[tuple[str, bool]] = []
    lengths = []
    for texts, label in ((sensitive, True), (harmless, False)):
        for line in masked(texts):
            words = line.split()[-window.words :]
            lengths.append(len(words))
            rows += [(" ".join(row), label) for row in _settings(words, around, window, rng)]
    for words in around:
        rows.append((" ".join(_cut(words, window.words, rng)), False))
        short = _cut(words, rng.choice(lengths), rng)
        rows.append((" ".join([*short, NUMBER][: window.words] if rng.random() < 1 / 2 else short), False))
    known = dict(reversed(rows))  # what is said twice counts once, with the label it had first
    return Rows(list(known), np.array(list(known.values()), np.bool_))


def _settings(words: list[str], around: list[list[str]], window: Window, rng: random.Random) -> list[list[str]]:
    """The prompt bare, before a number, and amid words of public sentences."""
    numbered = words if words[-1:] == [NUMBER] else [*words, NUMBER][-window.words :]
    room = window.words - len(numbered)
    before = rng.randint(0, room)
    amid = [*_cut(rng.choice(around), before, rng), *numbered, *_cut(rng.choice(around), room - before, rng)]
    return [words, numbered, amid]


def _cut(words: list[str], length: int, rng: random.Random) -> list[str]:
    """So many words in a row, from anywhere in the sentence."""
    start = rng.randint(0, max(0, len(words) - length))
    return words[start : start + length]
