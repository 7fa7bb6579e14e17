"""Files that are declared public are others than the corpus."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from marking import check_apart
from runs import experiment, quiet, write_corpus
from tacit.config.schema import Config
from tacit.data.corpus import read, write_jsonl
from tacit.data.records import Record
from tacit.errors import ConfigError
from tacit.runs.folder import RunFolder
from tacit.runs.release import PrivateFile
from tacit.simulation.simulate import simulate
from tacit.training import overlap as apart
from tacit.training.stages import train

LINES = [f"note number {n} about the {n * 7} gardens" for n in range(50)]
OTHERS = [f"a line {n} of another file altogether" for n in range(50)]
PUBLIC: dict[str, dict[str, Any]] = {
    "vocabulary_corpus": {"tokenizer": "bpe", "vocabulary_size": 300},
    "eval_on": {"eval_steps": 2},
}
Make = Callable[[Path, Path], object]
COPIES: dict[str, tuple[str, Make]] = {
    "itself": ("corpus.txt", lambda corpus, public: None),
    "a link": ("link.txt", lambda corpus, public: public.symlink_to(corpus)),
    "a hard link": ("hard.txt", lambda corpus, public: os.link(corpus, public)),
    "a copy": ("copy.txt", shutil.copyfile),
    "in other order": ("order.txt", lambda corpus, public: public.write_text("\n".join(LINES[::-1]))),
    "in another format": (
        "format.jsonl",
        lambda corpus, public: public.write_text("".join(json.dumps({"text": line}) + "\n" for line in LINES)),
    ),
    "half of it": ("half.txt", lambda corpus, public: public.write_text("\n".join(LINES[:25]))),
    "among many others": (
        "many.txt",
        lambda corpus, public: public.write_text("\n".join([*LINES, *(f"{n} {OTHERS[0]}" for n in range(999))])),
    ),
}


def declared(corpus: Path, setting: str, public: Path, **more: Any) -> Config:  # noqa: ANN401
    asked: dict[str, Any] = {**PUBLIC[setting], setting: str(public), "policy": "digits", **more}
    return experiment(corpus, "dpsgd", **asked)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    (tmp_path / "corpus.txt").write_text("\n".join(LINES))
    return tmp_path / "corpus.txt"


@pytest.mark.parametrize("setting", PUBLIC)
@pytest.mark.parametrize("how", COPIES)
def test_the_corpus_is_not_public_whatever_its_name(corpus: Path, setting: str, how: str) -> None:
    """Catches a tokenizer, and a choice of models, made of protected text that was called public."""
    name, make = COPIES[how]
    make(corpus, corpus.parent / name)
    with pytest.raises(ConfigError) as refused:
        train(declared(corpus, setting, corpus.parent / name), corpus.parent / "run", quiet)
    assert setting in str(refused.value)
    assert "gardens" not in str(refused.value)
    assert not (corpus.parent / "run").exists(), "refused before anything is written"


@pytest.mark.parametrize("setting", PUBLIC)
@pytest.mark.parametrize("copied", [9, 10])
def test_few_texts_in_common_are_public_by_declaration(corpus: Path, setting: str, copied: int) -> None:
    public = corpus.parent / "public.txt"
    public.write_text("\n".join([*LINES[:copied], *OTHERS[copied:]]))
    asked = declared(corpus, setting, public)
    if copied < 10:
        assert check_apart(asked) == 0
    else:
        with pytest.raises(ConfigError, match="10 of the 50 texts compared that also occur in the corpus"):
            check_apart(asked)


def test_held_out_text_is_not_public_either(corpus: Path) -> None:
    (corpus.parent / "held.txt").write_text("\n".join(OTHERS))
    (corpus.parent / "copy.txt").write_text("\n".join(OTHERS[::-1]))
    held = {"held_out": None, "held_out_corpus": str(corpus.parent / "held.txt")}
    asked = declared(corpus, "vocabulary_corpus", corpus.parent / "copy.txt", **held)
    with pytest.raises(ConfigError, match="50 of the 50 texts compared that also occur in held_out_corpus"):
        check_apart(asked)


def test_texts_written_line_by_line_are_still_the_corpus(tmp_path: Path) -> None:
    """Catches a vocabulary file made by printing the texts of a corpus of dialogs: no line is a whole record."""
    corpus, public = write_corpus(tmp_path, 40), tmp_path / "public.txt"
    public.write_text("\n".join(record.text for record in read(corpus)))
    with pytest.raises(ConfigError, match="lines compared that also occur in the corpus"):
        check_apart(declared(corpus, "vocabulary_corpus", public))
    other = "".join(f"{line}\n" for n in range(900) for line in (f"an unknown line with the number {n}", "yes"))
    public.write_text("\n".join(record.text for record in list(read(corpus))[::2]) + "\n" + other)
    with pytest.raises(ConfigError, match="lines compared of the corpus that occur in it"):
        check_apart(declared(corpus, "vocabulary_corpus", public))


def test_dialogs_of_one_simulator_share_lines_and_are_apart(tmp_path: Path) -> None:
    """The negative control: about 40 % of the lines of a small corpus are in a large one with other people."""
    corpus, public = write_corpus(tmp_path, 40), tmp_path / "public.jsonl"
    write_jsonl(simulate("customersim", 1000, seed=99), public)
    check_apart(declared(corpus, "vocabulary_corpus", public))


def test_of_many_lines_some_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """0.4 and 0.6 of all lines are 6 deviations or more from a half of those compared: false alarms below 1e-9."""
    monkeypatch.setattr(apart, "_LINES_COMPARED", 1000)
    corpus, public = tmp_path / "corpus.jsonl", tmp_path / "public.txt"
    lines = [f"this is line number {number}" for number in range(5000)]
    write_jsonl([Record(str(at), "\n".join(lines[at : at + 50])) for at in range(0, 5000, 50)], corpus)
    other = [f"this is another line {number}" for number in range(5000)]
    public.write_text("\n".join([*lines[:2000], *other[:3000]]))
    check_apart(declared(corpus, "eval_on", public))
    public.write_text("\n".join([*lines[:3000], *other[:2000]]))
    with pytest.raises(ConfigError, match="of the 1,000 lines"):
        check_apart(declared(corpus, "eval_on", public))


def test_a_file_that_is_not_looked_at_is_not_compared(corpus: Path) -> None:
    check_apart(experiment(corpus, "dpsgd", eval_on=str(corpus), policy="digits"))


def test_short_texts_count_where_their_ids_are_equal_too(tmp_path: Path) -> None:
    corpus, public = tmp_path / "corpus.jsonl", tmp_path / "public.jsonl"
    write_jsonl([Record("a", "yes"), Record("b", "no")], corpus)
    write_jsonl([Record("x", "yes"), Record("y", "no")], public)
    check_apart(declared(corpus, "eval_on", public))
    write_jsonl([Record("a", "yes"), Record("y", "no")], public)
    with pytest.raises(ConfigError, match="1 of the 1 texts"):
        check_apart(declared(corpus, "eval_on", public))


def test_public_files_are_used(corpus: Path) -> None:
    """The negative control: a file of other texts trains."""
    public, shape = corpus.parent / "public.txt", {"embedding_size": 8, "hidden_size": 8}
    public.write_text("\n".join(OTHERS))
    train(declared(corpus, "eval_on", public, model_config=shape), corpus.parent / "run", quiet)
    assert RunFolder.view(corpus.parent / "run").path(PrivateFile.CHOICE).exists()
