"""CustomerSim: its people, its gold spans, its language, and that it is the same everywhere."""

import hashlib
import json
import lzma
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from string import Formatter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers

from tacit.data.records import Record, Span, spans_fault
from tacit.errors import ConfigError
from tacit.simulation.people import ITEMS, SPLITS, Person, held_out_people, people_of, profile
from tacit.simulation.phrases import AGENDA_PHRASES, SHARED_PHRASES, VERIFICATION_PHRASES
from tacit.simulation.simulate import AGENDAS, GRAMMAR, KINDS, SIMULATORS, simulate, simulate_held_out

DATA = Path(os.environ.get("TACIT_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))
SECRET_SYMBOLS = {*KINDS, "FIRST"}
VALUE_SYMBOLS = {*SECRET_SYMBOLS, "item", "carrier"}


@pytest.fixture(scope="module")
def corpus() -> list[Record]:
    return list(simulate("customersim", 10_000))


@pytest.fixture(scope="module")
def table(corpus: list[Record]) -> dict[str, Person]:
    """The people of `corpus` by user id, drawn again from the table."""
    users = {record.user for record in corpus}
    return {person.user: person for person in islice(people_of("train", 0), len(users))}


def spans_of(record: Record) -> tuple[Span, ...]:
    assert record.spans is not None
    return record.spans


def said(record: Record, span: Span) -> str:
    return record.text[span.start : span.end]


def redacted(record: Record) -> str:
    pieces, last = [], 0
    for span in spans_of(record):
        pieces += [record.text[last : span.start], f"<{span.kind}>"]
        last = span.end
    return "".join([*pieces, record.text[last:]])


def secret_values(person: Person) -> dict[str, set[str]]:
    return {
        "NAME": {person.name, person.first_name},
        "ADDRESS": {person.address},
        "PHONE": {person.phone},
        "ORDER": {order.number for order in person.orders},
        "TRACKING": {order.tracking for order in person.orders},
    }


# G1: gold spans


def test_g1_spans_hold_exactly_what_the_table_says(corpus: list[Record], table: dict[str, Person]) -> None:
    for record in corpus:
        assert record.user is not None
        assert spans_fault(spans_of(record), len(record.text)) is None
        values = secret_values(table[record.user])
        for span in spans_of(record):
            value = said(record, span)
            assert value in values[span.kind] or value in {exact.lower() for exact in values[span.kind]}


def test_g1_every_secret_said_has_its_span(corpus: list[Record], table: dict[str, Person]) -> None:
    """The slow way: look for every value of the person in what remains when the spans are taken out."""
    for record in corpus[:1_500]:
        assert record.user is not None
        rest = redacted(record).lower()
        values = set().union(*secret_values(table[record.user]).values())
        assert not [kind for kind in values if re.search(rf"(?<!\w){re.escape(kind.lower())}(?!\w)", rest)]


def test_g1_no_digit_stands_outside_a_span(corpus: list[Record]) -> None:
    assert not [record.id for record in corpus if re.search(r"\d", redacted(record))]


def test_all_kinds_are_present_and_no_others(corpus: list[Record]) -> None:
    counts = Counter(span.kind for record in corpus for span in spans_of(record))
    assert set(counts) == set(KINDS)
    assert min(counts.values()) > 2_000


# G2: disjoint people


def test_g2_corpora_share_no_user_and_no_value() -> None:
    seen_users: set[str | None] = set()
    seen_values: set[str] = set()
    corpora: list[Iterable[Record]] = [simulate("customersim", 500, 3, split) for split in SPLITS]
    for records in [*corpora, simulate_held_out("customersim", 500, 3)]:
        users: set[str | None] = set()
        values: set[str] = set()
        for record in records:
            users.add(record.user)
            full = (said(record, span).lower() for span in spans_of(record))
            values.update(value for value in full if not value.isalpha())  # a first name alone belongs to many
        assert users.isdisjoint(seen_users)
        assert values.isdisjoint(seen_values)
        seen_users |= users
        seen_values |= values


# G3: the same everywhere

_DIGEST_SCRIPT = """
import hashlib
from tacit.simulation.people import held_out_people
from tacit.simulation.simulate import simulate
digest = hashlib.sha256()
for item in [*simulate("customersim", 300, 7, "validation"), *held_out_people(100, 7)]:
    digest.update(repr(item).encode())
print(digest.hexdigest())
"""


def test_g3_same_bytes_in_every_process() -> None:
    digests = {
        subprocess.run(
            [sys.executable, "-c", _DIGEST_SCRIPT],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    here = hashlib.sha256()
    for item in [*simulate("customersim", 300, 7, "validation"), *held_out_people(100, 7)]:
        here.update(repr(item).encode())
    assert digests == {here.hexdigest() + "\n"}


@settings(max_examples=15, deadline=None)
@given(few=st.integers(1, 60), more=st.integers(0, 60), seed=st.integers(), split=st.sampled_from(SPLITS))
def test_g3_more_dialogs_keep_the_first_ones(few: int, more: int, seed: int, split: str) -> None:
    longer = list(simulate("customersim", few + more, seed, split))
    assert len(longer) == few + more
    assert longer[:few] == list(simulate("customersim", few, seed, split))


def test_another_seed_is_another_corpus() -> None:
    assert list(simulate("customersim", 20, 0)) != list(simulate("customersim", 20, 1))
    assert held_out_people(5, 0) != held_out_people(5, 1)


# What a dialog is


def test_every_dialog_asks_for_the_name_and_one_or_two_others(corpus: list[Record]) -> None:
    answers: Counter[frozenset[str]] = Counter()
    for record in corpus:
        user_lines = [line for line in redacted(record).splitlines() if line.startswith("USR: ")]
        kinds = [kind for line in user_lines for kind in re.findall(r"<(\w+)>", line)]
        assert len(kinds) == len(set(kinds))
        answers[frozenset(kinds)] += 1
    assert all("NAME" in kinds for kinds in answers)
    others = {"PHONE", "ORDER", "ADDRESS"}
    one, two = {frozenset({kind}) for kind in others}, {frozenset(others - {kind}) for kind in others}
    assert {kinds - {"NAME"} for kinds in answers} == one | two


def test_the_user_says_the_full_name(corpus: list[Record], table: dict[str, Person]) -> None:
    for record in corpus:
        assert record.user is not None
        name = table[record.user].name
        user_lines = [line for line in record.text.splitlines() if line.startswith("USR: ")]
        assert any(name in line or name.lower() in line for line in user_lines)


def test_only_the_system_gives_tracking_numbers(corpus: list[Record]) -> None:
    lines = [line for record in corpus for line in redacted(record).splitlines() if "<TRACKING>" in line]
    assert all(line.startswith("SYS: ") for line in lines)
    dialogs = sum("<TRACKING>" in redacted(record) for record in corpus)
    assert 0.6 < dialogs / len(corpus) < 0.9


def test_tracking_only_where_a_parcel_moves() -> None:
    gives = {agenda.name for agenda in AGENDAS if "TRACKING" in reachable(f"{agenda.name}_outcome")}
    assert gives == {"track", "delayed", "missing", "damaged", "return", "change_address"}


def test_turns_alternate_and_are_tidy(corpus: list[Record]) -> None:
    for record in corpus:
        lines = record.text.splitlines(keepends=True)
        assert [line[:5] for line in lines] == ["SYS: ", "USR: "] * (len(lines) // 2) + ["SYS: "] * (len(lines) % 2)
        assert all(line.endswith("\n") and "  " not in line and "{" not in line for line in lines)
        assert 8 <= len(lines) <= 15


def test_few_users_type_in_lower_case(corpus: list[Record], table: dict[str, Person]) -> None:
    lower = sum(table[str(record.user)].name.lower() in record.text for record in corpus)
    assert 0.02 < lower / len(corpus) < 0.06


def test_a_user_owns_mostly_one_to_three_dialogs(corpus: list[Record]) -> None:
    dialogs = Counter(Counter(record.user for record in corpus).values())
    users = sum(dialogs.values())
    assert dialogs[1] > dialogs[2] > dialogs[3] > dialogs[4]
    assert (dialogs[1] + dialogs[2] + dialogs[3]) / users > 0.9
    assert 1.5 < len(corpus) / users < 2.1


def test_ids_are_unique_also_across_splits(corpus: list[Record]) -> None:
    ids = [record.id for split in SPLITS for record in simulate("customersim", 200, split=split)]
    assert len(set(ids)) == len(ids)
    assert len({record.id for record in corpus}) == len(corpus)


# Its language


def test_dialogs_do_not_repeat(corpus: list[Record]) -> None:
    assert len({redacted(record) for record in corpus}) > 9_900
    lines = Counter(line for record in corpus for line in redacted(record).splitlines())
    assert len(lines) > 10_000
    assert max(lines.values()) < 0.05 * lines.total()


def test_every_act_has_many_phrasings() -> None:
    acts = [symbol for symbol in GRAMMAR if symbol.startswith(("ask_", "give_")) or symbol.endswith("_request")]
    assert min(len(set(GRAMMAR[act])) for act in acts) >= 3
    assert (
        min(
            len(set(GRAMMAR[f"{act}_{kind}"]))
            for act in ("ask", "give")
            for kind in ("name", "phone", "order", "address")
        )
        >= 9
    )


def test_the_grammar_is_closed_and_all_of_it_is_used(corpus: list[Record]) -> None:
    """No symbol is undefined, none is defined twice, and none is never said."""
    parts = (SHARED_PHRASES, VERIFICATION_PHRASES, AGENDA_PHRASES)
    assert sum(map(len, parts)) == len(GRAMMAR)
    phrases = [phrase for part in parts for options in part.values() for phrase in options]
    used = {symbol for phrase in phrases for _, symbol, _, _ in Formatter().parse(phrase) if symbol is not None}
    assert used - VALUE_SYMBOLS <= set(GRAMMAR)
    text = "".join(redacted(record) for record in corpus)
    plain = [phrase for phrase in phrases if "{" not in phrase]
    assert not [phrase for phrase in plain if phrase not in text]


def test_articles_fit_the_items() -> None:
    assert not [item for item in ITEMS if item[0] in "aeiou" or item.strip() != item]
    assert len(set(ITEMS)) == len(ITEMS) > 80


def reachable(symbol: str) -> set[str]:
    if symbol in VALUE_SYMBOLS:
        return {symbol}
    inner = {after for template in GRAMMAR[symbol] for _, after in template if after is not None}
    return {symbol}.union(*map(reachable, inner))


# How much of it is secret


def token_share(records: Iterable[Record], offsets: list[list[tuple[int, int]]]) -> float:
    total = secret = 0
    for record, tokens in zip(records, offsets, strict=True):
        covered = bytearray(len(record.text))
        for span in spans_of(record):
            covered[span.start : span.end] = b"\1" * (span.end - span.start)
        total += len(tokens)
        secret += sum(any(covered[start:end]) for start, end in tokens)
    return secret / total


def test_sensitive_share_without_a_tokenizer(corpus: list[Record]) -> None:
    """A stand-in for the BPE share that needs no vocabulary: pieces of at most three signs, or one mark."""
    records = corpus[:2_000]
    pieces = [[match.span() for match in re.finditer(r"\w{1,3}|[^\w\s]|\n", record.text)] for record in records]
    assert 0.15 < token_share(records, pieces) < 0.20


@pytest.mark.shared_data
def test_sensitive_share_in_gpt2_tokens(corpus: list[Record]) -> None:
    """S-DP, section 5.3: 18.3 % of the tokens of CustomerSim are sensitive."""
    folder = DATA / "gpt2_tokenizer"
    if not folder.is_dir():
        pytest.skip("no gpt2_tokenizer in TACIT_DATA")
    vocabulary = json.loads(lzma.decompress((folder / "encoder.json.xz").read_bytes()))
    lines = lzma.decompress((folder / "vocab.bpe.xz").read_bytes()).decode().splitlines()
    merges = [(left, right) for left, right in (line.split() for line in lines[1:] if line)]
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    records = corpus[:2_000]
    encodings = tokenizer.encode_batch([record.text for record in records])
    assert 0.17 < token_share(records, [encoding.offsets for encoding in encodings]) < 0.20


# Asking for it


def test_simulate_by_name() -> None:
    assert list(simulate_held_out("customersim", 3, 2)) == [profile(person) for person in held_out_people(3, 2)]
    assert list(SIMULATORS) == ["customersim"]


def test_wrong_words_are_refused_before_anything_is_drawn() -> None:
    with pytest.raises(ConfigError, match="did you mean customersim"):
        simulate("customer-sim", 5)
    with pytest.raises(ConfigError, match="did you mean validation"):
        simulate("customersim", 5, split="validate")
    with pytest.raises(ConfigError, match="the name of a split"):
        people_of("held-out", 0)
    for dialogs in (0, -1):
        with pytest.raises(ConfigError, match="at least one dialog"):
            simulate("customersim", dialogs)
    with pytest.raises(ConfigError, match="at least one held-out person"):
        held_out_people(0)


def test_ten_thousand_dialogs_in_seconds() -> None:
    """Measured near 2 s; processor time, so that a busy machine does not fail it."""
    start = time.process_time()
    assert sum(1 for _ in simulate("customersim", 10_000, seed=1)) == 10_000
    assert time.process_time() - start < 10
