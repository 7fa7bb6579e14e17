"""Every example runs, says what it is to show, and is spoken of in the documents."""

import ast
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
SAYS = {
    "from_python": ["perplexity", "differentially private", "Consistent", "page: report.html"],
    "huggingface": ["8 private steps", "Each training record has", "adapter_model.safetensors", "SYS: Hello"],
    "own_loop": ["after 40 private steps", "Each training record has", "the loop reads no record", "(assumed)"],
    "own_mechanism": ["noise multiplier", "Differential privacy for a record's secrets", "careless is refused"],
    "own_model": ["perplexity a byte", "Each training record has", "SYS: Hello"],
    "own_policy": ["TICKET 270", "tickets,pii", "with 95 % confidence"],
}


def test_every_example_is_in_the_table() -> None:
    assert {example.stem for example in EXAMPLES} == set(SAYS)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_examples_say_what_they_show(
    example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", [str(example)])
    runpy.run_path(str(example), run_name="__main__")
    said = capsys.readouterr().out
    assert [words for words in SAYS[example.stem] if words not in said] == []
    assert list(tmp_path.iterdir()) == [], "nothing is left behind"


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_examples_are_explained_and_spoken_of(example: Path) -> None:
    explained = ast.get_docstring(ast.parse(example.read_text(encoding="utf-8"))) or ""
    assert f"python examples/{example.name}" in explained
    documents = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]
    assert any(example.name in document.read_text(encoding="utf-8") for document in documents)
