"""Policies: what is secret in a record, and how well that is known."""
