"""The ledger: counts too much after a crash, never too little; shows edits; survives full disks."""

import errno
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.errors import ClaimRefused, LedgerError
from tacit.privacy.events import Event, ExposedGaussian, Free, Gaussian, Relation, SampledGaussian, Unbounded
from tacit.privacy.ledger import Ledger, read_entries
from tacit.privacy.ledger_lines import event_from_json, event_to_json

STEP = SampledGaussian(0.8, 0.01, 1, Relation.ZERO_OUT)
PRIVATE = {"record": STEP, "user": SampledGaussian(0.8, 0.01, 5, Relation.ZERO_OUT)}
PUBLIC: dict[str, Event] = {"record": Free("redacted view"), "user": Unbounded("exact gradients of public text")}


def a_ledger(path: Path) -> None:
    """Two steps, some charges, closed without compaction (as a crash would leave it)."""
    ledger = Ledger.create(path)
    ledger.declare("private", PRIVATE)
    ledger.declare("public", PUBLIC)
    ledger.charge("private")
    ledger.charge("public", 3)
    ledger.charge("private", 12)
    os.close(ledger._descriptor)


def test_it_remembers(tmp_path: Path) -> None:
    """Charges and compositions survive closing and opening."""
    path = tmp_path / "ledger.jsonl"
    with Ledger.create(path) as ledger:
        ledger.declare("private", PRIVATE)
        ledger.declare("public", PUBLIC)
        for _ in range(5):
            ledger.charge("private")
        ledger.charge("public", 7)
        before = ledger.compositions()
    assert before == {"record": ((STEP, 5), (PUBLIC["record"], 7)), "user": ((PRIVATE["user"], 5), (PUBLIC["user"], 7))}
    with Ledger.open(path) as ledger:
        assert ledger.charges() == {"private": 5, "public": 7}
        assert ledger.compositions() == before
        assert ledger.torn == 0
        ledger.charge("private")
    assert read_entries(path).charges() == {"private": 6, "public": 7}


def test_equal_events_of_two_steps_are_added_up(tmp_path: Path) -> None:
    """Two names, one price: one entry in the composition."""
    with Ledger.create(tmp_path / "ledger.jsonl") as ledger:
        ledger.declare("first", {"record": STEP})
        ledger.declare("second", {"record": STEP})
        ledger.charge("first", 2)
        ledger.charge("second", 3)
        assert ledger.compositions() == {"record": ((STEP, 5),)}


def test_nothing_charged_is_nothing_spent(tmp_path: Path) -> None:
    """A declared step that never ran is in no composition."""
    with Ledger.create(tmp_path / "ledger.jsonl") as ledger:
        assert ledger.compositions() == {}
        ledger.declare("private", PRIVATE)
        assert ledger.compositions() == {"record": (), "user": ()}


def test_the_charge_is_synced_before_it_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """G1: written first, then synced, then returned."""
    done: list[str] = []
    write, sync = os.write, os.fsync

    def watched_write(descriptor: int, content: bytes) -> int:
        done.append("write")
        return write(descriptor, content)

    def watched_sync(descriptor: int) -> None:
        done.append("sync")
        sync(descriptor)

    with Ledger.create(tmp_path / "ledger.jsonl") as ledger:
        ledger.declare("private", PRIVATE)
        monkeypatch.setattr(os, "write", watched_write)
        monkeypatch.setattr(os, "fsync", watched_sync)
        ledger.charge("private")
        done.append("returned")
        assert done == ["write", "sync", "returned"]
        assert read_entries(tmp_path / "ledger.jsonl").charges() == {"private": 1}


def test_truncation_anywhere_never_counts_less_than_the_whole_lines(tmp_path: Path) -> None:
    """G2, at every byte: a torn last line counts once for every declared step; a torn header is refused."""
    path = tmp_path / "ledger.jsonl"
    a_ledger(path)
    content = path.read_bytes()
    header = content.index(b"\n")
    for length in range(len(content) + 1):
        path.write_bytes(content[:length])
        if length < header:
            with pytest.raises(LedgerError):
                Ledger.open(path)
            continue
        whole = content[:length].split(b"\n")[:-1]
        declared = [json.loads(line)["declare"] for line in whole if b"declare" in line]
        sure = dict.fromkeys(declared, 0)
        for line in map(json.loads, whole):
            if "charge" in line:
                sure[declared[line["charge"]]] += line["times"]
        peeked = read_entries(path)
        with Ledger.open(path) as ledger:
            found = ledger.charges()
            assert all(found[name] >= count for name, count in sure.items())
            assert peeked.charges() == found
            if ledger.torn:
                assert found == {name: count + 1 for name, count in sure.items()}
            torn = ledger.torn
        only_its_end_is_missing = content[length : length + 1] == b"\n"
        assert torn == int(not (content[:length].endswith(b"\n") or only_its_end_is_missing))
        with Ledger.open(path) as again:  # repaired once, not counted twice
            assert again.charges() == found
            assert again.torn == torn


def test_zeros_at_the_end_are_a_torn_line(tmp_path: Path) -> None:
    """What some file systems leave after a power cut."""
    path = tmp_path / "ledger.jsonl"
    a_ledger(path)
    path.write_bytes(path.read_bytes() + bytes(40))
    with Ledger.open(path) as ledger:
        assert ledger.torn == 1
        assert ledger.charges() == {"private": 14, "public": 4}


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_any_edit_of_a_whole_line_is_refused(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """G3: one byte changed, one line removed, one line doubled or two lines swapped."""
    path = tmp_path_factory.mktemp("edited") / "ledger.jsonl"
    a_ledger(path)
    lines = path.read_bytes().splitlines(keepends=True)
    kind = data.draw(st.sampled_from(["byte", "remove", "double", "swap"]))
    index = data.draw(st.integers(0, len(lines) - 2))
    if kind == "byte":
        position = data.draw(st.integers(0, len(lines[index]) - 2))
        edited = bytearray(lines[index])
        edited[position] ^= data.draw(st.integers(1, 127))
        lines[index] = bytes(edited)
    elif kind == "remove":
        del lines[index]
    elif kind == "double":
        lines.insert(index, lines[index])
    else:
        lines[index], lines[index + 1] = lines[index + 1], lines[index]
    path.write_bytes(b"".join(lines))
    try:
        whole = read_entries(path)
    except LedgerError:
        return
    # only white space inside JSON may change without changing what the line says
    assert kind == "byte"
    assert whole.charges() == {"private": 13, "public": 3}


def test_the_chain_has_whole_digests(tmp_path: Path) -> None:
    """Catches a chain cut short: 64 bits could be forged with 2^32 tries for two ledgers, 2^64 for a given one."""
    path = tmp_path / "ledger.jsonl"
    a_ledger(path)
    before = ""
    for line in path.read_text().splitlines():
        fields = json.loads(line)
        chain = fields.pop("chain")
        text = before + json.dumps(fields, separators=(",", ":"), sort_keys=True)
        assert chain == hashlib.sha256(text.encode()).hexdigest()
        before = chain
    with Ledger.open(path):  # compacted
        assert json.loads(path.read_text().splitlines()[0])["after"] == before


def test_a_missing_ledger_says_the_way_out(tmp_path: Path) -> None:
    """No ledger, no resume."""
    with pytest.raises(LedgerError, match="begin a new run"):
        Ledger.open(tmp_path / "ledger.jsonl")
    with pytest.raises(LedgerError, match="begin a new run"):
        read_entries(tmp_path / "ledger.jsonl")


def test_an_existing_ledger_is_never_overwritten(tmp_path: Path) -> None:
    """Creating twice is refused."""
    path = tmp_path / "ledger.jsonl"
    a_ledger(path)
    content = path.read_bytes()
    with pytest.raises(LedgerError, match="no ledger yet"):
        Ledger.create(path)
    assert path.read_bytes() == content


def test_two_writers_are_refused(tmp_path: Path) -> None:
    """G4, also after the file was replaced by compaction; reading is always allowed."""
    path = tmp_path / "ledger.jsonl"
    with Ledger.create(path) as ledger:
        ledger.declare("private", PRIVATE)
        for _ in range(2):
            with pytest.raises(LedgerError, match="only writer"):
                Ledger.open(path)
            ledger.compact()
        ledger.charge("private")
        assert read_entries(path).charges() == {"private": 1}
    Ledger.open(path).close()


def test_opening_a_compact_ledger_leaves_it_as_it_is(tmp_path: Path) -> None:
    """A manifest names its last digest: only a charge may change it. One without its last line end is mended."""
    path = tmp_path / "ledger.jsonl"
    a_ledger(path)
    Ledger.open(path).close()
    content = path.read_bytes()
    Ledger.open(path).close()
    assert path.read_bytes() == content
    path.write_bytes(content.rstrip(b"\n"))
    Ledger.open(path).close()
    assert path.read_bytes().endswith(b"\n")
    with Ledger.open(path) as ledger:
        ledger.charge("private")
    assert path.read_bytes() != content


def test_prices_cannot_change(tmp_path: Path) -> None:
    """The same declaration again is nothing; another price, a missing notion and an unknown step are refused."""
    with Ledger.create(tmp_path / "ledger.jsonl") as ledger:
        ledger.declare("private", PRIVATE)
        ledger.declare("private", PRIVATE)
        with pytest.raises(LedgerError, match="already has"):
            ledger.declare("private", {**PRIVATE, "record": Free("cheaper")})
        with pytest.raises(LedgerError, match="each notion"):
            ledger.declare("public", {"record": Free("redacted view")})
        with pytest.raises(LedgerError, match="did you mean private"):
            ledger.charge("privat")
        for times in (0, -1):
            with pytest.raises(LedgerError, match="at least one"):
                ledger.charge("private", times)


def test_a_closed_ledger_takes_no_charges(tmp_path: Path) -> None:
    """After `close` nothing is accepted silently; closing again is harmless."""
    ledger = Ledger.create(tmp_path / "ledger.jsonl")
    ledger.declare("private", PRIVATE)
    ledger.close()
    ledger.close()
    with pytest.raises(LedgerError, match="closed"):
        ledger.charge("private")


@pytest.mark.parametrize("written", [0, 1, 20])
def test_a_full_disk_refuses_the_charge_and_keeps_the_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    """Nothing, one byte or half a line was written when the space ran out."""
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger.create(path)
    ledger.declare("private", PRIVATE)
    ledger.charge("private")
    write, calls = os.write, iter([written])

    def full(descriptor: int, content: bytes) -> int:
        room = next(calls, 0)
        if room == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, content[:room])

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(LedgerError, match="No space left"):
        ledger.charge("private")
    assert read_entries(path).charges() == {"private": 1}
    monkeypatch.undo()
    ledger.charge("private")
    ledger.close()
    assert read_entries(path).charges() == {"private": 2}


def test_a_failed_sync_stops_the_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody knows what is on the disk: no further charge, and what may be there counts."""
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger.create(path)
    ledger.declare("private", PRIVATE)

    def broken(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(LedgerError, match="Input/output"):
        ledger.charge("private")
    monkeypatch.undo()
    with pytest.raises(LedgerError):
        ledger.charge("private")
    ledger.close()
    assert read_entries(path).charges() == {"private": 1}


def test_a_failed_compaction_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The move is the last thing; before it nothing has changed, and no draft stays."""
    path = tmp_path / "ledger.jsonl"
    a_ledger(path)
    with Ledger.open(path) as ledger:
        ledger.charge("private")
        before = path.read_bytes()

        def full(descriptor: int, content: bytes) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(os, "write", full)
        with pytest.raises(LedgerError, match="rewrite"):
            ledger.compact()
        monkeypatch.undo()
        assert path.read_bytes() == before
        assert list(tmp_path.iterdir()) == [path]
        ledger.charge("private")


def test_many_charges_stay_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """G5: memory and file do not grow with the charges (syncing left out, which is all of the time)."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    path = tmp_path / "ledger.jsonl"
    monkeypatch.setattr("tacit.privacy.ledger._COMPACT_AFTER", 5_000)
    charges = 42_000
    with Ledger.create(path) as ledger:
        ledger.declare("private", PRIVATE)
        ledger.charge("private")
        tracemalloc.start()
        for _ in range(charges - 1):
            ledger.charge("private")
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 100_000
        assert path.stat().st_size < 400_000
    assert path.stat().st_size < 1_000
    assert read_entries(path).charges() == {"private": charges}


CHARGING = """
import sys
from pathlib import Path
from tacit.privacy.ledger import Ledger
ledger = Ledger.open(Path(sys.argv[1]))
print("ready", flush=True)
while True:
    ledger.charge(sys.argv[2])
    sys.stdout.write("x")
    sys.stdout.flush()
"""


def test_killed_in_the_middle_of_charging(tmp_path: Path) -> None:
    """G1 with real crashes: after each kill the count is what was acknowledged, or one more."""
    path = tmp_path / "ledger.jsonl"
    with Ledger.create(path) as ledger:
        ledger.declare("private", PRIVATE)
        ledger.declare("public", PUBLIC)
    chance = random.Random(0)
    for _ in range(4):
        before = read_entries(path).charges()["private"]
        child = subprocess.Popen([sys.executable, "-c", CHARGING, str(path), "private"], stdout=subprocess.PIPE)
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        time.sleep(chance.uniform(0.01, 0.15))
        child.send_signal(signal.SIGKILL)
        acknowledged = len(child.stdout.read())
        child.wait()
        child.stdout.close()
        with Ledger.open(path) as ledger:
            counted = ledger.charges()["private"] - before
        assert acknowledged <= counted <= acknowledged + 1
    assert read_entries(path).charges()["private"] > 0


@pytest.mark.parametrize(
    "event",
    [
        Free("why"),
        Unbounded("why"),
        Gaussian(0.1 + 0.2, 3, Relation.REPLACE),
        STEP,
        ExposedGaussian(1.5, 1e-9, Relation.ZERO_OUT),
    ],
)
def test_events_go_through_json_unchanged(event: Event) -> None:
    """Every number, to the last bit."""
    assert event_from_json(json.loads(json.dumps(event_to_json(event)))) == event


def test_events_that_are_none_are_refused() -> None:
    """Unknown kinds, missing, additional and mistyped fields, values no event may have."""
    good = event_to_json(STEP)
    assert event_from_json(good) == STEP
    for bad in (
        None,
        "sampled-gaussian",
        {},
        {**good, "kind": "laplace"},
        {**good, "clip_norm": 1.0},
        {name: value for name, value in good.items() if name != "copies"},
        {**good, "copies": 1.5},
        {**good, "copies": True},
        {**good, "noise_multiplier": "1"},
        {**good, "relation": "add-remove"},
        {**good, "sampling_rate": 2.0},
    ):
        with pytest.raises((LedgerError, ClaimRefused)):
            event_from_json(bad)
    with pytest.raises(ClaimRefused):
        event_to_json(cast(Event, "gaussian"))
