"""Marks of a corpus: routing, entities, caps, stability; and what a plan counts in them."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tacit.annotating import Annotator, Caps, Marks, annotate, normalised, read_aliases
from tacit.corpus.record import Record, Span
from tacit.counting import measured_counts
from tacit.errors import ConfigError
from tacit.plan import Pool
from tacit.policy.patterns import Digits, Gold
from tacit.prepare import Prepared, PrepareSettings, prepare
from tacit.sampling import Pools
from tacit.tokenizer import byte_tokenizer


def record(number: int, text: str, names: tuple[str, ...] = (), user: str | None = None) -> Record:
    spans = [Span(text.index(name), text.index(name) + len(name), "NAME") for name in names]
    return Record(f"r{number}", text, user=user, spans=tuple(sorted(spans)))


RECORDS = (
    record(0, "Ann met Bob in the park.", ("Ann", "Bob"), "u0"),
    record(1, "It rained all day.", (), "u0"),
    record(2, "ANN  Lee came back.", ("ANN  Lee",), "u1"),
    record(3, "The code is 4711.", (), "u1"),
    record(4, "ann lee left, " + "and walked on and on " * 8, ("ann lee",), "u0"),
)


def prepared(folder: Path, annotator: Annotator, settings: PrepareSettings) -> tuple[Prepared, Marks]:
    store = prepare(annotator.watching(RECORDS), annotator.policy, byte_tokenizer(), folder / "store", settings)
    annotator.marks().save(folder / "marks.safetensors")
    return store, Marks.load(folder / "marks.safetensors")


def test_g1_and_g2_every_piece_of_a_record_with_a_span_is_flagged_and_a_second_policy_adds(
    tmp_path: Path,
) -> None:
    store, marks = prepared(tmp_path, Annotator(Gold(), Digits()), PrepareSettings(max_tokens=40))
    assert marks.flagged.tolist() == [True, False, True, True, True]
    annotation, dropped = annotate(store, marks, Caps())
    assert dropped is None
    assert annotation.flagged is not None
    assert len(store) > len(RECORDS), "the last record has several pieces"
    assert annotation.flagged.tolist() == [bool(marks.flagged[int(number)]) for number in store.records]
    assert Pools(annotation).rows(Pool.CLEARED).tolist() == [1]


def test_without_a_second_policy_only_spans_count(tmp_path: Path) -> None:
    _, marks = prepared(tmp_path, Annotator(Gold()), PrepareSettings())
    assert marks.flagged.tolist() == [True, False, True, False, True]


def test_entities_are_strings_without_case_and_spaces(tmp_path: Path) -> None:
    _, marks = prepared(tmp_path, Annotator(Gold()), PrepareSettings())
    ann, bob = marks.entities(0)
    assert marks.entities(2) == marks.entities(4) != [ann]
    assert len({ann, bob, *marks.entities(2)}) == 3
    assert marks.entities(1) == []


def test_aliases_melt_entities(tmp_path: Path) -> None:
    aliases = tmp_path / "aliases.txt"
    aliases.write_text("Ann Lee\tAnn\n\n")
    annotator = Annotator(Gold(), aliases=read_aliases(aliases))
    _, marks = prepared(tmp_path, annotator, PrepareSettings())
    assert marks.entities(2)[0] in marks.entities(0)
    apart = Annotator(Gold())
    list(apart.watching(RECORDS))
    assert apart.marks().entity_list_hash != marks.entity_list_hash


def test_kinds_that_nothing_is_of_are_refused() -> None:
    other = Annotator(Gold(), entity_kinds=frozenset({"PLACE"}))
    list(other.watching(RECORDS))
    with pytest.raises(ConfigError, match=r"kinds PLACE.*other kinds"):
        other.marks()
    quiet = Annotator(Gold(), entity_kinds=frozenset({"PLACE"}))
    list(quiet.watching([Record("r", "no secret at all", spans=())]))
    assert len(quiet.marks().entity_ids) == 0  # nothing was marked, so nothing was named wrongly


def test_a_listed_kind_is_never_widened() -> None:
    text = "Ann Bob Cid"
    spans = (Span(0, 3, "PATIENT"), Span(4, 7, "DOCTOR"), Span(8, 11, "PERSON"))

    def found(*kinds: str) -> int:
        annotator = Annotator(Gold(), entity_kinds=frozenset(kinds))
        list(annotator.watching([Record("r", text, spans=spans)]))
        return len(annotator.marks().entity_ids)

    assert found("PATIENT") == 1
    assert found("PATIENT", "DOCTOR") == 2
    assert found("PERSON") == 3  # what the common name says, whatever the corpus calls them
    with pytest.raises(ConfigError):
        found("PER")


def test_an_alias_of_two_entities_is_refused(tmp_path: Path) -> None:
    (tmp_path / "aliases.txt").write_text("Ann\tA\nBob\tA\n")
    with pytest.raises(ConfigError, match="under two"):
        read_aliases(tmp_path / "aliases.txt")


def test_g3_no_unit_is_in_more_kept_records_than_its_cap(tmp_path: Path) -> None:
    store, marks = prepared(tmp_path, Annotator(Gold()), PrepareSettings())
    annotation, dropped = annotate(store, marks, Caps(user=2, entity=1))
    assert annotation.kept is not None
    kept = [int(number) for number in store.records[annotation.kept]]
    assert max(Counter(RECORDS[number].user for number in kept).values()) <= 2
    assert max(Counter(entity for number in kept for entity in marks.entities(number)).values()) <= 1
    assert dropped == 1 - len(kept) / len(RECORDS) > 0


def test_a_cap_on_users_needs_users(tmp_path: Path) -> None:
    nobody = (Record("a", "text", spans=()),)
    annotator = Annotator(Gold())
    store = prepare(annotator.watching(nobody), Gold(), byte_tokenizer(), tmp_path / "store")
    with pytest.raises(ConfigError, match="1 records without one"):
        annotate(store, annotator.marks(), Caps(user=1))


def test_stability_is_looked_at_for_every_span(tmp_path: Path) -> None:
    annotator = Annotator(Digits(), check_stability=True)
    list(annotator.watching(RECORDS))
    assert annotator.marks().stable_share == 1.0
    assert Annotator(Digits()).marks().stable_share is None


def test_a_plan_counts_what_it_asks_for(tmp_path: Path) -> None:
    store, marks = prepared(tmp_path, Annotator(Gold(), Digits()), PrepareSettings())
    annotation, _ = annotate(store, marks, Caps())
    found = measured_counts(annotation, Pools(annotation), {"batch": len(store)})
    numbers = {word: count() for word, count in found.items()}
    assert numbers == {
        "records": 5,
        "secret_records": 3,
        "flagged": 4,
        "other_records": 2,
        "users": 2,
        "sensitive_share": 0.6,
        "segments_per_record": 2,
        "events_per_batch": 2.0,
    }


@pytest.mark.parametrize(("given", "expected"), [("  Ann\tLee \n", "ann lee"), ("", ""), ("STRASSE", "strasse")])
def test_normalised(given: str, expected: str) -> None:
    assert normalised(given) == expected


def test_marks_survive_a_round_trip(tmp_path: Path) -> None:
    _, marks = prepared(tmp_path, Annotator(Gold(), Digits(), check_stability=True), PrepareSettings())
    marks.save(tmp_path / "again.safetensors")
    again = Marks.load(tmp_path / "again.safetensors")
    assert np.array_equal(again.flagged, marks.flagged)
    assert (again.entity_list_hash, again.stable_share) == (marks.entity_list_hash, marks.stable_share)
