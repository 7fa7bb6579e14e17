"""The process of one run of a sweep: it trains or resumes, attacks, reports, and tells how far it is.

The scheduler starts it. The first line of standard input is the job; when the input ends, the scheduler is gone or asks
the process to stop: the current step is finished and saved. Standard output has one JSON object per line: progress, or
why there is no model. The run's state file is enough to resume after any crash.

G1 (before). A run's identity is on disk before its folder is made, so that a folder is never taken for another run's.
G2 (whole). Every change of the state file is one rename.
"""

import hashlib
import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from tacit.common.files import read_run_bytes, write_bytes
from tacit.common.progress import Observer, Progress
from tacit.common.serialize import from_json, to_json
from tacit.data.store import PreparedCorpus
from tacit.data.tokenizer import load_tokenizer
from tacit.errors import ConfigError, RunError, TacitError
from tacit.privacy.ledger import read_entries
from tacit.runs.files import PrivateFile, ReleaseFile
from tacit.runs.folder import RunFolder
from tacit.sweeps.results import MarkedCounts, count, figures, marked_texts

if TYPE_CHECKING:
    from tacit.config.audit_schema import AuditConfig

_SECONDS_BETWEEN = 0.5
_SECONDS_OF_GRACE = 20.0


@dataclass(frozen=True, slots=True)
class JobIdentity:
    """Hashes of what a run is trained with, how it is audited, and what its figures are stated in; None: not at all."""

    trained: str
    audited: str | None
    stated: str | None


@dataclass(frozen=True, slots=True)
class JobState:
    """How far a run is: what its audit and figures were made with, its figures, or why it has none."""

    trained: str
    audited: str | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    figures: dict[str, Any] | None = None
    stated: str | None = None
    refused: dict[str, str] | None = None

    def is_done(self, wanted: JobIdentity) -> bool:
        """Whether nothing is left to do."""
        return self.figures is not None and JobIdentity(self.trained, self.audited, self.stated) == wanted


@dataclass(frozen=True, slots=True)
class Job:
    """One run: its folder, its state file, its settings, and what is wanted."""

    folder: str
    state: str
    settings: dict[str, Any]
    audit: dict[str, Any] | None
    perplexity_tokenizer: str | None
    identity: JobIdentity


def content_hash(content: object) -> str:
    """SHA-256 of plain JSON content."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def read_state(path: Path) -> JobState | None:
    """The state of a run; None if it was never started."""
    if not path.exists():
        return None
    try:
        return from_json(JobState, read_run_bytes(path))
    except ConfigError as error:
        raise RunError(error.expected, f"{error.found}, in {path.name}", f"remove {path.parent.parent}") from error


def write_state(path: Path, state: JobState) -> None:
    """Replace the state of a run."""
    write_bytes(path, to_json(state).encode())


def is_trained(folder: Path) -> bool:
    """Whether training ended: the manifest is written last."""
    return (folder / "release" / ReleaseFile.MANIFEST).is_file()


def is_untouched(folder: Path) -> bool:
    """Whether no step was taken, so that the run may start over."""
    ledger = folder / "release" / ReleaseFile.LEDGER
    return not ledger.exists() or not sum(read_entries(ledger).charges().values())


def perform(job: Job, observe: Observer) -> None:
    """Do whatever part of the job is not done; the state is written after each stage."""
    from tacit.audits.audit import audit
    from tacit.reports.write import report

    folder, place, wanted = Path(job.folder), Path(job.state), job.identity
    state = read_state(place) or JobState(wanted.trained)
    if not is_trained(folder):
        state = _timed(place, state, "training", lambda: _train(folder, job.settings, observe))
    audited = state.audited == wanted.audited and (folder / "release" / ReleaseFile.AUDIT).is_file()
    if job.audit is not None and not audited:
        config = audit_config(job.audit)
        state = _timed(place, state, "audit", lambda: audit(folder, config, observe))
    report([folder])
    found = figures(folder, *_counts(folder, job.perplexity_tokenizer), attacks=job.audit is not None)
    write_state(place, replace(state, audited=wanted.audited, stated=wanted.stated, figures=found, refused=None))


def _timed(place: Path, state: JobState, stage: str, work: Callable[[], object]) -> JobState:
    """Do the work; its seconds are added to those of earlier attempts, however it ends."""
    began = time.monotonic()
    try:
        work()
    finally:
        passed = state.seconds.get(stage, 0.0) + time.monotonic() - began
        state = replace(state, seconds={**state.seconds, stage: round(passed, 1)})
        write_state(place, state)
    return state


def _train(folder: Path, settings: dict[str, Any], observe: Observer) -> None:
    from tacit.config.load import load_config
    from tacit.training.stages import resume, train

    begun = ("run.json", f"private/{PrivateFile.SETTINGS}", f"release/{ReleaseFile.TOKENIZER}")
    if all((folder / part).exists() for part in begun):
        resume(folder, observe)
        return
    shutil.rmtree(folder, ignore_errors=True)  # it was stopped before its first step
    train(load_config(settings), folder, observe)


def audit_config(settings: dict[str, Any]) -> "AuditConfig":
    """The settings under `audit:` of a recipe, checked."""
    from tacit.config.load import load_config

    config = load_config({"corpus": "", "plan.mechanism": "plain", "audit": settings}).audit
    if config.canaries:
        raise ConfigError("canaries under `settings`, where runs plant them", "audit.canaries", "move them there")
    return config


def _counts(folder: Path, perplexity_tokenizer: str | None) -> tuple[MarkedCounts | None, MarkedCounts | None]:
    """Words and tokens of the held-out text; None for a classifier, or if the tokenizer does not restore text."""
    run = RunFolder.view(folder)
    settings = run.read_json(dict, PrivateFile.SETTINGS)
    tokenizer = load_tokenizer(run.path(ReleaseFile.TOKENIZER))
    if settings["task"] == "classification" or not (tokenizer.lossless or perplexity_tokenizer):
        return None, None
    store = PreparedCorpus(run.path(PrivateFile.HELD_OUT))
    texts = marked_texts(store, tokenizer, settings["data"]["max_full_tokens"])
    return count(texts, None if perplexity_tokenizer is None else Path(perplexity_tokenizer))


class _Messenger:
    """Tells the scheduler how far the work is, and stops the work when the scheduler is gone."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._asked = threading.Event()
        self._sent, self._stage = 0.0, ""

    def observe(self, done: Progress) -> None:
        now = time.monotonic()
        if done.stage != self._stage or done.done == done.total or now - self._sent > _SECONDS_BETWEEN:
            self._sent, self._stage = now, done.stage
            self.send({"progress": asdict(done)})
        if self._asked.is_set():
            raise KeyboardInterrupt

    def send(self, message: dict[str, Any]) -> None:
        try:
            print(json.dumps(message), file=self._out, flush=True)
        except OSError:
            self._asked.set()

    def listen(self) -> None:
        """Until the input ends."""
        sys.stdin.read()
        self._asked.set()
        time.sleep(_SECONDS_OF_GRACE)
        os._exit(1)


def main() -> None:
    """One job."""
    messenger = _Messenger(os.fdopen(os.dup(1), "w", encoding="utf-8"))
    os.dup2(2, 1)  # what libraries print is not a message
    job = from_json(Job, sys.stdin.readline())
    threading.Thread(target=messenger.listen, daemon=True).start()
    try:
        perform(job, messenger.observe)
    except TacitError as error:
        messenger.send({"refused": {"expected": error.expected, "found": error.found, "way_out": error.way_out}})
    except KeyboardInterrupt:
        os._exit(130)
    os._exit(0)  # the listener still waits for input
