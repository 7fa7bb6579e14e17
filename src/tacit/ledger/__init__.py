"""The ledger: what was done, priced, written and synced before it took effect."""

from tacit.ledger.book import Entries, Ledger, read_entries

__all__ = ["Entries", "Ledger", "read_entries"]
