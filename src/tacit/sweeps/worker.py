"""The process of one run of a sweep: train or go on, attack, report, and say how far it is.

Started by the driver, never by a person. The first line of standard input is the job. When the input ends, whoever
started this is gone or wants it to stop: the step under way is finished and kept. Standard output has one JSON object a
line: progress, or why there is no model. What is known of the run is in one file, enough to go on after any death.

G1 (before). A run's identity is on the disk before its folder is made, so that a folder is never taken for another's.
G2 (whole). Every change of that file is one rename.
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
from tacit.sweeps.results import MarkedCounts, Measurement, count, figures, marked_texts

if TYPE_CHECKING:
    from tacit.config.audit_schema import AuditConfig

_SECONDS_BETWEEN = 0.5
_SECONDS_OF_GRACE = 20.0


@dataclass(frozen=True, slots=True)
class JobIdentity:
    """Hashes of what a run is trained with, of how it is audited (none: not), and of what its figures are stated in."""

    trained: str
    audited: str | None
    stated: str | None


@dataclass(frozen=True, slots=True)
class JobState:
    """How far a run is: what its present audit and figures were made with, its figures, or why it has none."""

    trained: str
    audited: str | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    figures: dict[str, Any] | None = None
    stated: str | None = None
    refused: dict[str, str] | None = None

    def is_done(self, wanted: JobIdentity) -> bool:
        """Whether nothing is left to do."""
        return self.figures is not None and JobIdentity(self.trained, self.audited, self.stated) == wanted


def content_hash(content: object) -> str:
    """SHA-256 of plain JSON content."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def read_state(path: Path) -> JobState | None:
    """What is known; none of a run that was never begun."""
    if not path.exists():
        return None
    try:
        return from_json(JobState, read_run_bytes(path))
    except ConfigError as error:
        raise RunError(error.expected, f"{error.found}, in {path.name}", f"remove {path.parent.parent}") from error


def write_state(path: Path, state: JobState) -> None:
    """Have it on the disk."""
    write_bytes(path, to_json(state).encode())


@dataclass(frozen=True, slots=True)
class Job:
    """One run: where it is made, where its state is kept, its settings, and what is wanted of it."""

    folder: str
    state: str
    words: dict[str, Any]
    audit: dict[str, Any] | None
    perplexity_tokenizer: str | None
    identity: JobIdentity


def is_trained(folder: Path) -> bool:
    """Whether the run ended: its manifest is written last."""
    return (folder / "release" / ReleaseFile.MANIFEST).is_file()


def is_untouched(folder: Path) -> bool:
    """Whether no step was taken there: then it may be begun anew."""
    ledger = folder / "release" / ReleaseFile.LEDGER
    return not ledger.exists() or not sum(read_entries(ledger).charges().values())


def perform(job: Job, observe: Observer) -> None:
    """Whatever of the job is not done; the state says after each stage what is."""
    from tacit.reports.write import report

    folder, place, wanted = Path(job.folder), Path(job.state), job.identity
    audit = job.audit
    state = read_state(place) or JobState(wanted.trained)
    if not is_trained(folder):
        state = _timed(place, state, "training", lambda: _train(folder, job.words, observe))
    if audit is not None and (state.audited != wanted.audited or not _is_audited(folder)):
        state = _timed(place, state, "audit", lambda: _audit(folder, audit, observe))
    report([folder])
    words, tokens = _counts(folder, job.perplexity_tokenizer)
    found = figures(folder, words, tokens, attacks=audit is not None)
    done = replace(state, audited=wanted.audited, stated=wanted.stated, figures=found, refused=None)
    write_state(place, done)


def _timed(place: Path, state: JobState, stage: str, work: Callable[[], None]) -> JobState:
    """Do the work; its seconds are added to those of earlier lives, however it ends."""
    began = time.monotonic()
    try:
        work()
    finally:
        passed = state.seconds.get(stage, 0.0) + time.monotonic() - began
        state = replace(state, seconds={**state.seconds, stage: round(passed, 1)})
        write_state(place, state)
    return state


def _train(folder: Path, words: dict[str, Any], observe: Observer) -> None:
    from tacit.config.load import load_config
    from tacit.training.stages import resume, train

    begun = ("run.json", f"private/{PrivateFile.SETTINGS}", f"release/{ReleaseFile.TOKENIZER}")
    if all((folder / part).exists() for part in begun):
        resume(folder, observe)
        return
    shutil.rmtree(folder, ignore_errors=True)  # it was stopped before its first step
    train(load_config(words), folder, observe)


def _is_audited(folder: Path) -> bool:
    return (folder / "release" / ReleaseFile.AUDIT).is_file()


def _audit(folder: Path, words: dict[str, Any], observe: Observer) -> None:
    from tacit.audits.audit import audit

    audit(folder, audit_settings(words), observe)


def audit_settings(words: dict[str, Any]) -> "AuditConfig":
    """The settings of an audit from a person's words."""
    from tacit.config.load import load_config

    settings = load_config({"corpus": "", "plan.mechanism": "plain", "audit": words}).audit
    if settings.canaries:
        raise ConfigError("canaries under `settings`, where runs plant them", "audit.canaries", "move them there")
    return settings


def _counts(folder: Path, perplexity_tokenizer: str | None) -> tuple[MarkedCounts | None, MarkedCounts | None]:
    """Words and tokens of the held-out text; none for a classifier, or where the text cannot be had back."""
    run = RunFolder.view(folder)
    settings = run.read_json(dict, PrivateFile.SETTINGS)
    tokenizer = load_tokenizer(run.path(ReleaseFile.TOKENIZER))
    if settings["task"] == "classification" or not (tokenizer.lossless or perplexity_tokenizer):
        return None, None
    measure = None if perplexity_tokenizer is None else Measurement(Path(perplexity_tokenizer))
    store = PreparedCorpus(run.path(PrivateFile.HELD_OUT))
    return count(marked_texts(store, tokenizer, settings["data"]["max_full_tokens"]), measure)


class _Teller:
    """Tells whoever started this how far the work is; stops the work when nobody is there any more."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._asked = threading.Event()
        self._said, self._stage = 0.0, ""

    def observe(self, done: Progress) -> None:
        now = time.monotonic()
        if done.stage != self._stage or done.done == done.total or now - self._said > _SECONDS_BETWEEN:
            self._said, self._stage = now, done.stage
            self.say({"progress": asdict(done)})
        if self._asked.is_set():
            raise KeyboardInterrupt

    def say(self, message: dict[str, Any]) -> None:
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
    teller = _Teller(os.fdopen(os.dup(1), "w", encoding="utf-8"))
    os.dup2(2, 1)  # what libraries print is no message
    job = from_json(Job, sys.stdin.readline())
    threading.Thread(target=teller.listen, daemon=True).start()
    try:
        perform(job, teller.observe)
    except TacitError as error:
        refused = {"expected": error.expected, "found": error.found, "way_out": error.way_out}
        teller.say({"refused": refused})
    except KeyboardInterrupt:
        os._exit(130)
    os._exit(0)  # the listener still waits for input
