"""The ledger: what was spent, written before it is spent.

A text file of JSON lines. Each line carries a SHA-256 digest of itself and of the line before, so that an edit shows.

G1 (before). `charge` returns only when the charge is on the disk; the caller applies the update afterwards. After any
   crash the ledger counts too much, never too little.
G2 (torn). A last line without its end, left by a crash in mid-write, counts as one execution of every declared step.
G3 (chain). Any other damage, and any edit that does not recompute the chain, is refused. Whole lines that are missing
   at the end do not show here; a checkpoint holds the counts and refuses a ledger with fewer.
G4 (one writer). A second writer is refused while the first one lives.
G5 (small). Memory and file size do not grow with the number of charges.
"""

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Self

from tacit.common.files import read_bytes, sync_folder, try_lock
from tacit.errors import ConfigError, LedgerError, way_out_of
from tacit.privacy.events import Event
from tacit.privacy.ledger_lines import Entries, Parsed, event_to_json, header, parse, sealed, written

_COMPACT_AFTER = 50_000  # lines


def read_entries(path: Path) -> Entries:
    """The content of the ledger at `path`, without writing to it: a torn last line is counted, not repaired."""
    return read_lines(path).settled()


def read_lines(path: Path) -> Parsed:
    """The same with the last digest and the number of lines, which a manifest names."""
    return parse(_read(path), path)


class Ledger(Entries, AbstractContextManager["Ledger"]):
    """The entries of a ledger that is open for writing. Use it as a context manager, or `close` it."""

    def __init__(self, path: Path, descriptor: int, entries: Entries, chain: str, lines: int) -> None:
        """Private: use `create` or `open`."""
        super().__init__(entries.prices, entries.counts, entries.torn)
        self._path = path
        self._descriptor = descriptor
        self._chain = chain
        self._lines = lines
        self._is_compact = False
        self._usable = True

    @classmethod
    def create(cls, path: Path) -> Self:
        """A new, empty ledger; an existing file is refused, never overwritten."""
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        except FileExistsError as error:
            raise LedgerError(f"no ledger yet at {path}", "one", "resume that run, or choose another folder") from error
        except OSError as error:
            raise _failed("create the ledger", path, error) from error
        _lock(descriptor, path)
        ledger = cls(path, descriptor, Entries(), "", 0)
        ledger._append(header())
        sync_folder(path.parent)
        return ledger

    @classmethod
    def open(cls, path: Path) -> Self:
        """An existing ledger, repaired if its last line is torn, and compacted."""
        descriptor = _open_and_lock(path)
        try:
            content = _read(path)
            parsed = parse(content, path)
            ledger = cls(path, descriptor, parsed.settled(), parsed.chain, parsed.lines)
            shortest = len(written(ledger, "")[0])
            ledger._is_compact = parsed.lines == shortest and not parsed.torn and content.endswith(b"\n")
            ledger.compact()
        except BaseException:
            os.close(descriptor)
            raise
        return ledger

    def declare(self, name: str, prices: Mapping[str, Event]) -> None:
        """Declare what one execution of the step `name` costs under each notion; repeating it changes nothing."""
        known = self.prices
        if name in known:
            if known[name] == dict(prices):
                return
            raise LedgerError(
                expected=f"the price of step {name!r} that the ledger already has",
                found="another one",
                way_out="resume with the plan the run began with, or begin a new run",
            )
        if known and set(next(iter(known.values()))) != set(prices):
            raise LedgerError(
                expected=f"a price under each notion ({', '.join(sorted(next(iter(known.values()))))})",
                found=", ".join(sorted(prices)) or "none",
                way_out="price every step under every notion that is claimed",
            )
        self._append({"declare": name, "prices": {notion: event_to_json(event) for notion, event in prices.items()}})
        known[name] = dict(prices)
        self.counts[name] = 0

    def charge(self, name: str, times: int = 1) -> None:
        """Record executions of a declared step; on the disk when this returns."""
        if name not in self.counts:
            error = ConfigError.unknown_name("declared step", name, self.counts)
            raise LedgerError(error.expected, error.found, error.way_out)
        if times < 1:
            raise LedgerError("at least one execution", repr(times), "charge only what is about to happen")
        self._append({"charge": list(self.counts).index(name), "times": times})
        self.counts[name] += times
        if self._lines > _COMPACT_AFTER:
            self.compact()

    def compact(self) -> None:
        """Rewrite the file with one line per step, atomically; counts are kept. A compact file is left unchanged."""
        self._check_usable()
        if self._is_compact:
            return
        lines, chain = written(self, self._chain)
        draft = self._path.with_name(".draft-" + self._path.name)
        descriptor = -1
        try:
            descriptor = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
            _lock(descriptor, draft)
            _write_all(descriptor, b"".join(lines))
            os.fsync(descriptor)
            os.replace(draft, self._path)
        except OSError as error:
            if descriptor >= 0:
                os.close(descriptor)
            draft.unlink(missing_ok=True)
            raise _failed("rewrite the ledger", self._path, error) from error
        os.close(self._descriptor)
        self._descriptor, self._chain, self._lines, self._is_compact = descriptor, chain, len(lines), True
        sync_folder(self._path.parent)

    def close(self) -> None:
        """Compact and let go of the file; closing twice is harmless."""
        if self._descriptor < 0:
            return
        try:
            if self._usable:
                self.compact()
        finally:
            os.close(self._descriptor)
            self._descriptor, self._usable = -1, False

    def __exit__(self, *_: object) -> None:
        self.close()

    def _append(self, content: dict[str, Any]) -> None:
        self._check_usable()
        line, chain = sealed(content, self._chain)
        before = os.fstat(self._descriptor).st_size
        try:
            _write_all(self._descriptor, line)
        except OSError as error:
            try:
                os.ftruncate(self._descriptor, before)
            except OSError:
                self._usable = False  # a torn line stays; it is counted when the ledger is opened again
            raise _failed("write to the ledger", self._path, error) from error
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            self._usable = False  # what is on disk is unknown now; it must be read again
            raise _failed("sync the ledger", self._path, error) from error
        self._chain = chain
        self._lines += 1
        self._is_compact = False

    def _check_usable(self) -> None:
        if not self._usable:
            raise LedgerError(
                expected="a ledger that is open and sound",
                found="one that was closed, or that failed to reach the disk",
                way_out="free some space and open it again: what may have been written will be counted",
            )


def _open_and_lock(path: Path) -> int:
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_APPEND)
        except OSError as error:
            raise _missing(path, error) from error
        _lock(descriptor, path)
        if os.path.samestat(os.fstat(descriptor), os.stat(path)):
            return descriptor
        os.close(descriptor)  # it was compacted between opening and locking


def _lock(descriptor: int, path: Path) -> None:
    if not try_lock(descriptor):
        os.close(descriptor)
        raise LedgerError(
            expected=f"to be the only writer of {path.name}",
            found="another process that holds it",
            way_out="wait for that run to end, or stop it",
        )


def _read(path: Path) -> bytes:
    try:
        return read_bytes(path)
    except OSError as error:
        raise _missing(path, error) from error


def _write_all(descriptor: int, content: bytes) -> None:
    while content:
        content = content[os.write(descriptor, content) :]


def _missing(path: Path, error: OSError) -> LedgerError:
    return LedgerError(
        expected=f"a ledger at {path}",
        found=error.strerror or "nothing",
        way_out="restore it, or begin a new run: without the ledger nobody knows what was spent",
    )


def _failed(what: str, path: Path, error: OSError) -> LedgerError:
    return LedgerError(
        f"to {what} {path.name}", error.strerror or "an error", f"{way_out_of(error)}; the step was not applied"
    )
