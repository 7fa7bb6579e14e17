"""The ledger: what was done, priced, written and synced before it took effect."""

from tacit.ledger.book import Ledger, read_entries, read_lines
from tacit.ledger.lines import Entries, Parsed

__all__ = ["Entries", "Ledger", "Parsed", "read_entries", "read_lines"]
