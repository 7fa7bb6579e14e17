"""A network that is cut while two ranks train: both stop in time, and no update was applied that was not charged."""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cut_network import begin_rank, cut_cable, lay_cable, remove_cable
from elastic import train_arguments
from runs import write_corpus
from tacit.privacy.ledger import read_entries
from tacit.runs.release import ReleaseFile

TIMEOUT = 12.0  # seconds
SLACK = 20.0  # for a busy machine to end a process


@pytest.fixture
def cable() -> Iterator[None]:
    try:
        lay_cable()
    except (OSError, subprocess.CalledProcessError):
        remove_cable()
        pytest.skip("no network namespaces here: they need Linux, root and iproute2")
    yield
    remove_cable()


def charges(run: Path) -> int:
    ledger = run / "release" / ReleaseFile.LEDGER
    return sum(read_entries(ledger).charges().values()) if ledger.exists() else 0


@pytest.mark.slow
@pytest.mark.usefixtures("cable")
def test_a_cut_network_stops_every_rank(tmp_path: Path) -> None:
    """Catches a rank that waits forever, and one that updates its model without the others, or before the charge."""
    run = tmp_path / "run"
    words = train_arguments(write_corpus(tmp_path, 24), 1_000_000, run)
    words[-2:-2] = ["--set", f"timeout_minutes={TIMEOUT / 60}"]
    counters = [tmp_path / f"updates of rank {rank}" for rank in range(2)]
    ranks = [begin_rank(rank, counter, words) for rank, counter in enumerate(counters)]
    while charges(run) < 10:
        assert all(rank.poll() is None for rank in ranks), [rank.communicate()[1] for rank in ranks]
        time.sleep(0.05)
    cut_cable()
    began = time.monotonic()
    said = [rank.communicate()[1] for rank in ranks]
    assert time.monotonic() - began < TIMEOUT + SLACK
    assert [rank.returncode for rank in ranks] == [2, 2]
    assert all("every process of the run to answer in time" in words for words in said), said
    applied = [counter.stat().st_size for counter in counters]
    assert min(applied) > 0
    assert max(applied) <= charges(run)
    assert charges(run) <= max(applied) + 1
