"""Which parts of a tagger's entities are names, and what the tagger reads."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.data.records import Span
from tacit.policies.naming import named_parts, shown

PARTS = {
    ("Dear Sheryl Cameron", "PERSON"): ["Sheryl Cameron"],
    ("Bakkerij De Gouden Aar B.V., Utrecht", "ORG"): ["Bakkerij De Gouden Aar B.V.", "Utrecht"],
    ("IBAN Ostrava", "ORG"): ["Ostrava"],
    ("qui habitait Grenoble", "GPE"): ["Grenoble"],
    ("de Vries", "PERSON"): ["de Vries"],
    ("Mercy Hospital", "ORG"): ["Mercy Hospital"],
    ("Kowalczyk Sons Ltd.", "ORG"): ["Kowalczyk Sons Ltd."],
    ('ALERT_OWNER="Priyanka Rao', "PERSON"): ["ALERT_OWNER", "Priyanka Rao"],
    ("Der Vertrag", "ORG"): [],
    ("maria lopez", "PERSON"): ["maria lopez"],
}


@pytest.mark.parametrize(("entity", "kind"), PARTS)
def test_what_is_no_name_is_left_out(entity: str, kind: str) -> None:
    text = f"{entity} is here" if entity.islower() else f"Today {entity}"
    start = text.index(entity)
    found = named_parts(text, Span(start, start + len(entity), kind))
    assert [text[part.start : part.end] for part in found] == PARTS[entity, kind]


def test_figures_and_addresses_look_all_the_same() -> None:
    one = shown("Ann Lee, 12 May 2001, ann.lee@example.org, https://example.org/ann?x=1")
    other = shown("Ann Lee, 30 May 1987, bob.ray@invalid.com, https://invalid.com/bob?y=7")
    assert one == other
    assert one.startswith("Ann Lee, 00 May 0000, xxx.xxx@xxxxxxx.xxx")


@given(st.text(alphabet="aB1 @.w:/\n,é", max_size=60))
def test_g1_offsets_and_white_space_stay(text: str) -> None:
    read = shown(text)
    assert [(at, one) for at, one in enumerate(read) if one.isspace()] == [
        (at, one) for at, one in enumerate(text) if one.isspace()
    ]
    assert len(read) == len(text)


@given(st.text(alphabet="aB1 ,.\n'-(é", min_size=1, max_size=60), st.data())
def test_g2_parts_are_disjoint_and_inside(text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(start + 1, len(text)))
    last = start
    for part in named_parts(text, Span(start, end, "PERSON")):
        assert last <= part.start < part.end <= end
        last = part.end
