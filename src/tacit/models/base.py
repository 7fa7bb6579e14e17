"""What attacks and trainers may ask of a model. Protocols hold no code."""

from pathlib import Path
from typing import Any, Protocol, Self

from torch import Tensor, nn

from tacit.models.batch import Batch, TokenLosses


class Reading(Protocol):
    """Where a model stands after it has read some rows of equal length: what it expects next, and how to go on."""

    @property
    def next_log_probabilities(self) -> Tensor:
        """(rows, vocabulary): log-probabilities of the next token of each row."""

    def select(self, rows: Tensor) -> Self:
        """The reading of these rows, in this order, repeated where an index is: branches of a prefix tree."""

    def read(self, tokens: Tensor) -> Self:
        """The reading after one more token a row, (rows,)."""

    def branch(self, rows: Tensor, tokens: Tensor) -> Self:
        """`select(rows).read(tokens)`, at less cost."""

    @property
    def bytes_a_row(self) -> int:
        """The memory that one row takes."""


class Speaker(Protocol):
    """A model as an attacker meets it: it says how probable text is, and it continues text."""

    @property
    def vocabulary_size(self) -> int:
        """The number of tokens it knows."""

    @property
    def context(self) -> int:
        """How many tokens it can read at a time."""

    def log_probabilities(self, batch: Batch) -> Tensor:
        """(rows, time): log-probability of every target given what stands before it. No gradient."""

    def begin(self, tokens: Tensor) -> Reading:
        """The reading after the rows of `tokens`, (rows, length >= 1)."""


class Learner(Speaker, Protocol):
    """A Speaker that can be trained."""

    @property
    def module(self) -> nn.Module:
        """Its parameters, and the layers that use them."""

    @property
    def head(self) -> nn.Module:
        """The linear layer whose output is `logits`, unchanged; called once a pass."""

    def logits(self, tokens: Tensor) -> Tensor:
        """(rows, time, vocabulary): unnormalised log-probabilities of what follows each position; rows do not mix."""

    def token_losses(self, batch: Batch) -> TokenLosses:
        """The loss of every target, with its gradient graph."""

    def description(self) -> dict[str, Any]:
        """What `build_model` needs to make the same model, but for its weights; fit for JSON."""

    def save(self, folder: Path) -> None:
        """Write everything that `load_model` needs into `folder`, as safetensors and JSON."""
