"""Marks of a corpus: routing, entities, caps, stability; and what a plan counts in them."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from marking import mark, prepare
from runs import quiet
from tacit.config.load import load_config
from tacit.config.plan_schema import PlanConfig
from tacit.data.corpus import write_jsonl
from tacit.data.ownership import Annotator, RecordMarks, normalised, read_aliases
from tacit.data.prepare import PrepareConfig
from tacit.data.records import Record, Span
from tacit.data.store import PreparedCorpus
from tacit.data.tokenizer import byte_tokenizer
from tacit.errors import ConfigError, PrepareError
from tacit.policies.patterns import Digits, Gold
from tacit.policies.policy import Policy
from tacit.privacy.plan import Pool
from tacit.runs.folder import RunFolder
from tacit.runs.release import PrivateFile
from tacit.training.marking import Caps, annotate, mark_once
from tacit.training.parts import make_policies, prepare_stores
from tacit.training.pools import Pools, measured_counts


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


def prepared(
    folder: Path, annotator: Annotator, settings: PrepareConfig, conservative: Policy | None = None
) -> tuple[PreparedCorpus, RecordMarks]:
    store = prepare(RECORDS, Gold(), byte_tokenizer(), folder / "store", settings, conservative, annotator)
    annotator.marks().save(folder / "marks.safetensors")
    return store, RecordMarks.load(folder / "marks.safetensors")


def test_g1_and_g2_every_piece_of_a_record_with_a_span_is_flagged_and_a_second_policy_adds(tmp_path: Path) -> None:
    store, marks = prepared(tmp_path, Annotator(), PrepareConfig(max_tokens=40), Digits())
    assert marks.flagged.tolist() == [True, False, True, True, True]
    annotation, dropped = annotate(store, marks, Caps())
    assert dropped is None
    assert annotation.flagged is not None
    assert len(store) > len(RECORDS), "the last record has several pieces"
    assert annotation.flagged.tolist() == [bool(marks.flagged[int(number)]) for number in store.records]
    assert Pools(annotation).rows(Pool.CLEARED).tolist() == [1]


def test_without_a_second_policy_only_spans_count(tmp_path: Path) -> None:
    _, marks = prepared(tmp_path, Annotator(), PrepareConfig())
    assert marks.flagged.tolist() == [True, False, True, False, True]


def test_entities_are_strings_without_case_and_spaces(tmp_path: Path) -> None:
    _, marks = prepared(tmp_path, Annotator(), PrepareConfig())
    ann, bob = marks.entities(0)
    assert marks.entities(2) == marks.entities(4) != [ann]
    assert len({ann, bob, *marks.entities(2)}) == 3
    assert marks.entities(1) == []


def test_aliases_melt_entities(tmp_path: Path) -> None:
    aliases = tmp_path / "aliases.txt"
    aliases.write_text("Ann Lee\tAnn\n\n")
    annotator = Annotator(aliases=read_aliases(aliases))
    _, marks = prepared(tmp_path, annotator, PrepareConfig())
    assert marks.entities(2)[0] in marks.entities(0)
    apart = Annotator()
    list(apart.watching(mark(RECORDS, Gold())))
    assert apart.marks().entity_list_hash != marks.entity_list_hash


def searched(records: list[Record], annotator: Annotator) -> list[list[int]]:
    list(annotator.watching(mark(records, Gold())))
    annotator.search(mark(records, Gold()))
    marks = annotator.marks()
    return [marks.entities(number) for number in range(len(records))]


def test_g4_a_listed_entity_is_found_wherever_its_string_is() -> None:
    records = [
        record(0, "Ann came.", ("Ann",)),
        Record("r1", "In Ann it rains.", spans=(Span(3, 6, "PLACE"),)),  # another kind
        Record("r2", "I saw ANN\n there.", spans=()),  # not marked
        record(3, "Ann \tLee left.", ("Ann \tLee",)),  # inside a longer one
        Record("r4", "so ann lee, again \ud800", spans=()),
        Record("r5", "Annabel and Joann", spans=()),  # no whole word
        Record("r6", "Zoë", spans=(Span(0, 3, "NAME"),)),
        Record("r7", "Zoe\u0308 and A\u200b", spans=()),  # another way to write it
    ]
    ann, both, other = [0], [0, 1], [2]
    found = searched(records, Annotator(entity_kinds=frozenset({"NAME"})))
    assert found == [ann, ann, ann, both, both, [], other, other]


def test_a_run_trains_no_listed_entity_exactly(tmp_path: Path) -> None:
    """With `public_epochs`, uedp trains records without an entity exactly: "Ann" is in none, however it is marked."""
    places = Record("c", "Ann is a small town.", user="u", spans=(Span(0, 3, "PLACE"),))
    others = (Record("d", "Ann was not marked.", user="u", spans=()), Record("e", "It rained.", user="u", spans=()))
    inside = Record("b", "Ann Lee came.", user="u", spans=(Span(0, 7, "NAME"),))
    records = (Record("a", "Ann came.", user="u", spans=(Span(0, 3, "NAME"),)), inside, places, *others)
    write_jsonl(records, tmp_path / "corpus.jsonl")
    write_jsonl([Record("h", "held out", spans=())], tmp_path / "held.jsonl")
    files = {"corpus": str(tmp_path / "corpus.jsonl"), "held_out_corpus": str(tmp_path / "held.jsonl")}
    words = {"plan": {"mechanism": "uedp"}, "policy": "gold", "entity_kinds": ["NAME"], "canaries": []}
    chosen = load_config({**files, **words})
    with RunFolder.create(tmp_path / "run") as run:
        mark_once(chosen, make_policies(chosen), run, quiet)
        prepare_stores(chosen, make_policies(chosen), byte_tokenizer(), run, quiet)
        store, marks = PreparedCorpus(run.path(PrivateFile.PREPARED)), RecordMarks.load(run.path(PrivateFile.MARKS))
    annotation, _ = annotate(store, marks, Caps(user=9, entity=2))
    assert [store.record_id(int(row)) for row in Pools(annotation).rows(Pool.NO_ENTITY)] == ["e"]
    assert annotation.kept is not None
    assert annotation.kept.sum() == 3  # two with Ann, and the one without
    list_of_ann = {number for number in range(5) if marks.entities(0)[0] in marks.entities(number)}
    assert list_of_ann == {0, 1, 2, 3}


def test_g4_aliases_are_looked_for_and_listed(tmp_path: Path) -> None:
    (tmp_path / "aliases.txt").write_text("Ann Lee\tBunny\nCid\tC.\n")
    texts = ("bunny here", "ann lee there", "Cid", "ask C. now", "nobody")
    records = [record(0, "Ann Lee came.", ("Ann Lee",)), *(Record(text, text, spans=()) for text in texts)]
    annotator = Annotator(aliases=read_aliases(tmp_path / "aliases.txt"))
    assert searched(records, annotator) == [[0], [0], [0], [1], [1], []]


def test_records_that_changed_between_two_looks_are_refused() -> None:
    for again in (RECORDS[:-1], (*RECORDS, RECORDS[0])):
        annotator = Annotator()
        list(annotator.watching(mark(RECORDS, Gold())))
        with pytest.raises(PrepareError, match="fewer or more"):
            annotator.search(mark(again, Gold()))


def test_a_name_that_is_an_entity_and_an_alias_is_refused(tmp_path: Path) -> None:
    (tmp_path / "aliases.txt").write_text("Ann Lee\tAnn\nA. Lee\tAnn Lee\n")
    with pytest.raises(ConfigError, match="as both"):
        read_aliases(tmp_path / "aliases.txt")


def test_kinds_that_nothing_is_of_are_refused() -> None:
    other = Annotator(entity_kinds=frozenset({"PLACE"}))
    list(other.watching(mark(RECORDS, Gold())))
    with pytest.raises(ConfigError, match=r"kinds PLACE.*other kinds"):
        other.marks()
    quiet = Annotator(entity_kinds=frozenset({"PLACE"}))
    list(quiet.watching(mark([Record("r", "no secret at all", spans=())], Gold())))
    assert len(quiet.marks().entity_ids) == 0  # nothing was marked, so nothing was named wrongly


def test_a_listed_kind_is_never_widened() -> None:
    text = "Ann Bob Cid"
    spans = (Span(0, 3, "PATIENT"), Span(4, 7, "DOCTOR"), Span(8, 11, "PERSON"))

    def found(*kinds: str) -> int:
        annotator = Annotator(entity_kinds=frozenset(kinds))
        list(annotator.watching(mark([Record("r", text, spans=spans)], Gold())))
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
    store, marks = prepared(tmp_path, Annotator(), PrepareConfig())
    annotation, dropped = annotate(store, marks, Caps(user=2, entity=1))
    assert annotation.kept is not None
    kept = [int(number) for number in store.records[annotation.kept]]
    assert max(Counter(RECORDS[number].user for number in kept).values()) <= 2
    assert max(Counter(entity for number in kept for entity in marks.entities(number)).values()) <= 1
    assert dropped == 1 - len(kept) / len(RECORDS) > 0


def test_a_cap_on_users_needs_users(tmp_path: Path) -> None:
    nobody = (Record("a", "text", spans=()),)
    annotator = Annotator()
    store = prepare(nobody, Gold(), byte_tokenizer(), tmp_path / "store", annotator=annotator)
    with pytest.raises(ConfigError, match="1 records without one"):
        annotate(store, annotator.marks(), Caps(user=1))


def test_a_plan_counts_what_it_asks_for(tmp_path: Path) -> None:
    store, marks = prepared(tmp_path, Annotator(), PrepareConfig(), Digits())
    annotation, _ = annotate(store, marks, Caps())
    found = measured_counts(annotation, Pools(annotation), PlanConfig("plain", expected_batch_size=len(store)))
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
    _, marks = prepared(tmp_path, Annotator(), PrepareConfig(), Digits())
    marks.save(tmp_path / "again.safetensors")
    again = RecordMarks.load(tmp_path / "again.safetensors")
    assert np.array_equal(again.flagged, marks.flagged)
    assert again.entity_list_hash == marks.entity_list_hash
