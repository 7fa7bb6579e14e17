"""Invented users: every record one, sizes of the law, at random but always the same."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2, norm

from tacit.data.ownership import dealt_users
from tacit.errors import PrepareError

LIMIT = 1e-6


def ids(count: int) -> list[str]:
    return [f"record {number}" for number in range(count)]


def dealt(record_ids: list[str], mean: float, deviation: float, salt: str) -> list[str]:
    return [f"dealt-{number}" for number in dealt_users(record_ids, mean, deviation, salt)]


def sizes(users: list[str]) -> list[int]:
    """Of every user but the last, who has what is left."""
    counts = Counter(users)
    counts.pop(f"dealt-{len(counts)}", None)
    return list(counts.values())


@given(st.integers(0, 200), st.floats(1, 20), st.floats(0, 30), st.text(max_size=3))
def test_g1_every_record_has_one_user_and_users_are_numbered_without_gaps(
    count: int, mean: float, deviation: float, salt: str
) -> None:
    users = dealt(ids(count), mean, deviation, salt)
    assert len(users) == count
    names = set(users)
    assert names == {f"dealt-{number}" for number in range(1, len(names) + 1)}


@pytest.mark.parametrize(("mean", "size"), [(1.0, 1), (4.0, 4), (6.4, 6)])
def test_g1_without_deviation_all_are_alike_and_the_last_has_the_rest(mean: float, size: int) -> None:
    counts = sorted(Counter(dealt(ids(101), mean, 0.0, "salt")).values())
    assert set(counts[1:]) == {size}
    assert counts[0] == (101 % size or size)


def test_g1_nobody_has_no_record() -> None:
    """With a deviation this wide nearly half of the sizes round to zero or less; they are one."""
    found = Counter(sizes(dealt(ids(5000), 1.0, 10.0, "salt")))
    assert min(found) == 1
    assert 0.4 < found[1] / found.total() < 0.65


@pytest.mark.statistical
def test_g1_sizes_have_the_rounded_normal_law() -> None:
    """Chi-square over 2,000 users of N(15, 2^2); false alarm 1e-6. Control: N(15.4, 2^2) is refused."""
    found = np.array(sizes(dealt(ids(30_500), 15.0, 2.0, "law")))[:2000]
    assert len(found) == 2000

    def p_value(mean: float) -> float:
        edges = np.array([-np.inf, *np.arange(11.5, 19), np.inf])
        expected = len(found) * np.diff(norm.cdf(edges, mean, 2.0))
        observed = np.histogram(found, edges)[0]
        return float(chi2.sf(np.sum((observed - expected) ** 2 / expected), len(expected) - 1))

    assert p_value(15.0) > LIMIT > p_value(15.4)


def test_g2_the_order_of_the_corpus_does_not_matter() -> None:
    names = ids(300)
    users = dict(zip(names, dealt(names, 5.0, 2.0, "salt"), strict=True))
    turned = names[::-1]
    assert dict(zip(turned, dealt(turned, 5.0, 2.0, "salt"), strict=True)) == users


def test_g2_another_salt_is_another_deal() -> None:
    one, other = (dealt(ids(300), 5.0, 2.0, salt) for salt in ("a", "b"))
    assert one != other
    assert sizes(one) != sizes(other)


def test_g2_the_deal_is_the_same_for_ever() -> None:
    """A changed hash, generator or rounding would move records from user to user between two runs."""
    numbers = [user.removeprefix("dealt-") for user in dealt(ids(8), 2.0, 1.0, "salt")]
    assert numbers == ["3", "4", "1", "4", "1", "2", "1", "4"]


@pytest.mark.statistical
def test_g2_neighbors_in_the_corpus_meet_no_more_often_than_chance() -> None:
    """Neighbors share a user with chance about 14/15,000; at 15,000 pairs more than 50 have p < 1e-9.

    Control: users dealt in the order of the corpus.
    """
    users = dealt(ids(15_000), 15.0, 2.0, "salt")

    def met(dealt: list[str]) -> int:
        return sum(left == right for left, right in pairwise(dealt))

    assert met(users) <= 50 < met(sorted(users))


@pytest.mark.parametrize(("mean", "deviation"), [(0.5, 1.0), (float("nan"), 1.0), (5.0, -1.0), (5.0, float("inf"))])
def test_numbers_without_a_meaning_are_refused(mean: float, deviation: float) -> None:
    with pytest.raises(PrepareError):
        dealt_users(ids(3), mean, deviation, "salt")
