"""T11, the neighbor fuzzer (theory, section 13): two runs that differ in one unit differ by what is priced.

Settings are drawn from the table `tacit.training.covered`: here, choices that together have every allowed pair of
values, with one corpus each, always the same; in `make test-all`, new choices and corpora every time, whose seed is
printed.
"""

import json
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import pytest

from neighbor_checks import fuzz
from neighbor_settings import completed, covering_choices, published, words_of
from runs import experiment, quiet, write_corpus
from tacit.config.load import load_config
from tacit.config.schema import Config
from tacit.errors import ClaimRefused, ConfigError
from tacit.training.checks import check_run
from tacit.training.covered import COVERED, RULES, check_covered, choice_of
from tacit.training.stages import train

PARTS = 8


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with published(tmp_path_factory.mktemp("published")) as folder:
        yield folder


def experiment_of(words: dict[str, Any]) -> Config:
    """The settings, with names for files that nobody reads."""
    beside = {} if "held_out" in words else {"held_out_corpus": "held.jsonl"}
    return load_config({"corpus": "corpus.jsonl", **beside, **words})


@pytest.mark.parametrize("part", range(PARTS))
def test_neighbors_differ_by_what_is_priced(part: int, place: Path, tmp_path: Path) -> None:
    """Every pair of values that the table allows, once."""
    choices, _, _ = covering_choices(0)
    for number, choice in list(enumerate(choices))[part::PARTS]:
        words = words_of(choice, place, Random(number))
        assert choice_of(experiment_of(words)) == choice
        assert fuzz(tmp_path / str(number), words, number)


@pytest.mark.slow
@pytest.mark.parametrize("round_", range(10))
def test_neighbors_of_other_corpora_and_choices(
    round_: int,
    place: Path,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
    pytestconfig: pytest.Config,
) -> None:
    """Every pair again, among other settings and in other corpora; SEED of `make test-all` repeats them."""
    given = str(pytestconfig.getoption("--hypothesis-seed"))
    seed = (int(given) if given.isdigit() else secrets.randbits(32)) + 1000 * round_
    choices, pairs, _ = covering_choices(seed)
    worlds = 0
    for number, choice in enumerate(choices):
        words = words_of(choice, place, Random(seed + number))
        try:
            worlds += fuzz(tmp_path / str(number), words, seed + number)
        except Exception as error:
            error.add_note(f"seed {seed}, number {number}: {json.dumps(words)}")
            raise
    counts = f"{pairs:,} pairs of values in {len(choices)} choices, {worlds} pairs of worlds, seed {seed}"
    record_property("counts", f"neighbors, round {round_}: {counts}")


def test_every_value_is_in_a_pair_and_every_need_names_values() -> None:
    """No value of the table is out of reach of the fuzzer, and no line of it is about something else."""
    choices, pairs, _ = covering_choices(0)
    assert pairs > 2500
    for setting, values in COVERED.items():
        assert {choice[setting] for choice in choices} == set(values)
    for need in RULES:
        assert need.value in COVERED[need.setting]
        assert set(need.allowed) < set(COVERED[need.other])


def _check(experiment: Config) -> None:
    check_run(experiment)
    check_covered(experiment)


def test_what_was_never_compared_is_refused(place: Path) -> None:
    """Each pair that the table refuses: by a check of settings that contradict each other, or under the claim."""
    refused = 0
    for need in RULES:
        for value in COVERED[need.other]:
            if value in need.allowed:
                continue
            choice = {name: values[0] for name, values in COVERED.items()} | {"mechanism": "dpsgd"}
            start = completed({need.other: value}, set(), Random(1)) or choice
            words = words_of({**start, need.setting: need.value, need.other: value}, place, Random(1))
            found = experiment_of(words)
            named = choice_of(found)
            if (named[need.setting], named[need.other]) == (need.value, value):
                with pytest.raises((ClaimRefused, ConfigError)):
                    _check(found)
                refused += 1
    assert refused > 60


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"eval_steps": 1, "eval_on": "full", "held_out": 0.3}, "eval_on"),
        ({"duplicates": "exact"}, "mechanism.*with duplicates: exact"),
        ({"tokenizer": "bpe"}, "mechanism.*with tokenizer: bpe of the corpus"),
    ],
)
def test_the_refusal_names_the_settings(more: dict[str, Any], named: str) -> None:
    words = {"policy": "gold", "plan": {"mechanism": "dpsgd", "noise_multiplier": 1.0}, **more}
    with pytest.raises(ClaimRefused, match=named):
        check_covered(experiment_of(words))


def test_a_run_under_a_claim_asks_the_table_and_a_plain_one_does_not(tmp_path: Path) -> None:
    """A value that nobody compared: refused before anything is spent, and allowed where nothing is claimed."""
    corpus = write_corpus(tmp_path, 20)
    small: dict[str, Any] = {"model_config": {"embedding_size": 4, "hidden_size": 4}, "microbatch_tokens": 64}
    with patch.dict(COVERED, {"microbatch_tokens": ("default",)}):
        with pytest.raises(ClaimRefused, match="microbatch_tokens: default"):
            train(experiment(corpus, "dpsgd", **small), tmp_path / "claim", quiet)
        assert not (tmp_path / "claim").exists()
        train(experiment(corpus, "plain", **small), tmp_path / "plain", quiet)
