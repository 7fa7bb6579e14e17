"""How probable every candidate is, each shared beginning read once.

Formal guarantees:

G1 (exact). The total of a candidate is the sum, in float64, of the log-probabilities of all its tokens after the
   opening, up to the end of its text, each given all text before it. No token is averaged over or left out.
G2 (bounded). Only rows of about `memory` bytes are in work at a time, however many candidates there are.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tacit.audits.candidates import Integers, TokenTree
from tacit.audits.statistics import Floats
from tacit.data.batches import TextBatch
from tacit.errors import AttackError
from tacit.models.language_model import DecoderState, Speaker

AttackProgress = Callable[[int, int], None]
_MEMORY = 1 << 30
_COPIES = 8  # of one row's state: the parent's, the chosen, the grown, two of its scores, and what waits further up
_ROWS_AT_MOST = 4096  # more do not make the products any faster


@dataclass(frozen=True, slots=True, eq=False)
class _Nodes:
    """Nodes of one depth that are no leaves, and how to read them: go on from `parents` of `reading` with `tokens`.

    starts: the first row of each. end: where the rows of the last end.
    """

    depth: int
    reading: DecoderState
    parents: Integers
    tokens: Integers
    totals: Floats
    starts: Integers
    end: int

    def read(self) -> DecoderState:
        return self.reading.branch(torch.from_numpy(self.parents), torch.from_numpy(self.tokens))


def total_log_probabilities(
    speaker: Speaker, tree: TokenTree, memory: int = _MEMORY, progress: AttackProgress | None = None
) -> Floats:
    """The total log-probability of every candidate, by its number. `progress` hears how many are done, of how many."""
    _check_fit(speaker, tree)
    walk = _Walk(tree, memory)
    stem = torch.tensor([tree.stem])
    totals = np.array([_stem_total(speaker, stem, tree.opening)])
    waiting = walk.grow(speaker.begin(stem), totals, np.array([0]), len(tree.rows), 0)
    done = 0
    while waiting:
        nodes = waiting.pop()
        waiting += walk.grow(nodes.read(), nodes.totals, nodes.starts, nodes.end, nodes.depth)
        if progress is not None and walk.done > done:
            done = walk.done
            progress(done, len(tree.rows))
    by_number = np.empty_like(walk.totals)
    by_number[tree.order] = walk.totals
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
        self.done = 0
        self.totals = np.full(len(tree.rows), np.nan)

    def grow(self, reading: DecoderState, totals: Floats, starts: Integers, end: int, depth: int) -> list[_Nodes]:
        """Score the children of the nodes that `reading` stands at; those with children of their own, last first."""
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
        self.totals[ended] = totals[np.searchsorted(starts, ended, side="right") - 1]
        self.done += len(ended)


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
        raise AttackError(
            expected="log-probabilities",
            found="a model that gives NaN",
            way_out="its training diverged: train it again",
        )
