"""The sum of clipped per-unit gradients, from one backward pass (book-keeping: Bu et al. 2022, arXiv 2210.00038).

Forward and backward keep each layer's input and its output's gradient; squared norms come from those; factors come from
the norms; one weighted product a layer then gives the sum. No second backward pass, no per-unit gradients in memory.

G1 (sensitivity). A row's own clipped gradient is at most `sensitivity` long, rounding included. Adding or removing one
   row moves the sum by at most that, up to float32 rounding for the other rows (`clipping.py` has the margin, and what
   was measured).
G2 (exact). The sum equals that of a loop over single rows, whatever the padding, the loss weights, the micro-batches,
   the caller's autocast and the model's dropouts, which are off (`exact.py`).
G3 (finite). A row whose gradient is not finite contributes zero, and is counted.
G4 (no trace). Model, hooks, flags and `.grad` are afterwards as they were, also after an error.
"""

from collections.abc import Collection
from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.gradients.clipping import Clipping, safe_factors
from tacit.gradients.exact import exact
from tacit.gradients.head import HeadPass, Memory, memory, states_before_head
from tacit.gradients.inner import squared_norms
from tacit.gradients.recording import Recording, chosen_parameters, zero_sums
from tacit.gradients.uses import Outer, PerRow, Sequence, Use
from tacit.models.batch import BatchKind, Trainable, wide_type


@dataclass(frozen=True, slots=True, eq=False)
class ClippedSum:
    """What a private step adds noise to. Only `sums` after noise may leave; norms and losses are exact, and private."""

    sums: dict[str, Tensor]  # by parameter name, in float32 or better
    sensitivity: float
    norms: Tensor  # (rows,), before clipping
    losses: Tensor  # (rows,), weighted sums in nats
    non_finite: int


def clipped_sum(
    model: Trainable[BatchKind],
    batch: BatchKind,
    clipping: Clipping,
    *,
    positions: int | None = None,
    parameters: Collection[str] | None = None,
) -> ClippedSum:
    """Sum over the rows of `batch` of each row's clipped gradient of its weighted loss.

    positions: how many (row, time) positions pass through the model at a time; memory grows with it, nothing else.
    parameters: the names of those that move; all that require a gradient when None.
    """
    chosen = chosen_parameters(model.module, parameters)
    recording = Recording(chosen, model.head)
    sums: dict[str, Tensor] = {}
    dtype = wide_type(model.head.get_parameter("weight").dtype)
    norms, losses = (torch.zeros(len(batch), dtype=dtype, device=batch.weights.device) for _ in range(2))
    with exact(model.module, batch.weights.device), recording.watching(model.module), memory() as room:
        for index, part in batch.micro_batches(positions):
            losses[index] = _one_pass(model, part, recording, room)
            norms[index] = _add_clipped(sums, recording.finish(), clipping)
    return ClippedSum(sums or zero_sums(chosen), clipping.clip_norm, norms, losses, int((~norms.isfinite()).sum()))


def _one_pass(model: Trainable[BatchKind], batch: BatchKind, recording: Recording, room: Memory) -> Tensor:
    """(rows,): losses; the recording then holds what backward reached."""
    recording.start(len(batch))
    states = states_before_head(model, batch)
    moves = recording.moves(model.head)
    head = HeadPass(model.head, states, batch, room, keep_scores="weight" in moves, with_sums="bias" in moves)
    squares = []
    with torch.no_grad():
        for scores, read in head.chunks():
            if "weight" in moves:
                squares.append(Outer(Sequence(scores), Sequence(read)).squared_norms())
    if squares:
        recording.note(model.head, "weight", head.use(torch.cat(squares)))
    if "bias" in moves:
        recording.note(model.head, "bias", PerRow(head.sums()))
    head.backward()
    return head.row_losses()


def _add_clipped(sums: dict[str, Tensor], uses: dict[str, list[Use]], clipping: Clipping) -> Tensor:
    """Add the clipped sum of one pass to `sums`; the norms (rows,) are returned."""
    with torch.no_grad():
        squares = torch.stack([squared_norms(found) for found in uses.values()])
        factors, finite = safe_factors(clipping, squares)
        for (name, found), factor in zip(uses.items(), factors.unbind(0), strict=True):
            for use in found:
                if not finite.all():
                    use.clear(~finite)
                sums[name] = use.add_to(sums.get(name), factor)
            found.clear()
        return squares.sum(dim=0).sqrt()
