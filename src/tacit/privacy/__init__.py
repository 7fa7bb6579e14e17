"""The theory: events, plans and their cost, accounting, ledger, guarantee. Never torch, never data."""
