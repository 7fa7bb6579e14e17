"""The preparation of whole corpora."""

import json
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_prepare_views import TOKENIZERS, Annotated, Parts, parts, prepared

from marking import prepare, public_segments
from tacit.config.audit_schema import CanaryPlan
from tacit.data.marked import Part, draw_canaries, plant
from tacit.data.prepare import PrepareConfig
from tacit.data.records import Record, Span
from tacit.data.store import PUBLIC, PreparedCorpus
from tacit.data.tokenizer import Dependence, Tokenizer, VocabularySource, byte_tokenizer, train_bpe
from tacit.errors import PrepareError
from tacit.policies.patterns import Digits, Gold

every_tokenizer = pytest.mark.parametrize("tokenizer", TOKENIZERS, ids=["bytes", "bpe"])
choices = st.builds(
    PrepareConfig, max_tokens=st.integers(8, 60), duplicates=st.sampled_from(["keep", "exact", "doubtful"])
)
corpora = st.lists(parts(), max_size=4)


def public_files(store: PreparedCorpus) -> dict[str, bytes]:
    paths = [store.folder / "header.json", *sorted((store.folder / PUBLIC).iterdir())]
    return {path.name: path.read_bytes() for path in paths}


def records_of(corpus: list[Parts], twin: int) -> list[Record]:
    return [item.twins(f"r{number}")[twin] for number, item in enumerate(corpus)]


@every_tokenizer
@given(corpus=corpora, choice=choices)
@settings(deadline=None, max_examples=15)
def test_g1_public_files_are_byte_identical_whatever_the_secrets(
    tokenizer: Tokenizer, corpus: list[Parts], choice: PrepareConfig
) -> None:
    corpus = corpus + corpus[:1]
    with TemporaryDirectory() as folder:
        one, other = (
            prepare(records_of(corpus, twin), Annotated(), tokenizer, Path(folder) / str(twin), choice)
            for twin in (0, 1)
        )
        assert public_files(one) == public_files(other)
        assert [one.redacted(r).tolist() for r in range(len(one))] == [
            other.redacted(r).tolist() for r in range(len(other))
        ]


@every_tokenizer
@given(corpus=st.lists(parts(), min_size=1, max_size=4), choice=choices, data=st.data())
@settings(deadline=None, max_examples=15)
def test_g2_masking_one_record_changes_its_rows_and_nothing_else(
    tokenizer: Tokenizer, corpus: list[Parts], choice: PrepareConfig, data: st.DataObject
) -> None:
    """T9 of the theory: preparation on D and on D', where one record's secrets are masked."""
    masked = data.draw(st.integers(0, len(corpus) - 1))
    records = records_of(corpus, 0)
    neighbor = records.copy()
    neighbor[masked] = corpus[masked].record(f"r{masked}", ("<MASK>",) * len(corpus[masked].kinds))
    with TemporaryDirectory() as folder:
        one = prepare(records, Annotated(), tokenizer, Path(folder) / "D", choice)
        other = prepare(neighbor, Annotated(), tokenizer, Path(folder) / "masked", choice)
        assert public_files(one) == public_files(other)
        differing = {
            int(one.records[row])
            for row in range(len(one))
            if one.full(row).tokens.tobytes() != other.full(row).tokens.tobytes()
        }
        assert differing <= {masked}


@every_tokenizer
@given(corpus=corpora, max_tokens=st.integers(8, 60))
@settings(deadline=None, max_examples=15)
def test_pieces_in_a_row_are_the_texts(tokenizer: Tokenizer, corpus: list[Parts], max_tokens: int) -> None:
    records = records_of(corpus, 0)
    with TemporaryDirectory() as folder:
        store = prepare(records, Annotated(), tokenizer, Path(folder) / "s", PrepareConfig(max_tokens))
        assert all(0 < len(store.redacted(row)) <= max_tokens for row in range(len(store)))
        for number, record in enumerate(records):
            rows = [row for row in range(len(store)) if store.records[row] == number]
            assert [store.pieces[row] for row in rows] == list(range(len(rows)))
            assert {store.record_id(row) for row in rows} <= {record.id}
            tokens = [token for row in rows for token in store.full(row).tokens]
            assert tokenizer.decode(tokens) == record.text
            private = [token for row in rows for token in store.full(row).tokens[store.full(row).private]]
            assert tokenizer.decode(private) == "".join(corpus[number].secrets)


def test_short_records_are_stored_as_one_record_prepares(tmp_path: Path) -> None:
    record = Parts(("I am ", "."), ("NAME",), ("Ann",), ("Bo",)).twins()[0]
    tokenizer = TOKENIZERS[1]
    store = prepare([record], Annotated(), tokenizer, tmp_path / "s")
    alone = prepared(record, tokenizer)
    assert store.redacted(0).tolist() == alone.redacted().tolist()
    assert store.full(0).tokens.tolist() == alone.full().tokens.tolist()


def test_duplicates_are_left_out_and_counted(tmp_path: Path) -> None:
    records = records_of([Parts(("My code is ", ""), ("CODE",), ("1",), ("2",))] * 3, 0)
    kept = prepare(records, Annotated(), byte_tokenizer(), tmp_path / "kept")
    single = prepare(records, Annotated(), byte_tokenizer(), tmp_path / "single", PrepareConfig(duplicates="exact"))
    assert (len(kept), len(single)) == (3, 1)
    assert (kept.header.counts.duplicates, single.header.counts.duplicates) == (0, 2)
    assert not list(tmp_path.glob("**/*.sqlite"))


def test_bad_records_are_quarantined_and_empty_ones_counted(tmp_path: Path) -> None:
    good = Record("good", "I am here.", spans=())
    records = [good, Record("bad", "secret", spans=(Span(0, 99, "X"),)), Record("empty", ""), replace(good, id="last")]
    store = prepare(records, Annotated(), byte_tokenizer(), tmp_path / "s")
    counts = store.header.counts
    assert (counts.records, counts.quarantined, counts.empty, counts.rows) == (4, 1, 1, 2)
    assert store.records.tolist() == [0, 3]
    lines = (tmp_path / "s" / "private" / "quarantine.jsonl").read_text().splitlines()
    assert [json.loads(line)["id"] for line in lines] == ["bad"]
    assert "secret" not in lines[0]


def test_records_the_policy_refuses_are_quarantined_and_train_no_tokenizer(tmp_path: Path) -> None:
    records = [Record("good", "I am here.", spans=()), Record("bare", "I am not annotated.")]
    store = prepare(records, Gold(), byte_tokenizer(), tmp_path / "s")
    assert (store.header.counts.quarantined, len(store)) == (1, 1)
    assert list(public_segments(records, Gold())) == ["I am here."]


def test_canaries_are_secret_when_known_and_public_when_not(tmp_path: Path) -> None:
    for known in (True, False):
        plan = CanaryPlan("My word is {word}.", 1, inside_probability=1, known=known, words=("oak", "elm"))
        canaries = draw_canaries(plan, np.random.default_rng(1))
        planted = plant([], plan, canaries, 0, np.random.default_rng(1))
        store = prepare(planted, Digits(), byte_tokenizer(), tmp_path / str(known), part=Part.PLANTED)
        shown = "My word is <MASK>." if known else canaries[0].text
        assert byte_tokenizer().decode(store.redacted(0)) == shown
        assert byte_tokenizer().decode(store.full(0).tokens) == canaries[0].text


@given(corpus=corpora)
@settings(deadline=None, max_examples=15)
def test_a_bpe_of_the_redacted_view_learns_no_secret_and_no_placeholder(corpus: list[Parts]) -> None:
    redacted = Dependence(VocabularySource.REDACTED_VIEW, "corpus", Annotated().hash)
    one, other = (train_bpe(public_segments(records_of(corpus, t), Annotated()), 300, redacted) for t in (0, 1))
    assert one.hash == other.hash
    segments = list(public_segments(records_of(corpus, 0), Annotated()))
    assert segments == [segment for item in corpus for segment in item.segments if segment]


def test_the_header_says_what_was_done(tmp_path: Path) -> None:
    tokenizer = TOKENIZERS[1]
    facts = prepare([], Annotated(), tokenizer, tmp_path / "s").header.facts
    assert (facts.tokenizer_hash, facts.policy_hash) == (tokenizer.hash, Annotated().hash)
    assert facts.tokenizer_depends_on["source"] == "public corpus"
    assert facts.vocabulary_size == tokenizer.vocabulary_size


def test_a_limit_below_one_character_is_refused() -> None:
    with pytest.raises(PrepareError):
        PrepareConfig(max_tokens=7)


def test_g3_memory_does_not_grow_with_the_corpus(tmp_path: Path) -> None:
    def corpus(size: int) -> Iterator[Record]:
        return (Record(f"r{n}", f"Call {n} now.", user=str(n), spans=(Span(5, 6, "TEL"),)) for n in range(size))

    def peak(size: int) -> int:
        tracemalloc.start()
        choice = PrepareConfig(duplicates="exact")
        prepare(corpus(size), Annotated(), byte_tokenizer(), tmp_path / str(size), choice)
        result = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return result

    peak(100)
    bytes_a_record = (peak(25_000) - peak(5_000)) / 20_000
    assert bytes_a_record < 40, "less than one digest of 16 bytes costs as a Python object"
