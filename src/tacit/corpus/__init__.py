"""Corpora: records and spans, reading them from files, splitting them, simulating them."""
