"""A file of its own to measure with: prepared like the corpus, never trained on or chosen by, nobody on both sides."""

from pathlib import Path
from typing import Any

import pytest

from runs import experiment, quiet, write_corpus
from tacit.corpus.read import read
from tacit.corpus.record import Record
from tacit.corpus.simulate import simulate
from tacit.corpus.split import Split
from tacit.corpus.write import write_jsonl
from tacit.errors import ConfigError
from tacit.experiment import train
from tacit.parts import check_apart, records_of
from tacit.prepare import Prepared
from tacit.run import PrivateFile, Run
from tacit.settings import Experiment, check_used

NO_SHARE: dict[str, Any] = {"held_out": None}


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write_corpus(tmp_path, 20)


@pytest.fixture
def apart(tmp_path: Path) -> str:
    write_jsonl(simulate("customersim", 7, split="test"), tmp_path / "apart.jsonl")
    return str(tmp_path / "apart.jsonl")


def _with(corpus: Path, apart: str, **more: Any) -> Experiment:  # noqa: ANN401
    return experiment(corpus, "plain", **{**NO_SHARE, "held_out_corpus": apart, **more})


def test_the_whole_corpus_is_trained_on_and_the_file_measured_with(corpus: Path, apart: str, tmp_path: Path) -> None:
    shape = {"embedding_size": 8, "hidden_size": 8}
    trained = train(_with(corpus, apart, shape=shape), tmp_path / "run", quiet)
    run = Run.view(tmp_path / "run")
    stores = {place: Prepared(run.path(place)) for place in (PrivateFile.PREPARED, PrivateFile.HELD_OUT)}
    ids = {place: {store.record_id(row) for row in range(len(store))} for place, store in stores.items()}
    assert ids[PrivateFile.PREPARED] == {record.id for record in read(corpus)}
    assert ids[PrivateFile.HELD_OUT] == {record.id for record in read(apart)}
    assert stores[PrivateFile.HELD_OUT].span_counts().sum() > 0, "the same policy marks it"
    assert trained.utility.characters == sum(len(record.text) for record in read(apart))
    assert apart not in "".join(path.read_text() for path in (tmp_path / "run" / "release").glob("*.json"))


def test_without_a_file_a_share_is_held_out(corpus: Path) -> None:
    usual = experiment(corpus, "plain", **NO_SHARE)
    assert usual.held_out_share == 0.05
    sides = [{record.id for record in records_of(usual, side)} for side in (Split.TRAIN, Split.VALIDATION)]
    assert sides[0] | sides[1] == {record.id for record in read(corpus)}
    assert not sides[0] & sides[1]


def test_pieces_are_cut_on_both_sides(corpus: Path, apart: str) -> None:
    turns = _with(corpus, apart, pieces="turn")
    assert len(list(records_of(turns, Split.VALIDATION))) > 7
    check_apart(turns)


def test_nobody_is_on_both_sides(tmp_path: Path) -> None:
    corpus, apart = tmp_path / "corpus.jsonl", tmp_path / "apart.jsonl"
    write_jsonl([Record("a", "one", "ann"), Record("b", "two"), Record("c", "three")], corpus)
    settings = _with(corpus, str(apart))
    for clash in (Record("x", "other", "ann"), Record("b", "two")):
        write_jsonl([Record("y", "fine"), clash], apart)
        with pytest.raises(ConfigError, match="1 records of the corpus"):
            check_apart(settings)
    write_jsonl([Record("b", "another text under the same number"), Record("z", "one", "bob")], apart)
    check_apart(settings)
    with pytest.raises(ConfigError, match="3 records"):
        check_apart(_with(corpus, str(corpus)))


@pytest.mark.parametrize(
    "more", [{"held_out": 0.2}, {"choose_every": 2}, {"choose_every": 2, "choose_on": "full"}], ids=str
)
def test_what_contradicts_a_file_of_its_own_is_refused(corpus: Path, apart: str, more: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        check_used(_with(corpus, apart, **more))
    check_used(_with(corpus, apart))
    check_used(_with(corpus, apart, choose_every=2, choose_on=str(corpus)))
