"""The sum of clipped per-unit gradients, from one backward pass (book-keeping: Bu et al. 2022, arXiv 2210.00038).

Forward and backward keep each layer's input and its output's gradient; squared norms come from those; factors come from
the norms; one weighted product a layer then gives the sum. No second backward pass, no per-unit gradients in memory.

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
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from tacit.data.batches import PADDING, BatchKind, LabeledBatch, RowsInParts, TextBatch, Trainable, wide, wide_type
from tacit.errors import ConfigError, GradientError
from tacit.models.causal_lm import require_causal
from tacit.models.classifier import Classifier
from tacit.models.language_model import Learner, evaluating
from tacit.training.gradients.contributions import Outer, PerRow, Sequence, Use, squared_norms
from tacit.training.gradients.head import HeadPass, ScoreBuffer, memory, states_before_head
from tacit.training.gradients.recording import Recording, chosen_parameters, names_within, zero_sums


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
) -> PlainSum:
    """Sum over the rows of the gradient of their weighted losses; arguments as in `clipped_sum`, `.grad` untouched."""
    chosen = chosen_parameters(model.module, parameters)
    sums = zero_sums(chosen)
    of_head = {local: sums[name] for name, local in names_within(model.head, chosen).items()}
    loss = 0.0
    with memory() as room:
        for _, part in batch.micro_batches(positions):
            head = HeadPass(model.head, states_before_head(model, part), part, room, keep_scores=False)
            with torch.no_grad():
                for scores, read in head.chunks():
                    _add(of_head, scores.flatten(0, 1), wide(read.flatten(0, 1)))
            for total, value in zip(sums.values(), head.backward(*chosen.values()), strict=True):
                total.add_(value)
            loss += float(head.row_losses().sum())
    return PlainSum(sums, loss, float(batch.weights.sum()))


def _add(sums: dict[str, Tensor], gradient: Tensor, read: Tensor) -> None:
    """Add what a few rows contribute to the gradients of the head's weight and bias."""
    if "weight" in sums:
        sums["weight"].addmm_(gradient.t(), read)
    if "bias" in sums:
        sums["bias"].add_(gradient.sum(dim=0))


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
) -> ClippedGradients:
    """Sum over the rows of `batch` of each row's clipped gradient of its weighted loss.

    positions: how many (row, time) positions pass through the model at a time; memory grows with it, nothing else.
    parameters: the names of those that move; all that require a gradient when None.
    """
    chosen = chosen_parameters(model.module, parameters)
    recording = Recording(chosen, model.head)
    sums: dict[str, Tensor] = {}
    weight = model.head.get_parameter("weight")
    norms, losses = (torch.zeros(len(batch), dtype=wide_type(weight.dtype), device=weight.device) for _ in range(2))
    targets = 0
    with exact(model.module, weight.device), recording.watching(model.module), memory() as room:
        for index, part in batch.micro_batches(positions):
            losses[index] = _one_pass(model, part, recording, room)
            norms[index] = _add_clipped(sums, recording.finish(), clipping)
            targets += int(part.weights.count_nonzero())
    non_finite = int((~norms.isfinite()).sum())
    return ClippedGradients(sums or zero_sums(chosen), clipping.clip_norm, norms, losses, non_finite, targets)


def _one_pass(model: Trainable[BatchKind], batch: BatchKind, recording: Recording, room: ScoreBuffer) -> Tensor:
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


_TOLERANCE = 1e-3
_NO_CLIPPING = 1e30
_ROWS, _LENGTHS = 5, (9, 5, 2)  # the rows that are compared have different lengths
_AHEAD = 128  # how far a language model is tried for looking ahead


def check_gradients(
    model: Learner | Classifier, *, longest: int = 32, parameters: Collection[str] | None = None
) -> None:
    """Compare fast sums and norms of random rows with plain autograd on each row alone; refuse a model that differs.

    It finds what hooks cannot see: a weight used outside its layer's forward, scores changed after the head, and rows
    (or padding) that influence others, whose gradients have no bound; and a language model that looks ahead. Parameters
    that move are shifted meanwhile: at zero, where many begin, they would hide what they do.
    longest: how many positions a row has at most, and so how far others may be padded. Run it once before training; it
    reads no data and leaves no trace.
    """
    chosen = chosen_parameters(model.module, parameters)
    device = next(model.module.parameters()).device
    _require_float32(model.module)
    longest = min(longest, model.context)
    tokens = torch.randint(model.vocabulary_size, (_ROWS, _AHEAD), generator=torch.Generator().manual_seed(0))
    rows = [row[:length].tolist() for row, length in zip(tokens, _LENGTHS, strict=False)]
    with exact(model.module, device), _shifted(chosen):
        if isinstance(model, Classifier):
            _check_on(model, LabeledBatch.of_rows(rows, [0, 1, 0]).to(device), chosen, longest, PADDING)
        else:
            require_causal(model, tokens[:, : min(longest, _AHEAD)].to(device))
            _check_on(model, TextBatch.of_rows(rows).to(device), chosen, longest, padding=0)


def _check_on(
    model: Trainable[BatchKind], batch: BatchKind, chosen: Mapping[str, nn.Parameter], longest: int, padding: int
) -> None:
    rows = [batch.rows(torch.tensor([row], device=batch.weights.device)) for row in range(len(batch))]
    _check_apart(model, batch, rows, longest, padding)
    fast = clipped_sum(model, batch, Flat(_NO_CLIPPING), parameters=chosen)
    slow = [_gradients(model, row, chosen) for row in rows]
    total = {name: torch.stack([row[name] for row in slow]).sum(dim=0) for name in chosen}
    scale = _length(total)
    wrong = [
        name
        for name, value in total.items()
        for sums in (fast.sums, plain_sum(model, batch, parameters=chosen).sums)
        if not (sums[name] - value).norm() <= _TOLERANCE * (value.norm() + 1e-3 * scale)
    ]
    if wrong or not _norms_agree(fast, slow):
        raise GradientError(
            expected="gradients read from the layers to equal those of autograd",
            found=f"a difference in {', '.join(dict.fromkeys(wrong)) or 'the norms of single rows'}",
            way_out="freeze these parameters, or use their weights only through their layer's forward",
        )


def _check_apart(
    model: Trainable[BatchKind], batch: BatchKind, rows: list[BatchKind], longest: int, padding: int
) -> None:
    """Results for a row alone, in a batch with others, and with the padding that the longest row requires."""
    more = max(0, longest - batch.inputs.shape[1])
    with torch.no_grad():
        together = model.logits(batch.inputs)
        padded = model.logits(functional.pad(batch.inputs, (0, more), value=padding))
        for index, row in enumerate(rows):
            alone = model.logits(row.inputs)[0]
            room = _TOLERANCE * float(alone.abs().amax())
            for found in (together[index, : len(alone)], padded[index, : len(alone)]):
                if not float((found - alone).abs().amax()) <= room:
                    raise GradientError(
                        expected="a model in which neither other rows nor padding change what is computed for a row",
                        found=f"{type(model.module).__name__}, whose logits for a row depend on the other rows",
                        way_out="replace what mixes rows, such as batch normalization, by a layer that looks at one"
                        " row, and what depends on the longest row, such as dynamic positions, by what does not",
                    )


def _gradients(model: Trainable[BatchKind], row: BatchKind, chosen: Mapping[str, nn.Parameter]) -> dict[str, Tensor]:
    with torch.enable_grad():
        loss = model.token_losses(row).total
    return dict(zip(chosen, torch.autograd.grad(loss, list(chosen.values()), materialize_grads=True), strict=True))


def _norms_agree(fast: ClippedGradients, slow: list[dict[str, Tensor]]) -> bool:
    norms = torch.stack([_length(row) for row in slow]).to(fast.norms.dtype)
    return fast.non_finite == 0 and bool(((fast.norms - norms).abs() <= _TOLERANCE * norms.amax()).all())


def _length(values: Mapping[str, Tensor]) -> Tensor:
    return torch.stack([value.square().sum() for value in values.values()]).sum().sqrt()


@contextmanager
def _shifted(parameters: Mapping[str, nn.Parameter]) -> Iterator[None]:
    """Every parameter at a random place near its own for a while; afterwards, bit for bit, what it was."""
    chance = torch.Generator().manual_seed(1)
    kept = {name: parameter.detach().clone() for name, parameter in parameters.items()}
    try:
        with torch.no_grad():
            for name, parameter in parameters.items():
                size = 0.01 + 0.1 * float(kept[name].square().mean().sqrt())
                noise = torch.randn(parameter.shape, generator=chance, dtype=parameter.dtype)
                parameter.add_(noise.to(parameter.device), alpha=size)
        yield
    finally:
        with torch.no_grad():
            for name, parameter in parameters.items():
                parameter.copy_(kept[name])


def _require_float32(module: nn.Module) -> None:
    narrow = {str(value.dtype) for value in module.parameters() if value.dtype != wide_type(value.dtype)}
    if narrow:
        raise GradientError(
            expected="a model in float32: in fewer digits, rounding for one row depends on the others",
            found=", ".join(sorted(narrow)),
            way_out="call model.float() before training",
        )
