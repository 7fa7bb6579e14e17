"""Ranks that are killed at any moment: the agent of torchrun starts them again, and the result is the same.

Research runs, whose randomness is that of a seed. The ledger counts a step that was charged and lost once more.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from elastic import run_elastic, train_arguments
from rank_shares import make_bases
from runs import recorded, write_corpus
from tacit.mechanisms.build import Terms
from tacit.privacy.ledger import read_entries
from tacit.runs.folder import RunFolder
from tacit.runs.release import PrivateFile, ReleaseFile
from tacit.runs.verify import verify

RANKS = 2


def same_after_kills(folder: Path, kills: int, steps: int, base: Path | None = None) -> int:
    """Train with and without kills, and compare; how many steps were charged beyond the plan is returned.

    base: a model whose layers the ranks share, to train adapters to.
    """
    corpus = write_corpus(folder, 24)
    whole, killed = (folder / name for name in ("whole", "killed"))
    run_elastic(RANKS, 0, *train_arguments(corpus, steps, whole, base))
    run_elastic(RANKS, kills, *train_arguments(corpus, steps, killed, base))
    file = ReleaseFile.MODEL if base is None else ReleaseFile.ADAPTERS
    first, second = ((place / "release" / file).read_bytes() for place in (whole, killed))
    assert first == second
    run = RunFolder.view(killed)
    assert run.read_json(dict, PrivateFile.UTILITY) == RunFolder.view(whole).read_json(dict, PrivateFile.UTILITY)
    planned = run.read_json(Terms, ReleaseFile.PLAN).planned()
    charged = read_entries(run.path(ReleaseFile.LEDGER)).charges()
    assert verify(killed).holds
    assert all(charged[step] >= times for step, times in planned.items())
    assert charged["private"] >= len([line for line in recorded(run) if "drawn" in line])
    return sum(charged[step] - times for step, times in planned.items())


@pytest.mark.slow
def test_ranks_that_were_killed_come_to_the_same_model(tmp_path: Path) -> None:
    """Two kills: one during a step, one at any moment."""
    same_after_kills(tmp_path, kills=2, steps=8)


@pytest.mark.slow
def test_ranks_that_share_a_base_model_resume(tmp_path: Path) -> None:
    make_bases(tmp_path)
    same_after_kills(tmp_path, kills=2, steps=8, base=tmp_path / "llama")


@pytest.mark.slow
def test_a_hundred_kills(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    """Catches a restart that begins anew, and an update that was not charged."""
    lost = same_after_kills(tmp_path, kills=100, steps=3000)
    record_property("counts", f"100 kills: {lost} steps were charged and lost")
    assert lost > 0  # else no kill fell between a charge and its checkpoint
