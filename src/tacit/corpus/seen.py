"""Which ids came before, in little memory."""

import hashlib

_DIGEST_BYTES = 16
_EMPTY = bytes(_DIGEST_BYTES)
_FIRST_SLOTS = 1 << 10


class SeenIds:
    """A set of ids that keeps 16 bytes of BLAKE2b of each, in an open-addressing table: 24 to 48 bytes an id.

    Ids are taken for equal when their digests are. Among n different ids that happens with probability below
    n^2 / 2^129: under 2e-21 for a billion. A table that grows holds its old half beside it for a moment.
    """

    def __init__(self) -> None:
        self._table = bytearray(_FIRST_SLOTS * _DIGEST_BYTES)
        self._count = 0

    def add(self, name: str) -> bool:
        """Remember `name`; False when it was there already."""
        if 3 * (self._count + 1) > 2 * (len(self._table) // _DIGEST_BYTES):
            self._grow()
        added = _insert(self._table, hashlib.blake2b(name.encode(), digest_size=_DIGEST_BYTES).digest())
        self._count += added
        return added

    def __len__(self) -> int:
        return self._count

    def _grow(self) -> None:
        table = bytearray(2 * len(self._table))
        for start in range(0, len(self._table), _DIGEST_BYTES):
            digest = bytes(self._table[start : start + _DIGEST_BYTES])
            if digest != _EMPTY:
                _insert(table, digest)
        self._table = table


def _insert(table: bytearray, digest: bytes) -> bool:
    start = int.from_bytes(digest[:8]) * _DIGEST_BYTES % len(table)
    while (found := table[start : start + _DIGEST_BYTES]) != _EMPTY:
        if found == digest:
            return False
        start = (start + _DIGEST_BYTES) % len(table)
    table[start : start + _DIGEST_BYTES] = digest
    return True
