"""One row of the prepared store in one view: as written, redacted, or with secrets made up by rules or as learned.

G1 (one accessor). Secrets are read by `tokens_of` and nowhere else in training, and only for a step whose view is FULL.
G2 (public). What is invented for a span depends on its kind, the id of its record, its place there, the tokenizer and
   public examples; what is learned, also on the public text before it and on the noisy counts of forms. Where equal
   records are left out, the redacted text takes the place of the id: whichever of them is left is read alike.
G3 (alone). It does not depend on other records: not on their number, and not on a row's number, which they decide.
"""

import hashlib
import random
from typing import NamedTuple

import numpy as np

from tacit.data.form_counts import public_spans
from tacit.data.forms import Forms, Inventor
from tacit.data.inventions import KindExamples, invent
from tacit.data.store import PreparedCorpus
from tacit.data.tokenizer import Tokenizer
from tacit.data.views import Mask, Tokens, encode_all, fill_in, widened
from tacit.errors import PrepareError
from tacit.privacy.plan import View

VALUES = 1024
"""Invented secrets of a kind, from which spans take theirs."""


class ViewedRow(NamedTuple):
    """The tokens of a row in one view, which of them are secret, and which are learned; None: all of them."""

    tokens: Tokens
    secret: Mask
    learned: Mask | None


class Inventions:
    """Makes the invented view of rows, and the learned one where forms were learned."""

    def __init__(self, tokenizer: Tokenizer, examples: KindExamples, forms: Forms | None = None) -> None:
        self._tokenizer = tokenizer
        self._examples = examples
        self._learned = None if forms is None else Inventor(forms)
        self._tables: dict[str, list[list[int]]] = {}

    def row(self, store: PreparedCorpus, row: int, learned: bool = False) -> ViewedRow:
        """The row with an invented secret at each span; what still is a placeholder counts as secret."""
        redacted, positions = store.redacted(row), store.positions(row)
        record = f"{origin(store, row)} {store.pieces[row]}"
        places = [f"{record} {number}" for number in range(len(positions))]
        drawn = self._drawn(store, row, places) if learned else [list[int]() for _ in places]
        by_rules = zip(drawn, store.kinds(row), places, strict=True)
        invented = [tokens or self._tokens(kind, place) for tokens, kind, place in by_rules]
        placeholders = redacted[positions].tolist()
        made = [tokens or [placeholder] for tokens, placeholder in zip(invented, placeholders, strict=True)]
        lengths = np.array([len(tokens) for tokens in made], dtype=np.int64)
        contents = np.array([token for tokens in made for token in tokens], dtype=redacted.dtype)
        filled = fill_in(redacted, positions, contents, lengths)
        left = np.zeros(len(filled.tokens), dtype=np.bool_)
        left[[start for start, tokens in zip(filled.starts, invented, strict=True) if not tokens]] = True
        targets = store.learned(row)
        return ViewedRow(filled.tokens, left, None if targets is None else widened(targets, positions, lengths))

    def _drawn(self, store: PreparedCorpus, row: int, places: list[str]) -> list[list[int]]:
        """A secret of the learned form for each span; nothing for a kind that is not known."""
        if self._learned is None:
            raise PrepareError("counts of the forms of secrets for the learned view", "none", "release them first")
        texts = []
        for (kind, context), place in zip(public_spans(store, row, self._tokenizer), places, strict=True):
            known = self._learned.knows(kind)
            texts.append(self._learned.draw(kind, context, random.Random(f"tacit draws {place}")) if known else "")
        return encode_all(texts, self._tokenizer)

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


def origin(store: PreparedCorpus, row: int) -> str:
    """What the inventions of a row are drawn from: something that is the same for all records with its key.

    Where a record may take the place of an equal one, that is its redacted text, and elsewhere its id, so that records
    of one form have different inventions. Records with secrets are never left out as doubtful.
    """
    if store.header.facts.duplicates != "exact":
        return store.record_id(row)
    return hashlib.blake2b(store.redacted(row).tobytes(), digest_size=16).hexdigest()


def tokens_of(store: PreparedCorpus, row: int, view: View, inventions: Inventions | None) -> ViewedRow:
    """A row in one view; of what is invented, the placeholders that were left are secret."""
    match view:
        case View.FULL:
            tokens, secret, starts, ends = store.full(row)
            learned = store.learned(row)
            return ViewedRow(
                tokens, secret, None if learned is None else widened(learned, store.positions(row), ends - starts)
            )
        case View.REDACTED:
            redacted = store.redacted(row)
            marks = np.zeros(len(redacted), dtype=np.bool_)
            marks[store.positions(row)] = True
            return ViewedRow(redacted, marks, store.learned(row))
        case View.INVENTED | View.LEARNED:
            if inventions is None:
                raise PrepareError("inventions for the invented view", "none", "give the reader its inventions")
            return inventions.row(store, row, learned=view == View.LEARNED)
