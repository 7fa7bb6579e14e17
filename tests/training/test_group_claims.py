"""T2, T3 and T6 of the theory on two ranks: sensitivity, noise, a worst-case audit; each with what it must catch."""

from typing import Any

import numpy as np
import pytest

from forked_ranks import run_in_ranks
from rank_cases import STYLES
from rank_claims import DIRECTIONS, RIGHT, WRONG
from tacit.mechanisms.dpsgd import DPSGD
from worst_case import SHARP, Seen, bounds_between, claims_of, refutes, sharpness

RANKS = 2
_FAR = 6.0  # standard errors


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("ranks")
    run_in_ranks("rank_claims:measure", folder, RANKS)
    return dict(np.load(folder / "found.npz"))


def deviation(noise: np.ndarray) -> tuple[float, float]:
    """The deviation of normal numbers, and its standard error."""
    return float(noise.std()), float(noise.std() / np.sqrt(2 * len(noise)))


@pytest.mark.statistical
def test_t3_the_noise_of_the_sum_is_the_noise_that_was_priced(found: dict[str, Any]) -> None:
    """False alarm: 2e-9 (six standard errors)."""
    measured, error = deviation(found[f"noise {RIGHT}"])
    assert error < 0.01
    assert abs(measured - 1) < _FAR * error


@pytest.mark.statistical
@pytest.mark.parametrize("way", WRONG)
def test_t3_wrong_ways_of_adding_noise_are_caught(way: str, found: dict[str, Any]) -> None:
    """The controls: each has the deviation that theory gives it, far from 1. False alarm: 2e-9 each."""
    measured, error = deviation(found[f"noise {way}"])
    assert abs(measured - WRONG[way]) < _FAR * error
    assert abs(measured - 1) > 2 * _FAR * error


@pytest.mark.parametrize("style", STYLES)
def test_t2_a_record_moves_the_sum_of_all_ranks_by_at_most_the_clip_norm(style: str, found: dict[str, Any]) -> None:
    """At extreme weights, also where one rank has one long record and the other has all the rest."""
    assert found[f"moved {style}"].max() <= 1
    assert found[f"moved {style}"].max() > 0.5  # else nothing was clipped, and nothing was shown


def test_t2_ranks_that_all_compute_the_whole_draw_are_caught(found: dict[str, Any]) -> None:
    assert found["moved replicated"].max() > 1.9


def bounds(seen: np.ndarray, drawn: int = 1) -> dict[float, float]:
    """Lower bounds on epsilon by delta; `drawn`: how often a drawn record is in the sum."""
    whole = Seen(seen, np.zeros((0, seen.shape[1]), np.bool_))
    there, absent = whole.part(0, DIRECTIONS), whole.part(DIRECTIONS, DIRECTIONS)
    law = {drawn * count: chance for count, chance in SHARP.drawn().items()}
    return bounds_between(there, absent, SHARP.noise, law)


@pytest.mark.statistical
def test_t6_two_ranks_keep_the_claim(found: dict[str, Any]) -> None:
    """False alarm: 4e-6. A test that sees nothing would pass, so the bounds must come near the claim."""
    (claims,) = claims_of(DPSGD(SHARP.private(DIRECTIONS))).values()
    measured = bounds(found["audited"])
    assert not refutes(measured, claims)
    assert sharpness(measured, claims) > 0.5


@pytest.mark.statistical
def test_t6_records_that_every_rank_adds_are_caught(found: dict[str, Any]) -> None:
    """The control: twice the sensitivity that was priced."""
    (claims,) = claims_of(DPSGD(SHARP.private(DIRECTIONS))).values()
    assert refutes(bounds(found["audited replicated"], drawn=2), claims)
