"""Exact duplicates of redacted records, told as they stream by, in memory that does not grow.

G1 (exact). A record is a duplicate exactly when one with the same key went before: the same public segments,
   label and routing, whatever the secrets are (up to a collision of 128 bits of SHA-256).
G2 (public). Which records survive is a function of the public part of the corpus and its order.
G3 (one for one). Equal records are the same to training, which then reads nothing but what is in the key: when one is
   taken away, at most an equal one takes its place.
"""

import hashlib
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tacit.prepare.views import PublicText

_DIGEST_BYTES = 16
_CACHE_KIBIBYTES = 8192


@dataclass(frozen=True, slots=True)
class Routing:
    """Where a record goes: to the protected set (flagged), and there only because it may hold a missed secret."""

    flagged: bool = True
    doubtful: bool = True


@dataclass(frozen=True, slots=True)
class Key:
    """What training reads of a redacted record. The user is not part of it: claims about users keep duplicates."""

    text: PublicText
    label: str | None = None  # None where no label is learned
    flagged: bool = True

    @property
    def digest(self) -> bytes:
        """SHA-256 of all of it."""
        label = None if self.label is None else self.label.encode("utf-8", "surrogatepass")
        rest = repr((label, self.flagged)).encode()
        return hashlib.sha256(self.text.digest + rest).digest()


class Seen:
    """The records that went by, on disk: a table of digests whose cache is bounded."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        connection.execute("CREATE TABLE seen (digest BLOB PRIMARY KEY) WITHOUT ROWID")

    def add(self, key: Key) -> bool:
        """Whether the record is new; it is not the next time."""
        digest = key.digest[:_DIGEST_BYTES]
        return self._connection.execute("INSERT OR IGNORE INTO seen VALUES (?)", (digest,)).rowcount == 1


@contextmanager
def seen_texts(folder: Path) -> Iterator[Seen]:
    """No records yet; the table lives in `folder` as long as the context."""
    path = folder / "seen.sqlite"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for setting in ("journal_mode=OFF", "synchronous=OFF", f"cache_size=-{_CACHE_KIBIBYTES}"):
            connection.execute(f"PRAGMA {setting}")
        connection.execute("BEGIN")
        yield Seen(connection)
        connection.execute("COMMIT")
    path.unlink()
