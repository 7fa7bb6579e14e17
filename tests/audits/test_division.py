"""An audit by one process and by two finds the same; each does its share, and the first alone writes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forked_ranks import run_in_ranks
from tacit.audits.division import OneRank, divided, together
from tacit.runs.release import PrivateFile

SIZES = (1, 2)
RANKS = [(size, rank) for size in SIZES for rank in range(size)]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("audits")
    run_in_ranks("rank_audits:every_audit", folder, *SIZES)
    return folder


def read(results: Path, size: int, rank: int) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((results / f"{size}-{rank}.json").read_text())
    return content


def test_the_number_of_processes_changes_no_finding(results: Path) -> None:
    """Catches parts that nobody does or two do, and chance that depends on who does a part."""
    alone = read(results, 1, 0)["found"]
    (kept,) = alone.pop("checkpoints")
    for size, rank in RANKS[1:]:
        found = read(results, size, rank)["found"]
        (other,) = found.pop("checkpoints")
        assert found == alone
        assert other["figures"] == kept["figures"]
        assert other["perplexity"] == pytest.approx(kept["perplexity"], rel=1e-5)


def test_the_first_process_writes(results: Path) -> None:
    written = json.loads((results / "run" / "private" / PrivateFile.AUDIT).read_text())
    assert written == read(results, SIZES[-1], 0)["found"]


def test_every_attack_measured_something(results: Path) -> None:
    """Control of the first test: attacks that were not tried, or found nothing anywhere, would agree, too."""
    found = read(results, 1, 0)["found"]
    findings = [*found["canaries"], *found["training_records"]]
    assert not [one["hint"] for one in findings if one["hint"]]
    figures = {name: value for one in findings for name, value in one["figures"].items()}
    assert min(figures[name] for name in ("exposure", "inferred", "secrets told", "reconstructed", "sampled")) > 0


def test_each_process_does_its_share(results: Path) -> None:
    """Parts are few here: no process has more than a fair share and a fifth of the whole."""
    for size, rank in RANKS:
        done = read(results, size, rank)
        assert done["own"] / done["whole"] == pytest.approx(1 / size, abs=0.2)


def test_processes_that_divide_other_work_stop(results: Path) -> None:
    stopped = [(results / f"{size}-{rank}-stopped").exists() for size, rank in RANKS]
    assert stopped == [size > 1 for size, _ in RANKS]


def test_work_inside_a_part_is_not_divided() -> None:
    """Catches processes that wait for each other in parts that only one of them has."""

    class First(OneRank):
        """Of two processes, the first; the other adds nothing."""

        def share(self, costs: Any) -> Any:  # noqa: ANN401
            return np.arange(len(costs))[::2]

    outer, inner = np.zeros(2), np.zeros(3)

    def part(number: int) -> None:
        outer[number] += 1
        divided([0, 1, 2], [1, 1, 1], lambda place: inner.__setitem__(place, 1), [inner])

    with together(First()):
        divided([0, 1], [1, 1], part, [outer])
    assert outer.tolist() == [1, 0]
    assert inner.tolist() == [1, 1, 1]
