"""Pages from run folders; no model, no clock, no network."""
