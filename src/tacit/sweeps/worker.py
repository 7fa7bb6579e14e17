"""The process of one run of a sweep, and the figures of the run as plain JSON.

The scheduler starts the process, which trains or resumes, attacks and reports. The first line of standard input is the
job; when the input ends, the scheduler is gone or asks the process to stop: the current step is finished and saved.
Standard output has one JSON object per line: progress, or why there is no model. The state file is enough to resume.

Figures are utility, claim and attacks, without a secret, path or time; values that are not finite become null.
Held-out text is counted in words and in the tokens of another tokenizer, so that perplexities compare across
vocabularies. Only what was read is counted: rows up to the length limit of training, without records that were set
aside. A token or word is private if it contains a private character. Total nats include the ends of records.

G1 (before). A run's identity is on disk before its folder is made, so that a folder is never taken for another run's.
G2 (whole). Every change of the state file is one rename.
G3 (same figures). Equal release folders give equal figures.
G4 (prepared once). Runs of a sweep that prepare the same thing share one store (`tacit.training.prepared`).
"""

import hashlib
import json
import math
import os
import re
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

import tokenizers

from tacit.audits.findings import Audit
from tacit.common.files import read_run_bytes, write_bytes
from tacit.common.progress import Observer, Progress
from tacit.common.serialize import from_json, to_json
from tacit.data.store import PreparedCorpus
from tacit.data.tokenizer import Tokenizer, load_tokenizer, read_tokenizer_json
from tacit.errors import ConfigError, RunError, TacitError
from tacit.privacy.guarantee import Guarantee
from tacit.privacy.ledger import read_entries
from tacit.runs.folder import RunFolder
from tacit.runs.release import MadeWith, PrivateFile, ReleaseFile, code_hash
from tacit.runs.utility import LabelQuality, TokenQuality, Utility

if TYPE_CHECKING:
    from tacit.config.audit_schema import AuditConfig

Figures = dict[str, Any]
_WORD = re.compile(r"\S+")
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
        return self.figures is not None and JobIdentity(self.trained, self.audited, self.stated) == wanted


@dataclass(frozen=True, slots=True)
class Job:
    """One run: its folder, its state file, its settings, and what is wanted. stores: where prepared ones are."""

    folder: str
    state: str
    settings: dict[str, Any]
    audit: dict[str, Any] | None
    perplexity_tokenizer: str | None
    identity: JobIdentity
    stores: str


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
        state = _timed(place, state, "training", lambda: _train(job, observe))
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


def _train(job: Job, observe: Observer) -> None:
    from tacit.config.load import load_config
    from tacit.training.prepared import prepare_once
    from tacit.training.stages import resume, train

    folder = Path(job.folder)
    begun = ("run.json", f"private/{PrivateFile.SETTINGS}", f"release/{ReleaseFile.TOKENIZER}")
    if all((folder / part).exists() for part in begun):
        resume(folder, observe)
        return
    shutil.rmtree(folder, ignore_errors=True)  # it was stopped before its first step
    config = load_config(job.settings)
    train(config, folder, observe, prepare_once(config, Path(job.stores), observe))


def audit_config(settings: dict[str, Any]) -> "AuditConfig":
    """The settings under `audit:` of a recipe, checked."""
    from tacit.config.load import load_config

    config = load_config({"corpus": "", "plan.mechanism": "plain", "audit": settings}).audit
    if config.canaries:
        raise ConfigError("canaries under `settings`, where runs plant them", "audit.canaries", "move them there")
    return config


@dataclass(frozen=True, slots=True)
class MarkedCounts:
    """How many words or tokens there are, and how many of them are private."""

    overall: int = 0
    private: int = 0

    def __add__(self, other: "MarkedCounts") -> "MarkedCounts":
        return MarkedCounts(self.overall + other.overall, self.private + other.private)


class Marked(NamedTuple):
    """A text, and which of its characters are private."""

    text: str
    private: list[bool]

    def counts(self, stretches: list[tuple[int, int]]) -> MarkedCounts:
        return MarkedCounts(len(stretches), sum(any(self.private[start:end]) for start, end in stretches))


def marked_texts(store: PreparedCorpus, tokenizer: Tokenizer, longest: int) -> Iterator[Marked]:
    """The records of a store as a model read them, each joined from its rows."""
    if not tokenizer.lossless:
        raise ConfigError(
            expected="a tokenizer that restores the text exactly, to count its words and tokens",
            found="one that may not",
            way_out="use tokenizer: bytes or bpe, or leave perplexity_tokenizer out",
        )
    for _, rows in groupby(range(len(store)), lambda row: int(store.records[row])):
        text, private = "", list[bool]()
        for row in rows:
            tokens, secret = store.full(row)[:2]
            pairs = zip(tokens[:longest].tolist(), secret[:longest].tolist(), strict=True)
            for hidden, run in groupby(pairs, lambda pair: bool(pair[1])):
                part = tokenizer.decode(token for token, _ in run)
                text += part
                private += [hidden] * len(part)
        yield Marked(text, private)


def count(texts: Iterator[Marked], perplexity_tokenizer: Path | None) -> tuple[MarkedCounts, MarkedCounts | None]:
    """Words, and tokens of the tokenizer.json `perplexity_tokenizer` if there is one."""
    tokenizer = None
    if perplexity_tokenizer is not None:
        content = read_tokenizer_json(perplexity_tokenizer).codec.definition()["content"]
        tokenizer = tokenizers.Tokenizer.from_str(json.dumps(content))
        tokenizer.encode_special_tokens = True
    words, tokens = MarkedCounts(), MarkedCounts()
    for marked in texts:
        words += marked.counts([match.span() for match in _WORD.finditer(marked.text)])
        if tokenizer is not None:
            tokens += marked.counts(tokenizer.encode(marked.text, add_special_tokens=False).offsets)
    return words, None if tokenizer is None else tokens


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


def figures(folder: Path, words: MarkedCounts | None, tokens: MarkedCounts | None, *, attacks: bool) -> Figures:
    """The figures of the run in `folder`.

    words, tokens: of its held-out text, if they were counted. attacks: whether to include its audit.
    """
    run = RunFolder.view(folder)
    guarantee = run.read_json(Guarantee, PrivateFile.GUARANTEE)
    utility = run.read_json(Utility, PrivateFile.UTILITY)
    made, labels = run.read_json(MadeWith, ReleaseFile.MADE), utility.labels
    return {
        "mechanism": guarantee.mechanism,
        "code": list(dict.fromkeys([*(one.code for one in made.environments), code_hash()])),
        "claim": _claim(guarantee),
        "utility": _utility(utility, words, tokens) if labels is None else {"labels": _labels(labels)},
        "attacks": _attacks(run.read_json(Audit, PrivateFile.AUDIT), utility, tokens) if attacks else None,
    }


def number(value: float) -> float | None:
    """`value`, or None if JSON has no number for it."""
    return value if math.isfinite(value) else None


def _claim(guarantee: Guarantee) -> Figures:
    published = guarantee.published
    return {
        "figures": [
            {"neighbors": str(one.neighbors), "epsilon": number(one.epsilon), "delta": one.delta}
            for one in guarantee.figures
        ],
        "published": None if published is None else {"epsilon": number(published.epsilon), "delta": published.delta},
    }


def _utility(utility: Utility, words: MarkedCounts | None, tokens: MarkedCounts | None) -> Figures:
    parts = {"overall": utility.overall, "public": utility.public, "private": utility.private}
    measures = ("nats", "perplexity", "accuracy")
    return {
        "tokens": {
            name: {"count": part.tokens, **{key: number(getattr(part, key)) for key in measures}}
            for name, part in parts.items()
        },
        "characters": utility.characters,
        "nats_a_character": number(utility.nats_a_character),
        "words": _per(parts, words),
        "normalised": _per(parts, tokens),
    }


def _per(parts: dict[str, TokenQuality], counts: MarkedCounts | None) -> Figures | None:
    """Perplexities per counted unit: total nats over the number of units."""
    if counts is None:
        return None
    totals = {"overall": counts.overall, "public": counts.overall - counts.private, "private": counts.private}
    return {
        name: {"count": total, "perplexity": _perplexity(parts[name].nats / total) if total else None}
        for name, total in totals.items()
    }


def _perplexity(nats: float) -> float | None:
    return number(math.exp(min(nats, 700.0)))


def _labels(labels: LabelQuality) -> Figures:
    rates = {name: getattr(labels, name) for name in ("overall", "with_secrets", "without_secrets", "commonest")}
    return {
        name: {"errors": rate.errors, "records": rate.records, "error_rate": number(rate.share)}
        for name, rate in rates.items()
    }


def _attacks(found: Audit, utility: Utility, tokens: MarkedCounts | None) -> Figures:
    own = utility.overall.tokens
    own_per_token = own / tokens.overall if own and tokens is not None and tokens.overall else None
    checkpoints = [
        {
            "step": one.step,
            "perplexity": number(one.perplexity),
            "normalised": None if own_per_token is None else _perplexity(math.log(one.perplexity) * own_per_token),
            "figures": one.figures,
        }
        for one in found.checkpoints
    ]
    return {"verdict": str(found.verdict.outcome), "figures": found.figures, "checkpoints": checkpoints}


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
