"""From the prepared store to the sum of all records' vectors (`tacit.data.forms`): what is counted, behind which words.

G1 (public). Kinds and contexts of spans are a function of the public tokens.
G2 (whole records). All pieces of a record are one vector: it is cut to its norm once.
"""

from collections.abc import Iterator
from itertools import groupby

from tacit.data.forms import Cell, Secret, usual_contexts, vector
from tacit.data.store import PreparedCorpus
from tacit.data.tokenizer import Tokenizer

_TOKENS = 12  # before a secret, in which its context is looked for
_BEGINNING, _SECRET = "^", "#"

Contexts = dict[str, list[str]]


def public_spans(store: PreparedCorpus, row: int, tokenizer: Tokenizer) -> list[tuple[str, str]]:
    """Kind and context of each secret of a row: the word before it; where that is a sign, also what is before."""
    tokens, found, last = store.redacted(row), list[tuple[str, str]](), -1
    for kind, position in zip(store.kinds(row), store.positions(row).tolist(), strict=True):
        words = tokenizer.decode(tokens[max(last + 1, position - _TOKENS) : position].tolist()).split()
        found.append((kind, context_of(words, first=last < 0)))
        last = position
    return found


def context_of(words: list[str], first: bool) -> str:
    """The context of a secret behind `words`, which begin a row or stand behind another secret."""
    known = [_BEGINNING if first else _SECRET, *words]
    is_sign = len(known) > 1 and not any(map(str.isalnum, known[-1]))
    return " ".join(known[-2:] if is_sign else known[-1:])


def count_forms(
    store: PreparedCorpus, tokenizer: Tokenizer, noise_multiplier: float
) -> tuple[dict[Cell, int], Contexts]:
    """The sum over all records, exactly, and the contexts that were counted apart. It may not leave without noise."""
    with_secrets = [row for row, spans in enumerate(store.span_counts()) if spans]
    spans = (span for row in with_secrets for span in public_spans(store, row, tokenizer))
    contexts = usual_contexts(spans, noise_multiplier)
    sums: dict[Cell, int] = {}
    for _, rows in groupby(with_secrets, key=lambda row: int(store.records[row])):
        secrets = (secret for row in rows for secret in _secrets(store, row, tokenizer))
        for cell, value in vector(secrets, contexts).items():
            sums[cell] = sums.get(cell, 0) + value
    return sums, contexts


def _secrets(store: PreparedCorpus, row: int, tokenizer: Tokenizer) -> Iterator[Secret]:
    tokens, _, starts, ends = store.full(row)
    spans = zip(public_spans(store, row, tokenizer), starts.tolist(), ends.tolist(), strict=True)
    for (kind, context), start, end in spans:
        yield Secret(kind, context, tokenizer.decode(tokens[start:end].tolist()))
