"""A file of its own to measure with: prepared like the corpus, never trained on or chosen by, nobody on both sides."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from marking import check_apart, records_of
from runs import experiment, quiet, write_corpus
from tacit.cli.main import app
from tacit.config.load import check_used
from tacit.config.schema import Config
from tacit.data.corpus import read, write_jsonl
from tacit.data.marked import Split
from tacit.data.records import Record
from tacit.data.store import PreparedCorpus
from tacit.errors import ConfigError
from tacit.runs.folder import RunFolder
from tacit.runs.release import PrivateFile
from tacit.simulation.simulate import simulate
from tacit.training.stages import train

NO_SHARE: dict[str, Any] = {"held_out": None}


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write_corpus(tmp_path, 20)


@pytest.fixture
def apart(tmp_path: Path) -> str:
    write_jsonl(simulate("customersim", 7, split="test"), tmp_path / "apart.jsonl")
    return str(tmp_path / "apart.jsonl")


def _with(corpus: Path, apart: str, **more: Any) -> Config:  # noqa: ANN401
    return experiment(corpus, "plain", **{**NO_SHARE, "held_out_corpus": apart, **more})


def test_the_whole_corpus_is_trained_on_and_the_file_measured_with(corpus: Path, apart: str, tmp_path: Path) -> None:
    shape = {"embedding_size": 8, "hidden_size": 8}
    trained = train(_with(corpus, apart, model_config=shape), tmp_path / "run", quiet)
    run = RunFolder.view(tmp_path / "run")
    stores = {place: PreparedCorpus(run.path(place)) for place in (PrivateFile.PREPARED, PrivateFile.HELD_OUT)}
    ids = {place: {store.record_id(row) for row in range(len(store))} for place, store in stores.items()}
    assert ids[PrivateFile.PREPARED] == {record.id for record in read(corpus)}
    assert ids[PrivateFile.HELD_OUT] == {record.id for record in read(apart)}
    assert stores[PrivateFile.HELD_OUT].span_counts().sum() > 0, "the same policy marks it"
    assert trained.utility.characters == sum(len(record.text) for record in read(apart))
    assert apart not in "".join(path.read_text() for path in (tmp_path / "run" / "release").glob("**/*.json"))


def test_without_a_file_a_share_is_held_out(corpus: Path) -> None:
    usual = experiment(corpus, "plain", **NO_SHARE)
    assert usual.held_out_share == 0.05
    sides = [{record.id for record in records_of(usual, side)} for side in (Split.TRAIN, Split.VALIDATION)]
    assert sides[0] | sides[1] == {record.id for record in read(corpus)}
    assert not sides[0] & sides[1]


def test_pieces_are_cut_on_both_sides(corpus: Path, apart: str) -> None:
    turns = _with(corpus, apart, segment_by="turn")
    assert len(list(records_of(turns, Split.VALIDATION))) > 7
    check_apart(turns)


def test_nobody_is_on_both_sides(tmp_path: Path) -> None:
    corpus, apart = tmp_path / "corpus.jsonl", tmp_path / "apart.jsonl"
    write_jsonl([Record("a", "one", "ann"), Record("b", "two"), Record("c", "three")], corpus)
    settings = _with(corpus, str(apart))
    write_jsonl([Record("y", "fine"), Record("x", "other", "ann")], apart)
    with pytest.raises(ConfigError, match="1 records of the corpus whose user"):
        check_apart(settings)
    write_jsonl([Record("b", "another text under the same number"), Record("z", "one", "bob")], apart)
    assert check_apart(settings) == 0
    write_jsonl([Record("y", "fine"), Record("b", "two")], apart)
    with pytest.raises(ConfigError, match="1 of the 1 texts compared"):
        check_apart(settings)
    with pytest.raises(ConfigError):
        check_apart(_with(corpus, str(corpus)))


LINES = [f"note number {n} about the {n * 7} gardens" for n in range(50)]
OTHERS = [f"a line {n} of another file altogether" for n in range(50)]


@pytest.mark.parametrize("copied", [50, 10, 9, 0])
def test_texts_in_common_are_counted_wherever_they_stand(tmp_path: Path, copied: int) -> None:
    """Ids of a .txt are places: a copy in another order has the same texts under other ids."""
    corpus, apart = tmp_path / "corpus.txt", tmp_path / "apart.txt"
    corpus.write_text("\n".join(["yes", *LINES]))
    apart.write_text("\n".join([*LINES[:copied][::-1], *OTHERS[copied:], "yes", "no"]))
    settings = _with(corpus, str(apart))
    if copied >= 10:
        with pytest.raises(ConfigError, match=f"{copied} of the 50 texts compared"):
            check_apart(settings)
    else:
        assert check_apart(settings) == copied


def test_the_count_of_texts_in_common_is_said_and_private(tmp_path: Path) -> None:
    corpus, apart = tmp_path / "corpus.txt", tmp_path / "apart.txt"
    corpus.write_text("\n".join(LINES))
    apart.write_text("\n".join([*LINES[:3], *OTHERS[3:]]))
    words = ("--mechanism", "plain", "--epochs", "1", "--policy", "digits", "--out", str(tmp_path / "run"))
    small = ("--set", "hidden_size=8", "--set", "embedding_size=8", "--set", f"held_out_corpus={apart}")
    result = CliRunner().invoke(app, ["train", str(corpus), *words, *small], catch_exceptions=False)
    assert "3 held-out texts also occur in the training corpus" in result.output
    assert RunFolder.view(tmp_path / "run").read_json(dict, PrivateFile.SHARED) == {"texts": 3}


@pytest.mark.parametrize("more", [{"held_out": 0.2}, {"eval_steps": 2}, {"eval_steps": 2, "eval_on": "full"}], ids=str)
def test_what_contradicts_a_file_of_its_own_is_refused(corpus: Path, apart: str, more: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        check_used(_with(corpus, apart, **more))
    check_used(_with(corpus, apart))
    check_used(_with(corpus, apart, eval_steps=2, eval_on=str(corpus)))


def test_a_choice_on_the_held_out_file_is_refused_however_it_is_named(corpus: Path, apart: str) -> None:
    (corpus.parent / "folder").mkdir()
    (corpus.parent / "link.jsonl").symlink_to(apart)
    for name in (apart, str(corpus.parent / "folder" / ".." / "apart.jsonl"), str(corpus.parent / "link.jsonl")):
        with pytest.raises(ConfigError, match="never looks at held_out_corpus"):
            check_used(_with(corpus, apart, eval_steps=2, eval_on=name))
