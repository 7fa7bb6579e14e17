"""Bytes of a corpus file, decompressed as they come, in lines of bounded length."""

import gzip
import io
import lzma
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tacit.corpus.quarantine import Fault, Reason
from tacit.errors import CorpusError
from tacit.given import open_file

if sys.version_info >= (3, 14):
    from compression import zstd as zstd
else:
    from backports import zstd as zstd

COMPRESSIONS = (".gz", ".xz", ".zst")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_SKIP_BYTES = 1 << 16


class Line(NamedTuple):
    """One line with its line end: its number from 1, its byte offset; no data when it is longer than the limit."""

    number: int
    byte: int
    data: bytes | None


def open_to_read(path: Path) -> io.BufferedIOBase:
    """The decompressed bytes of `path`. Damage shows as EOFError, or as an error of the compression's own."""
    open_file(path).close()  # never a device or a pipe, which may have no end
    if path.suffix.lower() == ".gz":
        return gzip.open(path, "rb")
    if path.suffix.lower() == ".xz":
        return lzma.open(path, "rb")
    if path.suffix.lower() == ".zst":
        return zstd.open(path, "rb")
    return io.BufferedReader(io.FileIO(path), 1 << 18)


def lines(path: Path, limit: int) -> Iterator[Line]:
    """The lines of `path`, a byte order mark left out. Holds at most `limit` bytes of a line, however long it is.

    Ends with a `Fault` where the file is cut off or damaged: every complete line before that was given.
    """
    number, byte = 0, 0
    try:
        with open_to_read(path) as stream:
            while data := stream.readline(limit + 1):
                number += 1
                size = len(data)
                too_long = size > limit and not data.endswith(b"\n")
                if too_long:
                    del data
                    size += _skip_line(stream)
                    yield Line(number, byte, None)
                else:
                    yield Line(number, byte, data.removeprefix(_BYTE_ORDER_MARK) if byte == 0 else data)
                byte += size
    except EOFError as error:
        raise Fault(Reason.TRUNCATED_FILE, f"the compressed file is cut off after line {number}") from error
    except (zlib.error, lzma.LZMAError, zstd.ZstdError, gzip.BadGzipFile) as error:
        raise Fault(Reason.DAMAGED_FILE, f"the compressed file is damaged after line {number}") from error
    except OSError as error:
        raise unreadable(path, error) from error


def unreadable(path: Path, error: OSError) -> CorpusError:
    """The error for a file the operating system does not give us."""
    return CorpusError(
        expected=f"a corpus that can be read at {path}",
        found=error.strerror or "an error while reading",
        way_out="check the path, that you may read it, and the disk",
    )


def _skip_line(stream: io.BufferedIOBase) -> int:
    skipped = 0
    while piece := stream.readline(_SKIP_BYTES):
        skipped += len(piece)
        if piece.endswith(b"\n"):
            break
    return skipped
