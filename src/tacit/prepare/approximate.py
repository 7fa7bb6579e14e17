"""Duplicates told in little memory, or told though they differ a little: for preparing data, never under a claim.

Both couple records: whether one stays depends on others that are not its equals, so that a secret in one record may
decide about another one (theory, section 4). `tacit train` refuses them for every mechanism that claims something.

| name | a text is left out when |
|---|---|
| bloom | all of its bits were set before: always for a repeated text, else once in a million (Bloom 1970) |
| near | a text before it shares about `_SIMILAR` of its word triples or more, by MinHash (Broder 1997) |
"""

import hashlib

import numpy as np

from tacit.prepare.duplicates import Key
from tacit.prepare.views import PublicText

_BITS = 1 << 27  # 16 MB: below 1e-6 wrong answers up to four million texts
_HASHES = 20
_PERMUTATIONS, _BANDS = 64, 16
_SIMILAR = 0.8
_TRIPLE = 3
_PRIME = (1 << 61) - 1


class BloomSeen:
    """Texts that went by, as bits of one array."""

    def __init__(self) -> None:
        self._bits = np.zeros(_BITS // 8, np.uint8)

    def add(self, key: Key) -> bool:
        """Whether the record is surely new; it is not the next time."""
        stream = hashlib.shake_256(key.digest).digest(4 * _HASHES)
        places = np.frombuffer(stream, "<u4") % _BITS
        bytes_, masks = places >> 3, (1 << (places & 7)).astype(np.uint8)
        new = bool(np.any(self._bits[bytes_] & masks == 0))
        np.bitwise_or.at(self._bits, bytes_, masks)
        return new


class NearSeen:
    """Texts that went by, as sketches of their word triples; sketches that share a band are compared."""

    def __init__(self) -> None:
        chance = np.random.default_rng(0)
        self._factors = chance.integers(1, 1 << 31, _PERMUTATIONS).astype(object)
        self._shifts = chance.integers(0, 1 << 31, _PERMUTATIONS).astype(object)
        self._sketches: list[np.ndarray] = []
        self._bands: dict[tuple[int, bytes], list[int]] = {}

    def add(self, key: Key) -> bool:
        """Whether no text before is nearly the same; it counts for the next ones if it is new."""
        sketch = self._sketch(key.text)
        bands = [(band, part.tobytes()) for band, part in enumerate(np.split(sketch, _BANDS))]
        candidates = {other for band in bands for other in self._bands.get(band, ())}
        if any(float(np.mean(self._sketches[other] == sketch)) >= _SIMILAR for other in candidates):
            return False
        for band in bands:
            self._bands.setdefault(band, []).append(len(self._sketches))
        self._sketches.append(sketch)
        return True

    def _sketch(self, text: PublicText) -> np.ndarray:
        words = "\0".join(text.segments).split()
        triples = {" ".join(words[at : at + _TRIPLE]) for at in range(max(1, len(words) - _TRIPLE + 1))}
        hashes = [
            int.from_bytes(hashlib.blake2b(triple.encode("utf-8", "surrogatepass"), digest_size=7).digest(), "little")
            for triple in triples
        ]
        values = np.array(hashes, dtype=object)[:, None] * self._factors + self._shifts
        sketch: np.ndarray = (values % _PRIME).min(axis=0).astype(np.uint64)
        return sketch
