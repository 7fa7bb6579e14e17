"""What is secret: finding it, marking a corpus with it, measuring it."""
