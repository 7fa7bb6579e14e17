"""Files that a person names: a device or a pipe without a writer ends in one sentence instead of a hang."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tacit.audits.audit import read_named
from tacit.common import files as given
from tacit.common.files import digest
from tacit.common.libraries import from_folder
from tacit.config.load import load_config
from tacit.data.corpus import read
from tacit.data.ownership import read_aliases
from tacit.data.tokenizer import load_tokenizer, read_tokenizer_json
from tacit.errors import TacitError
from tacit.policies.labels import read_private
from tacit.policies.patterns import read_words
from tacit.policies.registry import parse_policy
from tacit.sweeps.recipe import read_recipe

READERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "corpus": ("corpus.jsonl", lambda path: list(read(path))),
    "compressed corpus": ("corpus.txt.gz", lambda path: list(read(path))),
    "table": ("corpus.parquet", lambda path: list(read(path))),
    "policy": ("policy.yaml", lambda path: parse_policy(str(path))),
    "words": ("words.txt", read_words),
    "settings": ("settings.yaml", lambda path: load_config(path)),
    "recipe": ("recipe.yaml", read_recipe),
    "aliases": ("aliases.tsv", read_aliases),
    "candidates": ("candidates.jsonl", read_named),
    "sample": ("sample.jsonl", read_private),
    "tokenizer": ("tokenizer.json", read_tokenizer_json),
    "own tokenizer": ("tokenizer.json", load_tokenizer),
    "weights": ("model.safetensors", lambda path: from_folder(None, path.parent)),
}


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(given, "_SECONDS_FOR_A_WRITER", 0.05)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_what_has_no_end_is_refused_at_once(reader: str, kind: str, tmp_path: Path) -> None:
    """Catches a hang: a pipe without a writer blocks when it is opened, and /dev/zero never ends."""
    name, call = READERS[reader]
    path = tmp_path / name
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
    with pytest.raises(TacitError) as caught:
        call(path)
    assert len(str(caught.value)) < 500


def test_a_device_has_no_digest(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="device"):
        digest(Path("/dev/zero"))


def test_a_pipe_with_a_writer_is_read(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    os.mkfifo(path)
    writer = threading.Thread(target=lambda: path.write_text("one\ntwo\n", encoding="utf-8"))
    writer.start()
    try:
        assert read_words(path) == ["one", "two"]
    finally:
        writer.join()


def test_standard_input_is_a_file_like_any_other() -> None:
    code = "from pathlib import Path; from tacit.common.files import read_text; print(read_text(Path('/dev/stdin')))"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, input="héllo", capture_output=True, text=True, check=True, env=dict(os.environ))
    assert done.stdout == "héllo\n"


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(OSError, match="more than 1,000 bytes"):
        given.read_bytes(path, 1000)


@pytest.mark.parametrize("name", ["a\0b", "x" * 5000])
def test_names_that_no_file_has(name: str) -> None:
    with pytest.raises(OSError):  # noqa: PT011
        given.read_bytes(Path(name))


def test_descriptors_are_closed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    for _ in range(5):
        with pytest.raises(OSError, match="pipe"):
            given.open_file(tmp_path / "pipe")
    assert before == 0 or len(os.listdir("/proc/self/fd")) == before
