"""Contribution caps."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.data.ownership import cap_contributions, salted_order
from tacit.errors import PrepareError

records = st.lists(
    st.fixed_dictionaries(
        {"user": st.lists(st.sampled_from("uvw"), max_size=1), "entity": st.lists(st.sampled_from("abcd"), max_size=3)}
    ),
    max_size=14,
)
limits = st.fixed_dictionaries({"user": st.integers(1, 4), "entity": st.integers(1, 4)})


def load(incidence: list[dict[str, list[str]]]) -> Counter[tuple[str, str]]:
    return Counter(unit for units in incidence for noun in units for unit in {(noun, name) for name in units[noun]})


@given(incidence=records, limits=limits, salt=st.text(max_size=3))
def test_g1_no_unit_is_over_its_limit(incidence: list[dict[str, list[str]]], limits: dict[str, int], salt: str) -> None:
    order = salted_order([str(number) for number in range(len(incidence))], salt)
    kept, report = cap_contributions(incidence, limits, order)
    loads = load([units for units, keep in zip(incidence, kept, strict=True) if keep])
    assert all(count <= limits[noun] for (noun, _), count in loads.items())
    assert report.kept == sum(kept)
    for noun, limit in limits.items():
        wanted = {unit: count for unit, count in load(incidence).items() if unit[0] == noun}
        assert report.nouns[noun].units == len(wanted)
        assert report.nouns[noun].units_over_limit == sum(count > limit for count in wanted.values())
        assert report.nouns[noun].memberships == sum(wanted.values())
        assert report.nouns[noun].memberships_kept == sum(c for unit, c in loads.items() if unit[0] == noun)


@given(incidence=records, limits=limits)
def test_g2_no_dropped_record_could_be_added_back(
    incidence: list[dict[str, list[str]]], limits: dict[str, int]
) -> None:
    kept, _ = cap_contributions(incidence, limits)
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
    kept, _ = cap_contributions(incidence, limits, order)
    assert sorted(chosen) == [record for record, keep in enumerate(kept) if keep]


def test_the_share_that_is_dropped() -> None:
    kept, report = cap_contributions([{"user": ["u"]}] * 4 + [{}], {"user": 1})
    assert kept.tolist() == [True, False, False, False, True]
    assert report.share_dropped == pytest.approx(0.6)
    assert cap_contributions([], {"user": 1})[1].share_dropped == 0


def test_an_order_depends_on_the_salt_and_names_each_record_once() -> None:
    ids = [f"r{number}" for number in range(50)]
    orders = {tuple(salted_order(ids, salt)) for salt in ("", "a", "b")}
    assert len(orders) == 3
    assert all(sorted(order) == list(range(50)) for order in orders)


def test_limits_and_orders_that_make_no_sense_are_refused() -> None:
    with pytest.raises(PrepareError):
        cap_contributions([{}], {"user": 0})
    with pytest.raises(PrepareError):
        cap_contributions([{}, {}], {"user": 1}, order=[0, 0])
