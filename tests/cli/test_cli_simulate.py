"""`tacit simulate`: what it writes, what it prints, what it refuses."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tacit.cli.main import app
from tacit.data.records import Record, Span
from tacit.errors import ConfigError, TacitError
from tacit.simulation.people import held_out_people, profile
from tacit.simulation.simulate import simulate


def run(*words: str) -> str:
    result = CliRunner().invoke(app, ["simulate", *words], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def records_in(path: Path) -> list[Record]:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert all(set(row) == {"id", "text", "user", "spans"} for row in rows)
    return [
        Record(row["id"], row["text"], row["user"], spans=tuple(Span(*span) for span in row["spans"])) for row in rows
    ]


def test_writes_the_records_into_a_folder_it_makes(tmp_path: Path) -> None:
    out = tmp_path / "new" / "folder" / "corpus.jsonl"
    printed = run("customersim", "--dialogs", "30", "--seed", "5", "--split", "test", "--out", str(out))
    expected = list(simulate("customersim", 30, 5, "test"))
    assert records_in(out) == expected
    users = len({record.user for record in expected})
    names = sum(span.kind == "NAME" for record in expected for span in record.spans or ())
    summary = printed.splitlines()[-3]
    assert summary.startswith(f"30 dialogs of {users} users; secrets: ADDRESS ")
    assert f"NAME {names}," in summary
    assert printed.splitlines()[-1] == f"written to {out}"


def test_no_secret_is_printed(tmp_path: Path) -> None:
    out = tmp_path / "corpus.jsonl"
    printed = run("customersim", "--dialogs", "30", "--out", str(out))
    for record in records_in(out):
        assert not [span.kind for span in record.spans or () if record.text[span.start : span.end] in printed]


def test_held_out_people_are_as_many_as_the_users(tmp_path: Path) -> None:
    out, held_out = tmp_path / "corpus.jsonl", tmp_path / "elsewhere" / "people.jsonl"
    printed = run("customersim", "--dialogs", "40", "--out", str(out), "--held-out-people", str(held_out))
    users = {record.user for record in records_in(out)}
    outsiders = records_in(held_out)
    assert outsiders == [profile(person) for person in held_out_people(len(users))]
    assert users.isdisjoint(record.user for record in outsiders)
    assert f"{len(users)} held-out people written to {held_out}" in printed


def test_replaces_an_older_file(tmp_path: Path) -> None:
    out = tmp_path / "corpus.jsonl"
    out.write_text("older\n")
    run("customersim", "--dialogs", "3", "--out", str(out))
    assert len(records_in(out)) == 3


def test_splits_have_files_of_their_own_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for split in ("train", "validation"):
        run("customersim", "--dialogs", "2", "--split", split)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "customersim-train.jsonl",
        "customersim-validation.jsonl",
    ]


@pytest.mark.parametrize(
    ("words", "way_out"),
    [
        (["custmersim"], "did you mean customersim"),
        (["customersim", "--split", "tain"], "did you mean train"),
        (["customersim", "--dialogs", "0"], "one dialog or more"),
        (["customersim", "--held-out-people", "corpus.jsonl"], "another file than --out"),
    ],
)
def test_refuses_and_writes_nothing(
    words: list[str], way_out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=way_out):
        run(*words, "--out", "corpus.jsonl")
    assert not list(tmp_path.iterdir())


def test_refuses_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TacitError, match="choose another folder"):
        run("customersim", "--dialogs", "1", "--out", str(tmp_path / "file" / "corpus.jsonl"))


def test_the_installed_command_says_the_way_out(tmp_path: Path) -> None:
    """End to end, in a process of its own: three lines on stderr, exit code 2, no traceback."""
    result = subprocess.run(
        [sys.executable, "-c", "from tacit.cli.main import main; main()", "simulate", "custmersim"],
        cwd=tmp_path,
        env={**os.environ, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 2
    assert [line.split()[0] for line in result.stderr.splitlines()] == ["expected", "found", "way"]
