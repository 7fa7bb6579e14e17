"""`minutes`: what fits into a time is planned by made-up rows and public counts, and frozen."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from runs import PLANS, experiment, quiet, write_corpus
from tacit.config.load import load
from tacit.config.plan_schema import PlanConfig
from tacit.config.schema import Config
from tacit.data.tokenizer import byte_tokenizer
from tacit.errors import ConfigError
from tacit.mechanisms.build import Terms
from tacit.mechanisms.mechanism import Mechanism
from tacit.mechanisms.registry import build_mechanism
from tacit.runs.folder import RunFolder
from tacit.runs.release import PrivateFile, ReleaseFile
from tacit.training import budget
from tacit.training.budget import MOST_PASSES, SMALL_LSTM, RowSeconds, duration, time_rows, within
from tacit.training.checks import check_run, check_start
from tacit.training.stages import resume, train

COUNTS = {"records": 1000, "secret_records": 400, "flagged": 300, "users": 200, "other_records": 500}
SECONDS = RowSeconds(0.01, 0.05)
WITH_TIME = ["plain", "redaction", "invented", "dpsgd", "selective", "twice", "cadp", "crt", "user", "uedp"]
SMALL: dict[str, Any] = {"model_config": {"embedding_size": 4, "hidden_size": 4}}


def building() -> Callable[[PlanConfig], Mechanism]:
    return partial(build_mechanism, measured={name: partial(float, count) for name, count in COUNTS.items()})


def asked(mechanism: str) -> PlanConfig:
    kept: dict[str, Any] = {
        name: PLANS[mechanism][name] for name in ("user_cap", "entity_cap") if name in PLANS[mechanism]
    }
    noise = {} if mechanism in ("plain", "redaction", "invented") else {"noise_multiplier": 1.0}
    return load(PlanConfig, {"mechanism": mechanism, **kept, **noise})


def total(plan: PlanConfig) -> float:
    taken = duration(building()(plan).plan(), SECONDS, COUNTS["records"])
    return taken.exact + taken.private


@pytest.mark.parametrize("mechanism", WITH_TIME)
def test_a_plan_fills_its_time_and_no_more(mechanism: str) -> None:
    """Up to a step of each kind, by which the last pass is rounded up."""
    usual = asked(mechanism)
    pass_ = total(replace(usual, epochs=MOST_PASSES)) / MOST_PASSES
    for passes in (1.5, 7.0):
        minutes = passes * pass_ / 60
        found = within(usual, minutes, SECONDS, COUNTS["records"], building())
        assert found.epochs is not None
        assert abs(found.epochs - passes) < 0.4
        steps = building()(found).plan().executions()
        longest = sum(total(found) / times for times in steps.values() if times)
        assert 60 * minutes - longest <= total(found) <= 60 * minutes + longest


def test_more_time_than_20_passes_need_is_for_larger_batches() -> None:
    usual = asked("dpsgd")
    enough = total(replace(usual, epochs=MOST_PASSES)) / 60
    found = within(usual, 3 * enough, SECONDS, COUNTS["records"], building())
    before = building()(replace(usual, epochs=MOST_PASSES)).private
    assert before is not None
    assert (found.steps, found.epochs) == (before.steps, None)
    assert found.expected_batch_size == pytest.approx(3 * before.expected_batch)
    most = within(usual, 1000 * enough, SECONDS, COUNTS["records"], building())
    assert most.expected_batch_size == COUNTS["records"]
    given = within(replace(usual, expected_batch_size=64.0), 3 * enough, SECONDS, COUNTS["records"], building())
    assert (given.epochs, given.expected_batch_size) == (MOST_PASSES, 64.0)
    assert within(asked("plain"), 3 * enough, SECONDS, COUNTS["records"], building()).epochs == MOST_PASSES


def test_less_time_than_a_pass_is_refused_with_what_is_needed() -> None:
    with pytest.raises(ConfigError, match=r"where one pass may take 0\.833") as refused:
        within(asked("dpsgd"), 0.5, SECONDS, COUNTS["records"], building())
    assert "0.833 minutes" in refused.value.way_out


def test_public_passes_that_are_given_come_first_or_instead() -> None:
    """Of a mixed plan they are taken off the time; of an exact one they leave nothing to decide."""
    mixed = replace(asked("selective"), public_epochs=2.0)
    found = within(mixed, total(replace(mixed, epochs=4.0)) / 60, SECONDS, COUNTS["records"], building())
    assert found.epochs == pytest.approx(4.0, rel=0.05)
    with pytest.raises(ConfigError, match="public_epochs"):
        within(replace(asked("plain"), public_epochs=2.0), 5, SECONDS, COUNTS["records"], building())


@pytest.mark.parametrize(
    ("more", "plan"), [({}, {"epochs": 2.0}), ({}, {"steps": 2}), ({"tokenizer": "bpe"}, {})], ids=str
)
def test_what_contradicts_minutes_is_refused(more: dict[str, Any], plan: dict[str, Any], tmp_path: Path) -> None:
    given = {"epochs": None, "steps": None, "expected_batch_size": 8, **plan}
    with pytest.raises(ConfigError, match="minutes"):
        check_run(experiment(write_corpus(tmp_path, 5), "dpsgd", given, minutes=1.0, **more))


@pytest.mark.parametrize("mechanism", ["plain", "selective", "user"])
def test_rows_are_timed_by_what_the_steps_do(mechanism: str, tmp_path: Path) -> None:
    config = experiment(write_corpus(tmp_path, 5), mechanism, **SMALL)
    found = time_rows(config, byte_tokenizer(), check_start(config).plan())
    assert (found.exact > 0) is (mechanism != "user")
    assert (found.private > 0) is (mechanism != "plain")


@pytest.mark.parametrize("mechanism", ["plain", "selective", "user"])
def test_a_run_times_rows_before_it_reads_and_keeps_its_plan(
    mechanism: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that was stopped and resumed has the plan of its first timing, however slow the machine is by then."""
    corpus, run = write_corpus(tmp_path, 30), tmp_path / "run"
    words: dict[str, Any] = {"steps": None, "public_epochs": None}
    config = experiment(corpus, mechanism, words, minutes=2.0, **SMALL)

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as stopped:
        stopped.setattr(budget, "time_rows", lambda *_: RowSeconds(1.0, 2.0))
        stopped.setattr("tacit.training.stages.prepare_run", stop)
        with pytest.raises(KeyboardInterrupt):
            train(config, run, quiet)
    assert not RunFolder.view(run).path(PrivateFile.PREPARED).exists()
    monkeypatch.setattr(budget, "time_rows", stop)
    resume(run, quiet)
    done = duration(RunFolder.view(run).read_json(Terms, ReleaseFile.PLAN).plan, RowSeconds(1.0, 2.0), 24)
    assert 60 < done.exact + done.private < 180


@pytest.mark.parametrize(("minutes", "shape"), [(2.0, {}), (0.5, SMALL_LSTM)])
def test_a_new_lstm_is_small_if_few_passes_of_the_usual_one_fit(
    minutes: float, shape: dict[str, float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """24 rows of .6 s: 8 passes fit into two minutes, two into half a minute. The size is kept by a resumed run."""
    config = experiment(write_corpus(tmp_path, 30), "plain", {"steps": None, "public_epochs": None}, minutes=minutes)
    config = replace(config, model_config={})
    monkeypatch.setattr(budget, "time_rows", lambda config, *_: RowSeconds(0.1 if config.model_config else 0.6, 0.0))
    monkeypatch.setattr("tacit.training.stages.make_learner", _stop_with_shape)
    with pytest.raises(KeyboardInterrupt) as stopped:
        train(config, tmp_path / "run", quiet)
    assert stopped.value.args == (shape,)
    with pytest.raises(KeyboardInterrupt) as stopped:
        resume(tmp_path / "run", quiet)
    assert stopped.value.args == (shape,)


def _stop_with_shape(config: Config, *_: object) -> None:
    raise KeyboardInterrupt(config.model_config)


def test_a_size_that_was_given_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "time_rows", lambda *_: RowSeconds(0.6, 0.0))
    words: dict[str, Any] = {"steps": None, "public_epochs": None}
    config = experiment(write_corpus(tmp_path, 30), "plain", words, minutes=0.5, **SMALL)
    train(config, tmp_path / "run", quiet)
    assert RunFolder.view(tmp_path / "run").read_json(budget.Timing, PrivateFile.TIMING).small is None
