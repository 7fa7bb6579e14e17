"""The ledger: what was done, priced, written and synced before it took effect."""

from tacit.ledger.book import Ledger, read_entries
from tacit.ledger.lines import Entries

__all__ = ["Entries", "Ledger", "read_entries"]
