"""`tacit scan` as a person meets it: what is printed, what is written, and what is not."""

import json
import random
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tacit import api
from tacit.cli.main import app
from tacit.data.corpus import write_jsonl
from tacit.errors import ConfigError, CorpusError
from tacit.simulation.simulate import simulate

BLOCK = "█████"


def run(*words: str | Path) -> Result:
    result = CliRunner().invoke(app, ["scan", *map(str, words)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture(scope="module")
def dialogs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "dialogs.jsonl"
    write_jsonl(simulate("customersim", 60, 3, "train"), path)
    with path.open("a") as file:
        secret = path.read_text().partition("My name is ")[2][:12]
        file.write(json.dumps({"text": 7, "note": secret}) + "\nhalf a record " + secret + "\n")
    return path


def gold_secrets(path: Path) -> set[str]:
    secrets = set()
    for line in path.read_text().splitlines()[:-2]:
        row = json.loads(line)
        secrets |= {row["text"][start:end] for start, end, _ in row["spans"]}
    return secrets


def everything_written(out: Path) -> str:
    return "".join(path.read_text(encoding="utf-8") for path in sorted(out.iterdir()))


@pytest.mark.parametrize("policy", ["pii", "digits", "gold"])
def test_no_secret_is_printed_or_written_unless_asked(dialogs: Path, tmp_path: Path, policy: str) -> None:
    result = run(dialogs, "--policy", policy, "--out", tmp_path, "--sample", "60")
    told = result.output + everything_written(tmp_path)
    assert BLOCK in told
    whole_word = [re.compile(rf"(?<!\w){re.escape(secret)}(?!\w)") for secret in gold_secrets(dialogs)]
    assert len(whole_word) > 100
    assert not [pattern for pattern in whole_word if pattern.search(told)]


def test_secrets_are_shown_when_asked_and_it_is_said(dialogs: Path, tmp_path: Path) -> None:
    result = run(dialogs, "--policy", "pii", "--out", tmp_path, "--sample", "60", "--show-secrets")
    squeezed = " ".join(result.output.split())
    assert sum(secret in squeezed for secret in gold_secrets(dialogs)) > 100
    assert json.loads((tmp_path / "scan.json").read_text())["shows_secrets"] is True
    assert "This page shows secret text" in (tmp_path / "scan.html").read_text(encoding="utf-8")


def test_blocks_do_not_tell_lengths(tmp_path: Path) -> None:
    printed = set()
    for digits in (3, 30):
        corpus = tmp_path / "c.jsonl"
        corpus.write_text(json.dumps({"text": f"call {'5' * digits} now"}), encoding="utf-8")
        result = run(corpus, "--policy", "digits", "--out", tmp_path / "out")
        printed.add(result.output.partition("record 1")[2])
        assert f"call [DIGITS {BLOCK}] now" in result.output
    assert len(printed) == 1


def test_numbers_card_quarantine_and_paths_are_printed(dialogs: Path, tmp_path: Path) -> None:
    result = run(dialogs, "--policy", "pii", "--out", tmp_path)
    assert result.exit_code == 0
    found = json.loads((tmp_path / "scan.json").read_text())
    words = " ".join(result.output.split())
    assert f"tokens (words and marks) {found['tokens']:,}" in words
    for kind, total in found["kinds"].items():
        assert f"{kind} {total['secrets']:,} {total['records']:,}" in words
    assert "policy card" in words
    assert f"{found['card']['records_with_a_miss']} of 60 labelled records" in words
    assert "broken-json 1, wrong-type 1" in words
    for name in ("scan.html", "scan.json", "quarantine.jsonl"):
        assert (tmp_path / name).exists()
        assert str(tmp_path / name) in result.output.replace("\n", "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["quarantine.jsonl", "scan.html", "scan.json"]


def test_json_is_all_there_is_on_standard_output(dialogs: Path, tmp_path: Path) -> None:
    result = run(dialogs, "--policy", "pii", "--out", tmp_path, "--json")
    assert json.loads(result.stdout) == json.loads((tmp_path / "scan.json").read_text())
    again = run(dialogs, "--policy", "pii", "--out", tmp_path, "--json", "--processes", "2")
    assert again.stdout == result.stdout


def test_the_default_folder_is_named_after_the_corpus(
    dialogs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run(dialogs, "--policy", "digits")
    assert (tmp_path / "scan-dialogs" / "scan.html").exists()


def test_fields_can_be_renamed(tmp_path: Path) -> None:
    corpus = tmp_path / "c.jsonl"
    rows = [{"body": f"call {at}{at}{at}", "author": f"a{at % 2}", "marks": [[5, 8, "PHONE"]]} for at in range(4)]
    corpus.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    names = ("--text-field", "body", "--user-field", "author", "--spans-field", "marks")
    found = json.loads(run(corpus, "--policy", "digits", "--out", tmp_path / "o", "--json", *names).stdout)
    assert (found["users"], found["card"]["overall"]["recall"]["value"]) == (2, 1.0)


def test_hostile_text_cannot_steer_the_terminal(tmp_path: Path) -> None:
    rng = random.Random(1)
    hostile = [
        "\x1b[2J\x1b]0;owned\x07",
        "[bold red]x[/bold red] [/] [link=http://x]y[/link]",
        "\u202eabc\u2066",
        "\x9b31m\r",
    ]
    rows = [{"text": f"{text} 12{rng.randrange(9)} {text}", "spans": [[0, 1, text]]} for text in hostile]
    corpus = tmp_path / "c.jsonl"
    corpus.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    for extra in ((), ("--show-secrets",), ("--json",)):
        result = run(corpus, "--policy", "digits", "--out", tmp_path / "o", *extra)
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", result.output)
    shown = run(corpus, "--policy", "digits", "--out", tmp_path / "o", "--show-secrets").output
    shown = " ".join(shown.split())
    assert "bold red]x[/bold red] [/] [link=http://x]y[/link]" in shown


def test_mistakes_are_errors_with_a_way_out_and_leave_nothing_behind(dialogs: Path, tmp_path: Path) -> None:
    out = tmp_path / "o"
    with pytest.raises(CorpusError):
        run(tmp_path / "absent.jsonl", "--policy", "pii", "--out", out)
    with pytest.raises(ConfigError):
        run(dialogs, "--policy", "pi", "--out", out)
    assert not out.exists()
    out.write_text("a file")
    with pytest.raises(ConfigError):
        run(dialogs, "--policy", "digits", "--out", out)


def test_mask_stability_can_be_left_out(dialogs: Path, tmp_path: Path) -> None:
    words = (dialogs, "--policy", "digits", "--processes", "1")
    assert "mask stability" in run(*words, "--out", tmp_path / "with").output
    assert "mask stability" not in run(*words, "--out", tmp_path / "without", "--no-stability").output
    assert api.scan(dialogs, "digits", processes=1, stability=False).stability.spans == 0
