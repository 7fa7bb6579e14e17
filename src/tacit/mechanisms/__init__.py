"""One file per mechanism; nobody else knows their names."""
