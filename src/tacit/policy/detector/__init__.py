"""Context detectors as policies: a frozen classifier that says which sentences, turns or records may hold a secret."""
