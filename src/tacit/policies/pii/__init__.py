"""The policy `pii`: personal data found by rules."""
