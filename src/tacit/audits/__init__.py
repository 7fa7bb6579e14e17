"""Attacks and what they prove."""
