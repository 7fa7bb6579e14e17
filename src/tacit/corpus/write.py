"""Writing records in the shape `read` reads: all of a file or none of it, for its owner alone."""

import gzip
import json
import lzma
import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import IO, Any, Protocol

from tacit.corpus.record import Record
from tacit.corpus.streams import COMPRESSIONS, zstd
from tacit.errors import CorpusError
from tacit.private_files import owner_alone

WriteRecord = Callable[[Record], None]


class _Sink(Protocol):
    def write(self, data: bytes, /) -> int: ...


def write_jsonl(records: Iterable[Record], path: Path | str) -> int:
    """Write `records` to `path` (.jsonl, or .jsonl with .gz, .xz or .zst); how many they were.

    The file appears, or replaces an older one, when all records are written: after an error the older one is untouched.
    """
    count = 0
    with jsonl_writer(Path(path)) as write:
        for record in records:
            write(record)
            count += 1
    return count


@contextmanager
def jsonl_writer(path: Path) -> Iterator[WriteRecord]:
    """A function that writes one record; leaving the context without an error puts the file in its place."""
    if not path.name.lower().endswith((".jsonl", *(f".jsonl{ending}" for ending in COMPRESSIONS))):
        raise CorpusError(
            expected=f"a file named .jsonl, or .jsonl followed by {', '.join(COMPRESSIONS)}",
            found=path.name,
            way_out="rename it",
        )
    unfinished = path.with_name(f".{secrets.token_hex(8)}.{path.name}")
    try:
        with open(unfinished, "xb", opener=owner_alone) as file:
            with _compressed(file, path.suffix.lower()) as stream:
                yield lambda record: _write(stream, record)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    except OSError as error:
        raise CorpusError(
            expected=f"a file that can be written at {path}",
            found=error.strerror or "an error while writing",
            way_out="check that the folder exists, that you may write to it, and that the disk has room",
        ) from error
    finally:
        unfinished.unlink(missing_ok=True)


def _write(stream: _Sink, record: Record) -> None:
    fields: dict[str, Any] = {"id": record.id, "text": record.text}
    if record.user is not None:
        fields["user"] = record.user
    if record.label is not None:
        fields["label"] = record.label
    if record.spans is not None:
        fields["spans"] = record.spans
    try:
        line = json.dumps(fields, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # which holds the text: it is not chained
        raise CorpusError(
            expected="records whose strings are Unicode text",
            found="half a surrogate pair in one of them",
            way_out="mend the text where it comes from",
        ) from None
    stream.write(line + b"\n")


def _compressed(file: IO[bytes], ending: str) -> AbstractContextManager[_Sink]:
    """A stream into `file` that compresses as `ending` says. Equal records give equal bytes: no time, no name."""
    if ending == ".gz":
        return gzip.GzipFile("", "wb", fileobj=file, mtime=0)
    if ending == ".xz":
        return lzma.LZMAFile(file, "wb")
    if ending == ".zst":
        return zstd.ZstdFile(file, "wb")
    return nullcontext(file)
