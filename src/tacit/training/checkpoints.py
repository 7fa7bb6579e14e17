"""What a run resumes from: checkpoints, and hashes of all that it was made of.

A checkpoint is a folder that is there whole or not at all:

    private/checkpoints/step-000123/
        model.safetensors, optimizer.safetensors      tensors
        state.json                                    step, random streams, samplers, what the ledger had counted
        manifest.json                                 size and SHA-256 of each of them

G1 (whole). A checkpoint gets its name when all of it is on the disk; a crash at any moment leaves the one before.
G2 (recognized). A file that is missing, cut or changed makes its checkpoint damaged; the one before is used, and the
   damaged one is set aside and named.
G3 (never cheaper). A checkpoint is resumed only with a ledger that counts at least what it had counted.
G4 (two). The two latest checkpoints are kept, and no older ones.
G5 (no pickle). Tensors are safetensors, all else is JSON.
G6 (as it began). Before a run is resumed, keyed hashes are compared: of its policies, with the files and versions of
   their models, of every file that a setting names, of the tokenizer, of Faker's version where secrets are invented,
   and of all settings except those about speed and watching.
"""

import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from safetensors.torch import load, load_file, save
from torch import Tensor

from tacit.common.files import (
    DRAFT,
    clear_drafts,
    digest,
    keyed,
    new_key,
    read_bytes,
    sync_file,
    sync_folder,
    write_new,
)
from tacit.common.serialize import from_json, to_json
from tacit.config.load import to_flat
from tacit.config.schema import Config
from tacit.data.corpus import read
from tacit.data.fields import DEFAULT_FIELDS, fields_of
from tacit.data.tokenizer import Tokenizer
from tacit.errors import ConfigError, LedgerError, RunError, failed
from tacit.policies.marking import Policies
from tacit.runs.earlier import release_digest
from tacit.runs.folder import RunFolder, is_run, whole_run
from tacit.runs.release import PrivateFile
from tacit.runs.weights import save_tensors
from tacit.training.checks import invents, public_choice
from tacit.training.pools import ShuffleState
from tacit.training.randomness import StreamsState

KEPT = 2
_MODEL, _OPTIMIZER, _STATE, _MANIFEST = "model.safetensors", "optimizer.safetensors", "state.json", "manifest.json"
_STEP = re.compile(r"step-\d+")


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """The state of a run after `step` steps of its plan."""

    step: int
    model: Mapping[str, Tensor]
    optimizer: Mapping[str, Tensor]
    streams: StreamsState
    samplers: Mapping[str, ShuffleState]


@dataclass(frozen=True, slots=True)
class Resumed:
    """The latest whole checkpoint, and the names of later ones that were found damaged."""

    checkpoint: Checkpoint
    damaged: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _State:
    step: int
    streams: StreamsState
    samplers: dict[str, ShuffleState]
    charges: dict[str, int]


@dataclass(frozen=True, slots=True)
class _FileEntry:
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class _Manifest:
    files: dict[str, _FileEntry]
    format: Literal["tacit-checkpoint"] = "tacit-checkpoint"
    version: Literal[1] = 1


def shared(checkpoint: Checkpoint, broadcast: Callable[[bytes], bytes]) -> Checkpoint:
    """The checkpoint of the process that `broadcast` takes its bytes from, but for its streams, in every process."""
    own = _State(checkpoint.step, checkpoint.streams, dict(checkpoint.samplers), {})
    state = from_json(_State, broadcast(to_json(own).encode()))
    model, optimizer = (load(broadcast(_saved(part))) for part in (checkpoint.model, checkpoint.optimizer))
    return Checkpoint(state.step, model, optimizer, state.streams, state.samplers)


def _saved(tensors: Mapping[str, Tensor]) -> bytes:
    return save({name: value.detach().cpu().contiguous() for name, value in tensors.items()})


class Checkpoints:
    """The checkpoints of a run."""

    def __init__(self, run: RunFolder) -> None:
        self._run = run
        self._folder = run.path(PrivateFile.CHECKPOINTS)

    def write(self, checkpoint: Checkpoint) -> Path:
        """Add a checkpoint, on the disk on return, and remove those before the last two. Same step again: nothing."""
        charges = self._run.ledger.charges()
        place = self._folder / f"step-{checkpoint.step:06d}"
        draft = self._folder / f"{DRAFT}{place.name}"
        if place.exists() and _is_whole(place):
            return place
        later = [other.name for other in self._latest_first() if _step_of(other) > checkpoint.step]
        if later:
            raise RunError(
                expected=f"no checkpoint after step {checkpoint.step} yet",
                found=", ".join(later),
                way_out="resume from the latest one, or begin a new run",
            )
        try:
            clear_drafts(self._folder)
            draft.mkdir()
            _write_files(draft, checkpoint, charges)
            if place.exists():
                self._set_aside(place)
            os.rename(draft, place)
            sync_folder(self._folder)
            for old in self._latest_first()[KEPT:]:
                shutil.rmtree(old)
        except BaseException as error:
            shutil.rmtree(draft, ignore_errors=True)
            if isinstance(error, OSError):
                raise failed(f"write the checkpoint of step {checkpoint.step}", error) from error
            raise
        return place

    def latest(self) -> Resumed | None:
        """The latest whole checkpoint; None before the first. In an open run, damaged ones are set aside."""
        damaged: list[Path] = []
        for place in self._latest_first():
            if not _is_whole(place):
                damaged.append(place)
                continue
            state = from_json(_State, read_bytes(place / _STATE))
            if self._run.writable:
                _check_counted(self._run.ledger.charges(), state.charges)
                for other in damaged:
                    self._set_aside(other)
            model, optimizer = load_file(place / _MODEL), load_file(place / _OPTIMIZER)
            checkpoint = Checkpoint(state.step, model, optimizer, state.streams, state.samplers)
            return Resumed(checkpoint, tuple(other.name for other in damaged))
        if damaged:
            raise RunError(
                expected="a whole checkpoint",
                found=f"damage in all of them ({', '.join(place.name for place in damaged)})",
                way_out="restore one from a backup, or begin a new run: what this one spent stays spent",
            )
        return None

    def _latest_first(self) -> list[Path]:
        try:
            places = [place for place in self._folder.iterdir() if _STEP.fullmatch(place.name)]
        except OSError as error:
            raise failed("list the checkpoints", error) from error
        return sorted(places, key=_step_of, reverse=True)

    def _set_aside(self, place: Path) -> None:
        aside = self._folder / f"damaged-{place.name}"
        try:
            if aside.exists():
                shutil.rmtree(aside)
            os.rename(place, aside)
        except OSError as error:
            raise failed(f"set the damaged checkpoint {place.name} aside", error) from error


def _step_of(place: Path) -> int:
    return int(place.name.removeprefix("step-"))


def _write_files(folder: Path, checkpoint: Checkpoint, charges: dict[str, int]) -> None:
    state = _State(checkpoint.step, checkpoint.streams, dict(checkpoint.samplers), charges)
    save_tensors(folder / _MODEL, checkpoint.model)
    save_tensors(folder / _OPTIMIZER, checkpoint.optimizer)
    write_new(folder / _STATE, to_json(state).encode())
    for name in (_MODEL, _OPTIMIZER, _STATE):
        sync_file(folder / name)
    write_new(folder / _MANIFEST, to_json(_manifest(folder)).encode())
    sync_file(folder / _MANIFEST)
    sync_folder(folder)


def _manifest(folder: Path) -> _Manifest:
    places = {name: folder / name for name in (_MODEL, _OPTIMIZER, _STATE)}
    return _Manifest({name: _FileEntry(place.stat().st_size, digest(place)) for name, place in places.items()})


def _is_whole(folder: Path) -> bool:
    try:
        return from_json(_Manifest, read_bytes(folder / _MANIFEST)) == _manifest(folder)
    except (OSError, ConfigError):
        return False


def _check_counted(ledger: Mapping[str, int], checkpoint: Mapping[str, int]) -> None:
    behind = sorted(name for name, times in checkpoint.items() if ledger.get(name, 0) < times)
    if behind:
        raise LedgerError(
            expected="a ledger that counts at least what the checkpoint had counted",
            found=f"fewer executions of {', '.join(behind)}",
            way_out="restore the latest ledger of this run, or begin a new run",
        )


_PUBLIC_CORPUS = "data.vocabulary_corpus"
_CORPORA = ("corpus", "data.held_out_corpus", _PUBLIC_CORPUS)
_OTHER_FILES = ("marking.aliases", "marking.coverage")
_TOKENIZER = "tokenizer"
POLICIES = ("policy", "conservative policy")
"""What the hashes of the policies are called."""
_MOVES_NO_NUMBER = (
    *("execution.device", "execution.microbatch_tokens", "execution.checkpoint_steps", "execution.checkpoint_minutes"),
    *("training.save_steps", "training.report_to", "execution.timeout_minutes"),
)


@dataclass(frozen=True, slots=True)
class RunIdentity:
    """Hashes under `key` (hexadecimal) by the name of what they are of."""

    key: str
    parts: dict[str, str]


def identity_of(config: Config, policies: Policies) -> RunIdentity:
    """What a new run is made of, to be kept in `private/`; its tokenizer may come later."""
    key = new_key()
    return RunIdentity(key.hex(), _keyed(key, _parts(config, policies)))


def check_identity(run: RunFolder, config: Config, policies: Policies) -> None:
    """Refuse to resume a run with anything else than it began with."""
    began = run.read_json(RunIdentity, PrivateFile.IDENTITY)
    now = _keyed(bytes.fromhex(began.key), _parts(config, policies))
    _check_same({name: known for name, known in began.parts.items() if name != _TOKENIZER}, now)


def check_tokenizer(run: RunFolder, tokenizer: Tokenizer) -> None:
    """Note the tokenizer of a run, or refuse another one than was noted."""
    began = run.read_json(RunIdentity, PrivateFile.IDENTITY)
    learned_from = tokenizer.depends_on  # its hash of the policy is keyed once the run has a key
    made_of = f"{tokenizer.hash} {learned_from.source} {learned_from.corpus}"
    now = _keyed(bytes.fromhex(began.key), {_TOKENIZER: made_of})
    if _TOKENIZER in began.parts:
        _check_same({_TOKENIZER: began.parts[_TOKENIZER]}, now)
    else:
        run.write_json(PrivateFile.IDENTITY, replace(began, parts=began.parts | now))


def _check_same(began: Mapping[str, str], now: Mapping[str, str]) -> None:
    changed = sorted(name for name in began.keys() | now.keys() if began.get(name) != now.get(name))
    if changed:
        raise RunError(
            expected="all that the run began with, unchanged: its claim is about that",
            found=f"changed since: {', '.join(changed)}",
            way_out="put it back as it was and resume, or train a new run",
        )


def _keyed(key: bytes, parts: Mapping[str, str]) -> dict[str, str]:
    return {name: keyed(key, name, value) for name, value in parts.items()}


def _parts(config: Config, policies: Policies) -> dict[str, str]:
    words = to_flat(config)
    files = {name: words[name] for name in (*_CORPORA, *_OTHER_FILES) if words[name] is not None}
    run = None if config.is_new or not is_run(Path(config.model)) else RunFolder.view(whole_run(Path(config.model)))
    if not config.is_new and run is None:
        files["model"] = config.model
    if (chooses := public_choice(config)) is not None:
        files["training.eval_on"] = chooses
    hashed = {"policy", "marking.conservative_policy", "tokenizer", *files, *_MOVES_NO_NUMBER}
    if run is not None:
        hashed.add("model")  # by what was sealed: an audit of that run changes nothing
    fields = fields_of(asdict(config.data))
    for name in _CORPORA:
        if name in files:
            read(files[name], DEFAULT_FIELDS if name == _PUBLIC_CORPUS else fields)  # says why a file is no corpus
    parts = {name: digest_of(name, Path(file)) for name, file in files.items()}
    if run is not None:
        parts["model"] = release_digest(run)
    for name, policy in zip(POLICIES, (policies.marking, policies.conservative), strict=True):
        if policy is not None:
            parts[name] = policy.hash
    if invents(config):
        parts["version of Faker"] = version("faker")
    parts["settings"] = json.dumps({name: words[name] for name in words.keys() - hashed}, sort_keys=True)
    return parts


def digest_of(name: str, path: Path) -> str:
    """The digest of the file that the setting `name` has."""
    try:
        return digest(path)
    except OSError as error:
        found = error.strerror or type(error).__name__
        raise ConfigError(f"the file of `{name}`, at {path}", found, "check the path") from error
