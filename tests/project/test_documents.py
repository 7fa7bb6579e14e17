"""Documents tell the truth: each of their blocks runs, each link leads somewhere. Rules: tests/support/documents.py."""

import re
import shlex
from pathlib import Path
from urllib.parse import unquote

import pytest

from documents import (
    ROOT,
    Block,
    Command,
    Played,
    blocks,
    check_file,
    check_shown,
    check_words,
    commands,
    shell_lines,
    verb_of,
)
from readers import PIPELINE

RESULTS = ROOT / "docs" / "results.md"
DOCUMENTS = [ROOT / "README.md", *sorted(set(ROOT.glob("docs/*.md")) - {RESULTS})]
EVERY = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]


def play(document: Path, folder: Path, long: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "120")
    if PIPELINE:
        monkeypatch.setenv("TACIT_SPACY", PIPELINE)
    played = Played(str(document.relative_to(ROOT)), long, folder, PIPELINE)
    for block in blocks(document.read_text(encoding="utf-8")):
        played.play(block)
    if played.unplayed:
        pytest.skip(f"no spaCy pipeline: blocks in lines {played.unplayed} were only read, all others ran")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_block_of_a_document_runs(document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    play(document, tmp_path, False, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_block_of_a_document_runs_with_all_its_trainings(
    document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(document, tmp_path, True, monkeypatch)


def commands_of_results() -> list[str]:
    """Every command of docs/results.md: in blocks, and between backticks in its tables."""
    text = RESULTS.read_text(encoding="utf-8")
    scripts = re.findall(r"^```\w*\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    inline = [" ".join(one.split()) for one in re.findall(r"`([^`]+)`", prose)]
    scripts += [one for one in inline if one.split()[0] in ("tacit", "python", "pytest", "make") and " " in one]
    return [shlex.join(words) for script in scripts for words in shell_lines(script)]


@pytest.mark.parametrize("command", dict.fromkeys(commands_of_results()))
def test_commands_of_the_results_could_be_run(command: str) -> None:
    words = shlex.split(command)
    if words[0] == "tacit" and len(words) == 2:
        verb_of(words[1:])  # a verb that is spoken of
    elif words[0] == "tacit":
        check_words(words[1:])
    elif words[0] in ("python", "pytest"):
        check_file(words)
    elif words[0] == "make":
        Played("results", False, ROOT).play(Block("sh", command, 0))
    else:
        assert words[0] in ("head", "cat", "for", "done", "export", "mkdir", "rm"), f"no rule for {words[0]}"


def test_the_results_have_commands() -> None:
    found = commands_of_results()
    assert sum(one.startswith("tacit train") for one in found) > 10
    assert any(one.startswith("pytest") for one in found)
    assert not any("$CRT" in one or "$UE" in one for one in found), "variables are replaced"


def anchors(document: Path) -> set[str]:
    """The names that GitHub gives to headings."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", EVERY, ids=lambda path: path.name)
def test_every_link_leads_somewhere(document: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", document.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    targets = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r"src=\"([^\"]+)\"", text)
    for target in (one for one in targets if "://" not in one):
        path, _, anchor = unquote(target).partition("#")
        place = (document.parent / path).resolve() if path else document
        assert place.exists(), f"{document.name}: {target}"
        assert not anchor or place.is_dir() or anchor in anchors(place), f"{document.name}: {target}"


def test_every_document_is_linked_from_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [one.name for one in ROOT.glob("docs/*.md") if f"docs/{one.name}" not in readme] == []


class TestTheRules:
    """The rules catch what they are for."""

    def test_an_unknown_language_is_a_failure(self, tmp_path: Path) -> None:
        (block,) = blocks("```ruby\nputs 1\n```\n")
        with pytest.raises(pytest.fail.Exception, match="no rule"):
            Played("x.md", False, tmp_path).play(block)

    def test_a_block_without_a_language_is_a_failure(self, tmp_path: Path) -> None:
        (block,) = blocks("```\nx\n```\n")
        with pytest.raises(pytest.fail.Exception, match="no rule"):
            Played("x.md", False, tmp_path).play(block)

    def test_a_fence_that_does_not_end_is_a_failure(self) -> None:
        with pytest.raises(AssertionError, match="fence"):
            blocks("```sh\ntacit plan\n")

    @pytest.mark.parametrize(
        "line", ["tacit nothing", "tacit scan c.jsonl --polcy pii", "make nothing", "python nothing.py", "rm -rf x"]
    )
    def test_commands_that_do_not_exist_are_failures(self, line: str, tmp_path: Path) -> None:
        with pytest.raises(Exception, match=r"no verb|No such option|nothing|no rule"):
            Played("x.md", False, tmp_path).play(Block("sh", line, 1))

    def test_settings_that_do_not_exist_are_failures(self, tmp_path: Path) -> None:
        for line in ("tacit train c.jsonl --mechanism plain --set shap.x=1", "tacit train c.jsonl --set lora.rank=4"):
            with pytest.raises(AssertionError, match="exit 2"):
                Played("x.md", False, tmp_path).play(Block("sh", line, 1))
        with pytest.raises(Exception, match=r"did you mean audit\.canaries"):
            Played("x.md", False, tmp_path).play(Block("yaml", "canary: []\n", 1))

    def test_output_that_is_not_printed_is_a_failure(self) -> None:
        check_shown("one [...] three", "one\n two three")
        with pytest.raises(AssertionError, match="not printed"):
            check_shown("three [...] one", "one two three")

    def test_output_belongs_to_the_command_above_it(self) -> None:
        found = commands(Block("console", "$ tacit plan --list\na line\n$ tacit config x \\\n  --seed 1\n", 1))
        assert found == [
            Command(["tacit", "plan", "--list"], "a line\n"),
            Command(["tacit", "config", "x", "--seed", "1"]),
        ]

    def test_an_error_that_does_not_come_is_a_failure(self, tmp_path: Path) -> None:
        shown = "$ tacit plan --list\nexpected  something\n"
        with pytest.raises(AssertionError, match="exit 0"):
            Played("x.md", False, tmp_path).play(Block("console", shown, 1))

    def test_a_block_whose_need_is_not_there_is_only_read(self, tmp_path: Path) -> None:
        played = Played("x.md", False, tmp_path)
        played.play(Block("sh", "tacit generate run\n", 1, "needs", "run"))
        played.play(Block("yaml", "policy: {spacy: {}}\n", 2, "needs", "spacy"))
        played.play(Block("python", "raise AssertionError\n", 3, "needs", "spacy"))
        assert played.unplayed == [2, 3]
        with pytest.raises(Exception, match="No such option"):
            played.play(Block("sh", "tacit generate run --nothing 1\n", 4, "needs", "run"))

    def test_a_block_whose_need_is_there_is_played(self, tmp_path: Path) -> None:
        (tmp_path / "run").mkdir()
        with pytest.raises(ZeroDivisionError):
            Played("x.md", False, tmp_path).play(Block("python", "1 / 0\n", 1, "needs", "run"))
        with pytest.raises(ZeroDivisionError):
            Played("x.md", False, tmp_path, "a pipeline").play(Block("python", "1 / 0\n", 1, "needs", "spacy"))
        with pytest.raises(AssertionError, match="no other"):
            Played("x.md", True, tmp_path).play(Block("python", "1 / 0\n", 1, "needs", "other"))

    def test_python_blocks_share_a_namespace_and_can_fail(self, tmp_path: Path) -> None:
        played = Played("x.md", False, tmp_path)
        played.play(Block("python", "x = 1\n", 1))
        played.play(Block("python", "assert x == 1\n", 1))
        with pytest.raises(AssertionError):
            played.play(Block("python", "assert x == 2\n", 1))
