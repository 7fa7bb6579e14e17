"""Invented secrets in tokens: which one is at which span of a store.

G1 (public). What is invented for a span depends on its kind, the id of its record, its place there, the tokenizer and
   public examples.
G2 (alone). It does not depend on other records: not on their number, and not on a row's number, which they decide.
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
        record = f"{store.record_id(row)} {store.pieces[row]}"
        invented = [self._tokens(kind, f"{record} {number}") for number, kind in enumerate(store.kinds(row))]
        placeholders = redacted[positions].tolist()
        made = [tokens or [placeholder] for tokens, placeholder in zip(invented, placeholders, strict=True)]
        lengths = np.array([len(tokens) for tokens in made], dtype=np.int64)
        contents = np.array([token for tokens in made for token in tokens], dtype=redacted.dtype)
        filled = fill_in(redacted, positions, contents, lengths)
        left = np.zeros(len(filled.tokens), dtype=np.bool_)
        left[[start for start, tokens in zip(filled.starts, invented, strict=True) if not tokens]] = True
        return filled.tokens, left

    def _tokens(self, kind: str, place: str) -> list[int]:
        table = self._table(kind)
        digest = hashlib.blake2b(place.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        return table[int.from_bytes(digest, "little") % len(table)] if table else []

    def _table(self, kind: str) -> list[list[int]]:
        """Made when a kind is first seen; empty where nobody knows its form."""
        if kind not in self._tables:
            rng = random.Random(f"tacit invents {kind}")  # public: the same for everybody
            texts = [invent(kind, rng, self._examples) or "" for _ in range(VALUES)]
            self._tables[kind] = [tokens for tokens in encode_all(texts, self._tokenizer) if tokens]
        return self._tables[kind]
