"""A large private draw is read part by part: the parts are those of one batch, and so is the clipped sum."""

from pathlib import Path

import pytest
import torch

from runs import PLANS, make_parts
from tacit.config.model_schema import LSTMConfig
from tacit.data.records import Record, Span
from tacit.data.tokenizer import byte_tokenizer
from tacit.models.lstm import LSTM
from tacit.privacy.plan import Pool, Targets, View
from tacit.training import updates
from tacit.training.gradients.clipped import Flat, clipped_sum
from tacit.training.updates import DrawnRows


def records(count: int = 60) -> list[Record]:
    return [
        Record(f"r{number}", f"code Ann{'x' * (7 * number % 31)}", spans=(Span(5, 8, "NAME"),) if number % 3 else ())
        for number in range(count)
    ]


@pytest.mark.parametrize("targets", list(Targets))
@pytest.mark.parametrize("positions", [None, 40, 200])
def test_parts_read_one_by_one_are_those_of_one_batch(
    targets: Targets, positions: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = make_parts(tmp_path, records(), {"mechanism": "dpsgd", **PLANS["dpsgd"]})
    monkeypatch.setattr(updates, "_ROWS_AT_A_TIME", 7)
    rows = parts.pools.rows(Pool.EVERY)[::-1]
    read: list[int] = []

    def reading(some: object) -> object:
        batch = parts.reader.batch(some, View.FULL, targets)  # type: ignore[arg-type]
        read.append(len(batch))
        return batch

    streamed = DrawnRows(rows, reading, torch.device("cpu"))  # type: ignore[arg-type]
    whole = parts.reader.batch(rows, View.FULL, targets)
    for (index, part), (wanted_index, wanted) in zip(
        streamed.micro_batches(positions), whole.micro_batches(positions), strict=True
    ):
        assert torch.equal(index, wanted_index)
        assert torch.equal(part.inputs, wanted.inputs)
        assert torch.equal(part.targets, wanted.targets)
        assert torch.equal(part.weights, wanted.weights)
    assert positions != 40 or max(read) <= 13, "of 60 rows only a few are read at a time"
    torch.manual_seed(0)
    learner = LSTM.new(LSTMConfig(byte_tokenizer().vocabulary_size, 8, 8))
    fast, slow = (clipped_sum(learner, batch, Flat(0.1), positions=positions) for batch in (streamed, whole))
    for name, value in slow.sums.items():  # up to the rounding of another layout in memory
        torch.testing.assert_close(fast.sums[name], value, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(fast.norms, slow.norms, rtol=1e-6, atol=1e-7)
    assert fast.targets == slow.targets == int(whole.weights.count_nonzero())
