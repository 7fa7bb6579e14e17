"""The people of CustomerSim: nobody shares a value, nobody looks like a member, everybody is plausible."""

import re
from itertools import islice

import phonenumbers
import pytest

from tacit.simulation.people import SPLITS, Person, held_out_people, people_of, profile


def owned_values(person: Person) -> list[str]:
    orders = [value for order in person.orders for value in (order.number, order.tracking)]
    return [person.name, person.address, re.sub(r"\D", "", person.phone)[-10:], *orders]


def test_g1_no_value_has_two_owners() -> None:
    """All four tables at once: 6,000 people, among whom many would share a name by chance."""
    tables = [*(list(islice(people_of(split, 0), 1_500)) for split in SPLITS), list(held_out_people(1_500))]
    everyone = [person for table in tables for person in table]
    assert len({person.user for person in everyone}) == len(everyone)
    values = [value for person in everyone for value in owned_values(person)]
    assert len(set(values)) == len(values)


def test_g2_more_people_keep_the_first_ones() -> None:
    assert held_out_people(200)[:50] == held_out_people(50)


@pytest.mark.statistical
def test_held_out_people_look_like_the_others() -> None:
    """A membership test is fair only if nothing but membership tells the tables apart.

    Five traits of 3,000 train and 3,000 held-out people, each compared at 4.5 standard deviations: false alarm below
    5 x 7e-6. Negative control: a held-out table in which one entry in five is the same person is caught.
    """
    inside, outside = list(islice(people_of("train", 0), 3_000)), list(held_out_people(3_000))
    spoiled = outside[:2_400] + outside[:1] * 600
    assert not far_apart(traits(inside), traits(outside), 3_000)
    assert far_apart(traits(inside), traits(spoiled), 3_000)


def traits(people: list[Person]) -> list[int]:
    return [
        sum(len(person.name) > 13 for person in people),
        sum(person.name < "K" for person in people),
        sum(" Apt " in person.address for person in people),
        sum(person.phone[0] in "(+" for person in people),
        sum(len(person.orders) > 1 for person in people),
    ]


def far_apart(first: list[int], second: list[int], size: int) -> bool:
    shares = [(one + two) / (2 * size) for one, two in zip(first, second, strict=True)]
    return any(
        abs(one - two) > 4.5 * (2 * size * share * (1 - share)) ** 0.5
        for one, two, share in zip(first, second, shares, strict=True)
    )


def test_people_are_plausible() -> None:
    for person in held_out_people(500):
        number = phonenumbers.parse(person.phone, "US")
        assert phonenumbers.is_valid_number(number)
        assert re.fullmatch(r"\d+ .+, [A-Z]{2} \d{5}", person.address)
        assert person.first_name in person.name.split(" ")
        assert 1 <= len(person.orders) <= 3


def test_phones_come_in_several_formats() -> None:
    shapes = {re.sub(r"\d", "0", person.phone) for person in held_out_people(300)}
    assert len(shapes) == 7


def test_a_profile_holds_all_secrets_of_a_person() -> None:
    for person in held_out_people(50):
        record = profile(person)
        orders = [pair for order in person.orders for pair in (("ORDER", order.number), ("TRACKING", order.tracking))]
        expected = [("NAME", person.name), ("ADDRESS", person.address), ("PHONE", person.phone), *orders]
        assert [(span.kind, record.text[span.start : span.end]) for span in record.spans or ()] == expected
        assert record.user == record.id == person.user
