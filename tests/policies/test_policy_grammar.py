"""Grammar: levels one by one, their union, and words that the parse tells."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from readers import PIPELINE, needs_pipeline
from tacit.data.records import Record, spans_fault
from tacit.errors import ConfigError, PolicyError
from tacit.policies.entities import LEVELS, Grammar
from tacit.policies.registry import build_policy, parse_policy

pytestmark = needs_pipeline
PIPE = PIPELINE or ""
TEXT = "Yesterday Barack Obama gave her a book in Berlin, and the old dog chased two cats."


def words(*levels: str) -> set[str]:
    found = Grammar(PIPE, levels or LEVELS).find(Record("r", TEXT))
    return {TEXT[span.start : span.end] for span in found}


def test_levels_find_what_they_say() -> None:
    assert words("entities") >= {"Barack Obama", "Berlin"}
    assert words("subjects") == {"Obama", "dog"}
    assert words("objects") >= {"book", "cats"}
    assert words("proper-nouns") >= {"Barack", "Obama", "Berlin"}
    assert words("pronouns") == {"her"}
    assert "chased" not in words()


def test_kinds_are_those_of_entities_or_levels() -> None:
    kinds = {TEXT[start:end]: kind for start, end, kind in Grammar(PIPE).find(Record("r", TEXT))}
    assert kinds["Barack Obama"] == "PERSON"
    assert kinds["dog"] == "SUBJECT"
    assert kinds["her"] == "PRONOUN" or kinds["her"] == "OBJECT"


@given(st.lists(st.sampled_from([*TEXT.split(), "\n", "😀", "שלום", "\x00", "USR:"]), max_size=15).map(" ".join))
@settings(max_examples=10, deadline=None)
def test_g1_the_characters_are_the_union_of_the_levels(text: str) -> None:
    whole = Grammar(PIPE).find(Record("r", text))
    assert spans_fault(whole, len(text)) is None
    single = [Grammar(PIPE, (level,)).find(Record("r", text)) for level in LEVELS]
    union = {at for spans in single for span in spans for at in range(span.start, span.end)}
    assert {at for span in whole for at in range(span.start, span.end)} == union


def test_levels_come_in_one_order_and_unknown_ones_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TACIT_SPACY", PIPE)
    assert Grammar(PIPE, ("pronouns", "entities")) == Grammar(PIPE, ("entities", "pronouns"))
    assert parse_policy("grammar") == Grammar(PIPE)
    assert build_policy({"grammar": {"levels": ["objects"]}}) == Grammar(PIPE, ("objects",))
    with pytest.raises(ConfigError, match="did you mean subjects"):
        build_policy({"grammar": {"levels": ["subject"]}})
    with pytest.raises(PolicyError, match="at least one"):
        Grammar(PIPE, ())
