"""The figures of one finished run as plain JSON: utility, claim and attacks; no secret, no place, no time.

Equal release folders give equal figures. What is no number (not a number, infinite) is null.

Held-out text is counted in words, and in the tokens of another tokenizer, so that perplexities of all vocabularies
compare. Only what was read is counted: rows up to where training ended them, without records that were set aside. A
token or word is private when it holds a private character. Total nats over these counts include the ends of records.
"""

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import tokenizers

from tacit.audits.findings import Audit, Checkpoint
from tacit.data.store import PreparedCorpus
from tacit.data.tokenizer import Tokenizer, read_tokenizer_json
from tacit.errors import ConfigError
from tacit.privacy.guarantee import Guarantee
from tacit.runs.environment import MadeWith, code_hash
from tacit.runs.files import PrivateFile, ReleaseFile
from tacit.runs.folder import RunFolder
from tacit.runs.utility import LabelQuality, TokenQuality, Utility

Figures = dict[str, Any]
_WORD = re.compile(r"\S+")


@dataclass(frozen=True, slots=True)
class MarkedCounts:
    """How many there are, and how many of them are private."""

    overall: int = 0
    private: int = 0

    def __add__(self, other: "MarkedCounts") -> "MarkedCounts":
        return MarkedCounts(self.overall + other.overall, self.private + other.private)

    @property
    def public(self) -> int:
        """Those without a private character."""
        return self.overall - self.private


@dataclass(frozen=True, slots=True)
class Marked:
    """A text, and which of its characters are private."""

    text: str
    private: tuple[bool, ...]

    def counted(self, stretches: list[tuple[int, int]]) -> MarkedCounts:
        """Of these stretches of characters."""
        return MarkedCounts(len(stretches), sum(any(self.private[start:end]) for start, end in stretches))

    @property
    def words(self) -> MarkedCounts:
        """White space apart."""
        return self.counted([match.span() for match in _WORD.finditer(self.text)])


class Measurement:
    """The tokens of a tokenizer.json."""

    def __init__(self, path: Path) -> None:
        content = read_tokenizer_json(path).codec.definition()["content"]
        self._tokenizer = tokenizers.Tokenizer.from_str(json.dumps(content))
        self._tokenizer.encode_special_tokens = True

    def tokens(self, marked: Marked) -> MarkedCounts:
        """How many tokens the text has."""
        return marked.counted(self._tokenizer.encode(marked.text, add_special_tokens=False).offsets)


def marked_texts(store: PreparedCorpus, tokenizer: Tokenizer, longest: int) -> Iterator[Marked]:
    """The records of a store as a model read them; pieces of one record in a row."""
    if not tokenizer.lossless:
        raise ConfigError(
            expected="runs whose tokenizer gives a text back as it was, to count its words and tokens",
            found="one that may not",
            way_out="use tokenizer: bytes or bpe, or leave perplexity_tokenizer out",
        )
    for _, rows in groupby(range(len(store)), lambda row: int(store.records[row])):
        text, private = "", list[bool]()
        for row in rows:
            tokens, secret = store.full(row)[:2]
            pairs = zip(tokens[:longest].tolist(), secret[:longest].tolist(), strict=True)
            for hidden, run in groupby(pairs, lambda pair: bool(pair[1])):
                part = tokenizer.decode(token for token, _ in run)
                text += part
                private += [hidden] * len(part)
        yield Marked(text, tuple(private))


def count(texts: Iterator[Marked], measure: Measurement | None) -> tuple[MarkedCounts, MarkedCounts | None]:
    """Words, and tokens where there is a measure."""
    words, tokens = MarkedCounts(), MarkedCounts()
    for marked in texts:
        words += marked.words
        tokens += measure.tokens(marked) if measure is not None else MarkedCounts()
    return words, tokens if measure is not None else None


def figures(folder: Path, words: MarkedCounts | None, tokens: MarkedCounts | None, *, attacks: bool) -> Figures:
    """Of the run in `folder`. words, tokens: of its held-out text, where they were counted. attacks: with its audit."""
    run = RunFolder.view(folder)
    guarantee = run.read_json(Guarantee, PrivateFile.GUARANTEE)
    utility = run.read_json(Utility, PrivateFile.UTILITY)
    return {
        "mechanism": guarantee.mechanism,
        "code": _code(run),
        "claim": _claim(guarantee),
        "utility": _labels(utility.labels) if utility.labels is not None else _utility(utility, words, tokens),
        "attacks": _attacks(run.read_json(Audit, PrivateFile.AUDIT), _share(utility, tokens)) if attacks else None,
    }


def _share(utility: Utility, tokens: MarkedCounts | None) -> float | None:
    """How many of the run's own tokens there are to one of the measure's, on the held-out text."""
    own = utility.overall.tokens
    return None if tokens is None or not tokens.overall or not own else own / tokens.overall


def _code(run: RunFolder) -> list[str]:
    """The hashes of every state of the package that trained the run or states its figures, in order."""
    made = run.read_json(MadeWith, ReleaseFile.MADE)
    return list(dict.fromkeys([*(one.code for one in made.environments), code_hash()]))


def number(value: float | None) -> float | None:
    """`value`, where JSON can say it."""
    return value if value is not None and math.isfinite(value) else None


def _claim(guarantee: Guarantee) -> Figures:
    published = guarantee.published
    return {
        "figures": [
            {"neighbors": str(one.neighbors), "epsilon": number(one.epsilon), "delta": one.delta}
            for one in guarantee.figures
        ],
        "published": None if published is None else {"epsilon": number(published.epsilon), "delta": published.delta},
    }


def _utility(utility: Utility, words: MarkedCounts | None, tokens: MarkedCounts | None) -> Figures:
    parts = {"overall": utility.overall, "public": utility.public, "private": utility.private}
    return {
        "tokens": {
            name: {
                "count": part.tokens,
                "nats": number(part.nats),
                "perplexity": number(part.perplexity),
                "accuracy": number(part.accuracy),
            }
            for name, part in parts.items()
        },
        "characters": utility.characters,
        "nats_a_character": number(utility.nats_a_character),
        "words": _per(parts, words),
        "normalised": _per(parts, tokens),
    }


def _per(parts: dict[str, TokenQuality], counts: MarkedCounts | None) -> Figures | None:
    """Perplexities a unit that was counted: total nats over how many there are."""
    if counts is None:
        return None
    found = {"overall": counts.overall, "public": counts.public, "private": counts.private}
    return {
        name: {
            "count": found[name],
            "perplexity": number(math.exp(min(part.nats / found[name], 700.0))) if found[name] else None,
        }
        for name, part in parts.items()
    }


def _labels(labels: LabelQuality) -> Figures:
    rates = {
        "overall": labels.overall,
        "with_secrets": labels.with_secrets,
        "without_secrets": labels.without_secrets,
        "commonest": labels.commonest,
    }
    return {
        "labels": {
            name: {"errors": rate.errors, "records": rate.records, "error_rate": number(rate.share)}
            for name, rate in rates.items()
        }
    }


def _attacks(found: Audit, share: float | None) -> Figures:
    return {
        "verdict": str(found.verdict.outcome),
        "figures": found.figures,
        "checkpoints": [_checkpoint(one, share) for one in found.checkpoints],
    }


def _checkpoint(one: Checkpoint, share: float | None) -> Figures:
    """A model on the way; its perplexity in the measure's tokens, too, where there is one."""
    nats = math.log(one.perplexity)
    return {
        "step": one.step,
        "perplexity": number(one.perplexity),
        "normalised": None if share is None else number(math.exp(min(nats * share, 700.0))),
        "figures": one.figures,
    }
