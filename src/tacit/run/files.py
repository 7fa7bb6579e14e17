"""Writing files that are there whole or not at all, and saying what went wrong."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from tacit import given
from tacit.errors import RunError, failed

DRAFT = ".draft-"
"""How the name of a file or folder begins that is not whole yet."""


def write_atomically(path: Path, writer: Callable[[Path], None], mode: int = 0o644) -> None:
    """Have `writer` write a draft beside `path`, then put it in place of `path` in one move, on the disk on return."""
    draft = path.with_name(DRAFT + path.name)
    try:
        writer(draft)
        draft.chmod(mode)
        sync_file(draft)
        os.replace(draft, path)
        sync_folder(path.parent)
    except BaseException as error:
        draft.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise failed(f"write {path.name}", error) from error
        raise


def write_bytes(path: Path, content: bytes, mode: int = 0o644) -> None:
    """`content` as the file `path`, whole or not at all."""
    write_atomically(path, lambda draft: write_new(draft, content), mode)


def write_new(path: Path, content: bytes) -> None:
    """`content` as the file `path`; a failure may leave a part of it."""
    with path.open("wb") as file:
        file.write(content)


def read_bytes(path: Path) -> bytes:
    """The content of a file of the run."""
    try:
        return given.read_bytes(path)
    except OSError as error:
        raise RunError(
            expected=f"the file {path.name} of a run",
            found=error.strerror or "none",
            way_out="finish the stage that writes it first, or give another run folder",
        ) from error


def clear_drafts(folder: Path) -> None:
    """Remove what writers that were killed left unfinished in `folder`."""
    try:
        for draft in folder.glob(f"{DRAFT}*"):
            shutil.rmtree(draft) if draft.is_dir() else draft.unlink()
    except OSError as error:
        raise failed(f"remove unfinished files from {folder.name}", error) from error


def sync_file(path: Path) -> None:
    """Have the file on the disk, not only on its way."""
    _sync(path, os.O_RDONLY)


def sync_folder(path: Path) -> None:
    """Have the names in a folder on the disk, not only on their way."""
    _sync(path, os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
