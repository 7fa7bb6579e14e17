"""`tacit train` against what happens to processes: killed at any moment, interrupted, no room, no permission, damage.

A run that is killed and resumed ends with the very model of a run that nobody disturbed, and with a ledger that counts
every private step that was applied, and at most one more for each death.
"""

import json
import os
import random
import resource
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from lives import Lives
from runs import recorded
from tacit.common.serialize import from_json
from tacit.mechanisms.build import Terms
from tacit.models.loading import load
from tacit.privacy.account import account
from tacit.privacy.guarantee import Guarantee
from tacit.privacy.ledger import read_entries
from tacit.runs.folder import RunFolder, has_begun
from tacit.runs.release import PrivateFile, ReleaseFile
from tacit.runs.weights import read_model

PRIVATE_STEPS = 40
SETTINGS = f"""
corpus: {{corpus}}
mode: research
policy: gold
held_out: 0.2
max_tokens: 64
max_full_tokens: 64
checkpoint_steps: 3
model_config: {{{{embedding_size: 16, hidden_size: 16}}}}
plan: {{{{mechanism: selective, noise_multiplier: 1.0, steps: {PRIVATE_STEPS}, public_epochs: 10}}}}
expected_batch_size: 8
"""


@dataclass(frozen=True, slots=True)
class Bench:
    """Where runs are made, and the processes that make them."""

    settings: Path
    words: Path
    lives: Lives

    def said(self) -> str:
        """All that the processes printed, in one line."""
        return " ".join(self.words.read_text().split())


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("kills")
    lives = Lives(folder / "words")
    assert lives.run("simulate", "customersim", "--dialogs", "40", "--out", str(folder / "corpus.jsonl")) == 0
    settings = folder / "experiment.yaml"
    settings.write_text(SETTINGS.format(corpus=folder / "corpus.jsonl"))
    yield Bench(settings, folder / "words", lives)
    lives.close()


@pytest.fixture(scope="module")
def undisturbed(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that nobody disturbed."""
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    assert bench.lives.run("train", str(bench.settings), "--out", str(folder)) == 0, bench.said()
    assert _charges(folder)["private"] == PRIVATE_STEPS
    return folder


def _charges(folder: Path) -> dict[str, int]:
    return read_entries(folder / "release" / ReleaseFile.LEDGER).charges()


def _applied(folder: Path) -> int:
    """How many private steps were applied, those of lost lives too: each writes a line when it has moved the model."""
    log = folder / "private" / PrivateFile.STEPS
    return log.read_bytes().count(b"\n") if log.exists() else 0


def _command(settings: Path, folder: Path) -> list[str]:
    """What a person would type now: resume the run if a step was charged, else the same command again."""
    if has_begun(folder):
        return ["train", "--resume", str(folder)]
    return ["train", str(settings), "--out", str(folder)]


def _wait_for_steps(folder: Path, steps: int) -> None:
    """Until so many private steps were applied in all, or for a minute."""
    deadline = time.monotonic() + 60
    while _applied(folder) < steps and time.monotonic() < deadline:
        time.sleep(0.004)


def _live_and_die(bench: Bench, folder: Path, most: int, moments: random.Random) -> bool:
    """Whether the process was killed before it ended: right after its birth, or at most so many steps later."""
    early = moments.random() < 0.25
    steps, delay = (0, moments.uniform(0.0, 1.5)) if early else (moments.randint(1, most), moments.uniform(0.0, 0.03))
    before = _applied(folder)
    process = bench.lives.begin(*_command(bench.settings, folder))
    _wait_for_steps(folder, before + steps)
    time.sleep(delay)
    os.kill(process, signal.SIGKILL)  # nobody has waited for it yet, so its id is not another one's
    return bench.lives.end() == -signal.SIGKILL


def _check_finished(folder: Path, undisturbed: Path, deaths: int) -> None:
    """What holds of a finished run after so many deaths."""
    run, charges, applied = RunFolder.view(folder), _charges(folder), _applied(folder)
    plan = from_json(Terms, run.path(ReleaseFile.PLAN).read_bytes()).plan
    planned = {step.name: times for step, times in plan.executions().items()}
    assert planned["private"] == PRIVATE_STEPS <= applied
    assert applied <= charges["private"] <= applied + deaths
    assert charges["public"] >= planned["public"]

    guarantee = from_json(Guarantee, run.path(ReleaseFile.GUARANTEE).read_bytes())
    spent = read_entries(run.path(ReleaseFile.LEDGER)).compositions()
    for figure in guarantee.figures:
        assert figure.epsilon == account(spent[str(figure.neighbors)]).epsilon(figure.delta)

    learner, tokenizer = load(folder)
    assert learner.vocabulary_size == tokenizer.vocabulary_size
    ours, theirs = read_model(run), read_model(RunFolder.view(undisturbed))
    assert ours.keys() == theirs.keys() == dict(learner.module.named_parameters()).keys()
    assert all(torch.equal(value, theirs[name]) for name, value in ours.items())


def _check_noise(folder: Path) -> None:
    """Noise that was drawn again was added to the very sum it was added to before: it hides that sum still."""
    lines = [
        {word: entry[word] for word in ("noise", "drawn", "median_norm")} for entry in recorded(RunFolder.view(folder))
    ]
    once = {json.dumps(line) for line in lines}
    assert len(once) == len({line["noise"] for line in lines}) == PRIVATE_STEPS


@pytest.mark.slow
def test_killed_at_random_moments(bench: Bench, undisturbed: Path, tmp_path: Path) -> None:
    """Deaths while it begins, prices, draws, charges, moves the model, writes checkpoints and measures."""
    folder, moments, died, deaths = tmp_path / "run", random.Random(2), 0, 20
    while died < deaths and not (folder / "release" / ReleaseFile.GUARANTEE).exists():
        died += _live_and_die(bench, folder, PRIVATE_STEPS // deaths, moments)
    assert died == deaths, "the run was over before it was killed often enough"
    assert bench.lives.run(*_command(bench.settings, folder)) == 0, bench.said()
    _check_finished(folder, undisturbed, deaths)
    _check_noise(folder)


def _begun(bench: Bench, folder: Path, steps: int) -> int:
    """The id of a process that trains, and has applied some private steps."""
    process = bench.lives.begin("train", str(bench.settings), "--out", str(folder))
    _wait_for_steps(folder, steps)
    return process


@pytest.mark.slow
def test_an_interrupt_loses_no_step(bench: Bench, undisturbed: Path, tmp_path: Path) -> None:
    """Ctrl-C: the step under way is finished and kept, so nothing is done, or paid, twice."""
    folder = tmp_path / "run"
    process = _begun(bench, folder, 4)
    os.kill(process, signal.SIGINT)
    assert bench.lives.end() == 130
    assert f"stopped; resume with: tacit train --resume {folder}" in bench.said()
    assert 4 <= _applied(folder) < PRIVATE_STEPS
    assert bench.lives.run("train", "--resume", str(folder)) == 0, bench.said()
    _check_finished(folder, undisturbed, deaths=0)
    assert _charges(folder) == _charges(undisturbed)


@pytest.mark.slow
def test_no_room_ends_the_run_and_loses_nothing(bench: Bench, undisturbed: Path, tmp_path: Path) -> None:
    """No file may grow beyond 20 KB any more: no checkpoint fits. With room again the run goes on."""
    folder = tmp_path / "run"
    process = _begun(bench, folder, 4)
    resource.prlimit(process, resource.RLIMIT_FSIZE, (20_000, 20_000))
    assert bench.lives.end() == 2
    assert "make room on the disk and resume" in bench.said()
    checkpoints = {place.name for place in (folder / "private" / PrivateFile.CHECKPOINTS).iterdir()}
    assert 1 <= len(checkpoints) <= 2
    assert all(name.startswith("step-") for name in checkpoints)
    assert bench.lives.run("train", "--resume", str(folder)) == 0, bench.said()
    _check_finished(folder, undisturbed, deaths=1)
    _check_noise(folder)


@pytest.mark.slow
def test_a_damaged_checkpoint_costs_steps_and_nothing_else(bench: Bench, undisturbed: Path, tmp_path: Path) -> None:
    """The latest one is cut; the one before is gone on from, and what is done again is paid again."""
    folder = tmp_path / "run"
    process = _begun(bench, folder, 12)
    os.kill(process, signal.SIGKILL)
    assert bench.lives.end() == -signal.SIGKILL
    places = folder / "private" / PrivateFile.CHECKPOINTS
    before, latest = sorted(place.name for place in places.glob("step-*"))
    model = places / latest / "model.safetensors"
    model.write_bytes(model.read_bytes()[:-1])
    charged = _charges(folder)
    assert bench.lives.run("train", "--resume", str(folder)) == 0, bench.said()
    assert (places / f"damaged-{latest}").exists()
    _check_finished(folder, undisturbed, deaths=1)
    _check_noise(folder)
    lost = charged["private"] + charged["public"] - int(before.removeprefix("step-"))
    assert sum(_charges(folder).values()) == sum(_charges(undisturbed).values()) + lost


def test_a_run_that_another_process_writes_is_left_alone(bench: Bench, undisturbed: Path) -> None:
    """Two at once would draw the same noise twice."""
    files = {path: path.read_bytes() for path in undisturbed.rglob("*") if path.is_file()}
    with RunFolder.open(undisturbed):
        assert bench.lives.run("train", "--resume", str(undisturbed)) == 2
    assert "to be the only writer" in bench.said()
    ledger = undisturbed / "release" / ReleaseFile.LEDGER  # opening it compacts it
    assert {path for path, content in files.items() if path.read_bytes() != content} <= {ledger}


def _drafts(folder: Path) -> list[Path]:
    return [place for place in folder.rglob("*") if "draft" in place.name]


@pytest.mark.slow
def test_no_room_while_preparing_loses_nothing(bench: Bench, undisturbed: Path, tmp_path: Path) -> None:
    """No file may grow beyond 12 KB: the prepared corpus does not fit. With room again the run goes on."""
    folder = tmp_path / "run"
    bench.words.write_text("")  # what processes print goes to a file too
    limited = bench.lives.limited(resource.RLIMIT_FSIZE, 12_000)
    assert limited.run("train", str(bench.settings), "--out", str(folder)) == 2
    assert "make room on the disk and resume" in bench.said()
    assert _drafts(folder) == []
    assert bench.lives.run("train", "--resume", str(folder)) == 0, bench.said()
    _check_finished(folder, undisturbed, deaths=0)
    assert _charges(folder) == _charges(undisturbed)


@pytest.mark.parametrize("files", [8, 14, 20, 26])
def test_few_open_files_end_in_a_sentence(bench: Bench, tmp_path: Path, files: int) -> None:
    """Whatever stage runs out of them, the next try finds nothing in its way."""
    folder = tmp_path / "run"
    limited = bench.lives.limited(resource.RLIMIT_NOFILE, files)
    assert limited.run("train", str(bench.settings), "--out", str(folder)) == 2
    assert "allow more open files" in bench.said()
    assert "Traceback" not in bench.said()
    assert not has_begun(folder)


def test_a_refused_start_leaves_nothing(bench: Bench, tmp_path: Path) -> None:
    """A setting that can only be refused after the corpus was prepared."""
    folder = tmp_path / "run"
    refused = ("train", str(bench.settings), "--out", str(folder), "--set", "plan.noise_multiplier=1e-9")
    assert bench.lives.run(*refused) == 2, bench.said()
    assert not folder.exists()


def test_a_folder_that_cannot_be_made_is_said_before_anything_is_read(bench: Bench) -> None:
    """`/proc` takes no folders, whoever asks."""
    assert bench.lives.run("train", str(bench.settings), "--out", "/proc/tacit") == 2
    assert "to make the run folder /proc/tacit" in bench.said()
