"""Splitting a corpus into train, validation and test by a hash: no state, no order, no chance.

G1 (stable). Where a record goes depends on its key, the salt and the shares alone: adding or removing records never
   moves another one.
G2 (together). All that has one key, such as the records of a user, is in one split.
G3 (fair). Over keys, each split has its share: positions are 64 bits of BLAKE2b, uniform on [0, 1).
G4 (monotone). Raising the train share only moves records into train.

Which corpus it is: a keyed hash of all that its records hold, in their order.
"""

import hashlib
import math
from dataclasses import dataclass
from enum import StrEnum

from tacit.common.files import Keyed
from tacit.data.records import Record
from tacit.errors import ConfigError

_POSITION_BITS = 64


class Split(StrEnum):
    """The part of a corpus a record belongs to."""

    TRAIN = "train"
    VALIDATION = "validation"
    TEST = "test"


@dataclass(frozen=True, slots=True)
class Shares:
    """How much of the keys each split gets; together 1."""

    train: float = 0.8
    validation: float = 0.1
    test: float = 0.1

    def __post_init__(self) -> None:
        parts = (self.train, self.validation, self.test)
        if not all(0 <= part <= 1 for part in parts) or not math.isclose(sum(parts), 1, abs_tol=1e-9):
            raise ConfigError(
                expected="three shares between 0 and 1 that sum to 1",
                found=", ".join(map(str, parts)),
                way_out="give for instance 0.8, 0.1 and 0.1",
            )

    def of(self, split: Split) -> float:
        """The share of one split."""
        return {Split.TRAIN: self.train, Split.VALIDATION: self.validation, Split.TEST: self.test}[split]


def split_of(key: str, salt: str, shares: Shares) -> Split:
    """The split of a key. The salt is public; another salt gives an independent split."""
    # The salt's length keeps ("a", "bc") and ("ab", "c") apart.
    salt_bytes = salt.encode("utf-8", "surrogatepass")
    message = len(salt_bytes).to_bytes(8) + salt_bytes + key.encode("utf-8", "surrogatepass")
    position = int.from_bytes(hashlib.blake2b(message, digest_size=_POSITION_BITS // 8).digest())
    *first, last = (split for split in Split if shares.of(split) > 0)
    end = 0.0
    for split in first:
        end += shares.of(split)
        if position < end * 2**_POSITION_BITS:
            return split
    return last


class CorpusHash:
    """The hash of records that stream by, and how many they were."""

    def __init__(self, key: bytes) -> None:
        self._state = Keyed(key)
        self.records = 0

    def add(self, record: Record) -> None:
        """Its id, its text, and what else policies and splits look at."""
        self._state.add(record.id, record.text, repr((record.user, record.label, record.spans)))
        self.records += 1

    def hexdigest(self) -> str:
        """Of all records so far."""
        return self._state.hexdigest()
