"""Splitting by a hash."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from tacit.data.marked import Shares, Split, split_of
from tacit.errors import ConfigError

FALSE_ALARMS = 1e-6
shares_strategy = st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)).filter(any)


def shares_of(parts: tuple[int, int, int]) -> Shares:
    return Shares(*(part / sum(parts) for part in parts))


def looks_fair(splits: list[Split], shares: Shares) -> bool:
    counts = Counter(splits)
    used = [split for split in Split if shares.of(split) > 0]
    result = chisquare([counts[split] for split in used], [shares.of(split) * len(splits) for split in used])
    return bool(result.pvalue > FALSE_ALARMS)


@pytest.mark.statistical
def test_shares_are_kept_whatever_the_keys_look_like() -> None:
    """G3. Chi-square at 1e-6 for each of 12 tests: for a fair hash at most 1.2e-5 of all salts raise a false alarm.

    Negative controls: a splitter that looks at the last digit, and shares that are off by three points.
    """
    families = [[f"user-{n}" for n in range(10_000)], [f"{n:032b}" for n in range(10_000)]]
    shares = [Shares(), Shares(0.5, 0.0, 0.5), Shares(0.34, 0.33, 0.33)]
    for keys in families:
        for share in shares:
            for salt in ("", "another salt"):
                assert looks_fair([split_of(key, salt, share) for key in keys], share)
    by_last_digit = [Split.TEST if key.endswith("7") or n < 400 else Split.TRAIN for n, key in enumerate(families[0])]
    assert not looks_fair(by_last_digit, Shares(0.9, 0.0, 0.1))
    assert not looks_fair([split_of(key, "", Shares(0.83, 0.085, 0.085)) for key in families[0]], Shares())


@pytest.mark.statistical
def test_two_salts_split_independently() -> None:
    """Chi-square of the joint counts at 1e-6. Negative control: one salt twice."""
    shares, keys = Shares(0.5, 0.0, 0.5), [f"user-{n}" for n in range(10_000)]

    def joint_is_uniform(first: str, second: str) -> bool:
        pairs = Counter((split_of(key, first, shares), split_of(key, second, shares)) for key in keys)
        used = [Split.TRAIN, Split.TEST]
        return bool(chisquare([pairs[a, b] for a in used for b in used]).pvalue > FALSE_ALARMS)

    assert joint_is_uniform("a", "b")
    assert not joint_is_uniform("a", "a")


def test_golden_splits_never_change() -> None:
    """G1: a change here moves records of every corpus ever split from training to test."""
    splits = [split_of(f"user-{n}", "salt", Shares()) for n in range(40)]
    assert "".join(split[1] for split in splits) == "rrrrrrrrrrrerrrrrrrrrrrrarrrrrrreaareerr"


@given(st.text(), st.text(), shares_strategy)
def test_every_key_has_a_split_with_a_share(key: str, salt: str, parts: tuple[int, int, int]) -> None:
    shares = shares_of(parts)
    assert shares.of(split_of(key, salt, shares)) > 0


@given(st.lists(st.text(), min_size=1), st.integers(0, 9), st.integers(1, 9))
def test_more_training_takes_only_from_the_others(keys: list[str], train: int, more: int) -> None:
    """G4."""
    less_shares, more_shares = shares_of((train, 5, 5)), shares_of((train + more, 5, 5))
    for key in keys:
        if split_of(key, "s", less_shares) is Split.TRAIN:
            assert split_of(key, "s", more_shares) is Split.TRAIN


def test_salt_and_key_are_kept_apart() -> None:
    pairs = [("a" * n, "a" * (64 - n)) for n in range(65)]
    assert len({split_of(key, salt, Shares(0.5, 0.0, 0.5)) for salt, key in pairs}) == 2


@pytest.mark.parametrize("parts", [(0.5, 0.5, 0.5), (1.2, -0.1, -0.1), (float("nan"), 0.5, 0.5), (0, 0, 0)])
def test_shares_must_sum_to_one(parts: tuple[float, float, float]) -> None:
    with pytest.raises(ConfigError, match="sum to 1"):
        Shares(*parts)
