"""A run: one folder with fixed names (`tacit.runs.release`), each stage adding its files.

    run.json                 marks the folder
    release/                 what may leave your organization: a model folder as others publish it, with a model card
        tacit/               what only tacit reads: tokenizer, settings, plan, ledger, guarantee, utility, audit,
                             report; the claim on paper, by `tacit report`; the manifest
    private/                 what may not; closed to other users of the machine
        lock, key            held by the one writer; of the keyed hashes in `release/`
        settings.json        the whole configuration, with the seed of a research run
        inputs/              corpus, policy definition and model that the run was given as Python objects
        identity.json        keyed hashes of all that the run is made of (`tacit.training.checkpoints`)
        guarantee.json, utility.json, audit.json, and findings.json of an audit that is not finished
                             as those of `release/`, with exact counts and plain hashes, and with attacks on records
        policy.json          how well the policy did on labeled held-out records, where there are any: counts
        sample.json          a few training records with their secrets hidden, and how often each kind was marked
        report.html          the page with that sample, on request
        prepared.json        SHA-256 of what was prepared (`tacit.runs.verify`); store.json in a prepared store
        processes.json       what started the processes that trained it (`tacit.training.stages`)
        steps.jsonl          exact losses, norms and the like of each step
        best.safetensors     the best model seen, when one is chosen
        kept/, tensorboard/  intermediate models (`tacit.runs.weights`) and event files, on request
        checkpoints/         tensors, optimizer, random streams (`tacit.training.checkpoints`)

G1 (whole). Every file but the two logs appears by one rename, synced; a failed write leaves the old one. Drafts of a
   writer that was killed are removed when the run is opened for writing.
G2 (one writer). A second writer is refused while the first one lives; a writer that died holds nothing.
G3 (ledger). A run without its ledger is not opened for writing.
G4 (same plan). A plan that was written is not replaced by another one.
G5 (fit to leave). No JSON of `release/` has a field without a reason to leave. Nothing is ever unpickled.
G6 (sealed). `seal` covers what was written since the run was opened; changes by others in the meantime stay visible.
"""

import json
import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Self, TypeVar

from tacit.common.files import (
    DRAFT,
    NotReadable,
    clear_drafts,
    new_key,
    read_run_bytes,
    remove,
    sync_folder,
    try_lock,
    write_atomically,
    write_bytes,
    write_new,
)
from tacit.common.serialize import from_json, read_json, to_json
from tacit.errors import ConfigError, LedgerError, RunError, failed
from tacit.privacy.ledger import Ledger, read_entries, read_lines
from tacit.runs.release import (
    OWN_FOLDER,
    FileName,
    LedgerEnd,
    MadeWith,
    Manifest,
    PrivateFile,
    ReleaseFile,
    check_fields,
    digests,
    environment,
    released,
)

T = TypeVar("T")
MARK = "run.json"
_MARK_CONTENT = {"format": "tacit-run", "version": 1}


class RunFolder(AbstractContextManager["RunFolder"]):
    """A run folder: open for writing (`create`, `open`), or for reading alone (`view`)."""

    def __init__(self, folder: Path, lock: int | None, ledger: Ledger | None) -> None:
        """Private: use `create`, `open` or `view`."""
        self.folder = folder
        self.release = folder / "release" if _is_marked(folder) else folder
        self._lock = lock
        self._ledger = ledger
        self._written: set[str] = set()

    @classmethod
    def create(cls, folder: Path) -> Self:
        """A new run, with an empty ledger, open for writing.

        `folder` must be empty or not be there; what a start that charged nothing left in it is removed, but for what
        `stage_inputs` made.
        """
        folder = folder.absolute()
        lock = _claim(folder)
        try:
            _fill(folder)
            return cls(folder, lock, Ledger.open(folder / "release" / ReleaseFile.LEDGER))
        except BaseException:
            os.close(lock)
            raise

    @classmethod
    def open(cls, folder: Path) -> Self:
        """An existing run, for writing; refused without its ledger, or while another process writes."""
        folder = folder.absolute()
        _check_mark(folder)
        lock = _take_lock(folder / "private" / PrivateFile.LOCK)
        try:
            _end_torn_line(folder / "private" / PrivateFile.STEPS)
            for place in (folder, folder / "release", folder / "release" / OWN_FOLDER, folder / "private"):
                clear_drafts(place)
            ledger = Ledger.open(folder / "release" / ReleaseFile.LEDGER)
        except BaseException:
            os.close(lock)
            raise
        return cls(folder, lock, ledger)

    @classmethod
    def view(cls, folder: Path) -> Self:
        """An existing run, for reading alone: takes no lock, changes nothing. A copy of its `release/` will do."""
        folder = folder.absolute()
        parts = (ReleaseFile.LEDGER, ReleaseFile.MANIFEST)
        if (folder / MARK).exists() or not any((folder / part).is_file() for part in parts):  # else a copy of release/
            _check_mark(folder)
        return cls(folder, None, None)

    @property
    def writable(self) -> bool:
        return self._lock is not None

    @property
    def ledger(self) -> Ledger:
        self._check_open()
        assert self._ledger is not None
        return self._ledger

    @property
    def key(self) -> bytes:
        """The key of hashes that leave: without it they tell nothing."""
        return read_run_bytes(self.path(PrivateFile.KEY))

    def path(self, name: FileName) -> Path:
        return (self.release if isinstance(name, ReleaseFile) else self.folder / "private") / name

    def write(self, name: FileName, writer: Callable[[Path], None]) -> None:
        """Have `writer` write the file to the path it is given; it appears whole or not at all."""
        self._check_open()
        write_atomically(self.path(name), writer, 0o644 if isinstance(name, ReleaseFile) else 0o600)
        if isinstance(name, ReleaseFile):
            self.cover(name)

    def write_text(self, name: FileName, text: str) -> None:
        self.write(name, lambda path: write_new(path, text.encode()))

    def write_json(self, name: FileName, value: object) -> None:
        """`value` (a frozen dataclass, or plain JSON content) as JSON."""
        text = to_json(value)
        if isinstance(name, ReleaseFile):
            check_fields(name, json.loads(text))
        if name == ReleaseFile.PLAN and self.path(name).exists() and self.path(name).read_text("utf-8") != text:
            raise RunError(
                expected="the plan that the run began with",
                found="another one",
                way_out="resume without changing the plan, or begin a new run",
            )
        self.write_text(name, text)

    def read_json(self, kind: type[T], name: FileName) -> T:
        """The value of type `kind` that was written: a dataclass such as `Plan`, or dict."""
        try:
            return from_json(kind, read_run_bytes(self.path(name)))
        except ConfigError as error:
            raise RunError(error.expected, f"{error.found}, in {name}", error.way_out) from error

    def read_optional(self, kind: type[T], name: FileName) -> T | None:
        """The same; None if there is no such file."""
        return self.read_json(kind, name) if self.path(name).exists() else None

    def note_environment(self) -> None:
        """Record in made.json that this environment wrote to the run."""
        known = (self.read_optional(MadeWith, ReleaseFile.MADE) or MadeWith()).environments
        if known[-1:] != (environment(),):
            self.write_json(ReleaseFile.MADE, MadeWith((*known, environment())))

    def cover(self, name: ReleaseFile) -> None:
        """Have `seal` cover a file that somebody else wrote."""
        self._written.add(name)

    def unseal(self) -> None:
        """Remove the manifest: what is written from now on is covered by the next one, with all that is there."""
        self.path(ReleaseFile.MANIFEST).unlink(missing_ok=True)

    def seal(self) -> None:
        """Write the manifest: the first time of every released file, later of those that this writer wrote."""
        self.ledger.compact()
        manifest = self.read_optional(Manifest, ReleaseFile.MANIFEST)
        known = {} if manifest is None else manifest.files
        written = {*self._written, str(ReleaseFile.LEDGER)} if known else released(self.release)
        files = known | digests(self.release, written)
        lines = read_lines(self.path(ReleaseFile.LEDGER))
        end = LedgerEnd(lines.chain, lines.lines)
        self.write_json(ReleaseFile.MANIFEST, Manifest(dict(sorted(files.items())), end))
        self._written.clear()

    def record(self, measurements: Mapping[str, float | int | str]) -> None:
        """Add a line to the private log of steps. It is not synced: a crash may lose the last ones."""
        self._check_open()
        line = json.dumps(dict(measurements)) + "\n"
        try:
            with self.path(PrivateFile.STEPS).open("a", encoding="utf-8") as log:
                log.write(line)
        except OSError as error:
            raise failed("write the private log of steps", error) from error

    def discard(self) -> None:
        """Close, and leave nothing behind; refused for a run that has spent something."""
        if any(self.ledger.charges().values()):
            raise RunError("a run that charged nothing", "one that did", "keep it: what it spent stays spent")
        self.close()
        _clear(self.folder)
        remove(self.folder / "private")
        with suppress(OSError):
            self.folder.rmdir()

    def close(self) -> None:
        """Close the ledger and let others write; closing twice is harmless."""
        lock, ledger, self._lock, self._ledger = self._lock, self._ledger, None, None
        try:
            if ledger is not None:
                ledger.close()
        finally:
            if lock is not None:
                os.close(lock)

    def _check_open(self) -> None:
        if not self.writable:
            raise RunError("a run that is open for writing", "one that is closed, or open for reading", "open it")

    def __exit__(self, *_: object) -> None:
        self.close()


def is_run(folder: Path) -> bool:
    """Whether `folder` is a run or a copy of the `release/` of one, or what is left of either."""
    parts = (ReleaseFile.LEDGER, ReleaseFile.GUARANTEE, ReleaseFile.MANIFEST)
    left = (at / part for at in (folder, folder / "release") for part in parts)
    return any(part.exists() for part in (folder / MARK, *left))


def whole_run(folder: Path) -> Path:
    """The run folder that `folder` is the `release/` of; `folder` itself if it is a run or a copy."""
    parent = folder.absolute().parent
    return parent if folder.name == "release" and (parent / MARK).exists() else folder


def stage_inputs(folder: Path) -> Path:
    """An empty `private/inputs/` for what a new run will read, made before `RunFolder.create`."""
    place = folder.absolute() / "private" / PrivateFile.INPUTS
    lock = _claim(folder.absolute())
    try:
        remove(place)
        place.mkdir(mode=0o700)
    finally:
        os.close(lock)
    return place


def unstage_inputs(folder: Path) -> None:
    """Remove what `stage_inputs` made, if no run came of it."""
    if not (folder / MARK).exists():
        remove(folder / "private")
        with suppress(OSError):
            folder.rmdir()


def _claim(folder: Path) -> int:
    """The lock of a folder in which a run may begin."""
    private = folder / "private"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not _may_be_run(folder):
            raise _taken(folder, "other files")
        private.mkdir(exist_ok=True)
        private.chmod(0o700)  # also one that was there
        lock = _take_lock(private / PrivateFile.LOCK)
    except OSError as error:
        raise failed(f"make the run folder {folder}", error) from error
    try:
        if has_begun(folder):
            raise _taken(folder, "a run that has begun")
        if (private / PrivateFile.STORE).exists():
            raise _taken(folder, "a prepared store")
    except BaseException:
        os.close(lock)
        raise
    return lock


def has_begun(folder: Path) -> bool:
    """Whether a step of the run was charged; a run whose ledger is lost or cannot be read counts as one that was."""
    ledger = folder / "release" / ReleaseFile.LEDGER
    try:
        return any(read_entries(ledger).charges().values())
    except LedgerError:
        return ledger.exists() or (folder / MARK).exists()


def _may_be_run(folder: Path) -> bool:
    """Whether all in `folder` may be what a start left there: nothing, a marked run, or the beginning of one."""
    names = {place.name for place in folder.iterdir()}
    if not names <= {"release", "private", MARK, DRAFT + MARK}:
        return False
    places = [folder / "private" / name for name in (PrivateFile.LOCK, PrivateFile.INPUTS, PrivateFile.CHECKPOINTS)]
    for path in (folder / "private" / PrivateFile.KEY, folder / "release" / ReleaseFile.LEDGER):
        places += [path, path.with_name(DRAFT + path.name)]
    own = folder / "release" / OWN_FOLDER
    inside = {place for part in (folder / "release", folder / "private", own) for place in part.glob("*")}
    return MARK in names or inside <= {*places, own}


def _taken(folder: Path, found: str) -> RunError:
    return RunError(
        f"no folder {folder} yet, or an empty one", found, "resume that run, remove the folder, or choose another"
    )


def _fill(folder: Path) -> None:
    """All that a new run has; its mark comes last, so that a folder that was left half made is no run."""
    private = folder / "private"
    try:
        _clear(folder)
        (private / PrivateFile.CHECKPOINTS).mkdir()
        write_bytes(private / PrivateFile.KEY, new_key(), 0o600)
        sync_folder(private)
        (folder / "release" / OWN_FOLDER).mkdir(parents=True)
        Ledger.create(folder / "release" / ReleaseFile.LEDGER).close()
        write_bytes(folder / MARK, json.dumps(_MARK_CONTENT).encode())
        sync_folder(folder.parent)
    except BaseException as error:
        for part in (folder / "release", private):
            shutil.rmtree(part, ignore_errors=True)
        if isinstance(error, OSError):
            raise failed(f"make the run folder {folder}", error) from error
        raise


def _clear(folder: Path) -> None:
    """Remove a run that charged nothing, its ledger last: whoever is killed meanwhile leaves such a run."""
    ledger, private = folder / "release" / ReleaseFile.LEDGER, folder / "private"
    kept = (ledger, ledger.parent, private / PrivateFile.LOCK, private / PrivateFile.INPUTS)
    for part in (*private.iterdir(), *ledger.parents[1].glob("*"), *ledger.parent.glob("*"), folder / MARK):
        if part not in kept:
            remove(part)
    remove(folder / "release")


def _is_marked(folder: Path) -> bool:
    try:
        return bool(read_json(folder / MARK) == _MARK_CONTENT)
    except (FileNotFoundError, NotADirectoryError, NotReadable, ValueError):
        return False
    except OSError as error:
        raise failed(f"read the run folder {folder}", error) from error


def _check_mark(folder: Path) -> None:
    if not _is_marked(folder):
        raise RunError(
            expected=f"a run folder at {folder}",
            found="no folder" if not folder.is_dir() else f"a folder without a {MARK} of this version",
            way_out="give the folder that `tacit train` made",
        )


def _take_lock(path: Path) -> int:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise failed("write to the run folder", error) from error
    if not try_lock(descriptor):
        os.close(descriptor)
        raise RunError(
            expected=f"to be the only writer of {path.parent.parent}",
            found="another process that is writing",
            way_out="wait for that run to end, or stop it",
        )
    return descriptor


def _end_torn_line(log: Path) -> None:
    try:
        if not log.exists() or not log.stat().st_size:
            return
        with log.open("rb+") as file:
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.write(b"\n")
    except OSError as error:
        raise failed("write the private log of steps", error) from error
