"""Every example runs, says what it is to show, and is spoken of in the documents."""

import ast
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import tacit
from tacit.api import simulate

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
ANSWER = ROOT / "examples" / "answer.py"
WITHOUT_TACIT = """
import runpy, sys
from pathlib import Path
sys.modules["tacit"] = None
del sys.argv[0]
answer = runpy.run_path(sys.argv[0], run_name="__main__")["answer"]
print("with its base given:", answer(Path(sys.argv[1]), "base", sys.argv[2], 4))
"""
TEMPLATE = (
    "{% for message in messages %}{{ message.role }}: {{ message.content }}{{ eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
SAYS = {
    "from_python": ["perplexity", "differentially private", "Consistent", "page: report.html"],
    "huggingface": ["8 private steps", "Each training record has", "adapter_model.safetensors", "SYS: Hello"],
    "own_loop": ["after 40 private steps", "Each training record has", "the loop reads no record", "(assumed)"],
    "own_mechanism": ["noise multiplier", "Differential privacy for a record's secrets", "careless is refused"],
    "own_model": ["perplexity a byte", "Each training record has", "SYS: Hello"],
    "train_tagger": ["120 records, 5 kinds", "epoch 6: loss", "of the secrets of other dialogs"],
    "own_policy": ["TICKET 270", "tickets,pii", "with 95 % confidence"],
}


def test_every_example_is_in_the_table() -> None:
    assert {example.stem for example in EXAMPLES if example != ANSWER} == set(SAYS)


@pytest.mark.slow
@pytest.mark.parametrize("example", [example for example in EXAMPLES if example != ANSWER], ids=lambda path: path.stem)
def test_examples_say_what_they_show(
    example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", [str(example)])
    runpy.run_path(str(example), run_name="__main__")
    said = capsys.readouterr().out
    assert [words for words in SAYS[example.stem] if words not in said] == []
    assert list(tmp_path.iterdir()) == [], "nothing is left behind"


@pytest.fixture(scope="module")
def adapters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a base model that knows chats, and the release of a run that trained adapters on it."""
    folder = tmp_path_factory.mktemp("adapters")
    runpy.run_path(str(ROOT / "examples" / "huggingface.py"))["tiny"](folder / "base")
    (folder / "base" / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")
    settings = {"held_out": 0.3, "max_tokens": 64, "max_full_tokens": 80, "plan.public_epochs": 1}
    simulate("customersim", dialogs=30, format="messages", out=folder / "chats.jsonl")
    tacit.train(
        folder / "chats.jsonl",
        model=folder / "base",
        lora_rank=2,
        mechanism="selective",
        epsilon=8,
        epochs=1,
        out=folder / "run",
        settings=settings,
    )
    return folder


@pytest.mark.slow
def test_a_release_answers_without_tacit(adapters: Path) -> None:
    words = [str(ANSWER), "run/release", "Where is my parcel?", "--tokens", "4"]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TACIT, *words], cwd=adapters, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    said, again = done.stdout.split("with its base given: ")
    assert said == again


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_examples_are_explained_and_spoken_of(example: Path) -> None:
    explained = ast.get_docstring(ast.parse(example.read_text(encoding="utf-8"))) or ""
    assert f"python examples/{example.name}" in explained
    documents = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]
    assert any(example.name in document.read_text(encoding="utf-8") for document in documents)
