"""What exists only to reproduce the papers as printed."""
