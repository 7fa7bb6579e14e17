"""Rows of a store as candidates: who is chosen, and why only once."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from marking import prepare
from tacit.audits.passages import blind
from tacit.audits.target import CandidateRows
from tacit.data.prepare import PrepareConfig
from tacit.data.records import Record
from tacit.data.store import PreparedCorpus
from tacit.data.tokenizer import byte_tokenizer
from tacit.policies.patterns import Digits

USERS, RECORDS = 150, 4
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def records_of_users(rng: random.Random, named: bool = True) -> Iterator[Record]:
    """Every user has a word of their own, which stands in all of their records."""
    for _ in range(USERS):
        word = "".join(rng.choice(_LETTERS) for _letter in range(8))
        for number in range(RECORDS):
            yield Record(f"{word}-{number}", f"{word} said {rng.random()}", word if named else None)


def rows_of(folder: Path, rng: random.Random, named: bool = True) -> CandidateRows:
    prepare(records_of_users(rng, named), Digits(), byte_tokenizer(), folder, PrepareConfig(64))
    return CandidateRows(PreparedCorpus(folder), byte_tokenizer(), 64)


@pytest.mark.parametrize("with_secrets", [False, True])
def test_g3_every_user_once_and_every_record_where_none_is_named(tmp_path: Path, with_secrets: bool) -> None:
    rng = random.Random(0)
    rows = rows_of(tmp_path / "named", rng)
    chosen = rows.chosen(10**6, rng, with_secrets=with_secrets)
    assert len(chosen) == USERS == len({int(rows.store.users[row]) for row in chosen})
    assert len(rows.chosen(7, rng)) == 7
    nameless = rows_of(tmp_path / "nameless", rng, named=False)
    assert len(set(nameless.chosen(10**6, rng, with_secrets=with_secrets))) == USERS * RECORDS


@pytest.mark.statistical
def test_g3_users_who_count_once_tell_the_blind_baseline_nothing(tmp_path: Path) -> None:
    """False alarm: 5 % at a fixed seed. Control: with all records of each user, their words give both sides away."""
    rng = random.Random(1)
    inside, outside = rows_of(tmp_path / "in", rng), rows_of(tmp_path / "out", rng)
    once: dict[str, tuple[str, bool]] = {}
    always: dict[str, tuple[str, bool]] = {}
    for side, truth in ((inside, True), (outside, False)):
        every = range(len(side.store))
        for place, rows in ((once, side.chosen(10**6, rng)), (always, every)):
            for row in rows:
                place[f"c{len(place)}"] = (side.tokenizer.decode(side.store.full(row).tokens.tolist()), truth)
    flagged = [
        blind({name: text for name, (text, _) in some.items()}, {name: truth for name, (_, truth) in some.items()})
        for some in (once, always)
    ]
    assert [one.flagged for one in flagged] == [False, True]
