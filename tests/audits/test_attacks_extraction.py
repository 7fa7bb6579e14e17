"""Extraction against a model whose probabilities are written down: a table of what follows each token."""

import math
import random
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from tacit.audits.attacks.extraction import extract, secret_log_probabilities
from tacit.audits.target import Hidden
from tacit.common.formatting import exact_interval
from tacit.config.audit_schema import ExtractionConfig
from tacit.data.batches import TextBatch
from tacit.errors import AttackError


@dataclass(frozen=True, slots=True, eq=False)
class TableReading:
    table: Tensor
    last: Tensor

    @property
    def next_log_probabilities(self) -> Tensor:
        return self.table[self.last]

    def select(self, rows: Tensor) -> "TableReading":
        return TableReading(self.table, self.last[rows])

    def read(self, tokens: Tensor) -> "TableReading":
        return TableReading(self.table, tokens)

    def branch(self, rows: Tensor, tokens: Tensor) -> "TableReading":
        return self.select(rows).read(tokens)

    @property
    def bytes_a_row(self) -> int:
        return 8


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """A Speaker with log-probabilities table[last token]."""

    table: Tensor
    context: int = 100

    @property
    def vocabulary_size(self) -> int:
        return len(self.table)

    def log_probabilities(self, batch: TextBatch) -> Tensor:
        return self.table[batch.inputs].gather(-1, batch.targets[..., None])[..., 0]

    def begin(self, tokens: Tensor) -> TableReading:
        return TableReading(self.table, tokens[:, -1])


def speaker(stay: float = 0.9) -> Table:
    """Ten digits; each is followed by the next one with probability `stay`, by any other alike."""
    chances = torch.full((10, 10), (1 - stay) / 9)
    for digit in range(10):
        chances[digit, (digit + 1) % 10] = stay
    return Table(chances.log())


def said(tokens: object) -> str:
    assert isinstance(tokens, list)
    return "".join(str(token) for token in tokens)


def hidden(name: str, prompt: list[int], secret: str) -> Hidden:
    return Hidden(name, prompt, [int(digit) for digit in secret], secret)


SECRETS = [hidden("likely", [1, 2], "345"), hidden("unlikely", [5], "91"), hidden("short", [7, 7, 7], "8")]


def test_what_the_model_says_by_itself_comes_out_greedily_and_nothing_else() -> None:
    found = extract(speaker(), SECRETS, said, torch.Generator().manual_seed(0))
    assert (found.greedy.count, found.greedy.of) == (2, 3)
    assert found.greedy.interval == exact_interval(2, 3)


def test_chances_are_the_products_of_the_table() -> None:
    chances = secret_log_probabilities(speaker(), SECRETS)
    expected = {"likely": 0.9**3, "unlikely": (0.1 / 9) ** 2, "short": 0.9}
    assert {name: math.exp(value) for name, value in chances.items()} == pytest.approx(expected, rel=1e-5)


def test_discoverable_secrets_are_those_whose_chance_among_n_samples_is_large_enough() -> None:
    settings = ExtractionConfig(discoverable=((1, 0.8), (2, 0.8), (10_000, 0.7), (10_000, 0.72)))
    found = extract(speaker(), SECRETS, said, torch.Generator().manual_seed(0), settings)
    # likely: .729, then 1 - .271^2 = .927; unlikely: 1 - (1 - 1.2346e-4)^10000 = .7091
    assert [one.share.count for one in found.discoverable] == [1, 2, 3, 2]


def test_a_tiny_chance_is_not_lost_in_rounding() -> None:
    table = torch.full((2, 2), -60.0, dtype=torch.float64)
    settings = ExtractionConfig(tries=1, discoverable=((1, 8e-27), (1, 9e-27), (10**6, 8e-21)))
    found = extract(Table(table), [hidden("x", [0], "1")], said, torch.Generator(), settings)
    assert [one.share.count for one in found.discoverable] == [1, 0, 1]


@pytest.mark.statistical
def test_sampling_brings_a_secret_out_as_often_as_computed() -> None:
    """400 copies of a secret of chance .3, three tries each; false alarms: 2e-6."""
    copies = [hidden(f"copy-{number}", [1], "2") for number in range(400)]
    settings = ExtractionConfig(tries=3)
    found = extract(speaker(stay=0.3), copies, said, torch.Generator().manual_seed(1), settings)
    low, high = exact_interval(found.sampled.count, 400, 1 - 2e-6)
    assert low < 1 - 0.7**3 < high
    assert not low < 0.3 < high  # one try would be caught


def test_order_changes_nothing() -> None:
    shuffled = random.Random(0).sample(SECRETS, len(SECRETS))
    one, other = (extract(speaker(), order, said, torch.Generator()) for order in (SECRETS, shuffled))
    assert one.greedy == other.greedy
    assert secret_log_probabilities(speaker(), SECRETS) == secret_log_probabilities(speaker(), shuffled)


def test_empty_secrets_and_prompts_that_are_too_long_are_refused() -> None:
    with pytest.raises(AttackError, match="a prompt and a secret in x"):
        hidden("x", [1], "")
    with pytest.raises(AttackError, match="at least one candidate"):
        extract(speaker(), [], said, torch.Generator())
    with pytest.raises(AttackError, match="which the model can read"):
        extract(speaker(), [hidden("x", [1] * 200, "2")], said, torch.Generator())
