"""tacit: language models that learn from a corpus without saying its secrets, and the proof."""
