"""The sum of clipped per-unit gradients, from one backward pass (book-keeping: Bu et al. 2022, arXiv 2210.00038).

Forward and backward keep each layer's input and its output's gradient; squared norms come from those; factors come from
the norms; one weighted product a layer then gives the sum. No second backward pass, no per-unit gradients in memory.

| method | how | for |
|---|---|---|
| `fused` | as above; head and softmax a few rows at a time | most models |
| `layers` | as above; the head is a layer like any other | models that change scores after the head |
| `rows` | autograd, one row after another | models with layers that no rule reads |

`gradients.check` chooses the fastest that gives what autograd gives.

g_b is the gradient of row b, one vector over all parameters that move; C is `clip_norm`; c_b is the factor of row b,
one for each parameter.

G1 (sensitivity). For every style the vector c_b g_b has length at most `clip_norm`, rounding included: adding or
   removing one row moves the sum by at most that, up to float32 rounding for the other rows.
G2 (margin). `safe_factors` takes norms a thousandth longer than they were computed. That is room for the rounding of
   a row's own norm, whatever its content. It is room for some of what rounding for the other rows moves, not a bound
   on it: per row 2e-7 to 7e-7 C were measured at ordinary weights, 5e-6 C at extreme ones.
G3 (exact). The sum equals that of a loop over single rows, whatever the padding, the loss weights, the micro-batches,
   the caller's autocast and the model's dropouts. Dropout is off: a mask that several rows share, or that depends on
   who else was drawn, would let one row change what is computed for the others. So is autocast: a row's bfloat16
   numbers depend on the padding and on the size of its batch; with 31 rows, one more row moved the clipped gradients
   of the others by a hundredth of the clip norm.
G4 (finite). A row whose gradient is not finite contributes zero, and is counted.
G5 (no trace). Model, hooks, flags and `.grad` are afterwards as they were, also after an error.
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor, nn

from tacit.data.batches import BatchKind, Examples, RowsInParts, Trainable, wide, wide_type
from tacit.errors import ConfigError
from tacit.models.language_model import evaluating
from tacit.training.gradients.contributions import Outer, PerRow, Sequence, Use, squared_norms
from tacit.training.gradients.head import HeadPass, ScoreBuffer, memory, states_before_head
from tacit.training.gradients.recording import Recording, chosen_parameters, names_within, only_moving, zero_sums

Method = Literal["fused", "layers", "rows"]
"""How gradients of single rows are computed."""


@dataclass(frozen=True, slots=True, eq=False)
class PlainSum:
    """Gradients of the batch's weighted loss, by parameter name, in float32 or better; and the loss in nats."""

    sums: dict[str, Tensor]
    loss: float
    weight: float


def plain_sum(
    model: Trainable[BatchKind],
    batch: BatchKind,
    *,
    positions: int | None = None,
    parameters: Collection[str] | None = None,
    method: Method = "fused",
) -> PlainSum:
    """Sum over the rows of the gradient of their weighted losses; arguments as in `clipped_sum`, `.grad` untouched.

    Methods other than `fused` are torch's own autograd.
    """
    chosen = chosen_parameters(model.module, parameters)
    sums = zero_sums(chosen)
    if method == "fused":
        loss = _add_fused(model, batch, positions, chosen, sums)
    else:
        loss = _zero_loss(batch)
        with only_moving(model.module, chosen):
            for _, part in batch.micro_batches(positions):
                found, losses = gradients_of(model, part, chosen)
                for name, value in found.items():
                    sums[name].add_(value)
                loss += losses.sum()
    return PlainSum(sums, float(loss), float(batch.weights.sum()))


def gradients_of(
    model: Trainable[BatchKind], batch: BatchKind, chosen: Mapping[str, nn.Parameter]
) -> tuple[dict[str, Tensor], Tensor]:
    """Autograd's gradients of the batch's weighted loss, in float32 or better; and the loss of each row, (rows,)."""
    with torch.enable_grad():
        losses = model.token_losses(batch).per_row
    if losses.requires_grad:
        found = torch.autograd.grad(losses.sum(), list(chosen.values()), materialize_grads=True)
    else:
        found = tuple(torch.zeros_like(value) for value in chosen.values())
    return {name: wide(value) for name, value in zip(chosen, found, strict=True)}, losses.detach()


def _zero_loss(batch: Examples) -> Tensor:
    """A sum that stays on the device: the host would wait for every number it reads."""
    return torch.zeros((), dtype=torch.float64, device=batch.weights.device)


def _add_fused(
    model: Trainable[BatchKind],
    batch: BatchKind,
    positions: int | None,
    chosen: dict[str, nn.Parameter],
    sums: dict[str, Tensor],
) -> Tensor:
    of_head = {local: sums[name] for name, local in names_within(model.module, model.head, chosen).items()}
    loss = _zero_loss(batch)
    with memory() as room:
        for _, part in batch.micro_batches(positions):
            states = states_before_head(model, part)
            head = HeadPass(model.head, states, part, room, keep_scores=False, with_sums="bias" in of_head)
            with torch.no_grad():
                for scores, read in head.chunks():
                    if "weight" in of_head:
                        of_head["weight"].addmm_(scores.flatten(0, 1).t(), wide(read.flatten(0, 1)))
                if "bias" in of_head:
                    of_head["bias"].add_(head.sums().sum(dim=0))
            for total, value in zip(sums.values(), head.backward(*chosen.values()), strict=True):
                total.add_(value)
            loss += head.row_losses().sum()
    return loss


MARGIN = 2.0**-10


class Clipping(Protocol):
    """A style of clipping. `clip_norm` is the sensitivity of the sum."""

    @property
    def clip_norm(self) -> float:
        """The length that no unit's contribution exceeds."""

    def factors(self, squared_norms: Tensor) -> Tensor:
        """(parameters, rows): factors from each parameter's squared gradient norms of each row, all finite."""


@dataclass(frozen=True)
class _Style:
    """What all styles check: every number of theirs is above 0."""

    clip_norm: float

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not (math.isfinite(value) and value > 0):
                raise ConfigError(f"a {name.replace('_', ' ')} above 0", str(value), "correct the number")


class Flat(_Style):
    """c_b = min(1, C / |g_b|): one factor for the whole gradient (Abadi et al. 2016, arXiv 1607.00133)."""

    def factors(self, squared_norms: Tensor) -> Tensor:
        norms = squared_norms.sum(dim=0).sqrt()
        return (self.clip_norm / norms).clamp(max=1.0).expand_as(squared_norms)


@dataclass(frozen=True)
class Automatic(_Style):
    """c_b = C / (|g_b| + stability): every gradient nearly of length C (Bu et al. 2023, arXiv 2206.07136, AUTO-S)."""

    stability: float = 0.01

    def factors(self, squared_norms: Tensor) -> Tensor:
        norms = squared_norms.sum(dim=0).sqrt()
        return (self.clip_norm / (norms + self.stability)).expand_as(squared_norms)


class PerParameter(_Style):
    """Each of K parameter tensors is clipped alone to C / sqrt(K); together they are no longer than C.

    A gradient below |g_b| / sqrt(K) is clipped as if it were that long, so that no factor is above C / |g_b|: what is
    nothing but rounding, which depends on the other rows of a batch, would otherwise become as long as all the rest.
    """

    def factors(self, squared_norms: Tensor) -> Tensor:
        share = self.clip_norm / math.sqrt(len(squared_norms))
        least = squared_norms.mean(dim=0, keepdim=True)
        return (share / torch.maximum(squared_norms, least).sqrt()).clamp(max=1.0)


def safe_factors(clipping: Clipping, squared_norms: Tensor) -> tuple[Tensor, Tensor]:
    """Factors (parameters, rows), and which rows are finite (rows,); the others have factor zero."""
    finite = torch.isfinite(squared_norms.sum(dim=0))
    factors = clipping.factors(torch.where(finite, squared_norms * (1 + MARGIN) ** 2, 0.0))
    return torch.where(finite, factors, 0.0), finite


@contextmanager
def exact(module: nn.Module, device: torch.device) -> Iterator[None]:
    """Dropout off, and products in float32 or better, whatever the caller's settings are; they are restored."""
    products = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with evaluating(module), torch.autocast(device.type, enabled=False):
            yield
    finally:
        torch.set_float32_matmul_precision(products)


@dataclass(frozen=True, slots=True, eq=False)
class ClippedGradients:
    """What a private step adds noise to. Only `sums` after noise may leave; norms and losses are exact, and private."""

    sums: dict[str, Tensor]  # by parameter name, in float32 or better
    sensitivity: float
    norms: Tensor  # (rows,), before clipping
    losses: Tensor  # (rows,), weighted sums in nats
    non_finite: int
    targets: int  # that count


def clipped_sum(
    model: Trainable[BatchKind],
    batch: BatchKind | RowsInParts[BatchKind],
    clipping: Clipping,
    *,
    positions: int | None = None,
    parameters: Collection[str] | None = None,
    method: Method = "fused",
) -> ClippedGradients:
    """Sum over the rows of `batch` of each row's clipped gradient of its weighted loss.

    positions: how many (row, time) positions pass through the model at a time; memory grows with it, nothing else.
    parameters: the names of those that move; all that require a gradient when None.
    method: what `check_gradients` chose for this model.
    """
    chosen = chosen_parameters(model.module, parameters)
    some = next(model.module.parameters())
    norms, losses = (torch.zeros(len(batch), dtype=wide_type(some.dtype), device=some.device) for _ in range(2))
    sums: dict[str, Tensor] = {}
    targets = torch.zeros((), dtype=torch.int64, device=norms.device)
    passes = _by_rows(model, chosen) if method == "rows" else _by_layers(model, chosen, method)
    with exact(model.module, some.device), passes as one_pass:
        for index, part in batch.micro_batches(positions):
            norms[index], losses[index] = (found.to(norms.dtype) for found in one_pass(part, sums, clipping))
            targets += part.weights.count_nonzero()
    non_finite = int((~norms.isfinite()).sum())
    return ClippedGradients(sums or zero_sums(chosen), clipping.clip_norm, norms, losses, non_finite, int(targets))


Pass = Callable[[BatchKind, dict[str, Tensor], Clipping], tuple[Tensor, Tensor]]
"""Adds the clipped gradients of a few rows to the sums; their norms and losses, (rows,) each, are returned."""


@contextmanager
def _by_rows(model: Trainable[BatchKind], chosen: dict[str, nn.Parameter]) -> Iterator[Pass[BatchKind]]:
    """Each row alone, cut to its own length: what is computed for it cannot depend on other rows."""

    def one_pass(part: BatchKind, sums: dict[str, Tensor], clipping: Clipping) -> tuple[Tensor, Tensor]:
        if not sums:
            sums.update(zero_sums(chosen))
        norms, losses = [], []
        for row in part.singles():
            found, loss = gradients_of(model, row, chosen)
            norms.append(add_clipped(sums, found, clipping))
            losses.append(loss)
        return torch.stack(norms), torch.cat(losses)

    with only_moving(model.module, chosen):
        yield one_pass


@torch.no_grad()
def add_clipped(
    sums: dict[str, Tensor], gradients: Mapping[str, Tensor], clipping: Clipping, weight: float = 1.0
) -> Tensor:
    """Add one unit's clipped gradient to `sums`, `weight` times; its length before clipping is returned."""
    squares = torch.stack([value.square().sum() for value in gradients.values()])[:, None]
    factors, finite = safe_factors(clipping, squares)
    factors = factors[:, 0] * weight
    factors = torch.where(factors >= torch.finfo(factors.dtype).smallest_normal, factors, 0.0)  # below: few digits
    for (name, value), factor in zip(gradients.items(), factors, strict=True):
        sums[name].addcmul_(torch.where(finite, value, 0.0), factor)
    return squares.sum().sqrt()


@contextmanager
def _by_layers(
    model: Trainable[BatchKind], chosen: dict[str, nn.Parameter], method: Literal["fused", "layers"]
) -> Iterator[Pass[BatchKind]]:
    """All rows at once; gradients are read off the layers."""
    recording = Recording(model.module, chosen, unwatched=model.head if method == "fused" else None)
    with recording.watching(), memory() as room:

        def one_pass(part: BatchKind, sums: dict[str, Tensor], clipping: Clipping) -> tuple[Tensor, Tensor]:
            recording.start(part)
            losses = _fused(model, part, recording, room) if method == "fused" else _unfused(model, part)
            return _add_recorded(sums, recording.finish(), clipping), losses

        yield one_pass


def _unfused(model: Trainable[BatchKind], batch: BatchKind) -> Tensor:
    """(rows,): losses; the recording then holds what backward reached."""
    with torch.enable_grad():
        losses = model.token_losses(batch).per_row
    if losses.requires_grad:
        torch.autograd.backward(losses.sum())
    return losses.detach()


def _fused(model: Trainable[BatchKind], batch: BatchKind, recording: Recording, room: ScoreBuffer) -> Tensor:
    """As `_unfused`, with the head's uses noted here."""
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


def _add_recorded(sums: dict[str, Tensor], uses: dict[str, list[Use]], clipping: Clipping) -> Tensor:
    """Add the clipped sum of one pass to `sums`; the norms (rows,) are returned."""
    with torch.no_grad():
        squares = torch.stack([squared_norms(found) for found in uses.values()])
        factors, finite = safe_factors(clipping, squares)
        clears = finite.device.type != "cpu" or not finite.all()  # elsewhere the host would wait for the answer
        for (name, found), factor in zip(uses.items(), factors.unbind(0), strict=True):
            for use in found:
                if clears:
                    use.clear(~finite)
                sums[name] = use.add_to(sums.get(name), factor)
            found.clear()
        return squares.sum(dim=0).sqrt()
