"""LSTM language models: one layer of 200 by default; deep ones with AWD-LSTM's dropouts (Merity 2018, 1708.02182).

The recurrent part of an LSTM, written so that all that surrounds it is ordinary linear layers.

    z_t = projections_t + W h_{t-1}          gates (o, i, f, g), in this order: one sigmoid, one tanh a step
    c_t = f c_{t-1} + i g,   h_t = o tanh(c_t)

The input projection of all steps is one matrix product outside; here is one small product a step. Backward yields the
gradients of all z_t at once, as the gradient of `projections`: with them W is a linear layer whose input is the hidden
states one step earlier, and its gradient is one product over (rows x time).
"""

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from tacit.config.model_schema import LSTMConfig
from tacit.data.batches import wide
from tacit.models import kernels as native
from tacit.models.language_model import ModuleModel


class Recurrence(nn.Module):
    """Hidden states (rows, time, hidden) from gate projections (rows, time, 4 hidden), starting at zero."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.weight = nn.Parameter(torch.empty(4 * hidden_size, hidden_size))
        nn.init.uniform_(self.weight, -(hidden_size**-0.5), hidden_size**-0.5)

    def forward(self, projections: Tensor, weight_mask: Tensor | None = None) -> Tensor:
        """`weight_mask` multiplies the recurrent weight (weight drop), the same for all rows and steps."""
        weight = self.weight if weight_mask is None else self.weight * weight_mask
        hidden: Tensor = _Recur.apply(projections.to(weight.dtype), weight)  # type: ignore[no-untyped-call]
        return hidden

    def step(self, projection: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        """Hidden state and cell after one step; no gradient."""
        with torch.no_grad():
            gates = torch.addmm(projection, hidden, self.weight.t())
            output, entry, keep = torch.sigmoid(gates[:, : 3 * self.hidden_size]).chunk(3, dim=1)
            cell = keep * cell + entry * torch.tanh(gates[:, 3 * self.hidden_size :])
            return output * torch.tanh(cell), cell


class _Recur(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, projections: Tensor, weight: Tensor) -> Tensor:  # noqa: ANN401
        rows, time, width = projections.shape
        gates = projections.new_empty(rows, time, width)
        hidden, cells, squashed = (projections.new_empty(rows, time, width // 4) for _ in range(3))
        step = _forward_native if native.usable(gates, weight) else _forward_torch
        step(projections, weight.t(), gates, cells, squashed, hidden)
        ctx.save_for_backward(weight, gates, cells, squashed, hidden)
        return hidden

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, hidden_gradient: Tensor) -> tuple[Tensor, Tensor | None]:  # noqa: ANN401
        weight, gates, cells, squashed, hidden = ctx.saved_tensors
        step = _backward_native if native.usable(gates, weight) else _backward_torch
        slopes = step(weight, gates, cells, squashed, hidden_gradient)
        return slopes, _weight_gradient(slopes, hidden) if ctx.needs_input_grad[1] else None


def _forward_native(
    projections: Tensor, transposed: Tensor, gates: Tensor, cells: Tensor, squashed: Tensor, hidden: Tensor
) -> None:
    """Fills gates, cells, their tanh and hidden states of all steps, the elements of a step in one call."""
    by_step, gate, out = projections.unbind(1), gates.unbind(1), hidden.unbind(1)
    for t, projection in enumerate(by_step):
        if t:
            torch.addmm(projection, out[t - 1], transposed, out=gate[t])
        else:
            gate[t].copy_(projection)
        native.lstm_forward_(gates, cells, squashed, hidden, t)


def _forward_torch(
    projections: Tensor, transposed: Tensor, gates: Tensor, cells: Tensor, squashed: Tensor, hidden: Tensor
) -> None:
    size = hidden.shape[2]
    earlier, cell = torch.zeros_like(hidden[:, 0]), torch.zeros_like(hidden[:, 0])
    output, entry, keep, candidate = (part.unbind(1) for part in torch.split(gates, size, dim=2))
    steps = zip(
        projections.unbind(1),
        gates.unbind(1),
        gates[:, :, : 3 * size].unbind(1),
        output,
        entry,
        keep,
        candidate,
        cells.unbind(1),
        squashed.unbind(1),
        hidden.unbind(1),
        strict=True,
    )
    for projection, gate, sigmoids, o, i, f, g, new_cell, squash, out in steps:
        torch.addmm(projection, earlier, transposed, out=gate)
        sigmoids.sigmoid_()
        g.tanh_()
        torch.mul(f, cell, out=new_cell)
        new_cell.addcmul_(i, g)
        torch.tanh(new_cell, out=squash)
        torch.mul(o, squash, out=out)
        earlier, cell = out, new_cell


def _backward_native(weight: Tensor, gates: Tensor, cells: Tensor, squashed: Tensor, hidden_gradient: Tensor) -> Tensor:
    """The gradients of all z_t, the elements of a step in one call."""
    slopes = torch.empty_like(gates)
    by_step, outer = slopes.unbind(1), hidden_gradient.unbind(1)
    cell_gradient = torch.zeros_like(cells[:, 0])
    total = torch.empty_like(cell_gradient)
    last = len(outer) - 1
    for t in range(last, -1, -1):
        if t == last:
            total.copy_(outer[t])
        else:
            torch.addmm(outer[t], by_step[t + 1], weight, out=total)
        native.lstm_backward_(gates, cells, squashed, total, cell_gradient, slopes, t)
    return slopes


def _backward_torch(weight: Tensor, gates: Tensor, cells: Tensor, squashed: Tensor, hidden_gradient: Tensor) -> Tensor:
    slopes, through = _slopes(gates, cells, squashed)
    size, last = cells.shape[2], cells.shape[1] - 1
    keep = gates[:, :, 2 * size : 3 * size].unbind(1)
    by_step = slopes.unbind(1)
    output = slopes[:, :, :size].unbind(1)
    others = slopes.view(*slopes.shape[:2], 4, size)[:, :, 1:].unbind(1)
    outer, pass_through = hidden_gradient.unbind(1), through.unbind(1)
    cell_gradient = torch.zeros_like(cells[:, 0])
    total = torch.empty_like(cell_gradient)
    for t in range(last, -1, -1):
        if t == last:
            total.copy_(outer[t])
        else:
            torch.addmm(outer[t], by_step[t + 1], weight, out=total)
        cell_gradient.addcmul_(total, pass_through[t])
        output[t].mul_(total)
        others[t].mul_(cell_gradient.unsqueeze(1))
        cell_gradient.mul_(keep[t])
    return slopes


def _slopes(gates: Tensor, cells: Tensor, squashed: Tensor) -> tuple[Tensor, Tensor]:
    """For all steps: what turns gradients of h (o) and of c (i, f, g) into those of z; and of h into those of c."""
    output, entry, _, candidate = gates.chunk(4, dim=2)
    slopes = torch.empty_like(gates)
    of_output, of_entry, of_keep, of_candidate = slopes.chunk(4, dim=2)
    sigmoids = 3 * cells.shape[2]
    torch.addcmul(
        gates[:, :, :sigmoids], gates[:, :, :sigmoids], gates[:, :, :sigmoids], value=-1, out=slopes[:, :, :sigmoids]
    )
    of_output.mul_(squashed)
    of_entry.mul_(candidate)
    of_keep[:, 1:].mul_(cells[:, :-1])
    of_keep[:, :1].zero_()
    torch.mul(candidate, candidate, out=of_candidate)
    torch.addcmul(entry, entry, of_candidate, value=-1, out=of_candidate)
    through = torch.mul(squashed, squashed)
    torch.addcmul(output, output, through, value=-1, out=through)
    return slopes, through


def _weight_gradient(pre_activations: Tensor, hidden: Tensor) -> Tensor:
    return pre_activations[:, 1:].flatten(0, 1).t() @ hidden[:, :-1].flatten(0, 1)


class LSTMLayer(nn.Module):
    """One layer: an ordinary linear layer over all steps, then the recurrence."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.projection = nn.Linear(input_size, 4 * hidden_size)
        self.recurrence = Recurrence(hidden_size)
        for parameter in self.projection.parameters():
            nn.init.uniform_(parameter, -(hidden_size**-0.5), hidden_size**-0.5)

    def forward(self, inputs: Tensor, weight_mask: Tensor | None) -> Tensor:
        hidden: Tensor = self.recurrence(self.projection(inputs), weight_mask)
        return hidden


class LSTMModule(nn.Module):
    """The network: tokens (rows, time) to logits (rows, time, vocabulary)."""

    def __init__(self, settings: LSTMConfig) -> None:
        super().__init__()
        self.settings = settings
        sizes = settings.sizes()
        self.embedding = nn.Embedding(settings.vocabulary_size, settings.embedding_size)
        self.layers = nn.ModuleList(LSTMLayer(*size) for size in sizes)
        self.head = nn.Linear(sizes[-1][1], settings.vocabulary_size)
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1)
        nn.init.uniform_(self.head.weight, -0.1, 0.1)
        nn.init.zeros_(self.head.bias)
        if settings.tied:
            self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        states = self._dropped(self._embedded(tokens))
        for layer in self.stack():
            states = self._dropped(layer(states, self._weight_mask(layer.recurrence.weight)))
        logits: Tensor = self.head(states)
        return logits

    def stack(self) -> list[LSTMLayer]:
        return [layer for layer in self.layers if isinstance(layer, LSTMLayer)]

    def _embedded(self, tokens: Tensor) -> Tensor:
        embedded: Tensor = self.embedding(tokens)
        rate = self.settings.embedding_dropout
        if not self.training or rate == 0:
            return embedded
        words = functional.dropout(embedded.new_ones(self.settings.vocabulary_size), rate)
        return embedded * words[tokens].unsqueeze(2)

    def _dropped(self, states: Tensor) -> Tensor:
        rate = self.settings.dropout
        if not self.training or rate == 0:
            return states
        if not self.settings.locked:
            return functional.dropout(states, rate)
        return states * functional.dropout(states.new_ones(states.shape[0], 1, states.shape[2]), rate)

    def _weight_mask(self, weight: Tensor) -> Tensor | None:
        rate = self.settings.weight_drop
        return functional.dropout(torch.ones_like(weight), rate) if self.training and rate else None


@dataclass(frozen=True, slots=True, eq=False)
class LSTMState:
    """Hidden states and cells of every layer, and what is expected next."""

    model: "LSTM"
    hidden: tuple[Tensor, ...]
    cells: tuple[Tensor, ...]
    next_log_probabilities: Tensor

    def select(self, rows: Tensor) -> "LSTMState":
        hidden = tuple(state[rows] for state in self.hidden)
        cells = tuple(state[rows] for state in self.cells)
        return LSTMState(self.model, hidden, cells, self.next_log_probabilities[rows])

    def read(self, tokens: Tensor) -> "LSTMState":
        return self.model.advance(tokens, self.hidden, self.cells)

    def branch(self, rows: Tensor, tokens: Tensor) -> "LSTMState":
        hidden = tuple(state[rows] for state in self.hidden)
        return self.model.advance(tokens, hidden, tuple(state[rows] for state in self.cells))

    @property
    def bytes_a_row(self) -> int:
        tensors = (*self.hidden, *self.cells, self.next_log_probabilities)
        return sum(tensor.shape[1] * tensor.element_size() for tensor in tensors)


@dataclass(frozen=True, slots=True, eq=False)
class LSTM(ModuleModel):
    """An LSTM language model as a Learner. `module.eval()` switches its dropouts off."""

    module: LSTMModule

    @classmethod
    def new(cls, settings: LSTMConfig) -> "LSTM":
        """A model with fresh weights from torch's global generator."""
        return cls(LSTMModule(settings))

    @property
    def vocabulary_size(self) -> int:
        return self.module.settings.vocabulary_size

    @property
    def head(self) -> nn.Module:
        return self.module.head

    def begin(self, tokens: Tensor) -> LSTMState:
        weight = self.module.head.weight
        empty = tuple(weight.new_zeros(len(tokens), hidden) for _, hidden in self.module.settings.sizes())
        reading = self.advance(tokens[:, 0], empty, empty)
        for column in tokens[:, 1:].unbind(1):
            reading = reading.read(column)
        return reading

    def advance(self, tokens: Tensor, hidden: tuple[Tensor, ...], cells: tuple[Tensor, ...]) -> LSTMState:
        """One step of every layer, without dropout."""
        with torch.no_grad():
            state = self.module.embedding(tokens)
            new_hidden, new_cells = [], []
            for layer, old, cell in zip(self.module.stack(), hidden, cells, strict=True):
                state, cell = layer.recurrence.step(layer.projection(state), old, cell)
                new_hidden.append(state)
                new_cells.append(cell)
            scores = torch.log_softmax(wide(self.module.head(state)), dim=-1)
        return LSTMState(self, tuple(new_hidden), tuple(new_cells), scores)

    def description(self) -> dict[str, Any]:
        return {"kind": "lstm", "settings": asdict(self.module.settings)}
