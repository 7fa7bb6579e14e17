"""Exact duplicates of redacted text, told as they stream by, in memory that does not grow.

G1 (exact). A text is a duplicate exactly when one with the same public segments went before, whatever the secrets say
   and of whatever kind they are (up to a collision of 128 bits of SHA-256).
G2 (public). Which texts survive is a function of the public part of the corpus and its order.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from tacit.prepare.views import PublicText

_DIGEST_BYTES = 16
_CACHE_KIBIBYTES = 8192


class Seen:
    """The texts that went by, on disk: a table of digests whose cache is bounded."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        connection.execute("CREATE TABLE seen (digest BLOB PRIMARY KEY) WITHOUT ROWID")

    def add(self, text: PublicText) -> bool:
        """Whether the text is new; it is not the next time."""
        digest = text.digest[:_DIGEST_BYTES]
        return self._connection.execute("INSERT OR IGNORE INTO seen VALUES (?)", (digest,)).rowcount == 1


@contextmanager
def seen_texts(folder: Path) -> Iterator[Seen]:
    """No texts yet; the table lives in `folder` as long as the context."""
    path = folder / "seen.sqlite"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for setting in ("journal_mode=OFF", "synchronous=OFF", f"cache_size=-{_CACHE_KIBIBYTES}"):
            connection.execute(f"PRAGMA {setting}")
        connection.execute("BEGIN")
        yield Seen(connection)
        connection.execute("COMMIT")
    path.unlink()
