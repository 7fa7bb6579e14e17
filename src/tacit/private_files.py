"""Writing a file that only its owner may read: whole or not at all, at no moment readable by others."""

import os
import secrets
from pathlib import Path

from tacit.errors import ConfigError

OWNER_ALONE = 0o600


def owner_alone(path: str | Path, flags: int) -> int:
    """The `opener` of `open` for a file that only its owner may read."""
    return os.open(path, flags, OWNER_ALONE)


def write_private(path: Path, content: bytes) -> None:
    """`content` at `path`; an older file, whoever might read it, is replaced."""
    draft = path.with_name(f".{secrets.token_hex(8)}.{path.name}")
    try:
        with open(draft, "xb", opener=owner_alone) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except OSError as error:
        raise ConfigError(
            expected=f"a file that can be written at {path}",
            found=error.strerror or type(error).__name__,
            way_out="check that the folder exists, that you may write to it, and that the disk has room",
        ) from error
    finally:
        draft.unlink(missing_ok=True)
