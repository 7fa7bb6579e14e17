"""The head of a model and its softmax: losses and gradients of a few rows at a time, while their scores are in cache.

Scores of every token at every position are the largest tensor of a step, and often most of its work. They are computed
for positions whose loss counts and no others; their gradient is written over them at once; and what the layers below
and the norms need is taken from it before the next rows come.
"""

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor, nn
from torch.nn import functional

from tacit.data.batches import BatchKind, Examples, Trainable, wide_type
from tacit.errors import GradientError
from tacit.models import kernels as native
from tacit.models.causal_lm import CausalLM
from tacit.training.gradients.contributions import Outer, Sequence

_PRODUCT_NUMBERS = 1 << 26  # scores at a time; the products of fewer rows are less efficient
_SOFTMAX_NUMBERS = 1 << 18  # while they are in the cache
_LEAST_PROBABILITY = 1e-30  # below it, float32 probabilities lose digits; the loss is then taken from the scores
_WORTH_PACKING = 0.9  # of the positions count; otherwise the others are left out


class HeadPass:
    """Losses of the positions that count, and their gradients; complete when `chunks` has been walked through."""

    def __init__(
        self,
        head: nn.Module,
        states: Tensor,
        batch: Examples,
        memory: "ScoreBuffer",
        *,
        keep_scores: bool,
        with_sums: bool = False,
    ) -> None:
        """`keep_scores` keeps the gradient of all scores, so that rows can be weighted afterwards.

        `with_sums` takes its sum over each row's places on the way.
        """
        dtype = wide_type(states.dtype)
        self._states, self._targets, weights = _packed(states, batch)
        self._weights = weights.to(dtype)
        self._weight = head.get_parameter("weight").detach()
        bias = dict(head.named_parameters()).get("bias")
        self._bias = None if bias is None else bias.detach().to(dtype).contiguous()
        self._keep = keep_scores
        self._with_sums = with_sums
        self._sums: list[Tensor] = []
        rows, places, _ = self._states.shape
        self._rows_a_chunk = max(1, min(rows, _PRODUCT_NUMBERS // (places * len(self._weight))))
        kept = rows if keep_scores else self._rows_a_chunk
        self._scores = memory.of((kept, places, len(self._weight)), dtype, states.device)
        self._losses = torch.empty_like(self._weights)
        self._state_gradient = torch.empty(self._states.shape, dtype=states.dtype, device=states.device)

    def chunks(self) -> Iterator[tuple[Tensor, Tensor]]:
        """A few rows at a time: the gradient of their scores (rows, places, vocabulary), and the states they read."""
        read = self._states.detach()
        for first in range(0, len(read), self._rows_a_chunk):
            rows = slice(first, min(first + self._rows_a_chunk, len(read)))
            scores = self._scores[rows] if self._keep else self._scores[: rows.stop - first]
            self._score(scores, read[rows])
            losses, sums = replace_by_gradient(
                scores, self._bias, self._targets[rows], self._weights[rows], with_sums=self._with_sums
            )
            self._losses[rows] = losses
            self._sums += [] if sums is None else [sums]
            below = scores.to(read.dtype) @ self._weight.to(read.dtype)
            self._state_gradient[rows].copy_(below.view(read[rows].shape))
            yield scores, read[rows]

    def _score(self, scores: Tensor, read: Tensor) -> None:
        values = read.flatten(0, 1)
        if values.dtype == self._weight.dtype == scores.dtype and not torch.is_autocast_enabled(values.device.type):
            torch.mm(values, self._weight.t(), out=scores.flatten(0, 1))
        else:
            scores.flatten(0, 1).copy_(functional.linear(values, self._weight))

    def sums(self) -> Tensor:
        """(rows, vocabulary): the gradient of the scores summed over each row's places."""
        return torch.cat(self._sums)

    def use(self, squares: Tensor) -> Outer:
        """The use of the head's weight, whose squared norms are known."""
        return Outer(Sequence(self._scores), Sequence(self._states.detach()), squares=squares)

    def row_losses(self) -> Tensor:
        """(rows,): weighted sums in nats."""
        return (torch.where(self._weights != 0, self._losses, 0.0) * self._weights).sum(dim=1)

    def backward(self, *below: Tensor) -> tuple[Tensor, ...]:
        """Gradients of `below`, tensors that the states depend on; of every watched leaf when none is given."""
        if not self._states.requires_grad:
            return tuple(torch.zeros_like(tensor) for tensor in below)
        if not below:
            torch.autograd.backward(self._states, self._state_gradient)
            return ()
        return torch.autograd.grad([self._states], below, [self._state_gradient], materialize_grads=True)


def states_before_head(model: Trainable[BatchKind], batch: BatchKind) -> Tensor:
    """What the head of `model` reads, (rows, places, width), with its graph; the head itself computes nothing."""
    with _lower_layers_known(model, batch), _caught(model.head) as seen, torch.enable_grad():
        model.logits(batch.inputs)
    if len(seen) == 1 and seen[0].dim() == 2 and batch.weights.shape[1] == 1:
        seen[0] = seen[0].unsqueeze(1)  # one place a row, as classifiers have it
    if len(seen) != 1 or seen[0].dim() != 3 or seen[0].shape[:2] != batch.weights.shape:
        raise GradientError(
            expected="a head that is called once, on states (rows, places, width)",
            found=f"{len(seen)} calls" if len(seen) != 1 else f"states {tuple(seen[0].shape)}",
            way_out="name the model's last linear layer as its head",
        )
    return seen[0]


def _lower_layers_known(model: Trainable[BatchKind], batch: BatchKind) -> AbstractContextManager[None]:
    """Inside, a model that has kept what lower layers make of a row does not compute it again."""
    if isinstance(model, CausalLM) and model.cache is not None:
        return model.cache.serving(batch)
    return nullcontext()


@contextmanager
def _caught(head: nn.Module) -> Iterator[list[Tensor]]:
    seen: list[Tensor] = []

    def catch(_: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        seen.append(inputs[0])
        return (inputs[0][:, :0] if inputs[0].dim() == 3 else inputs[0], *inputs[1:])

    handle = head.register_forward_pre_hook(catch)
    try:
        yield seen
    finally:
        handle.remove()


def _packed(states: Tensor, batch: Examples) -> tuple[Tensor, Tensor, Tensor]:
    """States, targets and weights of the positions that count, moved to the left of each row."""
    places = batch.places
    if places > _WORTH_PACKING * batch.weights.shape[1]:
        return states, batch.targets, batch.weights
    counted = batch.weights != 0
    order = torch.argsort(counted.int(), dim=1, descending=True, stable=True)[:, :places]
    chosen = states.gather(1, order.unsqueeze(2).expand(-1, -1, states.shape[2]))
    return chosen, batch.targets.gather(1, order), batch.weights.gather(1, order)


def replace_by_gradient(
    scores: Tensor, bias: Tensor | None, targets: Tensor, weights: Tensor, *, with_sums: bool
) -> tuple[Tensor, Tensor | None]:
    """Losses of the targets (rows, places), and sums over the places if wanted.

    scores: (rows, places, vocabulary) without the bias; afterwards the gradient of the weighted sum of the losses.
    """
    if native.usable(scores, bias, weights):
        return native.softmax_gradient_(scores, bias, targets, weights, with_sums=with_sums)
    losses = _replace_in_torch(scores.flatten(0, 1), bias, targets.reshape(-1, 1), weights.reshape(-1, 1))
    return losses.view(weights.shape), scores.sum(dim=1) if with_sums else None


def _replace_in_torch(scores: Tensor, bias: Tensor | None, targets: Tensor, weights: Tensor) -> Tensor:
    size = max(1, _SOFTMAX_NUMBERS // scores.shape[1])
    scratch = torch.empty(min(size, len(scores)), scores.shape[1], dtype=scores.dtype, device=scores.device)
    losses = torch.empty_like(weights)
    parts = zip(*(torch.split(tensor, size) for tensor in (scores, targets, weights, losses)), strict=True)
    for values, wanted, counts, found in parts:
        if bias is not None:
            values.add_(bias)
        probabilities = torch.softmax(values, dim=1, out=scratch[: len(values)])
        if values.device.type == "cpu":
            _take_losses(found, values, probabilities, wanted)
        else:  # whether a probability is small is not asked: the host would have to wait for the answer
            torch.sub(values.logsumexp(dim=1, keepdim=True), values.gather(1, wanted), out=found)
        torch.mul(probabilities, counts, out=values)
        values.scatter_add_(1, wanted, -counts)
    return losses


def _take_losses(found: Tensor, values: Tensor, probabilities: Tensor, wanted: Tensor) -> None:
    chosen = probabilities.gather(1, wanted)
    torch.log(chosen, out=found).neg_()
    unsure = chosen[:, 0] < _LEAST_PROBABILITY
    if unsure.any():
        found[unsure] = functional.cross_entropy(values[unsure], wanted[unsure, 0], reduction="none")[:, None]


class ScoreBuffer:
    """Room for scores that is kept from step to step: fresh pages cost as much as the product that fills them."""

    def __init__(self) -> None:
        self._numbers: Tensor | None = None

    def of(self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
        """A tensor of this shape; the one that was given before is used up."""
        size = math.prod(shape)
        kept, self._numbers = self._numbers, None
        if kept is None or kept.numel() < size or kept.dtype != dtype or kept.device != device:
            kept = None  # let go before asking for more
            kept = torch.empty(size, dtype=dtype, device=device)
        self._numbers = kept
        return kept[:size].view(shape)


_SPARE: list[ScoreBuffer] = []


@contextmanager
def memory() -> Iterator[ScoreBuffer]:
    """Memory for one sum, nobody else's meanwhile."""
    mine = _SPARE.pop() if _SPARE else ScoreBuffer()
    try:
        yield mine
    finally:
        _SPARE.append(mine)
