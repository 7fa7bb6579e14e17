"""Which corpus it is: a keyed hash of all that its records hold, in their order."""

from tacit.corpus.record import Record
from tacit.digests import Keyed


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
