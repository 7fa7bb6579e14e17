"""A run: one folder with fixed names, each stage adding its files.

    run.json                 marks the folder
    release/                 what may leave your organization
        model.safetensors, model.json, tokenizer.json, config.json, plan.json, ledger.jsonl, guarantee.json,
        utility.json, audit.json, report.html
        made.json            versions of everything it was made with
        certificate.md, certificate.yaml, README.md      the claim on paper, by `tacit report`
        manifest.json        SHA-256 of all of them, and where the ledger ends (`tacit.runs.release`)
    private/                 what may not; closed to other people of the machine
        lock                 held by the one writer
        key                  of the keyed hashes in `release/`
        settings.json        the whole configuration, with the seed of a research run
        inputs/              corpus, policy definition and model that the run was given as Python objects
        identity.json        keyed hashes of all that the run is made of (`tacit.training.identity`)
        guarantee.json, utility.json, audit.json
                             as those of `release/`, with exact counts and plain hashes, and with attacks on records
        policy.json          how well the policy did on labeled held-out records, where there are any: counts
        sample.json          a few training records with their secrets hidden, and how often each kind was marked
        report.html          the page with that sample, on request
        prepared.json        SHA-256 of what was prepared (`tacit.runs.verify`)
        steps.jsonl          exact losses, norms and the like of each step
        spans.jsonl, canaries.jsonl
        best.safetensors     the best model seen, when one is chosen
        kept/                models on the way, on request (`tacit.runs.weights`)
        tensorboard/         event files, on request
        checkpoints/         tensors, optimizer, random streams (`tacit.training.checkpoints`)

Formal guarantees:

G1 (whole). Every file but the two logs appears by one rename, synced; a failed write leaves the old one. Drafts of a
   writer that was killed are removed when the run is opened for writing.
G2 (one writer). A second writer is refused while the first one lives; a writer that died holds nothing.
G3 (ledger). A run without its ledger is not opened for writing.
G4 (same plan). A plan that was written is not replaced by another one.
G5 (fit to leave). No JSON of `release/` has a field without a reason to leave (`tacit.runs.release`). Nothing is ever
   unpickled.
G6 (sealed). `seal` covers what was written since the run was opened; what others changed meanwhile stays to be seen.
"""

import json
import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from tacit.common.files import (
    DRAFT,
    NotReadable,
    clear_drafts,
    new_key,
    read_run_bytes,
    sync_folder,
    try_lock,
    write_atomically,
    write_bytes,
    write_new,
)
from tacit.common.serialize import from_json, read_json, to_json
from tacit.errors import ConfigError, LedgerError, RunError, failed
from tacit.privacy.ledger import Ledger, read_entries, read_lines
from tacit.runs.files import FileName, PrivateFile, ReleaseFile
from tacit.runs.release import LedgerEnd, Manifest, check_fields, digests, released

T = TypeVar("T")
MARK = "run.json"
_MARK_CONTENT = {"format": "tacit-run", "version": 1}


class RunFolder:
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
            for place in (folder, folder / "release", folder / "private"):
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
        if not _is_release(folder):
            _check_mark(folder)
        return cls(folder, None, None)

    @property
    def writable(self) -> bool:
        """Whether this is the one writer."""
        return self._lock is not None

    @property
    def ledger(self) -> Ledger:
        """The ledger, open for writing."""
        if self._ledger is None:
            raise _not_open()
        return self._ledger

    @property
    def key(self) -> bytes:
        """The key of hashes that leave: without it they tell nothing."""
        return read_run_bytes(self.path(PrivateFile.KEY))

    def path(self, name: FileName) -> Path:
        """Where a file of the run stands."""
        return (self.release if isinstance(name, ReleaseFile) else self.folder / "private") / name

    def write(self, name: FileName, writer: Callable[[Path], None]) -> None:
        """Have `writer` write the file to the path it is given; it appears whole or not at all."""
        if not self.writable:
            raise _not_open()
        write_atomically(self.path(name), writer, 0o644 if isinstance(name, ReleaseFile) else 0o600)
        if isinstance(name, ReleaseFile):
            self.cover(name)

    def write_text(self, name: FileName, text: str) -> None:
        """`text` in UTF-8."""
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

    def cover(self, name: ReleaseFile) -> None:
        """Have `seal` cover a file that somebody else wrote."""
        self._written.add(name)

    def unseal(self) -> None:
        """Remove the manifest: what is written from now on is covered by the next one, with all that is there."""
        self.path(ReleaseFile.MANIFEST).unlink(missing_ok=True)

    def seal(self) -> None:
        """Write the manifest: the first time of every released file, later of those that this writer wrote."""
        self.ledger.compact()
        known = self.read_json(Manifest, ReleaseFile.MANIFEST).files if self.path(ReleaseFile.MANIFEST).exists() else {}
        written = {*self._written, str(ReleaseFile.LEDGER)} if known else released(self.release)
        files = known | digests(self.release, written)
        end = LedgerEnd.of(read_lines(self.path(ReleaseFile.LEDGER)))
        self.write_json(ReleaseFile.MANIFEST, Manifest(dict(sorted(files.items())), end))
        self._written.clear()

    def record(self, measurements: Mapping[str, float | int | str]) -> None:
        """Add a line to the private log of steps. It is not synced: a crash may lose the last ones."""
        if not self.writable:
            raise _not_open()
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
        for part in (self.folder / MARK, self.folder / "release", self.folder / "private"):
            _remove(part)
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

    def __enter__(self) -> Self:
        """The run itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()


def stage_inputs(folder: Path) -> Path:
    """An empty `private/inputs/` for what a new run will read, made before `RunFolder.create`."""
    place = folder.absolute() / "private" / PrivateFile.INPUTS
    lock = _claim(folder.absolute())
    try:
        _remove(place)
        place.mkdir(mode=0o700)
    finally:
        os.close(lock)
    return place


def unstage_inputs(folder: Path) -> None:
    """Remove what `stage_inputs` made, if no run came of it."""
    if not (folder / MARK).exists():
        _remove(folder / "private")
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
    drafted = (PrivateFile.KEY, ReleaseFile.LEDGER)
    known = {
        PrivateFile.LOCK,
        PrivateFile.INPUTS,
        PrivateFile.CHECKPOINTS,
        *drafted,
        *(DRAFT + name for name in drafted),
    }
    inside = {place.name for part in ("release", "private") for place in (folder / part).glob("*")}
    return MARK in names or inside <= known


def _taken(folder: Path, found: str) -> RunError:
    return RunError(
        expected=f"no folder {folder} yet, or an empty one",
        found=found,
        way_out="resume that run, remove the folder, or choose another",
    )


def _fill(folder: Path) -> None:
    """All that a new run has; its mark comes last, so that a folder that was left half made is no run."""
    private = folder / "private"
    try:
        for part in (folder / MARK, folder / "release", *private.iterdir()):
            if part.name not in (PrivateFile.LOCK, PrivateFile.INPUTS):
                _remove(part)
        (private / PrivateFile.CHECKPOINTS).mkdir()
        write_bytes(private / PrivateFile.KEY, new_key(), 0o600)
        sync_folder(private)
        (folder / "release").mkdir()
        Ledger.create(folder / "release" / ReleaseFile.LEDGER).close()
        write_bytes(folder / MARK, json.dumps(_MARK_CONTENT).encode())
        sync_folder(folder.parent)
    except BaseException as error:
        for part in (folder / "release", private):
            shutil.rmtree(part, ignore_errors=True)
        if isinstance(error, OSError):
            raise failed(f"make the run folder {folder}", error) from error
        raise


def _remove(place: Path) -> None:
    if place.is_dir():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)


def _is_marked(folder: Path) -> bool:
    try:
        return bool(read_json(folder / MARK) == _MARK_CONTENT)
    except (FileNotFoundError, NotADirectoryError, NotReadable, ValueError):
        return False
    except OSError as error:
        raise failed(f"read the run folder {folder}", error) from error


def _is_release(folder: Path) -> bool:
    """Whether it is the released part of a run, by itself."""
    parts = (ReleaseFile.LEDGER, ReleaseFile.MANIFEST)
    return not (folder / MARK).exists() and any((folder / part).is_file() for part in parts)


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


def _not_open() -> RunError:
    return RunError(
        expected="a run that is open for writing", found="one that is closed, or open for reading", way_out="open it"
    )
