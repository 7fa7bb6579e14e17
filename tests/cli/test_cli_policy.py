"""`tacit policy compare` as a person meets it: what is printed, what is written, and what is refused."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tacit.api import compare_policies
from tacit.cli.main import app
from tacit.data.corpus import write_jsonl
from tacit.errors import ConfigError, CorpusError
from tacit.simulation.simulate import simulate


def run(*words: str | Path) -> Result:
    result = CliRunner().invoke(app, ["policy", "compare", *map(str, words)], env={"COLUMNS": "100"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture(scope="module")
def dialogs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "dialogs.jsonl"
    write_jsonl(simulate("customersim", 20, 3, "train"), path)
    with path.open("a") as file:
        file.write("half a record\n")
    return path


def test_table_page_and_data(dialogs: Path, tmp_path: Path) -> None:
    result = run(dialogs, "--policies", "digits,any-capital, pii", "--out", tmp_path)
    assert result.exit_code == 0
    told = json.loads((tmp_path / "policies.json").read_text())
    assert [policy["name"] for policy in told["policies"]] == ["digits", "any-capital", "pii"]
    for words in ("20 records, 20 of them with labels", "recall %", "any-capital", "recall by kind", "TRACKING"):
        assert words in result.output
    assert "set aside: " in result.output
    page = (tmp_path / "policies.html").read_text(encoding="utf-8")
    assert "any-capital" in page
    assert "Recall by kind" in page
    assert (tmp_path / "quarantine.jsonl").exists()


def test_words_with_commas_are_many_policies_or_one(dialogs: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text("policy: {any: [digits, {regex: 'order', kind: ORDER}]}", encoding="utf-8")
    words = ("--policies", "digits,pii", "--policy", "digits,pii", "--policy", str(mine), "--json")
    told = json.loads(run(dialogs, *words, "--out", tmp_path).stdout)
    names = [policy["name"] for policy in told["policies"]]
    ids = [policy["id"] for policy in told["policies"]]
    assert names == ["digits", "pii", "digits,pii", str(mine)]
    assert ids == ["digits", "pii", "(digits | pii)", "(digits | regex:ORDER)"]
    result = compare_policies(dialogs, ["digits", "pii", "digits,pii", str(mine)])
    again = result.to_json()
    for policy in (*told["policies"], *again["policies"]):
        policy.pop("seconds_of_processor"), policy.pop("records_a_second_and_core")
    assert again == told


def test_a_corpus_without_labels(tmp_path: Path) -> None:
    corpus = tmp_path / "c.jsonl"
    corpus.write_text('{"text": "Ann called 555"}\n{"text": "Bo did not"}\n', encoding="utf-8")
    result = run(corpus, "--policies", "digits,any-capital", "--out", tmp_path / "out")
    assert "2 records, without labels" in result.output
    assert "recall" not in result.output
    assert "of the characters that the row finds" in result.output


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ((), "none"),
        (("--policies", "digits,digits"), "twice"),
        (("--policies", "digits", "--policy", "digits"), "twice"),
        (("--policies", "digits,pi"), "pi"),
        (("--policies", "digits,"), ""),
    ],
)
def test_what_is_refused(dialogs: Path, tmp_path: Path, words: tuple[str, ...], found: str) -> None:
    with pytest.raises(ConfigError) as refused:
        run(dialogs, *words, "--out", tmp_path / "out")
    assert found in refused.value.found
    assert not (tmp_path / "out").exists()


def test_a_corpus_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises((CorpusError, ConfigError)):
        run(tmp_path / "none.jsonl", "--policies", "digits", "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_five_policies_fit_on_eighty_columns(tmp_path: Path) -> None:
    """Catches a table whose last columns are cut off."""
    path = tmp_path / "corpus.jsonl"
    write_jsonl(simulate("customersim", 12, 5, "train"), path)
    names = ("digits", "pii", "conservative", "any-capital", "everything")
    words = ["policy", "compare", str(path), "--policies", ",".join(names), "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, words, env={"COLUMNS": "80"})
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert max(len(line.rstrip()) for line in lines if not line.startswith("page ")) <= 80
    assert "…" not in result.output
    for title in ("recall by kind", "of the characters"):
        below = result.output[result.output.index(title) :]
        heads = below.split("\n\n")[0] + "".join(below.split("\n\n")[1:2])
        assert all(re.search(rf"(?<!\S){name}(?!\S)", heads) for name in names), heads
    recalls = re.findall(r"\((?:\d+\.\d)-(?:\d+\.\d)\)", result.output[result.output.index("recall by kind") :])
    assert len(recalls) >= 5 * 4
