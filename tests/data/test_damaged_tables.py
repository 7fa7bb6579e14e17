"""Arrow and Parquet files with changed bytes: every record is read, quarantined or refused, and the process lives."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import tacit
from damaged_tables import RECORDS, damaged, outcome, place, whole_file
from tacit.data.corpus import read


def outcomes(form: str, cases: int, folder: Path) -> Counter[str]:
    """What became of so many damaged copies, in a process of their own; one that dies is counted as CRASH."""
    script = Path(__file__).parents[1] / "support" / "damaged_tables.py"
    environment = os.environ | {"PYTHONPATH": str(Path(tacit.__file__).parents[1])}
    command = [sys.executable, str(script), form, "0", str(cases), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600, check=False)
    found = Counter(line.split(" ", 2)[2] for line in done.stdout.splitlines() if line.startswith("end"))
    found["CRASH"] = int(done.returncode != 0)
    return found


@pytest.mark.parametrize("form", ["arrow", "parquet"])
def test_damage_never_kills_and_never_ends_in_a_traceback(form: str, tmp_path: Path) -> None:
    """Catches offsets that Arrow follows out of its memory: of 1500 copies, 27 killed the process and 248 raised."""
    found = outcomes(form, 300, tmp_path)
    assert found.total() == 300
    assert set(found) <= {"read", "quarantined", "refused", "CRASH"}, found
    assert found["CRASH"] == 0
    assert found["quarantined"] > 20


@pytest.mark.slow
@pytest.mark.parametrize("form", ["arrow", "parquet"])
def test_damage_never_kills_at_any_of_many_places(form: str, tmp_path: Path) -> None:
    found = outcomes(form, 20_000, tmp_path)
    print(form, dict(found))
    assert found.total() == 20_000
    assert set(found) <= {"read", "quarantined", "refused", "CRASH"}, found
    assert found["CRASH"] == 0


def test_one_damaged_row_costs_one_row(tmp_path: Path) -> None:
    """Catches a check of whole batches that throws away what is whole."""
    data = whole_file("arrow")
    at = data.index(b"Record 70 is")
    corpus = place("arrow", data[:at] + b"\xff" + data[at + 1 :], tmp_path)
    reader = read(corpus)
    assert len(list(reader)) == RECORDS - 1
    assert dict(reader.tally.reasons) == {"invalid-utf8": 1}


def test_the_damage_is_damage(tmp_path: Path) -> None:
    """The whole file is read; so that a copy that is refused or set aside shows its damage."""
    assert outcome(place("arrow", whole_file("arrow"), tmp_path)) == "read"
    assert damaged(whole_file("arrow"), 3) != whole_file("arrow")
