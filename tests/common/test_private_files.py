"""What contains text of a corpus is for its owner alone, wherever it is written and whatever the umask."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from marking import prepare
from runs import experiment, quiet, write_corpus
from tacit.cli.main import app
from tacit.common.files import write_private
from tacit.data.corpus import read
from tacit.data.tokenizer import byte_tokenizer
from tacit.errors import ConfigError
from tacit.policies.patterns import Gold
from tacit.training.stages import train

SHAPE = {"embedding_size": 8, "hidden_size": 8}


@pytest.fixture(autouse=True)
def open_to_everybody() -> Iterator[None]:
    """The umask under which everything is readable by everybody unless somebody sees to it."""
    before = os.umask(0)
    yield
    os.umask(before)


def invoke(*words: str | Path) -> None:
    CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)


def broken(corpus: Path) -> Path:
    """With a line that is no record: it is set aside."""
    corpus.write_text(corpus.read_text() + "{\n")
    return corpus


Write = Callable[[Path, Path], object]
WRITERS: dict[str, Write] = {
    "scan": lambda corpus, out: invoke("scan", broken(corpus), "--policy", "gold", "--show-secrets", "--out", out),
    "compare": lambda corpus, out: invoke("policy", "compare", broken(corpus), "--policies", "gold", "--out", out),
    "label": lambda corpus, out: invoke(
        *("label", "draw", corpus, "--policy", "digits", "--records", "5", "--gold", "--out", made(out) / "s.jsonl")
    ),
    "prepare": lambda corpus, out: prepare(read(corpus), Gold(), byte_tokenizer(), out),
    "sample": lambda corpus, out: invoke("report", trained(corpus, out / "run"), "--sample", "2"),
}


def made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def trained(corpus: Path, run: Path) -> Path:
    train(experiment(corpus, "redaction", model_config=SHAPE), run, quiet)
    return run


def readable(folder: Path) -> Iterator[Path]:
    """Every file below that somebody else may read: none below a folder that is closed to others."""
    if folder.stat().st_mode & 0o077:
        for path in folder.iterdir():
            if path.is_dir():
                yield from readable(path)
            elif path.stat().st_mode & 0o077:
                yield path


@pytest.mark.parametrize("verb", WRITERS)
def test_nobody_else_reads_what_contains_text_of_a_corpus(verb: str, tmp_path: Path) -> None:
    """Catches pages with secrets of mode 0644, and whatever else a verb writes."""
    corpus, out = write_corpus(tmp_path, 20), tmp_path / "out"
    WRITERS[verb](corpus, out)
    assert any(path.is_file() for path in out.rglob("*"))
    texts = [json.loads(line)["text"] for line in corpus.read_text().splitlines() if line.startswith('{"id"')]
    words = {word for text in texts for word in text.split() if sum(map(str.isdigit, word)) > 3}
    found = [path for path in readable(out) if words & set(path.read_text(errors="replace").split())]
    outside = [path for path in readable(out) if "release" not in path.parts and path.name != "run.json"]
    assert len(words) > 10
    assert found == outside == []


def test_a_file_that_others_could_read_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text("older")
    assert path.stat().st_mode & 0o777 == 0o666
    write_private(path, b"secret")
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"secret", 0o600)
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(ConfigError, match="No such file"):
        write_private(tmp_path / "nowhere" / "page.html", b"secret")
