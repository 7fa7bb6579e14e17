"""What a secret could have been: spaces of candidates, and the tree of their tokens.

Formal guarantees:

G1 (whole). The tokens of a candidate are those of its whole text, as the run's tokenizer gives them: a merge across the
   border of the slot stays a merge. With `apart` they are those of a marked secret: the text before, the value and the
   text after are encoded apart, as records with spans are for training.
G2 (every one). The tree holds each candidate once; numbers are those of the space's `values()`.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tacit.config.canary_schema import Slot
from tacit.data.tokenizer import Bytes, Tokenizer
from tacit.data.views import encode_all
from tacit.errors import AttackError

Integers = npt.NDArray[np.int64]
TokenRows = npt.NDArray[np.unsignedinteger]
_AT_A_TIME = 1 << 16
_KEY_BITS = 64
_GPT2_WORDS = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
_BEFORE_SPACE = re.compile("[!-~](?= )")


class Space(Protocol):
    """The values that a secret could have had, and the text around it. `Slot` is one."""

    @property
    def before(self) -> str:
        """The text before the value."""

    @property
    def after(self) -> str:
        """The text after the value."""

    @property
    def size(self) -> int:
        """How many values there are."""

    def values(self) -> Iterator[str]:
        """Every value once, in the order of their numbers."""

    def number(self, value: str) -> int | None:
        """Which of `values()` it is; none if it is no value."""

    def sample(self, count: int, generator: np.random.Generator) -> list[str]:
        """Independent uniform values."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A space given as a list."""

    before: str
    listed: tuple[str, ...]
    after: str = ""

    def __post_init__(self) -> None:
        if len(set(self.listed)) < len(self.listed):
            found = f"{len(self.listed)} values, {len(set(self.listed))} of them different"
            raise AttackError("values that are all different", found, "name every value once")

    @property
    def size(self) -> int:
        """How many values there are."""
        return len(self.listed)

    def values(self) -> Iterator[str]:
        """The list."""
        return iter(self.listed)

    def number(self, value: str) -> int | None:
        """Its place in the list."""
        return self.listed.index(value) if value in self.listed else None

    def sample(self, count: int, generator: np.random.Generator) -> list[str]:
        """Independent uniform values."""
        return [self.listed[place] for place in generator.integers(0, len(self.listed), size=count)]


@dataclass(frozen=True, slots=True)
class Spelling:
    """How candidates become tokens: by which tokenizer, after which tokens, and whether the value is encoded apart.

    opening: at least one token, which is given and not scored; a record in training begins with the end token.
    """

    tokenizer: Tokenizer
    opening: tuple[int, ...]
    apart: bool = False

    def __post_init__(self) -> None:
        if not self.opening:
            raise AttackError("at least one token to begin with", "none", "begin with the tokenizer's end token")

    @classmethod
    def as_trained(cls, tokenizer: Tokenizer, marked: bool) -> "Spelling":
        """As a record whose value is a secret span (`marked`), or is not told of, is spelled for training."""
        return cls(tokenizer, (tokenizer.end,), marked)

    def of_values(self, space: Space, values: Iterable[str]) -> TokenRows:
        """The tokens of each candidate plus one, zero behind the last."""
        apart = self.apart
        fixed = len(space.before) if apart else self._fixed(space.before)
        first, last = encode_all([space.before[:fixed], space.after if apart else ""], self.tokenizer)
        start, end = (space.before[fixed:], "" if apart else space.after)
        parts, waiting = [], iter(values)
        while some := list(islice(waiting, _AT_A_TIME)):
            spelled = encode_all([f"{start}{value}{end}" for value in some], self.tokenizer)
            parts.append(_framed(first, _padded(spelled, self._kind), last))
        return _stacked(parts, self._kind)

    def of_space(self, space: Space) -> TokenRows:
        """The same of all candidates."""
        if isinstance(space, Slot) and isinstance(self.tokenizer.codec, Bytes):
            table = _padded(self.tokenizer.encode_batch(space.symbols), self._kind)
            if table.all():  # symbols of one length
                return self._product(space, table)
        return self.of_values(space, space.values())

    def _product(self, slot: Slot, table: TokenRows) -> TokenRows:
        """All candidates of a slot whose symbols have one length in bytes, column by column."""
        encode = self.tokenizer.encode
        before, joint, after = encode(slot.before), encode(slot.joint), encode(slot.after)
        steps = [len(before) + place * (table.shape[1] + len(joint)) for place in range(slot.length)]
        rows = np.zeros((slot.size, steps[-1] + table.shape[1] + len(after)), dtype=self._kind)
        rows[:, : steps[0]] = np.array(before) + 1
        rows[:, rows.shape[1] - len(after) :] = np.array(after) + 1
        numbers = np.arange(slot.size)
        for place, start in enumerate(steps):
            symbols = numbers // len(table) ** (slot.length - 1 - place) % len(table)
            rows[:, start : start + table.shape[1]] = table[symbols]
            if place:
                rows[:, start - len(joint) : start] = np.array(joint) + 1
        return rows

    def _fixed(self, before: str) -> int:
        """How much of the text before the value has the same tokens whatever follows, and is encoded but once.

        GPT-2's pattern begins a new word at every white space behind anything else: encoding apart there is exact.
        Of other tokenizers nothing is known.
        """
        content = self.tokenizer.codec.definition().get("content", {})
        if not self.tokenizer.lossless or content.get("pre_tokenizer") != _GPT2_WORDS:
            return 0
        borders = [match.end() for match in _BEFORE_SPACE.finditer(before)]
        return borders[-1] if borders else 0

    @property
    def _kind(self) -> type[np.unsignedinteger]:
        return np.uint16 if self.tokenizer.vocabulary_size < 1 << 16 else np.uint32


@dataclass(frozen=True, slots=True, eq=False)
class TokenTree:
    """Candidates sorted by their tokens, so that those which begin alike are neighbors: a prefix tree without nodes.

    stem: the opening and what all candidates begin with. rows: the tokens after the stem plus one, zero behind the
    last. shared: how many tokens each row has in common with the row before. order: the number of each row's candidate.
    """

    opening: int
    stem: tuple[int, ...]
    rows: TokenRows
    lengths: Integers
    shared: Integers
    order: Integers

    @classmethod
    def of(cls, candidates: TokenRows, opening: Sequence[int]) -> "TokenTree":
        """The tree of the candidates' tokens plus one, zero behind the last."""
        if len(candidates) < 2:
            raise AttackError(
                expected="at least two candidates",
                found=f"a space of {len(candidates)}",
                way_out="a rank among one says nothing: name what else the secret could have been",
            )
        varying = (candidates != candidates[0]).any(axis=0)
        common = int(np.argmax(varying)) if varying.any() else candidates.shape[1]
        stem = candidates[0, :common].astype(np.int64) - 1
        order = _sorted_order(candidates[:, varying])
        rows = candidates[order, common:]
        return cls(
            opening=len(opening),
            stem=(*opening, *stem.tolist()),
            rows=rows,
            lengths=np.count_nonzero(rows, axis=1),
            shared=_shared_with_row_before(rows),
            order=order,
        )

    @property
    def longest(self) -> int:
        """Tokens of the longest candidate, opening included."""
        return len(self.stem) + int(self.lengths.max())

    @property
    def largest_token(self) -> int:
        """The largest id of all."""
        return max(int(self.rows.max(initial=0)) - 1, *self.stem)


def _padded(spelled: Sequence[Sequence[int]], kind: type[np.unsignedinteger]) -> TokenRows:
    lengths = np.fromiter(map(len, spelled), dtype=np.int64, count=len(spelled))
    rows = np.zeros((len(spelled), int(lengths.max(initial=0))), dtype=kind)
    tokens = np.fromiter(chain.from_iterable(spelled), dtype=np.int64, count=int(lengths.sum()))
    rows[np.arange(rows.shape[1]) < lengths[:, None]] = tokens + 1
    return rows


def _framed(first: Sequence[int], rows: TokenRows, last: Sequence[int]) -> TokenRows:
    """The rows with the same tokens before and behind each."""
    width = len(first) + rows.shape[1]
    framed = np.zeros((len(rows), width + len(last)), dtype=rows.dtype)
    framed[:, : len(first)] = np.array(first, dtype=np.int64) + 1
    framed[:, len(first) : width] = rows
    ends = len(first) + np.count_nonzero(rows, axis=1)
    for place, token in enumerate(last):
        framed[np.arange(len(rows)), ends + place] = token + 1
    return framed


def _stacked(parts: Sequence[TokenRows], kind: type[np.unsignedinteger]) -> TokenRows:
    rows = np.zeros((sum(map(len, parts)), max((part.shape[1] for part in parts), default=0)), dtype=kind)
    start = 0
    for part in parts:
        rows[start : start + len(part), : part.shape[1]] = part
        start += len(part)
    return rows


def _sorted_order(rows: TokenRows) -> Integers:
    """The order of rows by their columns, several columns a key."""
    bits = 8 * rows.itemsize
    together = _KEY_BITS // bits
    keys = []
    for start in range(0, rows.shape[1], together):
        key = np.zeros(len(rows), dtype=np.uint64)
        for column in rows[:, start : start + together].T:
            key = (key << np.uint64(bits)) | column.astype(np.uint64)
        keys.append(key)
    return np.lexsort(keys[::-1]) if keys else np.arange(len(rows))


def _shared_with_row_before(rows: TokenRows) -> Integers:
    shared = np.zeros(len(rows), dtype=np.int64)
    same = np.ones(len(rows) - 1, dtype=bool)
    for column in range(rows.shape[1]):
        same &= rows[1:, column] == rows[:-1, column]
        shared[1:] += same
    return shared
