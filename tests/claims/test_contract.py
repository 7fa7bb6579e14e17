"""One contract for every mechanism: it trains, its ledger is its plan, and it goes on after a step was lost.

What each hides, and by which noise, is in test_contract_theory.py.
"""

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from runs import PLANS, experiment, quiet, write_corpus
from tacit.common.progress import Progress
from tacit.common.serialize import from_json
from tacit.mechanisms.build import Terms
from tacit.mechanisms.registry import REGISTRY
from tacit.privacy.account import account
from tacit.privacy.events import Event
from tacit.privacy.guarantee import Guarantee
from tacit.privacy.ledger import read_entries
from tacit.privacy.noisy_utility import HELD_OUT_ALONE
from tacit.privacy.noisy_utility import STEP as MEASURING
from tacit.privacy.plan import Plan, cost
from tacit.runs.folder import RunFolder
from tacit.runs.release import PrivateFile, ReleaseFile
from tacit.runs.verify import verify
from tacit.runs.weights import read_model
from tacit.training.stages import Trained, resume, train

SHAPE = {"embedding_size": 8, "hidden_size": 8}
Begin = Callable[[str], Trained]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpus"), 30)


def _words(mechanism: str) -> dict[str, Any]:
    """At least four steps: two to keep, one to lose, one to come."""
    return (
        {"public_batch_size": 4}
        if mechanism in ("plain", "redaction", "invented")
        else {"steps": 4, "expected_batch_size": 4}
    )


@pytest.fixture(scope="module")
def undisturbed(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Begin:
    """Runs that nobody disturbed, each made once."""
    runs: dict[str, Trained] = {}

    def run(mechanism: str) -> Trained:
        if mechanism not in runs:
            settings = experiment(corpus, mechanism, _words(mechanism), model_config=SHAPE)
            runs[mechanism] = train(settings, tmp_path_factory.mktemp(mechanism) / "run", quiet)
        return runs[mechanism]

    return run


def test_every_mechanism_is_under_contract() -> None:
    assert set(PLANS) == set(REGISTRY)


@pytest.mark.parametrize("mechanism", PLANS)
def test_every_mechanism_runs_and_its_ledger_is_its_plan(mechanism: str, undisturbed: Begin) -> None:
    result = undisturbed(mechanism)
    run = RunFolder.view(result.folder)
    executed = from_json(Terms, run.path(ReleaseFile.PLAN).read_bytes()).plan
    entries = read_entries(run.path(ReleaseFile.LEDGER))
    planned = {step.name: times for step, times in executed.executions().items() if times}
    assert entries.charges() == {**planned, MEASURING: 1}
    for neighbors in result.planned.mechanism.notions():
        by_plan: Counter[Event] = Counter({HELD_OUT_ALONE: 1})
        for step, times in executed.executions().items():
            by_plan[cost(step, neighbors)] += times
        assert Counter(dict(entries.compositions()[str(neighbors)])) == +by_plan
    assert result.guarantee.figures == result.planned.guarantee.figures
    assert from_json(Guarantee, run.path(PrivateFile.GUARANTEE).read_bytes()) == result.guarantee
    outside = from_json(Guarantee, run.path(ReleaseFile.GUARANTEE).read_bytes())
    assert (outside.figures, outside.utility) == (result.guarantee.figures, result.guarantee.utility)
    assert all(torch.isfinite(value).all() for value in read_model(run).values())
    assert result.utility.overall.tokens == result.utility.public.tokens + result.utility.private.tokens > 0


@pytest.mark.parametrize("mechanism", PLANS)
def test_every_mechanism_verifies_from_its_release_alone(mechanism: str, undisturbed: Begin, tmp_path: Path) -> None:
    result = undisturbed(mechanism)
    released = from_json(Guarantee, RunFolder.view(result.folder).path(ReleaseFile.GUARANTEE).read_bytes())
    for place in (result.folder, Path(shutil.copytree(result.folder / "release", tmp_path / "copy"))):
        verified = verify(place)
        assert [one for one in verified.checks if not one.holds] == []
        assert verified.sentence == released.sentence()


class Stopped(Exception):
    """What the world does to a run."""


def _to_lose(plan: Plan) -> int:
    """The number of a step, private where there are any, that two went before and one comes after."""
    steps = list(plan.steps())
    private = [number for number, step in enumerate(steps, 1) if step.name == "private"]
    return next(number for number in private or range(len(steps)) if 2 < number < len(steps))


@pytest.mark.parametrize("mechanism", PLANS)
def test_a_run_that_lost_a_step_goes_on_to_the_same_model_and_pays_for_it(
    mechanism: str, corpus: Path, undisturbed: Begin, tmp_path: Path
) -> None:
    """The checkpoint is of the step before the one that was lost; the lost step is done again, and paid again."""
    whole = undisturbed(mechanism)
    plan = whole.planned.plan
    lost = _to_lose(plan)

    def stop(progress: Progress) -> None:
        if progress.stage == "training" and progress.done == lost:
            raise Stopped

    settings = experiment(corpus, mechanism, _words(mechanism), model_config=SHAPE, checkpoint_steps=lost - 1)
    with pytest.raises(Stopped):
        train(settings, tmp_path / "run", stop)
    seen: list[int] = []
    result = resume(tmp_path / "run", lambda told: seen.append(told.done) if told.stage == "training" else None)
    assert seen == list(range(lost, sum(plan.executions().values()) + 1))

    entries = read_entries(RunFolder.view(tmp_path / "run").path(ReleaseFile.LEDGER))
    twice = list(plan.steps())[lost - 1].name
    assert entries.charges() == Counter(step.name for step in plan.steps()) + Counter([twice, MEASURING])
    for figure in result.guarantee.figures:
        spent = entries.compositions()[str(figure.neighbors)]
        assert figure.epsilon == account(spent).epsilon(figure.delta) if figure.delta else figure.epsilon == 0
    ours, theirs = (read_model(RunFolder.view(folder)) for folder in (tmp_path / "run", whole.folder))
    assert all(torch.equal(value, theirs[name]) for name, value in ours.items())
