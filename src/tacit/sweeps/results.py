"""The figures of one finished run as plain JSON: utility, claim and attacks; no secret, no path, no time.

Equal release folders give equal figures. Values that are not finite become null.

Held-out text is counted in words and in the tokens of another tokenizer, so that perplexities compare across
vocabularies. Only what was read is counted: rows up to the length limit of training, without records that were set
aside. A token or word is private if it contains a private character. Total nats include the ends of records.
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
    """How many words or tokens there are, and how many of them are private."""

    overall: int = 0
    private: int = 0

    def __add__(self, other: "MarkedCounts") -> "MarkedCounts":
        return MarkedCounts(self.overall + other.overall, self.private + other.private)


@dataclass(frozen=True, slots=True)
class Marked:
    """A text, and which of its characters are private."""

    text: str
    private: tuple[bool, ...]

    def counts(self, stretches: list[tuple[int, int]]) -> MarkedCounts:
        """Counts of these stretches of characters."""
        return MarkedCounts(len(stretches), sum(any(self.private[start:end]) for start, end in stretches))


def marked_texts(store: PreparedCorpus, tokenizer: Tokenizer, longest: int) -> Iterator[Marked]:
    """The records of a store as a model read them, each joined from its rows."""
    if not tokenizer.lossless:
        raise ConfigError(
            expected="a tokenizer that restores the text exactly, to count its words and tokens",
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


def count(texts: Iterator[Marked], perplexity_tokenizer: Path | None) -> tuple[MarkedCounts, MarkedCounts | None]:
    """Words, and tokens of the tokenizer.json `perplexity_tokenizer` if there is one."""
    tokenizer = None
    if perplexity_tokenizer is not None:
        content = read_tokenizer_json(perplexity_tokenizer).codec.definition()["content"]
        tokenizer = tokenizers.Tokenizer.from_str(json.dumps(content))
        tokenizer.encode_special_tokens = True
    words, tokens = MarkedCounts(), MarkedCounts()
    for marked in texts:
        words += marked.counts([match.span() for match in _WORD.finditer(marked.text)])
        if tokenizer is not None:
            tokens += marked.counts(tokenizer.encode(marked.text, add_special_tokens=False).offsets)
    return words, None if tokenizer is None else tokens


def figures(folder: Path, words: MarkedCounts | None, tokens: MarkedCounts | None, *, attacks: bool) -> Figures:
    """The figures of the run in `folder`.

    words, tokens: of its held-out text, if they were counted. attacks: whether to include its audit.
    """
    run = RunFolder.view(folder)
    guarantee = run.read_json(Guarantee, PrivateFile.GUARANTEE)
    utility = run.read_json(Utility, PrivateFile.UTILITY)
    made = run.read_json(MadeWith, ReleaseFile.MADE)
    return {
        "mechanism": guarantee.mechanism,
        "code": list(dict.fromkeys([*(one.code for one in made.environments), code_hash()])),
        "claim": _claim(guarantee),
        "utility": _labels(utility.labels) if utility.labels is not None else _utility(utility, words, tokens),
        "attacks": _attacks(run.read_json(Audit, PrivateFile.AUDIT), utility, tokens) if attacks else None,
    }


def number(value: float) -> float | None:
    """`value`, or None if JSON has no number for it."""
    return value if math.isfinite(value) else None


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
    """Perplexities per counted unit: total nats over the number of units."""
    if counts is None:
        return None
    totals = {"overall": counts.overall, "public": counts.overall - counts.private, "private": counts.private}
    return {
        name: {"count": total, "perplexity": _perplexity(parts[name].nats / total) if total else None}
        for name, total in totals.items()
    }


def _perplexity(nats: float) -> float | None:
    return number(math.exp(min(nats, 700.0)))


def _labels(labels: LabelQuality) -> Figures:
    names = ("overall", "with_secrets", "without_secrets", "commonest")
    rates = {name: getattr(labels, name) for name in names}
    return {
        "labels": {
            name: {"errors": rate.errors, "records": rate.records, "error_rate": number(rate.share)}
            for name, rate in rates.items()
        }
    }


def _attacks(found: Audit, utility: Utility, tokens: MarkedCounts | None) -> Figures:
    own = utility.overall.tokens
    own_per_token = own / tokens.overall if own and tokens is not None and tokens.overall else None
    return {
        "verdict": str(found.verdict.outcome),
        "figures": found.figures,
        "checkpoints": [_checkpoint(one, own_per_token) for one in found.checkpoints],
    }


def _checkpoint(one: Checkpoint, own_per_token: float | None) -> Figures:
    """A checkpoint; own_per_token: the run's own tokens per token that perplexities are stated in."""
    return {
        "step": one.step,
        "perplexity": number(one.perplexity),
        "normalised": None if own_per_token is None else _perplexity(math.log(one.perplexity) * own_per_token),
        "figures": one.figures,
    }
