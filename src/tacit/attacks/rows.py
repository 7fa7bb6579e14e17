"""Rows of a prepared store as candidates for attacks, spelled as training spelled them.

G1 (apart). No two candidates of a side are of one user: a coin decided about users, so that what one user's records
   have in common would count several times, and would tell the blind baseline one record from another.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tacit.attacks.extraction import Hidden
from tacit.attacks.membership import Passage
from tacit.policy.surrogate import surrogate
from tacit.prepare import Prepared
from tacit.prepare.views import encode_all
from tacit.tokenizer import Tokenizer

PLANTED = "canary-"


@dataclass(frozen=True, slots=True, eq=False)
class CandidateRows:
    """The rows of one side of a corpus; each is read up to `longest` tokens, between end tokens, as in training."""

    store: Prepared
    tokenizer: Tokenizer
    longest: int

    def chosen(self, count: int, rng: random.Random, *, with_secrets: bool = False) -> list[int]:
        """At most `count` random rows that were not planted, one of each user (or of each record)."""
        rows = np.flatnonzero(self.store.pieces == 0).tolist()
        spans, users = self.store.span_counts(), self.store.users
        rng.shuffle(rows)
        found: list[int] = []
        seen: set[int] = set()
        for row in rows:
            user = int(users[row])
            if len(found) == count:
                break
            if user in seen or self.store.record_id(row).startswith(PLANTED):
                continue
            if spans[row] or not with_secrets:
                found.append(row)
                seen |= {user} - {0}
        return found

    def is_marked(self, row: int, value: str) -> bool:
        """Whether a secret of the row is this value, no more and no less."""
        tokens, _, starts, ends = self.store.full(row)
        spelled = self.tokenizer.encode(value)
        return any(tokens[a:b].tolist() == spelled for a, b in zip(starts.tolist(), ends.tolist(), strict=True))

    def passage(self, name: str, row: int) -> Passage:
        """The row as a candidate for membership."""
        return Passage(name, self._framed(self.store.full(row).tokens.tolist()))

    def surrogates(self, name: str, row: int, count: int, rng: random.Random) -> list[Passage]:
        """The row `count` times with stand-ins for its secrets; without secrets there are none."""
        secrets = self._secrets(row)
        if not secrets:
            return []
        kinds = self.store.kinds(row)
        made = []
        for number in range(count):
            texts = [surrogate(kind, text, rng) for kind, text in zip(kinds, secrets, strict=True)]
            made.append(Passage(f"{name}/{number}", self._framed(self._filled(row, texts))))
        return made

    def hidden(self, name: str, row: int, longest_prompt: int) -> list[Hidden]:
        """The secrets of the row that stand inside `longest`, each after what stood before it."""
        tokens, _, starts, ends = self.store.full(row)
        found = []
        for number, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
            secret = tokens[start:end].tolist()
            text = self.tokenizer.decode(secret)
            if end <= self.longest and text.strip():
                prompt = [self.tokenizer.end, *tokens[:start].tolist()][-longest_prompt:]
                found.append(Hidden(f"{name}/{number}", prompt, secret, text))
        return found

    def _secrets(self, row: int) -> list[str]:
        tokens, _, starts, ends = self.store.full(row)
        return [self.tokenizer.decode(tokens[a:b].tolist()) for a, b in zip(starts, ends, strict=True)]

    def _filled(self, row: int, secrets: Sequence[str]) -> list[int]:
        """The tokens of the row with these secrets."""
        redacted, filled, end = self.store.redacted(row).tolist(), [], 0
        for position, tokens in zip(self.store.positions(row), encode_all(secrets, self.tokenizer), strict=True):
            filled += [*redacted[end : int(position)], *tokens]
            end = int(position) + 1
        return [*filled, *redacted[end:]]

    def _framed(self, tokens: list[int]) -> list[int]:
        return [self.tokenizer.end, *tokens[: self.longest], self.tokenizer.end]
