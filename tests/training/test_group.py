"""Several ranks train as one process does: every kind of update, every mechanism, draws with nothing for a rank."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor

from forked_ranks import run_in_ranks
from rank_cases import CASES
from tacit.training.group import shares

SIZES = (1, 2, 3)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ranks")
    run_in_ranks("rank_cases:every_case", folder, *SIZES)
    return folder


def read(folder: Path, size: int, rank: int, case: str) -> dict[str, Tensor]:
    return load_file(folder / f"{size}-{rank}-{case}.safetensors")


@pytest.mark.parametrize("case", CASES)
def test_ranks_have_the_same_bits(case: str, results: Path) -> None:
    """Catches noise, dropout or optimizers that a rank has for itself."""
    for size in SIZES[1:]:
        first, *others = (read(results, size, rank, case) for rank in range(size))
        for other in others:
            assert all(torch.equal(value, other[name]) for name, value in first.items())


@pytest.mark.parametrize("case", [case for case in CASES if case != "dropout"])
def test_one_two_and_three_ranks_agree(case: str, results: Path) -> None:
    """Within 1e-6, losses and norms too. Catches rows that are lost or counted twice, and noise that is."""
    alone = read(results, 1, 0, case)
    for size in SIZES[1:]:
        found = read(results, size, 0, case)
        assert found.keys() == alone.keys()
        for name, value in alone.items():
            torch.testing.assert_close(found[name], value, rtol=1e-6 if name == "facts" else 0, atol=1e-6)


def test_a_difference_stops_every_rank(results: Path) -> None:
    """Rank 1 has other weights than the rest, which would go on without the comparison."""
    ranks = [(size, rank) for size in SIZES for rank in range(size)]
    assert all((results / f"{size}-{rank}-same").exists() for size, rank in ranks)
    assert [(results / f"{size}-{rank}-different").exists() for size, rank in ranks] == [size > 1 for size, _ in ranks]


def test_models_learn_in_every_case(results: Path) -> None:
    """Control of the two tests above: what they compare depends on the case, so it is not the model as it began."""
    whole = [read(results, 1, 0, case) for case in CASES if case not in ("gpt", "adapters", "classifier")]
    flat = [torch.cat([value.double().flatten() for name, value in one.items() if name != "facts"]) for one in whole]
    same = [torch.equal(one, other) for number, one in enumerate(flat) for other in flat[:number]]
    assert sum(same) <= 2  # dpsgd is also the case of flat clipping


@given(st.lists(st.integers(1, 10_000), max_size=60), st.integers(1, 9))
def test_shares_are_everything_once_and_even(costs: list[int], size: int) -> None:
    """No rank has more than a fair share and the dearest thing together."""
    dealt = shares(np.array(costs, dtype=np.int64), size)
    assert sorted(np.concatenate(dealt).tolist()) == list(range(len(costs)))
    assert len(dealt) == size
    busiest = max(sum(costs[number] for number in own) for own in dealt)
    assert busiest <= sum(costs) / size + max(costs, default=0)
