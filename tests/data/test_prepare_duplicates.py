"""Telling duplicates."""

from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_prepare_views import Parts, parts

from marking import prepare
from tacit.config.setting import Duplicates
from tacit.data.prepare import DuplicateKey, PrepareConfig
from tacit.data.records import Record, Seen
from tacit.data.tokenizer import byte_tokenizer
from tacit.data.views import divide
from tacit.policies.patterns import Digits, Regex


def survivors(corpus: list[Parts], twin: int) -> list[int]:
    with closing(Seen()) as seen:
        records = [item.twins()[twin] for item in corpus]
        return [
            n
            for n, record in enumerate(records)
            if seen.add(DuplicateKey(divide(record.text, record.spans or ())[0]).digest)
        ]


@given(corpus=st.lists(parts(), max_size=4), again=st.lists(st.integers(0, 3), max_size=4))
@settings(deadline=None, max_examples=40)
def test_g1_duplicates_are_exactly_the_texts_seen_before(corpus: list[Parts], again: list[int]) -> None:
    corpus = corpus + [corpus[number] for number in again if number < len(corpus)]
    before: list[tuple[str, ...]] = []
    expected = []
    for number, item in enumerate(corpus):
        if item.segments not in before:
            expected.append(number)
        before.append(item.segments)
    assert survivors(corpus, 0) == expected


@given(corpus=st.lists(parts(), max_size=4))
@settings(deadline=None, max_examples=40)
def test_g2_secrets_decide_no_survivor(corpus: list[Parts]) -> None:
    corpus = corpus + [Parts(item.segments, item.kinds, item.other_secrets, item.secrets) for item in corpus]
    assert survivors(corpus, 0) == survivors(corpus, 1)


def test_text_cannot_spell_a_placeholder() -> None:
    texts = [Parts(("a ", " b"), ("NAME",), ("Ann",), ("Bo",)), Parts(("a \ufffc b",), (), (), ())]
    assert survivors(texts, 0) == [0, 1]


def test_kinds_tell_no_texts_apart() -> None:
    name, phone = (Parts(("a ", " b"), (kind,), ("Ann",), ("Bo",)) for kind in ("NAME", "PHONE"))
    assert survivors([name, phone], 0) == [0]


def test_whatever_training_reads_tells_records_apart() -> None:
    text = divide("a", [])[0]
    keys = [DuplicateKey(text, *rest) for rest in ((), ("x",), ("y",), ("x", False))]
    with closing(Seen()) as seen:
        assert all(seen.add(key.digest) for key in keys)
        assert not any(seen.add(key.digest) for key in keys)


def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SQLITE_TMPDIR", str(tmp_path))
    digest = DuplicateKey(divide("a", [])[0]).digest
    with closing(Seen()) as seen:
        assert seen.add(digest)
        assert not seen.add(digest)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("duplicates", "rows"), [("keep", 5), ("exact", 3), ("doubtful", 4)])
def test_rows_that_are_left_out(duplicates: Duplicates, rows: int, tmp_path: Path) -> None:
    texts = ("a train", "a train", "a train 7", "a train 8", "something else")
    records = [Record(f"r{number}", content) for number, content in enumerate(texts)]
    settings = PrepareConfig(512, duplicates)
    everything = Regex(".+", "X")
    store = prepare(records, Digits(), byte_tokenizer(), tmp_path / "store", settings, everything)
    assert len(store) == rows
