"""Held-out text in words and in the tokens of another tokenizer, so that perplexities of all vocabularies compare.

Only what was read is counted: rows up to where training ended them, without records that were set aside. A token or
word is private when it holds a private character. Total nats over these counts include the ends of records.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import tokenizers

from tacit.errors import ConfigError
from tacit.prepare import Prepared
from tacit.tokenizer import Tokenizer, read_tokenizer_json

_WORD = re.compile(r"\S+")


@dataclass(frozen=True, slots=True)
class Counts:
    """How many there are, and how many of them are private."""

    overall: int = 0
    private: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(self.overall + other.overall, self.private + other.private)

    @property
    def public(self) -> int:
        """Those without a private character."""
        return self.overall - self.private


@dataclass(frozen=True, slots=True)
class Marked:
    """A text, and which of its characters are private."""

    text: str
    private: tuple[bool, ...]

    def counted(self, stretches: list[tuple[int, int]]) -> Counts:
        """Of these stretches of characters."""
        return Counts(len(stretches), sum(any(self.private[start:end]) for start, end in stretches))

    @property
    def words(self) -> Counts:
        """White space apart."""
        return self.counted([match.span() for match in _WORD.finditer(self.text)])


class Measure:
    """The tokens of a tokenizer.json."""

    def __init__(self, path: Path) -> None:
        content = read_tokenizer_json(path).codec.definition()["content"]
        self._tokenizer = tokenizers.Tokenizer.from_str(json.dumps(content))
        self._tokenizer.encode_special_tokens = True

    def tokens(self, marked: Marked) -> Counts:
        """How many tokens the text has."""
        return marked.counted(self._tokenizer.encode(marked.text, add_special_tokens=False).offsets)


def marked_texts(store: Prepared, tokenizer: Tokenizer, longest: int) -> Iterator[Marked]:
    """The records of a store as a model read them; pieces of one record in a row."""
    if not tokenizer.lossless:
        raise ConfigError(
            expected="runs whose tokenizer gives a text back as it was, to count its words and tokens",
            found="one that may not",
            way_out="use tokenizer: bytes or bpe, or leave normalise_with out",
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


def count(texts: Iterator[Marked], measure: Measure | None) -> tuple[Counts, Counts | None]:
    """Words, and tokens where there is a measure."""
    words, tokens = Counts(), Counts()
    for marked in texts:
        words += marked.words
        tokens += measure.tokens(marked) if measure is not None else Counts()
    return words, tokens if measure is not None else None
