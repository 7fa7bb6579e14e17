"""Contribution caps."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.data.ownership import Capped, cap_contributions, salted_order
from tacit.errors import PrepareError

records = st.lists(
    st.fixed_dictionaries(
        {"user": st.lists(st.sampled_from("uvw"), max_size=1), "entity": st.lists(st.sampled_from("abcd"), max_size=3)}
    ),
    max_size=14,
)
limits = st.fixed_dictionaries({"user": st.integers(1, 4), "entity": st.integers(1, 4)})


def capped(incidence: list[dict[str, list[str]]], limits: dict[str, int]) -> list[Capped]:
    """The same in arrays."""
    numbers: dict[tuple[str, str], int] = {}
    found = []
    for noun, limit in limits.items():
        units = [{numbers.setdefault((noun, unit), len(numbers)) for unit in one.get(noun, ())} for one in incidence]
        ids = np.array([number for some in units for number in sorted(some)], dtype=np.int64)
        found.append(Capped(np.cumsum([0, *map(len, units)]), ids, limit))
    return found


def load(incidence: list[dict[str, list[str]]]) -> Counter[tuple[str, str]]:
    return Counter(unit for units in incidence for noun in units for unit in {(noun, name) for name in units[noun]})


@given(incidence=records, limits=limits, salt=st.text(max_size=3))
def test_g1_no_unit_is_over_its_limit(incidence: list[dict[str, list[str]]], limits: dict[str, int], salt: str) -> None:
    order = salted_order([str(number) for number in range(len(incidence))], salt)
    kept = cap_contributions(capped(incidence, limits), order)
    loads = load([units for units, keep in zip(incidence, kept, strict=True) if keep])
    assert all(count <= limits[noun] for (noun, _), count in loads.items())


@given(incidence=records, limits=limits)
def test_g2_no_dropped_record_could_be_added_back(
    incidence: list[dict[str, list[str]]], limits: dict[str, int]
) -> None:
    kept = cap_contributions(capped(incidence, limits), np.arange(len(incidence)))
    inside = [units for units, keep in zip(incidence, kept, strict=True) if keep]
    for units, keep in zip(incidence, kept, strict=True):
        if not keep:
            assert any(count > limits[noun] for (noun, _), count in load([*inside, units]).items())


@given(incidence=records, limits=limits)
def test_g3_the_choice_agrees_with_an_obvious_loop(
    incidence: list[dict[str, list[str]]], limits: dict[str, int]
) -> None:
    order = salted_order([str(number) for number in range(len(incidence))], "salt")
    chosen: list[int] = []
    for record in order:
        loads = load([incidence[other] for other in [*chosen, record]])
        if all(count <= limits[noun] for (noun, _), count in loads.items()):
            chosen.append(record)
    kept = cap_contributions(capped(incidence, limits), order)
    assert sorted(chosen) == [record for record, keep in enumerate(kept) if keep]


def test_a_record_without_units_is_kept() -> None:
    kept = cap_contributions(capped([{"user": ["u"]}] * 4 + [{}], {"user": 1}), np.arange(5))
    assert kept.tolist() == [True, False, False, False, True]
    assert not len(cap_contributions(capped([], {"user": 1}), np.arange(0)))


def test_an_order_depends_on_the_salt_and_names_each_record_once() -> None:
    ids = [f"r{number}" for number in range(50)]
    orders = {tuple(salted_order(ids, salt)) for salt in ("", "a", "b")}
    assert len(orders) == 3
    assert all(sorted(order) == list(range(50)) for order in orders)


def test_limits_and_orders_that_make_no_sense_are_refused() -> None:
    with pytest.raises(PrepareError):
        cap_contributions(capped([{}], {"user": 0}), np.arange(1))
    with pytest.raises(PrepareError):
        cap_contributions(capped([{}, {}], {"user": 1}), np.array([0, 0]))
