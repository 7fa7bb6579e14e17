"""A few records kept for showing while a corpus goes by: chosen by a hash of their ids, secrets hidden.

G1 (hidden). What is kept holds no secret that the policy or a label marks, nor its length, nor a record's id
   (`tacit.scan.excerpt`).
G2 (chosen by hash). Which records are kept depends on ids and on where secrets stand, not on the order.
"""

import hashlib
from bisect import insort
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tacit.corpus.record import Record
from tacit.errors import PolicyError, TacitError
from tacit.policy.base import Policy
from tacit.scan.excerpt import Excerpt, excerpt

KEPT = 20


@dataclass
class Sampler:
    """Watches records, and keeps excerpts of some that hold a secret."""

    policy: Policy
    _kept: list[tuple[bytes, int, Excerpt]] = field(default_factory=list)

    def watching(self, records: Iterable[Record]) -> Iterator[Record]:
        """The same records, each seen."""
        for number, record in enumerate(records, 1):
            self._see(record, number)
            yield record

    def excerpts(self) -> tuple[Excerpt, ...]:
        """What was kept, in the order of the hashes."""
        return tuple(shown for _, _, shown in self._kept)

    def _see(self, record: Record, number: int) -> None:
        key = hashlib.blake2b(record.id.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        if len(self._kept) == KEPT and key >= self._kept[-1][0]:
            return
        try:
            found = self.policy.find(record)
        except TacitError:
            return  # whoever prepares it says so
        if found:
            insort(
                self._kept, (key, number, excerpt(record, found, number, show_secrets=False)), key=lambda one: one[:2]
            )
            del self._kept[KEPT:]


@dataclass(frozen=True, slots=True)
class Inside:
    """What a page that stays in the house shows of training records: excerpts, and how often each kind was marked."""

    excerpts: tuple[Excerpt, ...]
    kinds: tuple[tuple[str, int], ...]

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {"excerpts": [one.to_json() for one in self.excerpts], "kinds": [list(one) for one in self.kinds]}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "Inside":
        """What `to_json` wrote."""
        try:
            kinds = tuple((str(kind), int(count)) for kind, count in value["kinds"])
            return cls(tuple(Excerpt.from_json(one) for one in value["excerpts"]), kinds)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise PolicyError(
                expected="a sample as tacit writes it",
                found=f"{type(error).__name__} while reading it",
                way_out="use a run folder that nobody changed",
            ) from error
