"""Every mechanism, killed at random moments of every stage (preparing, training, measuring, attacking, reporting).

However often it is killed, a run ends with the very model of a run that nobody disturbed, its ledger counts every
private step that was applied, and nothing is left lying about.
"""

import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

from lives import Lives
from runs import PLANS, SETTINGS, write_corpus
from tacit.mechanisms.build import Terms
from tacit.privacy.ledger import read_entries
from tacit.privacy.plan import Noisy, SplitBatch
from tacit.runs.folder import RunFolder, has_begun
from tacit.runs.release import PrivateFile, ReleaseFile

DEATHS = 42  # for each of twelve mechanisms: 504 in all
STEPS = 8
Stage = Callable[[Path, Path], list[str]]
"""The command that takes a run a stage further, by its settings and its folder."""


def _train(settings: Path, folder: Path) -> list[str]:
    begun = has_begun(folder)
    return ["train", "--resume", str(folder)] if begun else ["train", str(settings), "--out", str(folder)]


STAGES: tuple[Stage, ...] = (
    _train,
    lambda _, folder: ["audit", str(folder)],
    lambda _, folder: ["report", str(folder)],
)


@dataclass(slots=True)
class Undisturbed:
    """A run that nobody disturbed, and how long each of its stages took."""

    settings: Path
    folder: Path
    seconds: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, lives: Lives, settings: Path, folder: Path) -> "Undisturbed":
        """All stages, one after the other."""
        run = cls(settings, folder)
        for stage in STAGES:
            begun = time.monotonic()
            assert lives.run(*stage(settings, folder)) == 0
            run.seconds.append(time.monotonic() - begun)
        return run


@pytest.fixture
def lives(tmp_path: Path) -> Iterator[Lives]:
    made = Lives(tmp_path / "words")
    yield made
    made.close()


def _settings(corpus: Path, mechanism: str) -> Path:
    words = {"held_out": 0.2, "max_tokens": 48, "max_full_tokens": 48, "policy": "gold", **SETTINGS.get(mechanism, {})}
    for name in ("policy", "conservative_policy"):
        if str(words.get(name)).endswith(".yaml"):
            words[name] = str(corpus.parent / words[name])
    plan = {"mechanism": mechanism, **PLANS[mechanism]}
    plan |= {"steps": STEPS} if "steps" in plan else {}
    words |= {"corpus": str(corpus), "plan": plan, "mode": "research", "seed": 3, "checkpoint_steps": 2}
    words |= {"model_config": {"embedding_size": 8, "hidden_size": 8}}
    words |= {"canaries": [{"template": "my code is {4 digits}", "count": 4}]}
    path = corpus.parent / f"{mechanism}.yaml"
    path.write_text(yaml.safe_dump(words))
    return path


def _die_until_done(lives: Lives, stage: Stage, undisturbed: Undisturbed, folder: Path, moments: random.Random) -> int:
    """How often a stage was killed before it was done."""
    deaths, seconds = 0, undisturbed.seconds[STAGES.index(stage)]
    while True:
        process = lives.begin(*stage(undisturbed.settings, folder))
        patience = (1.2 + 0.1 * deaths) * seconds  # it grows, as a busy machine would otherwise never finish
        time.sleep(moments.uniform(0.0, patience))
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
        code = lives.end()
        if code == 0:
            return deaths
        assert code == -signal.SIGKILL, "it ended in an error"
        deaths += 1


def _check(folder: Path, undisturbed: Path) -> None:
    files, expected = (
        {str(path.relative_to(one)) for path in one.rglob("*") if path.is_file()} for one in (folder, undisturbed)
    )
    assert files == expected, "something is missing, or was left behind"
    run, other = RunFolder.view(folder), RunFolder.view(undisturbed)
    for name in (
        ReleaseFile.MODEL,
        ReleaseFile.TOKENIZER,
        ReleaseFile.CONFIG,
        ReleaseFile.PLAN,
        ReleaseFile.ARCHITECTURE,
    ):
        assert run.path(name).read_bytes() == other.path(name).read_bytes(), name
    charges, planned = (read_entries(one.path(ReleaseFile.LEDGER)).charges() for one in (run, other))
    assert all(charges[step] >= times for step, times in planned.items())
    noisy = {step.name for step in run.read_json(Terms, ReleaseFile.PLAN).plan.executions() if _is_noisy(step.update)}
    log = run.path(PrivateFile.STEPS)
    applied = log.read_bytes().count(b"\n") if log.exists() else 0
    assert applied <= sum(charges[step] for step in noisy), "steps were applied that nobody paid for"


def _is_noisy(update: object) -> bool:
    return isinstance(update, (Noisy, SplitBatch))


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", PLANS)
def test_killed_in_every_stage(lives: Lives, tmp_path: Path, mechanism: str) -> None:
    settings = _settings(write_corpus(tmp_path), mechanism)
    undisturbed = Undisturbed.of(lives, settings, tmp_path / "undisturbed")
    moments, deaths, folder = random.Random(mechanism), 0, tmp_path / "run"
    while deaths < DEATHS:
        for stage in STAGES:
            deaths += _die_until_done(lives, stage, undisturbed, folder, moments)
        assert lives.run("verify", str(folder)) == 0
        _check(folder, undisturbed.folder)
        shutil.rmtree(folder)
    print(f"{mechanism}: {deaths} deaths")
