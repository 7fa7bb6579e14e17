"""Scanning: what a policy finds in a corpus, on all cores."""
