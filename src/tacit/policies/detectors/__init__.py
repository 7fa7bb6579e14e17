"""Detectors: classifiers that flag a secret's context, trained from prompts."""
