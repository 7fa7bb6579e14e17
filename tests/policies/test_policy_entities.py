"""Named entities: one vocabulary, pieces, memory, and the three kinds of taggers against slow twins."""

import json
import pickle
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint, PackageNotFoundError
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from readers import PIPELINE, needs_pipeline, needs_presidio
from tacit.common import libraries
from tacit.common.workers import Workers
from tacit.data.records import NAMES, ONTONOTES, PERSONAL, Record, Span, common_kind, resolve_overlaps, spans_fault
from tacit.errors import PolicyError
from tacit.policies import tagging
from tacit.policies.entities import Names, Presidio, SpacyEntities, names
from tacit.policies.pii.policy import KINDS as PII_KINDS
from tacit.policies.policy import Policy
from tacit.policies.registry import build_policy, parse_policy
from tacit.policies.tagging import LONGEST, default_pipeline, digest_of, find_pipeline, pieces, readable, tidied
from tacit.policies.token_classifier import TokenClassifier

PIPE = PIPELINE or ""
DIALOG = (
    "SYS: Hello, what is your name?\nUSR: Patrick Schug\nSYS: Thanks, Patrick. Where do you live?\n"
    "USR: In Paris, and I work for Google since May 2020.\n"
)
WORDS = st.sampled_from(
    ["Ann Lee", "Paris", "שלום", "مرحبا", "😀", "\u202e", "\n", "USR:", "Google", "5 May 1980", "İstanbul", "e\u0301",
     "\x00", "((((", "a@b.example", "\ud800", "\u2028", "戦場"]
)  # fmt: skip
TEXTS = st.lists(WORDS, max_size=12).map(" ".join) | st.text(max_size=40)


def record(text: str) -> Record:
    return Record("r", text)


# one vocabulary


def test_every_name_of_a_kind_is_one_kind() -> None:
    rows = {
        "PERSON": ("PER", "B-PER", "I-PER", "person", "NAME"),
        "LOC": ("LOC", "LOCATION", "E-LOC"),
        "ORG": ("ORGANIZATION", "B-ORG"),
        "DATE": ("DATE_TIME",),
        "NORP": ("NRP",),
        "CARD": ("CREDIT_CARD",),
        "ID": ("US_PASSPORT", "UK_NHS", "CRYPTO", "ID"),
        "SSN": ("US_SSN",),
        "WORK_OF_ART": ("work of art", "Work-of-Art"),
        "MISC": ("MISC", "I-MISC"),
        "DRUG": ("drug", "B-DRUG"),
    }
    for kind, labels in rows.items():
        assert {common_kind(label) for label in labels} == {kind}


def test_all_kinds_of_pii_are_in_the_vocabulary() -> None:
    assert {common_kind(kind) for kind in PII_KINDS} <= {*ONTONOTES, *PERSONAL}
    assert len(ONTONOTES) == 18


PREFIXED = st.builds("{}{}".format, st.text("BILUSEMb- ", max_size=8), st.sampled_from(["PER", "E-MAIL", "x", ""]))


@given(st.text(max_size=12) | PREFIXED | st.sampled_from([*ONTONOTES, *PERSONAL, "US_X", "E-MAIL", "I-B-PER"]))
def test_g1_a_common_kind_stays_what_it_is(label: str) -> None:
    once = common_kind(label)
    assert common_kind(once) == once
    if once in (*ONTONOTES, *PERSONAL):
        assert common_kind(f"B-{label}") == common_kind(label.lower()) == once


def test_g1_a_listed_name_is_itself_before_a_prefix_is_looked_for() -> None:
    rows = {"E-MAIL": "EMAIL", "B-E-MAIL": "EMAIL", "I-B-PER": "PERSON", "PHONE-NUMBER": "PHONE", "S-": "S-"}
    assert {label: common_kind(label) for label in rows} == rows


def test_a_house_s_own_kind_is_no_number_of_a_country() -> None:
    own = ("IT_SYSTEM", "US_CITY", "IN_HOUSE", "CA_RESIDENT", "DE_")
    assert tuple(common_kind(label) for label in own) == own


def test_every_number_of_a_country_that_presidio_finds_is_listed() -> None:
    pytest.importorskip("presidio_analyzer")
    from presidio_analyzer import PatternRecognizer, predefined_recognizers

    every = (getattr(predefined_recognizers, name) for name in predefined_recognizers.__all__)
    patterns = [one for one in every if isinstance(one, type) and issubclass(one, PatternRecognizer)]
    labels = {str(label) for one in patterns for label in one().supported_entities}  # type: ignore[call-arg]
    assert len(labels) > 30
    unlisted = {label for label in labels if common_kind(label) not in (*ONTONOTES, *PERSONAL)}
    assert unlisted == set()


# pieces and tidying


@given(st.text(alphabet="ab .\n", max_size=120), st.integers(1, 30))
def test_pieces_g1_cover_the_text(text: str, longest: int) -> None:
    cut = list(pieces(text, longest))
    assert "".join(text[start:end] for start, end in cut) == text
    assert all(0 < end - start <= longest for start, end in cut)


def test_pieces_g2_cuts_stand_where_a_reader_pauses() -> None:
    def ends(text: str) -> list[str]:
        return [text[start:end] for start, end in pieces(text, 12)]

    assert ends("one two\nthree four") == ["one two\n", "three four"]
    assert ends("One two. Three four") == ["One two. ", "Three four"]
    assert ends("one two three four") == ["one two ", "three four"]
    assert ends("abcdefghijklmnop") == ["abcdefghijkl", "mnop"]


def test_tidied_g3_takes_away_lines_space_and_roles_only() -> None:
    def left(text: str, start: int = 0, end: int | None = None) -> list[str]:
        spans = tidied(text, [Span(start, len(text) if end is None else end, "X")])
        return [text[span.start : span.end] for span in spans]

    assert left("USR") == ["USR"]
    assert left("USR: Ann", 0, 3) == []
    assert left("USR: Ann") == ["Ann"]
    assert left("Agent 2: Ann") == ["Ann"]
    assert left("[Customer]: Ann") == ["Ann"]
    assert left("Alice: hello") == ["Alice: hello"]
    assert left("Ann\nSYS: Bob\n  Tim ") == ["Ann", "Bob", "Tim"]
    assert left("see USR: x") == ["see USR: x"]
    assert left(" \n\t") == []


@given(TEXTS, st.lists(st.tuples(st.integers(0, 40), st.integers(1, 9)), max_size=4))
def test_tidied_never_adds_a_character(text: str, places: list[tuple[int, int]]) -> None:
    spans = [Span(start, min(start + length, len(text)), "X") for start, length in places if start < len(text)]
    before = {at for span in spans for at in range(span.start, span.end)}
    tidy = tidied(text, spans)
    assert {at for span in tidy for at in range(span.start, span.end)} <= before
    assert spans_fault(resolve_overlaps(tidy), len(text)) is None


def test_half_a_surrogate_pair_is_read_as_a_question_mark() -> None:
    assert readable("a\ud800b😀") == "a?b😀"


# where files are


def test_an_unknown_pipeline_is_an_error_with_the_command() -> None:
    with pytest.raises(PolicyError, match="python -m spacy download xx_no_such_pipeline"):
        SpacyEntities("xx_no_such_pipeline")
    with pytest.raises(PolicyError, match="python -m spacy download en_core_web_sm"):
        SpacyEntities("no/such folder")


def test_a_missing_package_is_an_error_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(package: str) -> str:
        raise PackageNotFoundError(package)

    monkeypatch.setattr(libraries, "version", missing)
    with pytest.raises(PolicyError, match=r'the package spacy.*pip install "tacit\[spacy\]"'):
        find_pipeline.__wrapped__("en_core_web_sm")
    with pytest.raises(PolicyError, match=r'the package transformers.*pip install "tacit\[train,hf\]"'):
        TokenClassifier("a folder")


def test_the_command_names_the_extras_that_have_the_package() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    has = {extra: {re.split(r"[^\w-]", package)[0] for package in extras[extra]} for extra in extras}
    for package, named in libraries.EXTRAS.items():
        assert package in set.union(*(has[extra] for extra in named.split(",")))
    assert set(libraries.EXTRAS) == set.union(*(has[extra] for extra in has if extra not in ("dev", "docs")))


def test_the_variable_names_the_default_pipeline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TACIT_SPACY", "xx_house")
    assert default_pipeline() == "xx_house"
    for word in ("entities", "names", "grammar"):
        with pytest.raises(PolicyError, match="xx_house"):
            parse_policy(word)


@pytest.mark.parametrize(
    ("installed", "default"),
    [
        ([], "en_core_web_sm"),
        (["de_core_news_sm"], "de_core_news_sm"),
        (["de_core_news_sm", "en_core_web_sm"], "en_core_web_sm"),
    ],
)
def test_the_default_pipeline_is_an_installed_one(
    installed: list[str], default: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(installed, monkeypatch)
    assert default_pipeline() == default


def test_between_several_pipelines_nothing_is_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    install(["de_core_news_sm", "en_core_web_lg"], monkeypatch)
    with pytest.raises(PolicyError, match=r"de_core_news_sm, en_core_web_lg.*TACIT_SPACY"):
        parse_policy("names")


def install(pipelines: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    found = [EntryPoint(name, name, "spacy_models") for name in pipelines]
    monkeypatch.setattr(tagging, "entry_points", lambda group: found if group == "spacy_models" else [])
    monkeypatch.delenv("TACIT_SPACY", raising=False)


def blank_pipeline(folder: Path, language: str, name: str) -> str:
    """A pipeline that knows one person, in a folder."""
    spacy = pytest.importorskip("spacy")
    pipeline = spacy.blank(language, meta={"name": name})
    pipeline.add_pipe("entity_ruler").add_patterns([{"label": "PER", "pattern": f"Maria {language}"}])
    pipeline.to_disk(folder)
    return str(folder)


def test_a_language_chooses_its_pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    es, fr, more = (blank_pipeline(tmp_path / name, name[:2], name) for name in ("es", "fr", "fr-large"))
    install([es, fr], monkeypatch)
    for name, end in (("names", 5), ("spacy", 8)):  # a small word is no part of a name
        policy = build_policy({name: {"language": "es"}})
        assert policy.id == "spacy:es_es"
        assert policy.find(record("Maria es, Maria fr")) == (Span(0, end, "PERSON"),)
    assert build_policy({"names": {"language": "fr"}}) == names(fr) == build_policy({"names": fr})
    install([es, fr, more], monkeypatch)
    with pytest.raises(PolicyError, match="one spaCy pipeline for 'fr', or fr_core_news_sm among several"):
        build_policy({"names": {"language": "fr"}})
    install([fr], monkeypatch)
    monkeypatch.setenv("TACIT_SPACY", es)
    assert build_policy({"spacy": {"language": "es"}}) == SpacyEntities(es)


def test_a_language_without_a_pipeline_names_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install([blank_pipeline(tmp_path, "es", "x")], monkeypatch)
    with pytest.raises(PolicyError, match=r"language 'fr'; found none;.* spacy download fr_core_news_sm"):
        build_policy({"names": {"language": "fr"}})
    with pytest.raises(PolicyError, match="spacy download en_core_web_sm"):
        build_policy({"grammar": {"language": "en"}})
    with pytest.raises(PolicyError, match="`pipeline` or `language`; found both"):
        build_policy({"spacy": {"language": "es", "pipeline": str(tmp_path)}})


def test_the_digest_sees_names_and_bytes(tmp_path: Path) -> None:
    digests = set()
    for number, (name, content) in enumerate([("a", "1"), ("b", "1"), ("a", "2")]):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / name).write_text(content)
        (folder / ".hidden").write_text(str(number))
        digests.add(digest_of(folder))
    assert len(digests) == 3


# spaCy


@needs_pipeline
def test_spacy_finds_names_and_not_who_speaks() -> None:
    found = SpacyEntities(PIPE).find(record(DIALOG))
    texts = {DIALOG[span.start : span.end]: span.kind for span in found}
    assert texts["Patrick Schug"] == "PERSON"
    assert texts["Paris"] == "GPE"
    assert texts["May 2020"] == "DATE"
    assert not {"USR", "SYS"} & set(texts)


@needs_pipeline
@given(TEXTS)
@settings(max_examples=15, deadline=None)
def test_spacy_is_tidy_on_any_text(text: str) -> None:
    assert spans_fault(SpacyEntities(PIPE).find(record(text)), len(text)) is None


@needs_pipeline
def test_spacy_g1_some_kinds_are_the_spans_of_all_with_these_kinds() -> None:
    every = SpacyEntities(PIPE).find(record(DIALOG))
    some = SpacyEntities(PIPE, ("GPE", "name")).find(record(DIALOG))
    assert some == tuple(span for span in every if span.kind in ("GPE", "PERSON"))
    assert some


@needs_pipeline
def test_spacy_equals_the_pipeline_itself() -> None:
    """The slow twin: the pipeline loaded whole by spaCy, components that entities do not need switched off."""
    import spacy

    twin = spacy.load(PIPE)
    with twin.select_pipes(enable=["ner"]):
        doc = twin("Barack Obama met Angela Merkel in Berlin on 5 May 2014.")
    assert SpacyEntities(PIPE).find(record(doc.text)) == tuple(
        Span(entity.start_char, entity.end_char, entity.label_) for entity in doc.ents
    )


@needs_pipeline
def test_spacy_reads_a_text_the_same_whatever_came_before_and_in_another_process() -> None:
    text = DIALOG + "Zyxwv Qwrtp lives in Reykjavik."
    first = SpacyEntities(PIPE).find(record(text))
    for other in ("Zyxwv", "I met Qwrtp Zyxwv.", DIALOG):
        SpacyEntities(PIPE).find(record(other))
    assert SpacyEntities(PIPE).find(record(text)) == first
    code = (
        "import pickle, sys\nfrom tacit.data.records import Record\n"
        "policy, text = pickle.loads(sys.stdin.buffer.read())\nprint(repr(policy.find(Record('r', text))))"
    )
    sent = pickle.dumps((SpacyEntities(PIPE), text))
    run = subprocess.run([sys.executable, "-c", code], input=sent, capture_output=True, check=True)
    assert run.stdout.decode().strip() == repr(first)
    assert len(sent) < 2_000  # a name, not a pipeline


@needs_pipeline
@pytest.mark.slow
def test_spacy_finds_in_worker_processes_what_it_finds_alone() -> None:
    corpus = [Record(str(at), f"{DIALOG}Mr Smith number {at} lives in Reykjavik.") for at in range(40)]
    policy = SpacyEntities(PIPE) | SpacyEntities(PIPE, ("DATE",))
    with Workers(policy, 2) as workers:
        found = [spans for _, spans in workers.map(_find, corpus)]
    assert found == [policy.find(one) for one in corpus]


def _find(policy: Policy, one: Record) -> tuple[Span, ...]:
    return policy.find(one)


@needs_pipeline
def test_spacy_reads_long_texts_and_long_words() -> None:
    text = ("x" * 5_000 + " Ann Lee lives in Paris. " + "(" * 3_000 + "😀" * 3_000 + "\n") * 2
    assert len(text) > LONGEST
    found = SpacyEntities(PIPE, ("GPE",)).find(record(text))
    assert [text[span.start : span.end] for span in found] == ["Paris", "Paris"]


@needs_pipeline
def test_spacy_kinds_that_the_pipeline_does_not_know_are_an_error() -> None:
    with pytest.raises(PolicyError, match="DRUG"):
        SpacyEntities(PIPE, ("DRUG",))
    with pytest.raises(PolicyError, match="none"):
        SpacyEntities(PIPE, ())


@needs_pipeline
def test_a_folder_is_as_good_as_a_name_and_its_files_are_its_hash(tmp_path: Path) -> None:
    folder = tmp_path / "house"
    shutil.copytree(find_pipeline(PIPE).folder, folder)
    by_folder = build_policy({"spacy": {"pipeline": "house", "kinds": ["PERSON"]}}, tmp_path)
    assert by_folder.find(record(DIALOG)) == SpacyEntities(PIPE, ("PERSON",)).find(record(DIALOG))
    assert by_folder.hash == SpacyEntities(PIPE, ("PERSON",)).hash
    assert str(tmp_path) not in json.dumps(by_folder.content())
    other = tmp_path / "other"
    shutil.copytree(folder, other)
    meta = json.loads((other / "meta.json").read_text())
    (other / "meta.json").write_text(json.dumps({**meta, "description": "changed"}))
    assert SpacyEntities(str(other), ("PERSON",)).hash != by_folder.hash


@needs_pipeline
def test_names_are_entities_but_for_plain_words() -> None:
    text = "SSN of Ann Lee, PIN of Bob Ray. The Order came from Paris. DOB unknown, IBAN unknown."
    everything, kept = SpacyEntities(PIPE, NAMES).find(record(text)), Names(PIPE, NAMES).find(record(text))
    assert set(kept) <= set(everything)
    assert {text[span.start : span.end] for span in kept}.isdisjoint({"SSN", "PIN", "IBAN", "DOB", "Order"})
    assert any("Ann Lee" in text[span.start : span.end] for span in kept)


@needs_pipeline
def test_words_for_the_default_pipeline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TACIT_SPACY", PIPE)
    assert parse_policy("entities") == SpacyEntities(PIPE)
    assert names() == Names(PIPE, NAMES)
    both = parse_policy("names,pii")
    mail = DIALOG + "USR: Mail me at ann@lee.example, or call 980-322-8737.\n"
    found = {mail[span.start : span.end] for span in both.find(record(mail))}
    assert {"Patrick Schug", "Paris", "Google", "ann@lee.example", "980-322-8737"} <= found
    assert {"spacy:" in both.id, "pii" in both.id} == {True}


# Presidio


@needs_presidio
def test_presidio_thresholds_and_kinds() -> None:
    text = "Ann Lee, 980-322-8737, ann@lee.example.com, passport 912803456."

    def found(threshold: float) -> set[int]:
        spans = Presidio(PIPE, None, threshold).find(record(text))
        assert spans_fault(spans, len(text)) is None
        return {at for span in spans for at in range(span.start, span.end)}

    assert found(0.0) >= found(0.3) >= found(0.9)
    assert found(0.0) > found(0.9)
    kinds = {span.kind for span in Presidio(PIPE, ("EMAIL", "PHONE")).find(record(text))}
    assert kinds == {"EMAIL", "PHONE"}
    with pytest.raises(PolicyError, match="MONEY"):
        Presidio(PIPE, ("MONEY",))
    with pytest.raises(PolicyError, match="between 0 and 1"):
        Presidio(PIPE, None, 2.0)


@needs_presidio
def test_presidio_g2_asks_nothing_of_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a connection was asked for")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    text = "Write to someone.new@unusual-domain.museum today."
    assert [span.kind for span in Presidio(PIPE, ("EMAIL",)).find(record(text))] == ["EMAIL"]


@needs_presidio
@given(TEXTS)
@settings(max_examples=8, deadline=None)
def test_presidio_is_tidy_on_any_text(text: str) -> None:
    assert spans_fault(Presidio(PIPE, None, 0.0).find(record(text)), len(text)) is None


@needs_pipeline
def test_definitions_build_what_they_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TACIT_SPACY", PIPE)
    assert build_policy({"spacy": PIPE}) == SpacyEntities(PIPE)
    assert build_policy({"spacy": {"kinds": ["ORG"]}}) == SpacyEntities(PIPE, ("ORG",))
