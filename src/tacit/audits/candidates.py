"""What a secret could have been: spaces of candidates, the tree of their tokens, and how probable each of them is.

G1 (whole). The tokens of a candidate are those of its whole text, as the run's tokenizer gives them: a merge across the
   border of the slot stays a merge. With `apart` they are those of a marked secret: the text before, the value and the
   text after are encoded apart, as records with spans are for training.
G2 (every one). The tree contains each candidate once; numbers are those of the space's `values()`.
G3 (exact). The total of a candidate is the sum, in float64, of the log-probabilities of all its tokens after the
   opening, up to the end of its text, each given all text before it. No token is averaged over or left out.
G4 (bounded). Only rows of about `memory` bytes are in work at a time, however many candidates there are.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tacit.audits.division import divided
from tacit.audits.statistics import Floats
from tacit.common.progress import Observer, Progress
from tacit.config.audit_schema import Slot
from tacit.data.batches import TextBatch
from tacit.data.tokenizer import Bytes, Tokenizer
from tacit.data.views import encode_all
from tacit.errors import AttackError
from tacit.models.language_model import DecoderState, Speaker

Integers = npt.NDArray[np.int64]
TokenRows = npt.NDArray[np.unsignedinteger]
AttackProgress = Callable[[int, int], None]
"""Called with how many candidates are done, of how many."""

_AT_A_TIME = 1 << 16
_KEY_BITS = 64
_GPT2_WORDS = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
_BEFORE_SPACE = re.compile("[!-~](?= )")
_MEMORY = 1 << 30
_COPIES = 8  # of one row's state: the parent's, the chosen, the grown, two of its scores, and what waits further up
_ROWS_AT_MOST = 4096  # more do not make the products any faster
_PARTS = 4  # of a tree, which processes can share; fewer where a part would have fewer rows than those


def listed(before: str, values: Sequence[str], after: str = "") -> Slot:
    """The space of these values, with the text around them."""
    if len(set(values)) < len(values):
        found = f"{len(values)} values, {len(set(values))} of them different"
        raise AttackError("values that are all different", found, "name every value once")
    return Slot(before, after, tuple(values), 1, "")


@dataclass(frozen=True, slots=True)
class Spelling:
    """How candidates become tokens: by which tokenizer, after which tokens, and whether the value is encoded apart.

    opening: at least one token, which is given and not scored; in training, a record begins with `tokenizer.begin`.
    """

    tokenizer: Tokenizer
    opening: tuple[int, ...]
    apart: bool = False

    def __post_init__(self) -> None:
        if not self.opening:
            raise AttackError("at least one token to begin with", "none", "begin with the tokenizer's `begin` token")

    @classmethod
    def as_trained(cls, tokenizer: Tokenizer, marked: bool, opening: Sequence[int] = ()) -> "Spelling":
        """As training spells a record whose value is a secret span (`marked`), or is not; `opening`: of a chat."""
        return cls(tokenizer, tuple(opening) or (tokenizer.begin,), marked)

    def of_values(self, space: Slot, values: Iterable[str]) -> TokenRows:
        """The tokens of each candidate plus one, zero behind the last."""
        apart = self.apart
        fixed = len(space.before) if apart else self._fixed(space.before)
        first, last = encode_all([space.before[:fixed], space.after if apart else ""], self.tokenizer)
        start, end = (space.before[fixed:], "" if apart else space.after)
        parts, waiting = [np.zeros((0, 0), dtype=self._kind)], iter(values)
        while some := list(islice(waiting, _AT_A_TIME)):
            spelled = encode_all([f"{start}{value}{end}" for value in some], self.tokenizer)
            parts.append(padded([[*first, *tokens, *last] for tokens in spelled], self._kind))
        width = max(part.shape[1] for part in parts)
        return np.concatenate([np.pad(part, ((0, 0), (0, width - part.shape[1]))) for part in parts])

    def of_space(self, space: Slot) -> TokenRows:
        if isinstance(self.tokenizer.codec, Bytes):
            table = padded(self.tokenizer.encode_batch(space.symbols), self._kind)
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
                way_out="name what else the secret could have been: a rank among one means nothing",
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

    def part(self, rows: range) -> "TokenTree":
        """The tree of these rows alone."""
        some = slice(rows.start, rows.stop)
        shared = self.shared[some].copy()
        shared[:1] = 0
        return replace(self, rows=self.rows[some], lengths=self.lengths[some], shared=shared, order=self.order[some])

    @property
    def longest(self) -> int:
        return len(self.stem) + int(self.lengths.max())

    @property
    def largest_token(self) -> int:
        return max(int(self.rows.max(initial=0)) - 1, *self.stem)


def padded(spelled: Sequence[Sequence[int]], kind: type[np.unsignedinteger] = np.uint32) -> TokenRows:
    """The tokens of each candidate plus one, zero behind the last."""
    lengths = np.fromiter(map(len, spelled), dtype=np.int64, count=len(spelled))
    rows = np.zeros((len(spelled), int(lengths.max(initial=0))), dtype=kind)
    tokens = np.fromiter(chain.from_iterable(spelled), dtype=np.int64, count=int(lengths.sum()))
    rows[np.arange(rows.shape[1]) < lengths[:, None]] = tokens + 1
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


def part_progress(observe: Observer, activity: str, sizes: Sequence[int]) -> list[AttackProgress]:
    """One progress function per part of such a size; together they count through all of them."""

    def report(before: int, done: int, _: int) -> None:
        observe(Progress(activity, before + done, sum(sizes)))

    return [partial(report, sum(sizes[:place])) for place in range(len(sizes))]


@dataclass(frozen=True, slots=True, eq=False)
class _Nodes:
    """Nodes of one depth that are no leaves, and how to read them: continue `parents` of `reading` with `tokens`.

    starts: the first row of each. end: where the rows of the last end.
    """

    depth: int
    reading: DecoderState
    parents: Integers
    tokens: Integers
    totals: Floats
    starts: Integers
    end: int


def total_log_probabilities(
    speaker: Speaker, tree: TokenTree, memory: int = _MEMORY, progress: AttackProgress | None = None
) -> Floats:
    """The total log-probability of every candidate, by its number."""
    _check_fit(speaker, tree)
    stem = torch.tensor([tree.stem])
    begun, total = speaker.begin(stem), _stem_total(speaker, stem, tree.opening)
    size = max(_ROWS_AT_MOST, -(-len(tree.rows) // _PARTS))
    parts = [range(start, min(start + size, len(tree.rows))) for start in range(0, len(tree.rows), size)]
    totals = np.zeros(len(tree.rows))

    def walk(part: range) -> None:
        totals[part.start : part.stop] = _Walk(tree.part(part), memory).totals(begun, total)

    divided(parts, [len(part) for part in parts], walk, [totals], progress)
    by_number = np.empty_like(totals)
    by_number[tree.order] = totals
    return by_number


def _stem_total(speaker: Speaker, stem: Tensor, opening: int) -> float:
    if stem.shape[1] == opening:
        return 0.0
    scores = speaker.log_probabilities(TextBatch.of_tokens(stem))[0, opening - 1 :].double()  # from the second token on
    _check_numbers(scores)
    return float(scores.sum())


class _Walk:
    """Depth first over the tree, many nodes at a time; the totals of rows are filled in where they end."""

    def __init__(self, tree: TokenTree, memory: int) -> None:
        self._tree = tree
        self._memory = memory
        self._totals = np.full(len(tree.rows), np.nan)

    def totals(self, begun: DecoderState, total: float) -> Floats:
        """The total of every row, in the order of the tree; `begun` has read the stem, which has this total."""
        waiting = self._grow(begun, np.array([total]), np.array([0]), len(self._tree.rows), 0)
        while waiting:
            nodes = waiting.pop()
            reading = nodes.reading.branch(torch.from_numpy(nodes.parents), torch.from_numpy(nodes.tokens))
            waiting += self._grow(reading, nodes.totals, nodes.starts, nodes.end, nodes.depth)
        return self._totals

    def _grow(self, reading: DecoderState, totals: Floats, starts: Integers, end: int, depth: int) -> list[_Nodes]:
        """Score the children of the nodes that `reading` is at; those with children of their own, last first."""
        tree, first = self._tree, int(starts[0])
        lengths, shared = tree.lengths[first:end], tree.shared[first:end]
        if depth == 0:
            self._fill(np.flatnonzero(lengths == 0), starts, totals)
        inside = np.flatnonzero((shared <= depth) & (lengths > depth))
        if not len(inside):
            return []
        children = first + inside
        parents = np.searchsorted(starts, children, side="right") - 1
        tokens = tree.rows[children, depth].astype(np.int64) - 1
        scores = reading.next_log_probabilities[torch.from_numpy(parents), torch.from_numpy(tokens)].double()
        _check_numbers(scores)
        sums = totals[parents] + scores.numpy()
        self._fill(first + np.flatnonzero(lengths == depth + 1), children, sums)
        inner = np.flatnonzero(np.maximum.reduceat(lengths, inside) > depth + 1)
        most = max(1, min(_ROWS_AT_MOST, self._memory // (_COPIES * reading.bytes_a_row)))
        ends = [*children[inner[most::most]].tolist(), end]
        parts = [inner[start : start + most] for start in range(0, len(inner), most)]
        return [
            _Nodes(depth + 1, reading, parents[part], tokens[part], sums[part], children[part], until)
            for part, until in zip(reversed(parts), reversed(ends), strict=False)
        ]

    def _fill(self, ended: Integers, starts: Integers, totals: Floats) -> None:
        """Rows that end at the nodes that begin at `starts`."""
        self._totals[ended] = totals[np.searchsorted(starts, ended, side="right") - 1]


def _check_fit(speaker: Speaker, tree: TokenTree) -> None:
    if tree.longest - 1 > speaker.context:
        raise AttackError(
            expected=f"candidates of at most {speaker.context} tokens, which the model can read",
            found=f"one of {tree.longest - 1}",
            way_out="use a shorter template",
        )
    if tree.largest_token >= speaker.vocabulary_size:
        raise AttackError(
            expected=f"tokens below {speaker.vocabulary_size}, which the model knows",
            found=f"token {tree.largest_token}",
            way_out="use the tokenizer that the model was trained with, and an opening that it knows",
        )


def _check_numbers(scores: Tensor) -> None:
    if bool(torch.isnan(scores).any()):
        raise AttackError("log-probabilities", "a model that gives NaN", "its training diverged: train it again")
