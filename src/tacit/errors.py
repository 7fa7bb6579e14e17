"""Everything that can go wrong, and how it is said.

    TacitError
    ├── ConfigError      a word or number from the person that means nothing here
    ├── CorpusError      a corpus file that cannot be read, or holds nothing usable
    ├── PolicyError      a policy definition that cannot be built
    ├── PrepareError     a tokenizer, view, store or canary that cannot be made
    ├── OutOfMemory      no memory left
    ├── WorkerLost       a worker process that ended before its work was done
    ├── ModelError       a model that cannot be built, read or fed
    ├── GradientError    a model whose per-record gradients cannot be had
    ├── AttackError      an attack that cannot be carried out, or would mean nothing
    ├── LedgerError      a ledger that is missing, damaged or was edited
    ├── RunError         a run folder that cannot be made, read, written or resumed
    └── ClaimRefused     a guarantee was asked for that nobody has proved

Each says what was expected, what was found and the way out, and never quotes protected text.
"""

import difflib
import errno
from collections.abc import Iterable
from typing import Self


class TacitError(Exception):
    """Base of all errors a person may meet; `expected`, `found` and `way_out` are for people."""

    def __init__(self, expected: str, found: str, way_out: str) -> None:
        super().__init__(expected, found, way_out)
        self.expected = expected
        self.found = found
        self.way_out = way_out

    def __str__(self) -> str:
        return f"expected {self.expected}; found {self.found}. Way out: {self.way_out}"


class ConfigError(TacitError):
    """A word or number from the person that means nothing here."""

    @classmethod
    def unknown_name(cls, noun: str, found: str, known: Iterable[str]) -> Self:
        """The error for a name that is not in a registry, with the nearest names that are."""
        names = sorted(known)
        near = difflib.get_close_matches(found, names, n=3, cutoff=0.5)
        way_out = f"did you mean {' or '.join(near)}?" if near else f"choose one of {', '.join(names)}"
        article = "an" if noun[0] in "aeiou" else "a"
        return cls(expected=f"the name of {article} {noun} ({', '.join(names)})", found=repr(found), way_out=way_out)


class CorpusError(TacitError):
    """A corpus file that cannot be read, or holds nothing usable."""


class PolicyError(TacitError):
    """A policy definition that cannot be built."""


class PrepareError(TacitError):
    """A tokenizer, view, store or canary that cannot be made."""


class LedgerError(TacitError):
    """A ledger that is missing, damaged or was edited."""


class RunError(TacitError):
    """A run folder that cannot be made, read, written or resumed."""


class ClaimRefused(TacitError):
    """A guarantee was asked for that nobody has proved."""


class WorkerLost(TacitError):
    """A worker process ended before its work was done."""

    def __init__(self) -> None:
        super().__init__(
            expected="worker processes that live until their work is done",
            found="one that ended early: out of memory, killed, or started by a script without a main guard",
            way_out='use fewer processes (`--processes 1`), or put the script under `if __name__ == "__main__":`',
        )


class ModelError(TacitError):
    """A model that cannot be built, read or fed."""


class GradientError(TacitError):
    """A gradient that cannot be taken unit by unit."""


class AttackError(TacitError):
    """An attack that cannot be carried out, or would mean nothing."""


class OutOfMemory(TacitError):
    """The system has no memory left."""

    def __init__(self) -> None:
        super().__init__(
            expected="enough memory",
            found="none left",
            way_out="close other programs, or take fewer tokens at a time: --set microbatch_tokens=512",
        )


def out_of_memory(error: Exception) -> bool:
    """Whether an error says that memory could not be had: Python's own, or a library's in its words."""
    words = ("allocate memory", "not enough memory", "bad_alloc", "failed to map segment", "returned NULL without")
    return isinstance(error, MemoryError) or any(word in str(error) for word in words)


def failed(what: str, error: OSError) -> RunError:
    """The error for an operation that the system refused."""
    return RunError(f"to {what}", (error.strerror or type(error).__name__).lower(), way_out_of(error))


def way_out_of(error: OSError) -> str:
    """What a person can do about a refusal of the system."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return "make room on the disk and resume: what was written before is whole"
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return "allow more open files (ulimit -n 1024) and try again"
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return "make the folder writable, or choose another one"
    return "check the path and the disk"
