"""Preparation: a corpus read, marked, tokenized and split, with canaries drawn, before the first step is planned.

A prepared store (`tacit prepare`) is the beginning of a run, made once: a run folder in which all is prepared and no
step was taken. Runs that are trained from it have its files as hard links, so that they take no more room and do not
depend on the store: it may be removed.

G1 (same preparation). A run takes a store only if all that preparation depends on is equal, by hashes of settings,
   files and policies; what differs is named. The claim of the run is the one that it would have without the store.
G2 (whole). A store is marked as one when all of it is there; a preparation that was killed is repeated.
G3 (as it was). Every byte of a store is read and compared with its hashes before a run begins with it.
G4 (apart). Batches, noise, initial weights and the key of released hashes are each run's own. Canaries and their coins
   are the store's: runs of one store plant the same ones, and what audits find in them is not independent.
G5 (closed). Nobody but its owner can read a store.
"""

import errno
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tacit.common.charts import Note, Result, Table
from tacit.common.files import keyed, new_folder, new_key, try_lock
from tacit.common.progress import Observer, Progress
from tacit.config.load import to_dict, to_flat
from tacit.config.schema import Config
from tacit.config.setting import Mode
from tacit.data.marked import CorpusSummary
from tacit.data.store import PreparedCorpus
from tacit.data.tokenizer import Tokenizer, load_tokenizer
from tacit.errors import ConfigError, RunError, TacitError, failed
from tacit.policies.marking import Policies
from tacit.runs.folder import RunFolder
from tacit.runs.release import PrivateFile, ReleaseFile
from tacit.runs.utility import hash_outside
from tacit.runs.verify import check_stores, note_stores, planted_canaries
from tacit.training.base_run import BaseRun
from tacit.training.canaries import plants
from tacit.training.chats import check_chats, template_of
from tacit.training.checkpoints import POLICIES, RunIdentity, check_tokenizer, digest_of, identity_of
from tacit.training.checks import check_beginning, check_run, duplicates_of, invents, needs_of, public_choice
from tacit.training.marking import mark_once, marked_corpus
from tacit.training.parts import make_policies, make_tokenizer, prepare_stores
from tacit.training.tokenizers import given_tokenizer

_SECONDS_BETWEEN = 0.2
_CHOICE = "training.eval_on"
_FILES = ("corpus", "data.held_out_corpus", "data.vocabulary_corpus", "marking.aliases", "marking.coverage")
_HASHED = ("policy", "marking.conservative_policy", "tokenizer", "data.duplicates", "data.held_out", *_FILES)
_FREE = ("data.max_full_tokens", "marking.inventions")
_TAKEN = ("corpus", "policy", "tokenizer", "task", "classes")
_LINKED = (
    *(PrivateFile.CANARIES, PrivateFile.SAMPLE, PrivateFile.POLICY, PrivateFile.SHARED, PrivateFile.MARKS),
    *(PrivateFile.PREPARED, PrivateFile.MEMBERS, PrivateFile.HELD_OUT, PrivateFile.SUMMARY, PrivateFile.NOTED),
)
"""In an order in which a run that is killed meanwhile prepares what is missing to fit what is there."""


@dataclass(frozen=True, slots=True)
class Prepared(Result):
    """What was prepared, and where."""

    folder: Path
    records: int
    rows: int
    secrets: int
    held_out: int
    set_aside: int
    canaries: int

    def tables(self) -> Iterator[Table | Note]:
        """How many records there are on each side, with how many secrets."""
        names = {
            "records to train on": self.records,
            "rows of tokens": self.rows,
            "marked secrets": self.secrets,
            "records held out": self.held_out,
            "records set aside": self.set_aside,
            "canaries": self.canaries,
        }
        yield Table((), tuple((name, f"{count:,}") for name, count in names.items()))

    def to_json(self) -> dict[str, Any]:
        """The folder and all counts."""
        return {**asdict(self), "folder": str(self.folder)}


def prepare_run(
    config: Config, policies: Policies, base: BaseRun | None, run: RunFolder, observe: Observer
) -> tuple[CorpusSummary, Tokenizer]:
    """Whatever of the preparation is missing in a run."""
    summary = mark_once(config, policies, run, observe)
    tokenizer = _tokenizer(config, policies, base, run)
    prepare_stores(config, policies, tokenizer, run, observe, summary.held_out_limit)
    note_stores(run)
    return summary, tokenizer


def _tokenizer(config: Config, policies: Policies, base: BaseRun | None, run: RunFolder) -> Tokenizer:
    """The run's tokenizer, which is made first where it is missing; a model of a run has its own."""
    policy, place = policies.marking, run.path(ReleaseFile.TOKENIZER)
    made = place.exists()
    if made:
        tokenizer = load_tokenizer(place)
    elif base is not None:
        tokenizer = base.tokenizer(policies, config.plan.disjoint_from_model)
    else:
        tokenizer = make_tokenizer(config, policy, marked_corpus(run))
    check_tokenizer(run, tokenizer)
    if not made:
        tokenizer = tokenizer.made_under(hash_outside(policy, run.key))
        run.write(ReleaseFile.TOKENIZER, tokenizer.save)
    return tokenizer


@contextmanager
def nothing_left_if_refused(run: RunFolder) -> Iterator[None]:
    """A start that is refused leaves nothing behind; one that failed for lack of room can be resumed."""
    try:
        yield
    except RunError:
        raise
    except TacitError:
        if not any(run.ledger.charges().values()):
            run.discard()
        raise


def prepare(config: Config, folder: Path, observe: Observer) -> Prepared:
    """A new prepared store in `folder`."""
    check_run(config)
    check_beginning(config)
    check_chats(config)
    policies = make_policies(config)
    base = BaseRun.of(config, policies)
    key, identity = new_key(), identity_of(config, policies)
    parts = preparation_parts(config, policies, base)
    with RunFolder.create(folder) as run, nothing_left_if_refused(run):
        run.folder.chmod(0o700)
        run.write_json(PrivateFile.IDENTITY, identity)
        run.write_json(PrivateFile.SETTINGS, to_dict(config))
        prepare_run(config, policies, base, run, observe)
        marked_corpus(run).remove()
        run.write_json(PrivateFile.STORE, RunIdentity(key.hex(), _keyed(key, parts)))
        return _counts(run)


def prepare_once(config: Config, stores: Path, observe: Observer) -> Path:
    """The store among `stores` that has what this run prepares: made here, unless another process has made it."""
    policies = make_policies(config)
    parts = preparation_parts(config, policies, BaseRun.of(config, policies))
    stores.mkdir(mode=0o700, parents=True, exist_ok=True)
    place = stores / hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]
    with _waited_for(place.with_suffix(".lock"), observe):
        if not is_prepared(place):
            prepare(config, place, observe)
    return place


@contextmanager
def _waited_for(path: Path, observe: Observer) -> Iterator[None]:
    """Hold a lock that other processes may hold meanwhile; one that died holds nothing."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        while not try_lock(descriptor):
            observe(Progress("preparing", 0, None))
            time.sleep(_SECONDS_BETWEEN)
        yield
    finally:
        os.close(descriptor)


def _counts(run: RunFolder) -> Prepared:
    store, held_out = (PreparedCorpus(run.path(place)) for place in (PrivateFile.PREPARED, PrivateFile.HELD_OUT))
    counts, apart = store.header.counts, held_out.header.counts
    left = counts.empty + counts.quarantined
    planted = sum(len(one.canaries) for one in planted_canaries(run).planted)
    set_aside = counts.quarantined + apart.quarantined
    records = counts.records - left - counts.duplicates
    return Prepared(run.folder, records, counts.rows, counts.spans, apart.records, set_aside, planted)


def preparation_parts(config: Config, policies: Policies, base: BaseRun | None) -> dict[str, str]:
    """All that preparation depends on, by the names that people know it by: values, or digests of files."""
    words = to_flat(config)
    listed = (name for name in words if name.startswith(("data.", "marking.")) and name not in (*_HASHED, *_FREE))
    parts = {name: json.dumps(words[name], sort_keys=True) for name in (*listed, "task", "classes", "audit.canaries")}
    files = {name: words[name] for name in _FILES if words[name] is not None}
    if (chooses := public_choice(config)) is not None:
        files[_CHOICE] = chooses
    parts |= {name: digest_of(name, Path(file)) for name, file in files.items()}
    for name, policy in zip(POLICIES, (policies.marking, policies.conservative), strict=True):
        parts[name] = "none" if policy is None else policy.hash
    parts["tokenizer"] = _tokenizer_part(config, policies, base)
    template = template_of(config)
    parts["chat template"] = "none" if template is None else template.hash
    parts["data.held_out"] = repr(config.held_out_share)
    parts["data.duplicates"] = duplicates_of(config)
    if duplicates_of(config) == "exact":
        parts["plan.public_view (whether it invents)"] = str(invents(config))
    parts["plan.mechanism (whether it lists entities)"] = str(needs_of(config).entities)
    if plants(config):
        parts["mode and seed (of canaries)"] = str(config.seed or 0) if config.mode == Mode.RESEARCH else "none"
    return parts


def _tokenizer_part(config: Config, policies: Policies, base: BaseRun | None) -> str:
    if base is not None:
        return base.tokenizer(policies, config.plan.disjoint_from_model).hash
    known = given_tokenizer(config)
    return "bpe" if known is None else known.hash


def prepared_settings(folder: Path) -> dict[str, Any]:
    """The settings of a store that a run takes from it, by their full names."""
    settings: dict[str, Any] = _store(folder).read_json(dict, PrivateFile.SETTINGS)
    taken = {name: settings[name] for name in _TAKEN if name in settings}
    taken |= {f"{part}.{name}": value for part in ("data", "marking") for name, value in settings[part].items()}
    canaries = settings["audit"]["canaries"]
    taken["audit.canaries"] = canaries
    if canaries or (canaries is None and settings["task"] == "language"):
        taken |= {"mode": settings["mode"], "seed": settings["seed"]}
    return {name: value for name, value in taken.items() if value is not None and name not in _FREE}


def check_prepared(folder: Path, parts: Mapping[str, str]) -> None:
    """Refuse a store that was prepared from anything else, or that is not as it was."""
    store = _store(folder)
    known = store.read_json(RunIdentity, PrivateFile.STORE)
    now, before = _keyed(bytes.fromhex(known.key), parts), dict(known.parts)
    if _CHOICE not in now:
        before.pop(_CHOICE, None)  # it was compared with one more file than needed
    changed = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
    if changed:
        raise ConfigError(
            expected="the settings and files that the store was prepared with",
            found=f"others for {', '.join(changed)}",
            way_out="leave them out: they come from the store; or prepare another one",
        )
    check_stores(store)


def take_over(folder: Path, run: RunFolder, policies: Policies, own_tokenizer: bool) -> None:
    """Have the files of the store in a new run. own_tokenizer: it is known without a corpus, and the run makes it."""
    store = _store(folder)
    try:
        for name in _LINKED:
            if store.path(name).exists() and name != PrivateFile.NOTED:
                _link(store.path(name), run.path(name))
        if not own_tokenizer:
            tokenizer = load_tokenizer(store.path(ReleaseFile.TOKENIZER))
            run.write(ReleaseFile.TOKENIZER, tokenizer.made_under(hash_outside(policies.marking, run.key)).save)
        _link(store.path(PrivateFile.NOTED), run.path(PrivateFile.NOTED))
    except OSError as error:
        raise failed(f"take over the prepared store {folder}", error) from error


def is_prepared(folder: Path) -> bool:
    """Whether `folder` is a whole prepared store."""
    return (folder / "private" / PrivateFile.STORE).is_file()


def _store(folder: Path) -> RunFolder:
    if not is_prepared(folder):
        raise RunError(
            expected=f"a prepared store at {folder}",
            found="none, or one whose preparation did not end",
            way_out="make it: tacit prepare CORPUS --out STORE",
        )
    return RunFolder.view(folder)


def _link(source: Path, place: Path) -> None:
    if source.is_file():
        _link_file(source, place)
        return
    with new_folder(place) as draft:
        for path in sorted(source.rglob("*")):
            target = draft / path.relative_to(source)
            target.mkdir(mode=0o700) if path.is_dir() else _link_file(path, target)


def _link_file(source: Path, target: Path) -> None:
    """A hard link; a copy where the file system has none, or has too many."""
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP):
            raise
        shutil.copy2(source, target)


def _keyed(key: bytes, parts: Mapping[str, str]) -> dict[str, str]:
    return {name: keyed(key, name, value) for name, value in parts.items()}
