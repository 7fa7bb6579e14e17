"""One attack per file."""
