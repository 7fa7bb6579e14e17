"""Scanning: counts against slow twins, one result whatever the number of processes, and nothing secret in it."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scans import card_of, read_scan
from tacit.common.formatting import VISIBLE, printable
from tacit.common.serialize import from_json, to_json
from tacit.common.workers import IN_FLIGHT, Workers
from tacit.data.records import Record, Span, resolve_overlaps
from tacit.errors import ConfigError, PolicyError, WorkerLost
from tacit.policies import scan as look
from tacit.policies.card import knows_labels
from tacit.policies.marking import Excerpt, ExcerptState, excerpt
from tacit.policies.patterns import Digits, Everything, Gold, Regex
from tacit.policies.policy import Policy
from tacit.policies.scan import WORDS, KindTotal, Scan, count_tokens, scan, user_groups

NAMES = ("Ann Lee", "Bob Ray", "Cleo Diaz")


def corpus(size: int = 60) -> list[Record]:
    """Dialogs with gold names and numbers; the policy `digits` misses the names."""
    rng = random.Random(7)
    records = []
    for at in range(size):
        name, order = rng.choice(NAMES), str(rng.randrange(10_000, 99_999))
        text = f"SYS: who is it?\nUSR: {name}, order {order} " + "please " * rng.randrange(20)
        spans: tuple[Span, ...] = (
            Span(text.index(name), text.index(name) + len(name), "NAME"),
            Span(text.index(order), text.index(order) + 5, "ORDER"),
        )
        if at % 4 == 0:
            text, spans = "SYS: hello there\nUSR: hi", ()
        records.append(Record(f"r{at}", text, user=f"u{at % 7}", spans=spans))
    return records


@dataclass(frozen=True)
class Faulty(Policy):
    """Does what a policy must not do."""

    fault: str

    @property
    def id(self) -> str:
        return "faulty"

    def content(self) -> Any:  # noqa: ANN401
        return self.fault

    def find(self, record: Record) -> tuple[Span, ...]:
        if self.fault == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.fault == "untidy":
            return (Span(5, 2, "NAME"),)
        raise ValueError(record.text)


def test_counts() -> None:
    result = scan(corpus(), Digits())
    with_secrets = [record for record in corpus() if re.search(r"\d", record.text)]
    assert result.records == 60
    assert result.records_with_secrets == len(with_secrets) == 45
    assert result.kinds == {"DIGITS": KindTotal(45, 45)}
    assert result.secrets == 45
    assert result.users == 7
    assert result.user_groups == user_groups(Counter(one.user for one in corpus() if one.user is not None))
    assert result.token_unit == WORDS
    assert result.tokens == sum(len(re.findall(r"\w+|[^\w\s]", record.text)) for record in corpus())
    assert result.sensitive_tokens == 45
    assert result.share_of_records == 0.75
    assert result.card == card_of(Digits(), corpus())
    assert result.stability.spans == result.stability.found_again == result.stability.redaction_stable == 45
    assert result.quarantined == {}


@given(st.dictionaries(st.text(max_size=3), st.integers(1, 40), max_size=12))
def test_users_by_their_records(records: dict[str, int]) -> None:
    groups = user_groups(records)
    assert sum(group.users for group in groups) == len(records)
    for group in groups:
        assert group.users == sum(group.fewest <= size <= group.most for size in records.values()) > 0
        assert group.kept == sum(min(size, group.most) for size in records.values())
        assert group.most < 2 * group.fewest
    assert list(groups) == sorted(groups)
    assert not groups or groups[-1].kept == sum(records.values())


@st.composite
def text_and_spans(draw: st.DrawFn) -> tuple[str, tuple[Span, ...]]:
    text = draw(st.text(alphabet="ab_9 .-é\n", max_size=30))
    pairs = draw(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 6)), max_size=6))
    spans = (Span(start, min(start + length, len(text)), "K") for start, length in pairs if start < len(text))
    return text, resolve_overlaps(spans)


def tidy() -> st.SearchStrategy[tuple[Span, ...]]:
    pairs = st.lists(st.tuples(st.integers(0, 29), st.integers(1, 6)), max_size=6)
    return pairs.map(lambda found: resolve_overlaps(Span(at, min(at + length, 30), "K") for at, length in found))


@given(text_and_spans())
def test_sensitive_tokens_are_those_that_share_a_character_with_a_span(case: tuple[str, tuple[Span, ...]]) -> None:
    text, spans = case
    secret = {at for span in spans for at in range(span.start, span.end)}
    tokens = [set(range(*match.span())) for match in re.finditer(r"\w+|[^\w\s]", text)]
    assert count_tokens(text, spans) == (len(tokens), sum(bool(token & secret) for token in tokens))


def test_g1_the_number_of_processes_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look, "_BATCH_CHARACTERS", 200)
    heard: list[tuple[int, int]] = []
    one = scan(corpus(120), Digits(), processes=1)
    two = scan(corpus(120), Digits(), processes=2, progress=lambda *done: heard.append(done))
    monkeypatch.setattr(look, "_BATCH_CHARACTERS", 10**6)
    whole = scan(corpus(120), Digits())
    assert one == two == whole
    assert json.dumps(one.to_json()) == json.dumps(two.to_json()) == json.dumps(whole.to_json())
    assert len(heard) > 8
    assert heard == sorted(heard)
    assert heard[-1] == (120, one.characters)


def test_the_sample_does_not_depend_on_the_order_of_the_corpus() -> None:
    def shown(result: Scan) -> list[tuple[object, ...]]:
        return [entry.pieces for entry in result.sample]

    assert shown(scan(corpus(), Digits(), sample=4)) == shown(scan(corpus()[::-1], Digits(), sample=4))
    assert len(scan(corpus(), Digits(), sample=4).sample) == 4
    assert scan(corpus(), Digits(), sample=0).sample == ()


def secrets_of(records: list[Record]) -> set[str]:
    return {record.text[span.start : span.end] for record in records for span in record.spans or ()}


def test_g2_no_secret_unless_asked() -> None:
    hidden = json.dumps(scan(corpus(), Digits(), sample=60).to_json())
    assert not [secret for secret in secrets_of(corpus()) if secret in hidden]
    asked = scan(corpus(), Digits(), sample=60, show_secrets=True)
    assert asked.shows_secrets
    assert all(name in json.dumps(asked.to_json()) for name in NAMES)  # negative control: the search can find them


def test_g3_records_are_not_kept() -> None:
    alive = 0
    most = 0

    class Counted(str):
        __slots__ = ()

        def __new__(cls, value: str) -> "Counted":
            nonlocal alive, most
            alive += 1
            most = max(most, alive)
            return super().__new__(cls, value)

        def __del__(self) -> None:
            nonlocal alive
            alive -= 1

    def stream() -> Iterator[Record]:
        for at in range(300):
            yield Record(str(at), Counted("x" * 20_000))

    assert scan(stream(), Digits(), processes=1).records == 300
    assert most < 60  # at most the batches read ahead


def test_g4_json_both_ways() -> None:
    for show in (False, True):
        result = scan(corpus(), Digits(), show_secrets=show)
        again = read_scan(json.loads(json.dumps(result.to_json())))
        assert again == result
        assert again.to_json() == result.to_json()


def test_the_card_needs_labels_that_the_policy_does_not_read() -> None:
    unlabelled = [replace(record, spans=None) for record in corpus()]
    assert scan(unlabelled, Digits()).card is None
    assert scan(corpus(), Gold()).card is None
    assert scan(corpus(), Digits() | Gold()).card is None
    assert not knows_labels(Digits() | Everything())
    half = scan(corpus()[:30] + unlabelled[30:], Digits())
    assert half.card is not None
    assert half.card.counts.records == 30


def test_a_policy_that_fails_says_at_which_record_and_not_its_id() -> None:
    records = [Record("bob@x.org", "abc", spans=()), Record("ann@x.org", "abc")]
    with pytest.raises(PolicyError, match="without annotation, at record 2") as caught:
        scan(records, Gold())
    assert "ann@x.org" not in str(caught.value)


def test_an_empty_corpus_is_no_error() -> None:
    result = scan([], Digits())
    assert (result.records, result.share_of_records, result.share_of_tokens, result.sample) == (0, 0.0, 0.0, ())


def test_a_file_with_bad_records(tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_text('{"text": "call 555"}\n{"text": 7}\nnonsense\n', encoding="utf-8")
    result = scan(path, Digits())
    assert (result.records, result.corpus) == (1, "corpus.jsonl")
    assert result.quarantined == {"broken-json": 1, "wrong-type": 1}


def test_bad_numbers_and_bad_policies_are_refused_without_quoting_text() -> None:
    with pytest.raises(ConfigError):
        scan(corpus(4), Digits(), processes=0)
    with pytest.raises(ConfigError):
        scan(corpus(4), Digits(), sample=-1)
    for fault in ("untidy", "raises"):
        with pytest.raises(PolicyError) as caught:
            scan(corpus(4), Faulty(fault))
        assert "record 1" in str(caught.value)
        assert "hello" not in str(caught.value)


def test_a_worker_that_dies_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look, "_BATCH_CHARACTERS", 200)
    with pytest.raises(WorkerLost):
        scan(corpus(), Faulty("dies"), processes=2)


def test_a_policy_that_cannot_travel_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Local(Faulty):
        pass

    monkeypatch.setattr(look, "_BATCH_CHARACTERS", 200)
    with pytest.raises(ConfigError):
        scan(corpus(), Local("raises"), processes=2)


def double(tool: int, item: int) -> int:
    return tool * item


def test_workers_g1_keep_order_and_g2_read_ahead_no_more_than_they_say() -> None:
    taken = 0

    def items() -> Iterator[int]:
        nonlocal taken
        for item in range(40):
            taken += 1
            yield item

    with Workers(2, processes=2) as workers:
        for done, (item, result) in enumerate(workers.map(double, items())):
            assert (item, result) == (done, 2 * done)
            assert taken <= done + 2 * IN_FLIGHT + 1


INTERRUPTED = """
import time
from tacit.common.serialize import from_json, to_json
from tacit.common.workers import Workers

def nap(tool, item):
    time.sleep(item)

if __name__ == "__main__":
    try:
        with Workers(None, processes=2) as workers:
            for done, _ in enumerate(workers.map(nap, [0] + [0.2] * 1000)):
                if done == 0:
                    print("working", flush=True)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


def test_workers_g3_ctrl_c_ends_all_of_them_without_a_word(tmp_path: Path) -> None:
    script = tmp_path / "interrupted.py"
    script.write_text(INTERRUPTED)
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, script], stdout=pipe, stderr=pipe, start_new_session=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"working\n"
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the caller and to every worker
        told, complained = process.communicate(timeout=60)
    assert (told, complained, process.returncode) == (b"interrupted\n", b"", 0)


FORKED = """
import os, time
from tacit.common.workers import Workers

loaded = []

def tell(tool, item):
    os.write(1, f"{os.getpid()} {loaded}\\n".encode())
    time.sleep(600)

loaded.append("shared")
with Workers(None, processes=2) as workers:
    list(workers.map(tell, range(2)))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux only")
def test_forked_workers_share_what_is_loaded_and_end_with_a_killed_caller(tmp_path: Path) -> None:
    script = tmp_path / "forked.py"
    script.write_text(FORKED)
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        told = [process.stdout.readline().split() for _ in range(2)]
        process.kill()
        assert process.stdout.read() == b"", "the pipe is closed once no worker is left"
    assert [line[1] for line in told] == [b"['shared']"] * 2


WITH_THREADS = """
import torch
from tacit.common.workers import Workers

numbers = torch.ones(600, 600)

def multiply(tool, item):
    return float((numbers @ numbers)[0, 0])

torch.set_num_threads(2)
multiply(None, 0)
with Workers(None, processes=2) as workers:
    print([result for _, result in workers.map(multiply, range(4))])
"""


def test_workers_do_not_wait_for_threads_that_a_fork_ended(tmp_path: Path) -> None:
    script = tmp_path / "threads.py"
    script.write_text(WITH_THREADS)
    done = subprocess.run([sys.executable, script], capture_output=True, timeout=120, check=True)
    assert done.stdout == b"[600.0, 600.0, 600.0, 600.0]\n"


def piece_texts(shown: Excerpt) -> list[tuple[str, str, str | None]]:
    return [(piece.state.value, piece.kind, piece.text) for piece in shown.pieces]


def test_excerpt_shows_found_missed_and_repeated_secrets() -> None:
    text = "I am Ann Lee. Order 12345? Yes, ann lee, 12345."
    gold = (Span(5, 12, "NAME"), Span(14, 25, "ORDER"))
    record = Record("ann@x.org", text, spans=gold)
    shown = excerpt(record, (Span(20, 25, "DIGITS"),), 3, show_secrets=False)
    assert piece_texts(shown) == [
        ("plain", "", "I am "),
        ("missed", "NAME", None),
        ("plain", "", ". "),
        ("missed", "ORDER", None),
        ("found", "DIGITS", None),
        ("plain", "", "? Yes, "),
        ("again", "NAME", None),
        ("plain", "", ", "),
        ("again", "DIGITS", None),
        ("plain", "", "."),
    ]
    assert shown.id is None
    asked = excerpt(record, (Span(20, 25, "DIGITS"),), 3, show_secrets=True)
    assert "".join(piece.text or "" for piece in asked.pieces) == text
    assert asked.id == "ann@x.org"
    assert from_json(Excerpt, to_json(shown)) == shown


@given(tidy(), tidy())
def test_excerpt_pieces_are_every_character_once(gold: tuple[Span, ...], found: tuple[Span, ...]) -> None:
    """Against a slow twin that decides character by character; all characters differ, so nothing stands again."""
    text = "".join(chr(0x4E00 + at) for at in range(30))
    shown = excerpt(Record("1", text, spans=gold), found, 1, show_secrets=True)
    labelled = {at for span in gold for at in range(span.start, span.end)}
    marked = {at for span in found for at in range(span.start, span.end)}
    states = [
        ExcerptState.FOUND if at in marked else ExcerptState.MISSED if at in labelled else ExcerptState.PLAIN
        for at in range(len(text))
    ]
    assert "".join(piece.text or "" for piece in shown.pieces) == text
    assert [piece.state for piece in shown.pieces for _ in piece.text or ""] == states


@given(st.text(alphabet="AB ,\n", max_size=400), st.integers(1, 400), st.integers(1, 400))
def test_excerpt_g1_does_not_depend_on_what_secrets_say_or_how_long_they_are(
    around: str, short: int, long: int
) -> None:
    def made(length: int) -> Excerpt:
        text = f"{around}<{'7' * length}>{around}" * 3
        record = Record(str(length), text)
        return excerpt(record, Regex(r"7+", "ID").find(record), 1, show_secrets=False)

    assert made(short) == made(long)


@given(st.text(max_size=200), st.text(max_size=20))
def test_excerpt_g2_text_is_printable(text: str, kind: str) -> None:
    record = Record("\x1b[2J", text)
    for show in (False, True):
        shown = excerpt(record, Everything().find(record), 1, show)
        shown_kind = excerpt(record, (Span(0, 1, kind or "K"),) if text else (), 1, show)
        for piece in (*shown.pieces, *shown_kind.pieces):
            for part in (piece.text or "", piece.kind):
                assert all(c.isprintable() or c in "\n\u200c\u200d" for c in part)


def test_excerpt_of_very_many_secrets_is_quick() -> None:
    text = "1234 abcd " * 100_000
    found = tuple(Span(at, at + 4, "ID") for at in range(0, len(text), 10))
    gold = tuple(Span(at, at + 9, "ID") for at in range(0, len(text), 10))
    began = time.process_time()
    shown = excerpt(Record("1", text, spans=gold), found, 1, show_secrets=False)
    assert time.process_time() - began < 10  # quadratic work would take hours
    assert {piece.state for piece in shown.pieces} == {ExcerptState.FOUND, ExcerptState.MISSED, ExcerptState.PLAIN}


def test_excerpt_g3_a_megabyte_is_clipped_around_its_first_secret() -> None:
    text = "word " * 100_000 + "order 12345 " + "word " * 100_000
    shown = excerpt(Record("1", text), Digits().find(Record("1", text)), 1, show_secrets=True)
    assert sum(len(piece.text or "") for piece in shown.pieces) <= VISIBLE + 100
    assert (shown.cut_before, shown.cut_after) == (True, True)
    assert [piece.text for piece in shown.pieces if piece.state is ExcerptState.FOUND] == ["12345"]
    all_secret = excerpt(Record("1", text), (Span(0, len(text), "TEXT"),), 1, show_secrets=True)
    assert len(all_secret.pieces[0].text or "") < VISIBLE


def test_printable() -> None:
    assert printable("a\r\nb\tc\u00a0d") == "a\nb c d"
    assert printable("\x1b[31mred\u202eevil\u2066\ud800\x00\x9b") == "�[31mred�evil����"
    assert printable("👩\u200d👧 שלום") == "👩\u200d👧 שלום"


def test_mask_stability_is_measured_on_as_many_records_as_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a slow policy that reads records again although nobody asked for it."""
    records = [Record(f"r{number}", f"Call {number}.") for number in range(9)]
    read: Counter[str] = Counter()
    find = Digits.find

    def counted(self: Digits, record: Record) -> tuple[Span, ...]:
        read[record.id] += 1
        return find(self, record)

    monkeypatch.setattr(Digits, "find", counted)
    assert scan(records, Digits(), stability=0, processes=1).stability.spans == 0
    assert set(read.values()) == {1}
    assert scan(records, Digits(), stability=4, processes=1).stability.spans == 4
    assert sum(count > 2 for count in read.values()) == 4
    for wrong in (-1, 201):
        with pytest.raises(ConfigError, match="0 to 200 records"):
            scan(records, Digits(), stability=wrong)
