"""LSTM language models: one layer of 200 by default; deep ones with AWD-LSTM's dropouts (Merity 2018, 1708.02182)."""

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional

from tacit.errors import ModelError
from tacit.models.batch import Batch, TokenLosses, wide
from tacit.models.recurrence import Recurrence
from tacit.models.speech import losses_of, speaking

SETTINGS_FILE = "model.json"
WEIGHTS_FILE = "model.safetensors"


@dataclass(frozen=True, slots=True)
class LSTMSettings:
    """The shape of an LSTM language model. Dropouts act in public steps alone: masks that rows share couple them.

    dropout: on the embedded input and on the output of every layer; locked: one mask a row, the same at every step.
    embedding_dropout: drops whole words, one mask a batch. weight_drop: drops recurrent weights, one mask a batch.
    tied: output weights are the embedding; the last layer then has the embedding's size.
    """

    vocabulary_size: int
    embedding_size: int = 200
    hidden_size: int = 200
    layers: int = 1
    dropout: float = 0.2
    locked: bool = False
    embedding_dropout: float = 0.0
    weight_drop: float = 0.0
    tied: bool = False

    def __post_init__(self) -> None:
        for name in ("vocabulary_size", "embedding_size", "hidden_size", "layers"):
            if getattr(self, name) < 1:
                raise ModelError(f"{name} of at least 1", str(getattr(self, name)), "correct the number")
        for name in ("dropout", "embedding_dropout", "weight_drop"):
            if not 0 <= getattr(self, name) < 1:
                raise ModelError(f"{name} from 0 to below 1", str(getattr(self, name)), "correct the number")

    @classmethod
    def awd(cls, vocabulary_size: int) -> "LSTMSettings":
        """Three layers of 1150 with all of AWD-LSTM's dropouts."""
        return cls(
            vocabulary_size, 100, 1150, 3, dropout=0.3, locked=True, embedding_dropout=0.1, weight_drop=0.5, tied=True
        )

    def sizes(self) -> list[tuple[int, int]]:
        """Input and hidden size of each layer."""
        hidden = [self.hidden_size] * self.layers
        if self.tied:
            hidden[-1] = self.embedding_size
        return list(zip([self.embedding_size, *hidden[:-1]], hidden, strict=True))


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

    def __init__(self, settings: LSTMSettings) -> None:
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
        """The layers, the lowest first."""
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
class LSTMReading:
    """Hidden states and cells of every layer, and what is expected next."""

    model: "LSTM"
    hidden: tuple[Tensor, ...]
    cells: tuple[Tensor, ...]
    next_log_probabilities: Tensor

    def select(self, rows: Tensor) -> "LSTMReading":
        """The reading of these rows."""
        hidden = tuple(state[rows] for state in self.hidden)
        cells = tuple(state[rows] for state in self.cells)
        return LSTMReading(self.model, hidden, cells, self.next_log_probabilities[rows])

    def read(self, tokens: Tensor) -> "LSTMReading":
        """The reading after one more token a row."""
        return self.model.advance(tokens, self.hidden, self.cells)

    def branch(self, rows: Tensor, tokens: Tensor) -> "LSTMReading":
        """The reading of these rows after one more token each."""
        hidden = tuple(state[rows] for state in self.hidden)
        return self.model.advance(tokens, hidden, tuple(state[rows] for state in self.cells))

    @property
    def bytes_a_row(self) -> int:
        """The memory that one row takes."""
        tensors = (*self.hidden, *self.cells, self.next_log_probabilities)
        return sum(tensor.shape[1] * tensor.element_size() for tensor in tensors)


@dataclass(frozen=True, slots=True, eq=False)
class LSTM:
    """An LSTM language model as a Learner. `module.eval()` switches its dropouts off."""

    module: LSTMModule

    @classmethod
    def new(cls, settings: LSTMSettings) -> "LSTM":
        """A model with fresh weights from torch's global generator."""
        return cls(LSTMModule(settings))

    @classmethod
    def load(cls, folder: Path, settings: dict[str, object]) -> "LSTM":
        """The model whose settings were read from `folder`."""
        with torch.device("meta"):
            module = LSTMModule(LSTMSettings(**settings))  # type: ignore[arg-type]
        weights = load_file(folder / WEIGHTS_FILE)
        if module.settings.tied:
            weights["head.weight"] = weights["embedding.weight"]
        module.load_state_dict(weights, assign=True)
        if module.settings.tied:
            module.head.weight = module.embedding.weight
        return cls(module)

    @property
    def vocabulary_size(self) -> int:
        """The number of tokens it knows."""
        return self.module.settings.vocabulary_size

    @property
    def context(self) -> int:
        """No limit."""
        return sys.maxsize

    @property
    def head(self) -> nn.Module:
        """The layer over the vocabulary."""
        return self.module.head

    def logits(self, tokens: Tensor) -> Tensor:
        """(rows, time, vocabulary)."""
        logits: Tensor = self.module(tokens)
        return logits

    def token_losses(self, batch: Batch) -> TokenLosses:
        """The loss of every target."""
        return losses_of(self.logits(batch.inputs), batch)

    def log_probabilities(self, batch: Batch) -> Tensor:
        """(rows, time): of every target."""
        with speaking(self.module):
            return -self.token_losses(batch).losses

    def begin(self, tokens: Tensor) -> LSTMReading:
        """The reading after the rows of `tokens`."""
        weight = self.module.head.weight
        empty = tuple(weight.new_zeros(len(tokens), hidden) for _, hidden in self.module.settings.sizes())
        reading = self.advance(tokens[:, 0], empty, empty)
        for column in tokens[:, 1:].unbind(1):
            reading = reading.read(column)
        return reading

    def advance(self, tokens: Tensor, hidden: tuple[Tensor, ...], cells: tuple[Tensor, ...]) -> LSTMReading:
        """One step of every layer, without dropout."""
        with torch.no_grad():
            state = self.module.embedding(tokens)
            new_hidden, new_cells = [], []
            for layer, old, cell in zip(self.module.stack(), hidden, cells, strict=True):
                state, cell = layer.recurrence.step(layer.projection(state), old, cell)
                new_hidden.append(state)
                new_cells.append(cell)
            scores = torch.log_softmax(wide(self.module.head(state)), dim=-1)
        return LSTMReading(self, tuple(new_hidden), tuple(new_cells), scores)

    def save(self, folder: Path) -> None:
        """Weights as safetensors, settings as JSON."""
        weights = {name: value.detach().contiguous() for name, value in self.module.named_parameters()}
        save_file(weights, folder / WEIGHTS_FILE)
        (folder / SETTINGS_FILE).write_text(json.dumps(self.description(), indent=2) + "\n", encoding="utf-8")

    def description(self) -> dict[str, Any]:
        """Kind and settings."""
        return {"kind": "lstm", "settings": asdict(self.module.settings)}
