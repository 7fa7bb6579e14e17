"""Invented secrets in tokens: which one stands at which span of a store.

G1 (public). What stands at a span depends on its kind, its place in the store, the tokenizer and public examples; the
   store's places are a function of the public part (prepare/store.py, G1).
"""

import hashlib
import random

import numpy as np

from tacit.policy.inventing import Examples, invent
from tacit.prepare import Prepared
from tacit.prepare.views import Mask, Tokens, encode_all, fill_in
from tacit.tokenizer import Tokenizer

VALUES = 1024
"""Invented secrets of a kind, from which spans take theirs."""


class Inventions:
    """Makes the invented view of rows."""

    def __init__(self, tokenizer: Tokenizer, examples: Examples) -> None:
        self._tokenizer = tokenizer
        self._examples = examples
        self._tables: dict[str, list[list[int]]] = {}

    def row(self, store: Prepared, row: int) -> tuple[Tokens, Mask]:
        """The row with an invented secret at each span, and which of its tokens still are placeholders."""
        redacted, positions = store.redacted(row), store.positions(row)
        invented = [self._tokens(kind, row, number) for number, kind in enumerate(store.kinds(row))]
        placeholders = redacted[positions].tolist()
        made = [tokens or [placeholder] for tokens, placeholder in zip(invented, placeholders, strict=True)]
        lengths = np.array([len(tokens) for tokens in made], dtype=np.int64)
        contents = np.array([token for tokens in made for token in tokens], dtype=redacted.dtype)
        filled = fill_in(redacted, positions, contents, lengths)
        left = np.zeros(len(filled.tokens), dtype=np.bool_)
        left[[start for start, tokens in zip(filled.starts, invented, strict=True) if not tokens]] = True
        return filled.tokens, left

    def _tokens(self, kind: str, row: int, number: int) -> list[int]:
        table = self._table(kind)
        place = hashlib.blake2b(f"{row} {number}".encode(), digest_size=8).digest()
        return table[int.from_bytes(place, "little") % len(table)] if table else []

    def _table(self, kind: str) -> list[list[int]]:
        """Made when a kind is first seen; empty where nobody knows its form."""
        if kind not in self._tables:
            rng = random.Random(f"tacit invents {kind}")  # public: the same for everybody
            texts = [invent(kind, rng, self._examples) or "" for _ in range(VALUES)]
            self._tables[kind] = [tokens for tokens in encode_all(texts, self._tokenizer) if tokens]
        return self._tables[kind]
